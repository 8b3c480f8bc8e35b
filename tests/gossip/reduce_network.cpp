// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip/reduce_network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

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

std::pair<Member, Member> pair_of(Member a, Member b) { return std::minmax({a, b}); }

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
    : world_(world), rng_({.seed = world.seed, .purpose = Purpose::kTest}) {
  for (Member m = 0; m < world.members; ++m) {
    nodes_.push_back(
        {.machine = AllReduceMachine(world.options, 1, m, member_names(world.members))});
  }
}

void ReduceNetwork::at(double seconds, std::function<void()> what) {
  queue_.schedule(after(seconds), std::move(what));
}

void ReduceNetwork::kill(Member victim) {
  if (!nodes_[victim].alive) return;
  nodes_[victim].alive = false;
  for (Member m = 0; m < nodes_.size(); ++m) {
    if (m == victim) continue;
    at(rng_.uniform() * world_.detection, [this, m, victim] { inform(m, victim, false); });
  }
}

void ReduceNetwork::cut(Member a, Member b, double seconds) {
  if (down_[pair_of(a, b)]) return;
  down_[pair_of(a, b)] = true;
  ++connection_[pair_of(a, b)];
  at(rng_.uniform() * seconds, [this, a, b] { inform(a, b, false); });
  at(rng_.uniform() * seconds, [this, a, b] { inform(b, a, false); });
  at(seconds, [this, a, b] {
    down_[pair_of(a, b)] = false;
    if (nodes_[a].alive && nodes_[b].alive) {
      inform(a, b, true);
      inform(b, a, true);
    }
  });
}

void ReduceNetwork::suspect(Member a, Member b, double seconds) {
  inform(a, b, false);
  at(seconds, [this, a, b] {
    // A broken connection is not believed whole: its own end says so.
    if (nodes_[b].alive && !down_[pair_of(a, b)]) inform(a, b, true);
  });
}

void ReduceNetwork::greet(Member a, Member b) {
  if (!nodes_[a].alive || !nodes_[b].alive || down_[pair_of(a, b)]) return;
  inform(a, b, true);
  inform(b, a, true);
}

void ReduceNetwork::pause(Member member, double seconds) {
  nodes_[member].paused_until = std::max(nodes_[member].paused_until, after(seconds));
  at(seconds, [this, member] {
    Node& node = nodes_[member];
    if (queue_.now() < node.paused_until) return;
    std::vector<Delivery> backlog = std::exchange(node.backlog, {});
    for (Delivery& delivery : backlog) deliver(delivery);
  });
}

void ReduceNetwork::restart(Member member, std::size_t exchanges, double seconds) {
  if (!nodes_[member].alive) return;
  trace_ += fmt::format("{:.3f} {} is started again\n", to_seconds(queue_.now().time_since_epoch()),
                        member);
  kill(member);
  nodes_[member].back = true;
  at(seconds, [this, member, exchanges] {
    Node& node = nodes_[member];
    node.alive = true;
    node.back = false;
    node.paused_until = {};
    node.backlog.clear();
    const std::size_t kept = node.began.size() - std::min(node.began.size(), exchanges);
    if (kept < node.began.size()) {
      node.next = node.began[kept];
      node.began.resize(kept);
      std::erase_if(node.finished, [&](const Finished& f) { return f.at >= node.next; });
    }
    for (Member m = 0; m < nodes_.size(); ++m) {
      if (m != member) ++connection_[pair_of(m, member)];
    }
    replace(member, Memory::kNone);
    for (Member m = 0; m < nodes_.size(); ++m) {
      if (m == member || !nodes_[m].alive || down_[pair_of(m, member)]) continue;
      inform(m, member, true);
      inform(member, m, true);
    }
  });
}

void ReduceNetwork::change_epoch(double spread) {
  for (Member m = 0; m < nodes_.size(); ++m) {
    const Epoch epoch = nodes_[m].epoch + 1;
    at(rng_.uniform() * spread, [this, m, epoch] { go_on_in(m, epoch); });
  }
}

// With what it was at, whose local steps are done.
void ReduceNetwork::go_on_in(Member member, Epoch epoch) {
  Node& node = nodes_[member];
  node.epoch = epoch;
  if (!node.alive) return;
  if (node.machine.busy()) {
    node.next = node.began.back();
    node.began.pop_back();
  }
  const bool is_fresh = node.machine.memory() == Memory::kNone;
  replace(member, is_fresh ? Memory::kNone : Memory::kButForOne);
  for (Member m = 0; m < nodes_.size(); ++m) {
    if (m == member || node.unreachable.contains(m) || !nodes_[m].alive) continue;
    inform(member, m, true);
    if (nodes_[m].epoch == epoch) inform(m, member, true);
  }
}

void ReduceNetwork::replace(Member member, Memory memory) {
  Node& node = nodes_[member];
  trace_ += fmt::format("{:.3f} {} begins at e{}/{} in epoch {}, memory {}\n",
                        to_seconds(queue_.now().time_since_epoch()), member, node.next.exchange,
                        node.next.backed, node.epoch, static_cast<int>(memory));
  forgot_ = true;
  node.machine = AllReduceMachine(world_.options, node.epoch, member, member_names(nodes_.size()),
                                  node.next, {}, memory);
  ++node.life;
  node.tick_at = {};
  begin_next(member, rng_.uniform() * world_.spread);
}

void ReduceNetwork::inform(Member member, Member about, bool reachable) {
  if (reachable) {
    deliver(*std::make_unique<Delivery>(Delivery{member, LinkUp{about, {}}, {}, 0, 0}));
  } else {
    deliver(*std::make_unique<Delivery>(Delivery{member, LinkDown{about}, {}, 0, 0}));
  }
}

void ReduceNetwork::tell(Member from, Member to, protocol::ReduceNote note) {
  note.epoch = nodes_[from].epoch;
  transmit(from, to, NoteReceived{from, std::move(note)}, 0);
}

Progress ReduceNetwork::place(Member member) const {
  const Node& node = nodes_[member];
  return node.machine.busy() ? node.began.back() : node.next;
}

std::vector<float> ReduceNetwork::input(Member member, Exchange exchange) const {
  Rng rng({.seed = world_.seed + 77 * exchange, .purpose = Purpose::kTest, .node = member + 1});
  std::vector<float> values(world_.floats);
  for (float& value : values) value = static_cast<float>(rng.below(200'001)) - 100'000.0F;
  return values;
}

double ReduceNetwork::latency() {
  const double slow = rng_.below(10) == 0 ? 10 : 1;
  return -std::log(1 - rng_.uniform()) * world_.latency * slow;
}

void ReduceNetwork::begin_next(Member member, double seconds) {
  Node& node = nodes_[member];
  const Progress next = node.next;
  if (next.exchange >= world_.exchanges) return;
  if (auto found = delays_.find({member, next.exchange}); found != delays_.end()) {
    seconds += found->second;
  }
  queue_.schedule(
      after(seconds),
      Delivery{member, Begin{next, share(input(member, next.exchange))}, {}, 0, 0, node.life});
}

bool ReduceNetwork::can_copy(const CatchUp& from) const {
  return std::ranges::any_of(from.donors, [&](Member m) { return nodes_[m].gives; });
}

bool ReduceNetwork::ended() const {
  return std::ranges::all_of(nodes_, [&](const Node& node) {
    if (!node.alive) return !node.back;
    if (!node.awaited) return true;
    return node.next.exchange >= world_.exchanges && !node.machine.busy();
  });
}

std::string ReduceNetwork::run() {
  for (Member a = 0; a < nodes_.size(); ++a) {
    for (Member b = 0; b < nodes_.size(); ++b) {
      if (a != b && !nodes_[a].unreachable.contains(b)) inform(a, b, true);
    }
  }
  for (Member m = 0; m < nodes_.size(); ++m) begin_next(m, rng_.uniform() * world_.spread);
  for (std::size_t events = 0; !ended(); ++events) {
    std::optional<Happening> happening = queue_.pop();
    if (!happening) return "nothing happens any more";
    if (to_seconds(queue_.now().time_since_epoch()) > world_.seconds_max || events > 400'000) {
      std::string text = "not ended:";
      for (Member m = 0; m < nodes_.size(); ++m) {
        if (!nodes_[m].alive || !nodes_[m].machine.busy()) continue;
        const auto waited = nodes_[m].machine.waiting_for();
        text += fmt::format(" {} at {} waits for {}", m, nodes_[m].next.exchange,
                            waited ? std::to_string(*waited) : "all");
      }
      return text;
    }
    if (auto* delivery = std::get_if<Delivery>(&*happening)) {
      deliver(*delivery);
    } else {
      std::get<std::function<void()>> (*happening)();
    }
  }
  return torn_;
}

void ReduceNetwork::deliver(Delivery& delivery) {
  Node& node = nodes_[delivery.to];
  if (!node.alive) return;
  if (queue_.now() < node.paused_until || !node.backlog.empty()) {
    node.backlog.push_back(std::move(delivery));
    return;
  }
  if (delivery.from) {
    const auto pair = pair_of(*delivery.from, delivery.to);
    if (delivery.connection != connection_[pair]) return;
    // Nothing of a dead member's connection after the news of its death.
    if (!nodes_[*delivery.from].alive && node.unreachable.contains(*delivery.from)) return;
  }
  if (auto* piece = std::get_if<PieceReceived>(&delivery.event)) {
    if (checksum_of(piece->floats.values) != delivery.checksum) {
      torn_ = "a piece was written after it had been sent";
    }
    // A copy, as if it had come from the network.
    std::vector<float> copy(piece->floats.values.begin(), piece->floats.values.end());
    const bool is_mean = piece->place >> 32 != static_cast<std::uint64_t>(Phase::kScatter);
    if (is_mean && changed_.contains({piece->from, delivery.to}) && !copy.empty()) copy[0] += 1;
    piece->floats = share(std::move(copy));
  }
  const bool is_own =
      std::holds_alternative<Begin>(delivery.event) || std::holds_alternative<Tick>(delivery.event);
  if (is_own && delivery.life != node.life) return;
  if (auto* begin = std::get_if<Begin>(&delivery.event)) {
    if (begin->at != node.next) return;  // it has taken another's model meanwhile
    if (node.began.empty() || node.began.back() < begin->at) node.began.push_back(begin->at);
    node.next = {begin->at.backed, begin->at.exchange + 1};  // or what it finishes with
  }
  if (auto* lost = std::get_if<LinkDown>(&delivery.event)) node.unreachable.insert(lost->member);
  if (auto* back = std::get_if<LinkUp>(&delivery.event)) node.unreachable.erase(back->member);
  if (std::holds_alternative<Tick>(delivery.event)) {
    node.tick_at = {};
    const auto due = node.machine.next_deadline();
    if (!due || *due > queue_.now()) return perform(delivery.to, {});
  }
  perform(delivery.to, node.machine.on(std::move(delivery.event), queue_.now()));
}

bool ReduceNetwork::transmit(Member from, Member to, Event event, std::size_t checksum) {
  const auto [first, last] = kills_.equal_range(messages_);
  for (auto it = first; it != last; ++it) kill(it->second);
  ++messages_;
  if (!nodes_[from].alive) return false;
  const auto pair = pair_of(from, to);
  if (down_[pair]) return true;
  TimePoint& arrival = last_arrival_[{from, to}];
  arrival = std::max({arrival + Duration(1), after(latency()), held_[{from, to}]});
  queue_.schedule(arrival, Delivery{to, std::move(event), from, connection_[pair], checksum});
  return true;
}

void ReduceNetwork::perform(Member member, std::vector<Action> actions) {
  Node& node = nodes_[member];
  for (Action& action : actions) {
    const bool is_sent =
        std::holds_alternative<SendNote>(action) || std::holds_alternative<SendPiece>(action);
    if (node.mute && is_sent) continue;
    if (auto* note = std::get_if<SendNote>(&action)) {
      if (forge && !forge(member, note->to, note->note)) continue;
      trace_ += fmt::format("{:.3f} {}>{} k{} e{}/{} a{} h{} o{} c{}{}{} [{}]\n",
                            to_seconds(queue_.now().time_since_epoch()), member, note->to,
                            static_cast<int>(note->note.kind), note->note.exchange,
                            note->note.backed, note->note.attempt, note->note.held,
                            note->note.other, note->note.count, note->note.fresh ? " fresh" : "",
                            note->note.weak ? " weak" : "", fmt::join(note->note.members, ","));
      if (!transmit(member, note->to, NoteReceived{member, note->note}, 0)) return;
    } else if (auto* piece = std::get_if<SendPiece>(&action)) {
      trace_ += fmt::format("{:.3f} {}>{} piece e{} a{} {:x}\n",
                            to_seconds(queue_.now().time_since_epoch()), member, piece->to,
                            piece->at.exchange, piece->attempt, piece->place);
      node.floats_sent += piece->floats.values.size();
      const std::size_t checksum = checksum_of(piece->floats.values);
      PieceReceived received{member,         node.epoch,   piece->at,
                             piece->attempt, piece->place, piece->floats};
      if (!transmit(member, piece->to, std::move(received), checksum)) return;
    } else if (auto* finished = std::get_if<Finished>(&action)) {
      trace_ += fmt::format("{} finished e{} a{} [{}]\n", member, finished->at.exchange,
                            finished->attempt, fmt::join(finished->members, ","));
      node.finished.push_back(*finished);
      if (finished->next.backed == finished->next.exchange) {
        ended_.try_emplace(finished->at.exchange, queue_.now());
      }
      node.next = finished->next;
      begin_next(member, rng_.uniform() * world_.spread);
    } else if (auto* catch_up = std::get_if<CatchUp>(&action)) {
      trace_ += fmt::format("{} catches up to e{}/{}\n", member, catch_up->next.exchange,
                            catch_up->next.backed);
      const bool fails =
          (world_.copies_fail > 0 && rng_.uniform() < world_.copies_fail) || !can_copy(*catch_up);
      node.next = fails ? node.began.back() : catch_up->next;
      if (!fails) {
        node.catch_ups.push_back(catch_up->next);
        (void)node.machine.on(Copied{}, queue_.now());
      }
      begin_next(member, rng_.uniform() * world_.spread + (fails ? world_.copy_seconds : 0));
    } else {
      said_.push_back(fmt::format("{}: {}", member, std::get<Say>(action).line));
    }
  }
  const std::optional<TimePoint> due = node.machine.next_deadline();
  if (due && (node.tick_at == TimePoint{} || *due < node.tick_at)) {
    node.tick_at = std::max(*due, queue_.now());
    queue_.schedule(node.tick_at, Delivery{member, Tick{}, {}, 0, 0, node.life});
  }
}

const Finished* ReduceNetwork::finished(Member member, Exchange exchange) const {
  const auto found = std::ranges::find(nodes_[member].finished, exchange,
                                       [](const Finished& f) { return f.at.exchange; });
  return found == nodes_[member].finished.end() ? nullptr : &*found;
}

std::string ReduceNetwork::wrong_results() const {
  std::map<std::pair<Progress, std::uint32_t>, const Finished*> by_attempt;
  std::map<Progress, const Finished*> backed;
  for (Member m = 0; m < nodes_.size(); ++m) {
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
      if (nodes_.size() <= 2 || result.next.backed != result.at.exchange + 1) continue;
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

std::string ReduceNetwork::disagreement() const {
  std::map<Exchange, const Finished*> by_exchange;
  for (Member m = 0; m < nodes_.size(); ++m) {
    if (!nodes_[m].alive) continue;
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
