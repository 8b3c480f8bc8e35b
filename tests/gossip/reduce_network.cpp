// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip/reduce_network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "core/wire/message_rules.h"

namespace starling::collective::testing {
namespace {

std::size_t checksum_of(std::span<const float> values) {
  return std::hash<std::string_view>{}(
      {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

std::string describe(const reduce::Register& its) {
  return fmt::format(
      "registers{}{}{}, lacks [{}]",
      its.held ? fmt::format(", holds a{}{}", its.held->attempt, its.held->weak ? " weak" : "")
               : "",
      its.blame ? fmt::format(", blames {} after {}", its.blame->member, its.blame->pieces) : "",
      its.fresh ? ", fresh" : "", fmt::join(its.lost, ","));
}

std::string describe(const reduce::List& its) {
  return fmt::format("list [{}]{}{}", fmt::join(its.members, ","), its.weak ? " weak" : "",
                     its.apart ? fmt::format(" apart from {}", *its.apart) : "");
}

std::string describe(const reduce::Standing& its) {
  return fmt::format("standing a{} [{}]{} of {}", its.mean.attempt,
                     fmt::join(its.mean.members, ","), its.mean.weak ? " weak" : "", its.holder);
}

std::string describe(const reduce::Commit& its) {
  return fmt::format("commit [{}] held by {}, {} has it", fmt::join(its.members, ","), its.support,
                     its.holder);
}

std::string describe(const reduce::Ahead& its) {
  return fmt::format("ahead [{}]", fmt::join(its.donors, ","));
}

std::string describe(const reduce::Done&) { return "done"; }
std::string describe(const reduce::Want&) { return "want"; }
std::string describe(const reduce::NotYet&) { return "not yet"; }
std::string describe(const reduce::Ask&) { return "ask"; }
std::string describe(const reduce::AskProgress&) { return "ask progress"; }
std::string describe(const reduce::Wait&) { return "wait"; }

}  // namespace

std::vector<std::string> member_names(std::size_t members) {
  std::vector<std::string> names;
  for (std::size_t m = 0; m < members; ++m) names.push_back(fmt::format("member {}", m));
  return names;
}

std::vector<float> mean_of(const std::vector<std::vector<float>>& inputs) {
  std::vector<float> mean(inputs.front().size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double sum = 0;
    for (const std::vector<float>& input : inputs) sum += static_cast<double>(input[i]);
    mean[i] = static_cast<float>(sum) / static_cast<float>(inputs.size());
  }
  return mean;
}

ReduceNetwork::ReduceNetwork(const World& world)
    : MachineNetwork(world.members, {.seed = world.seed, .purpose = Purpose::kTest}),
      world_(world),
      nodes_(world.members) {
  for (Member m = 0; m < members(); ++m) start(m, world.options, 1, m, member_names(members()));
}

void ReduceNetwork::kill(Member victim) {
  if (!alive(victim)) return;
  MachineNetwork::kill(victim);
  for (Member m = 0; m < members(); ++m) {
    if (m == victim) continue;
    after(rng().uniform() * world_.detection, [this, m, victim] { inform(m, victim, false); });
  }
}

void ReduceNetwork::disconnect(Member a, Member b, double seconds) {
  if (is_cut(a, b)) return;
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    cut(from, to);
    reset(from, to);
    after(rng().uniform() * seconds, [this, from, to] { inform(from, to, false); });
  }
  after(seconds, [this, a, b] {
    mend(a, b);
    mend(b, a);
    greet(a, b);
  });
}

void ReduceNetwork::suspect(Member a, Member b, double seconds) {
  inform(a, b, false);
  after(seconds, [this, a, b] {
    // A broken connection is not believed whole: its own end says so.
    if (alive(b) && !is_cut(a, b)) inform(a, b, true);
  });
}

void ReduceNetwork::greet(Member a, Member b) {
  if (!alive(a) || !alive(b) || is_cut(a, b)) return;
  inform(a, b, true);
  inform(b, a, true);
}

void ReduceNetwork::restart(Member member, std::size_t exchanges, double seconds) {
  if (!alive(member)) return;
  trace_ += fmt::format("{:.3f} {} is started again\n", elapsed(), member);
  kill(member);
  nodes_[member].back = true;
  after(seconds, [this, member, exchanges] {
    Node& node = nodes_[member];
    node.back = false;
    const std::size_t kept = node.began.size() - std::min(node.began.size(), exchanges);
    if (kept < node.began.size()) {
      node.next = node.began[kept];
      node.began.resize(kept);
      std::erase_if(node.finished, [&](const Finished& f) { return f.at >= node.next; });
    }
    for (Member m = 0; m < members(); ++m) reset(member, m);
    start(member, make_machine(member, Memory::kNone));
    begin_next(member, rng().uniform() * world_.spread);
    for (Member m = 0; m < members(); ++m) {
      if (m != member) greet(m, member);
    }
  });
}

void ReduceNetwork::change_epoch(double spread) {
  for (Member m = 0; m < members(); ++m) {
    const Epoch epoch = nodes_[m].epoch + 1;
    after(rng().uniform() * spread, [this, m, epoch] { go_on_in(m, epoch); });
  }
}

// With what it was at, whose local steps are done.
void ReduceNetwork::go_on_in(Member member, Epoch epoch) {
  Node& node = nodes_[member];
  node.epoch = epoch;
  if (!alive(member)) return;
  if (machine(member).busy()) {
    node.next = node.began.back();
    node.began.pop_back();
  }
  const bool is_fresh = machine(member).memory() == Memory::kNone;
  replace(member, make_machine(member, is_fresh ? Memory::kNone : Memory::kButForOne));
  begin_next(member, rng().uniform() * world_.spread);
  for (Member m = 0; m < members(); ++m) {
    if (m == member || node.unreachable.contains(m) || !alive(m)) continue;
    inform(member, m, true);
    if (nodes_[m].epoch == epoch) inform(m, member, true);
  }
}

AllReduceMachine ReduceNetwork::make_machine(Member member, Memory memory) {
  const Node& node = nodes_[member];
  trace_ += fmt::format("{:.3f} {} begins at e{}/{} in epoch {}, memory {}\n", elapsed(), member,
                        node.next.exchange, node.next.backed, node.epoch, static_cast<int>(memory));
  forgot_ = true;
  return {world_.options, node.epoch, member, member_names(members()), node.next, {}, memory};
}

void ReduceNetwork::inform(Member member, Member about, bool reachable) {
  on_turn(member, [this, member, about, reachable] {
    if (reachable) {
      nodes_[member].unreachable.erase(about);
      feed(member, LinkUp{about, {}});
    } else {
      nodes_[member].unreachable.insert(about);
      if (!alive(about)) reset(about, member);  // nothing of the dead comes after the news
      feed(member, LinkDown{about});
    }
  });
}

void ReduceNetwork::tell(Member from, Member to, Note note) {
  note.epoch = nodes_[from].epoch;
  transmit(from, to, [this, to, event = NoteReceived{from, std::move(note)}] { feed(to, event); });
}

Progress ReduceNetwork::place(Member member) const {
  const Node& node = nodes_[member];
  return machine(member).busy() ? node.began.back() : node.next;
}

std::vector<float> ReduceNetwork::input(Member member, Exchange exchange) const {
  Rng rng({.seed = world_.seed + 77 * exchange, .purpose = Purpose::kTest, .node = member + 1});
  std::vector<float> values(world_.floats);
  for (float& value : values) value = static_cast<float>(rng.below(200'001)) - 100'000.0F;
  return values;
}

Duration ReduceNetwork::latency(Member) {
  const double slow = rng().below(10) == 0 ? 10 : 1;
  return from_seconds(-std::log(1 - rng().uniform()) * world_.latency * slow);
}

void ReduceNetwork::begin_next(Member member, double seconds) {
  const Progress at = nodes_[member].next;
  if (at.exchange >= world_.exchanges) return;
  const auto delay = delays_.find({member, at.exchange});
  if (delay != delays_.end()) seconds += delay->second;
  later(member, in(seconds), [this, member, at] {
    Node& node = nodes_[member];
    if (at != node.next) return;  // it has taken another's model meanwhile
    if (node.began.empty() || node.began.back() < at) node.began.push_back(at);
    node.next = {at.backed, at.exchange + 1};  // or what it finishes with
    feed(member, Begin{at, share(input(member, at.exchange)), world_.distance_max});
  });
}

bool ReduceNetwork::ended() const {
  for (Member m = 0; m < members(); ++m) {
    const Node& node = nodes_[m];
    if (!alive(m) ? node.back
                  : node.awaited && (node.next.exchange < world_.exchanges || machine(m).busy())) {
      return false;
    }
  }
  return true;
}

std::string ReduceNetwork::run() {
  for (Member a = 0; a < members(); ++a) {
    for (Member b = 0; b < members(); ++b) {
      if (a != b && !nodes_[a].unreachable.contains(b)) inform(a, b, true);
    }
  }
  for (Member m = 0; m < members(); ++m) begin_next(m, rng().uniform() * world_.spread);
  std::size_t events = 0;
  run_until(TimePoint{} + from_seconds(world_.seconds_max),
            [&] { return ended() || ++events > 400'000; });
  if (ended()) return torn_;
  std::string text = "not ended:";
  for (Member m = 0; m < members(); ++m) {
    if (!alive(m) || !machine(m).busy()) continue;
    const auto waited = machine(m).waiting_for();
    text += fmt::format(" {} at {} waits for {}", m, nodes_[m].next.exchange,
                        waited ? std::to_string(*waited) : "all");
  }
  return text;
}

void ReduceNetwork::transmit(Member from, Member to, Work arrive) {
  const auto [first, last] = kills_.equal_range(messages_);
  for (auto it = first; it != last; ++it) kill(it->second);
  ++messages_;
  if (alive(from)) send(from, to, std::move(arrive));
}

void ReduceNetwork::perform(Member self, Action& action) {
  std::visit([&](auto& its) { perform(self, its); }, action);
}

void ReduceNetwork::perform(Member self, const Say& said) {
  said_.push_back(fmt::format("{}: {}", self, said.line));
}

void ReduceNetwork::perform(Member self, SendNote& message) {
  Note& note = message.note;
  const auto fits = wire::check(note);  // else a real link would end
  EXPECT_TRUE(fits) << (fits ? "" : fits.error().message());
  if (nodes_[self].mute || (forge && !forge(self, message.to, note))) return;
  const std::string what = std::visit([](const auto& its) { return describe(its); }, note.what);
  trace_ += fmt::format("{:.3f} {}>{} e{}/{} a{} {}\n", elapsed(), self, message.to,
                        note.at.exchange, note.at.backed, note.attempt, what);
  transmit(self, message.to,
           [this, to = message.to, event = NoteReceived{self, note}] { feed(to, event); });
}

void ReduceNetwork::perform(Member self, const SendPiece& piece) {
  Node& node = nodes_[self];
  if (node.mute || !node.gives_pieces) return;
  trace_ += fmt::format("{:.3f} {}>{} piece e{} a{} {:x}\n", elapsed(), self, piece.to,
                        piece.at.exchange, piece.attempt, piece.place);
  node.floats_sent += piece.floats.values.size();
  Work arrives = [this, to = piece.to, checksum = checksum_of(piece.floats.values),
                  sent = PieceReceived{self, node.epoch, piece.at, piece.attempt, piece.place,
                                       piece.floats}] { arrive(to, sent, checksum); };
  if (node.pieces_late == 0 || piece.place < node.late_from)
    return transmit(self, piece.to, std::move(arrives));
  after(node.pieces_late, std::move(arrives));
}

void ReduceNetwork::arrive(Member to, PieceReceived piece, std::size_t checksum) {
  if (checksum_of(piece.floats.values) != checksum) {
    torn_ = "a piece was written after it had been sent";
  }
  // A copy, as if it had come from the network.
  std::vector<float> copy(piece.floats.values.begin(), piece.floats.values.end());
  const bool is_mean = piece.place >> 32 != static_cast<std::uint64_t>(Phase::kScatter);
  if (is_mean && changed_.contains({piece.from, to}) && !copy.empty()) copy[0] += 1;
  const auto spoilt = spoilt_.find({piece.from, to});
  if (spoilt != spoilt_.end()) std::ranges::fill(copy, spoilt->second);
  piece.floats = share(std::move(copy));
  feed(to, std::move(piece));
}

void ReduceNetwork::perform(Member self, const Finished& result) {
  trace_ += fmt::format("{} finished e{} a{} [{}]\n", self, result.at.exchange, result.attempt,
                        fmt::join(result.members, ","));
  nodes_[self].finished.push_back(result);
  if (result.next.backed == result.next.exchange) ended_.try_emplace(result.at.exchange, now());
  nodes_[self].next = result.next;
  begin_next(self, rng().uniform() * world_.spread);
}

void ReduceNetwork::perform(Member self, const CatchUp& further) {
  Node& node = nodes_[self];
  trace_ +=
      fmt::format("{} catches up to e{}/{}\n", self, further.next.exchange, further.next.backed);
  const bool fails =
      (world_.copies_fail > 0 && rng().uniform() < world_.copies_fail) ||
      std::ranges::none_of(further.donors, [&](Member m) { return nodes_[m].gives; });
  node.next = fails ? node.began.back() : further.next;
  if (!fails) {
    node.catch_ups.push_back(further.next);
    feed(self, Copied{});
  }
  begin_next(self, rng().uniform() * world_.spread + (fails ? world_.copy_seconds : 0));
}

const Finished* ReduceNetwork::finished(Member member, Exchange exchange) const {
  const auto found = std::ranges::find(nodes_[member].finished, exchange,
                                       [](const Finished& f) { return f.at.exchange; });
  return found == nodes_[member].finished.end() ? nullptr : &*found;
}

std::string ReduceNetwork::wrong_results() const {
  std::map<std::pair<Progress, std::uint32_t>, const Finished*> by_attempt;
  std::map<Progress, const Finished*> backed;
  for (Member m = 0; m < members(); ++m) {
    for (const Finished& result : nodes_[m].finished) {
      std::vector<std::vector<float>> inputs;
      for (Member from : result.members) inputs.push_back(input(from, result.at.exchange));
      if (!same_bits(result.mean.values, mean_of(inputs))) {
        return fmt::format("{}: exchange {} is not the mean of its members", m, result.at.exchange);
      }
      const auto [first, fresh] = by_attempt.try_emplace({result.at, result.attempt}, &result);
      // Numbers begin anew in each epoch, and where a gatherer forgot its own.
      if (!fresh && !forgot_ && first->second->members != result.members) {
        return fmt::format("{}: attempt {} has other members", m, result.attempt);
      }
      // What a majority holds is one mean, whoever else went on apart. Of two neither is one.
      if (members() <= 2 || result.next.backed != result.at.exchange + 1) continue;
      const auto [other, is_new] = backed.try_emplace(result.at, &result);
      if (!is_new && !same_bits(other->second->mean.values, result.mean.values)) {
        return fmt::format("{}: exchange {} has two means of a majority", m, result.at.exchange);
      }
    }
  }
  return "";
}

std::vector<double> ReduceNetwork::exchange_seconds() const {
  std::vector<double> seconds;
  TimePoint before{};
  for (const auto& [exchange, end] : ended_) {
    if (exchange > 0) seconds.push_back(to_seconds(end - before));
    before = end;
  }
  return seconds;
}

std::string ReduceNetwork::disagreement(std::optional<Member> but) const {
  std::map<Exchange, const Finished*> by_exchange;
  for (Member m = 0; m < members(); ++m) {
    if (!alive(m) || m == but) continue;
    for (const Finished& result : nodes_[m].finished) {
      const auto [first, fresh] = by_exchange.try_emplace(result.at.exchange, &result);
      const Finished& other = *first->second;
      if (other.members != result.members || !same_bits(other.mean.values, result.mean.values)) {
        return fmt::format("exchange {}: member {} has [{}], another [{}]", result.at.exchange, m,
                           fmt::join(result.members, ","), fmt::join(other.members, ","));
      }
    }
  }
  return "";
}

}  // namespace starling::collective::testing
