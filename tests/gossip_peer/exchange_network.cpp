// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip_peer/exchange_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace starling::gossip::testing {

using namespace exchange;

ExchangeNetwork::ExchangeNetwork(const World& world)
    : MachineNetwork(world.members, {.seed = world.seed}), world_(world), nodes_(world.members) {
  set_loss(world.loss);
  auto made = topologies::Topology::make(
      {.spec = world.topology, .nodes = static_cast<topologies::Node>(world.members)});
  STARLING_CHECK(made.has_value());
  topology_ = std::move(*made);
  for (Member member = 0; member < world.members; ++member) begin(member, 0);
  for (Member a = 0; a < world.members; ++a) {
    for (Member b = 0; b < a; ++b) connect(a, b);
  }
}

Duration ExchangeNetwork::latency(Member) {
  return from_seconds(-world_.latency * std::log1p(-rng().uniform()));
}

// --- faults -------------------------------------------------------------------------------------

void ExchangeNetwork::split(Member border, double seconds) {
  std::set<Member> below;
  for (Member member = 0; member < border; ++member) below.insert(member);
  pull(below, seconds);
}

void ExchangeNetwork::pull(const std::set<Member>& pulled, double seconds) {
  for (Member a = 0; a < members(); ++a) {
    for (Member b = 0; b < members(); ++b) {
      if (pulled.contains(a) == pulled.contains(b)) continue;
      hold(a, b, seconds);
      later(a, std::min(seconds, drawn(world_.detection)), Reach{b, false});
      later(a, seconds + drawn(0.5), Reach{b, true});
    }
  }
}

void ExchangeNetwork::restart(Member member, double away, Exchange age) {
  if (!alive(member)) return;
  const Exchange from = exchange(member) - std::min(exchange(member), age);
  end(member);
  for (Member other = 0; other < members(); ++other) {
    if (other == member) continue;
    reset(member, other);
    later(other, drawn(world_.latency), LinkDown{member});
  }
  after(away, [this, member, from] {
    begin(member, from);
    for (Member other = 0; other < members(); ++other) {
      if (other != member) connect(member, other);
    }
  });
}

void ExchangeNetwork::lie(Member member, Exchange claim) {
  for (Member other = 0; other < members(); ++other) {
    if (other == member) continue;
    send(member, other, HelloReceived{member, claim, true, {.quorum_seconds = 3600}});
  }
}

void ExchangeNetwork::end(Member member) {
  kill(member);
  nodes_[member].finished = false;
  nodes_[member].sent.clear();
}

void ExchangeNetwork::replace_by_liar(Member member) {
  end(member);
  nodes_[member].gone = true;
}

void ExchangeNetwork::die(Member member) {
  end(member);
  nodes_[member].gone = true;
  nodes_[member].linked = false;
  for (Member other = 0; other < members(); ++other) {
    if (other == member) continue;
    later(other, drawn(world_.latency), LinkDown{member});
    later(other, drawn(world_.detection), Reach{member, false});
  }
}

Traffic ExchangeNetwork::traffic() const {
  Traffic sum;
  for (Member member = 0; member < members(); ++member) {
    if (alive(member)) sum += machine(member).traffic();
  }
  return sum;
}

std::size_t ExchangeNetwork::copies() const {
  std::size_t sum = 0;
  for (const Node& node : nodes_) sum += node.copies;
  return sum;
}

void ExchangeNetwork::begin(Member member, Exchange from) {
  std::vector<std::string> names;
  for (Member m = 0; m < members(); ++m) names.push_back(fmt::format("node-{}", m));
  ExchangeOptions options = world_.options;
  options.new_process = true;
  options.run_age = now() - TimePoint{};
  forget_mixed(member);
  start(member, options, *topology_, member, names, from, now());
  later(member, 0, Begin{});
}

// Its exchanges may begin anew.
void ExchangeNetwork::forget_mixed(Member member) {
  std::erase_if(mixed_, [member](const auto& entry) {
    return entry.first.first == member || entry.first.second == member;
  });
}

// A hello each way, then what was sent lately once more, as a protocol does it.
void ExchangeNetwork::connect(Member a, Member b) {
  after(drawn(0.05), [this, a, b] {
    if (!nodes_[a].linked) feed(b, LinkDown{a});
    if (!nodes_[b].linked) feed(a, LinkDown{b});
    if (!alive(a) || !alive(b)) return;
    reset(a, b);
    reset(b, a);
    greet(a, b);
    greet(b, a);
  });
}

void ExchangeNetwork::greet(Member from, Member to) {
  send(from, to, HelloReceived{from, exchange(from), true, support(from)});
  for (const Arrival& arrival : nodes_[from].sent[to]) send_message(to, arrival);
  later(from, 0, LinkUp{to});
}

// --- actions ------------------------------------------------------------------------------------

void ExchangeNetwork::send_message(Member to, const Arrival& arrival) {
  if (is_lost()) return;
  send(arrival.from, to, [this, to, arrival] {
    const Exchange exchange = arrival.message.exchange;
    if (machine(to).wants(arrival.from, exchange)) {
      feed(to, MessageReceived{arrival});
    } else {
      feed(to, MessageUnused{arrival.from, exchange, arrival.support});
    }
  });
}

void ExchangeNetwork::perform(Member self, Action& action) {
  if (const auto* train = std::get_if<Train>(&action)) {
    const Exchange next =
        nodes_[self].trained_for ? *nodes_[self].trained_for + 1 : train->exchange;
    nodes_[self].skipped += train->exchange - std::min(next, train->exchange);
    nodes_[self].trained_for = train->exchange;
    const double work = train->steps * drawn(world_.work) + slowness_[self];
    nodes_[self].trained = now() + from_seconds(work);
    later(self, work, Trained{});
  } else if (const auto* announced = std::get_if<Announce>(&action)) {
    announce(self, *announced);
  } else if (const auto* ask = std::get_if<Ask>(&action)) {
    if (!is_lost()) send(self, ask->to, Asked{self, ask->exchange, support(self)});
  } else if (const auto* answer = std::get_if<Answer>(&action)) {
    if (is_lost()) return;
    send(self, answer->to,
         Answered{self, answer->asked, answer->exchange, answer->sent, support(self)});
  } else if (const auto* full = std::get_if<Mix>(&action)) {
    mix(self, *full);
  } else if (const auto* copy = std::get_if<Copy>(&action)) {
    ++nodes_[self].copies;
    forget_mixed(self);
    const Member donor = copy->donors.front();
    std::optional<Exchange> given;
    if (alive(donor) && !is_held(donor, self)) given = exchange(donor);
    later(self, drawn(0.02), Copied{given, given ? copy->donors.size() : 0});
  } else if (std::holds_alternative<Finish>(action)) {
    nodes_[self].finished = true;
  }
}

void ExchangeNetwork::announce(Member self, const Announce& announced) {
  const protocol::MixMessage message{.exchange = announced.exchange, .state = announced.eras};
  auto& sent = nodes_[self].sent[announced.to];
  while (!sent.empty() &&
         sent.front().message.exchange + world_.options.resent < announced.exchange) {
    sent.pop_front();
  }
  sent.push_back({self, message, support(self), {}});
  send_message(announced.to, sent.back());
}

void ExchangeNetwork::mix(Member self, const Mix& mix) {
  const auto senders = machine(self).matrix().senders(self);
  bool complete = true;
  for (std::size_t i = 0; i < senders.size(); ++i) {
    complete = complete && mix.inbox[i].has_value();
    Exchange& silent = silent_[{senders[i].node, self}];
    silent = mix.inbox[i] ? 0 : silent + 1;
    longest_silence_ = std::max(longest_silence_, silent);
    if (!mix.inbox[i]) continue;
    ++filled_entries_;
    const Exchange of = mix.inbox[i]->message.exchange;
    const Exchange late_max = world_.options.loss_safe ? kLateExchangesMax : 0;
    Exchange& mixed = mixed_[{senders[i].node, self}];
    const bool right = mix.inbox[i]->from == senders[i].node && of <= mix.exchange &&
                       of + late_max >= mix.exchange && of >= mixed;
    if (!right) ++wrong_entries_;
    mixed = of + 1;
  }
  waits_.push_back({self, mix.exchange, to_seconds(now() - nodes_[self].trained), complete});
  later(self, 0.0001, Mixed{});
}

std::string ExchangeNetwork::run() {
  const auto finished = [](const Node& node) { return node.gone || node.finished; };
  const bool all_finished = run_until(TimePoint{} + from_seconds(world_.seconds_max),
                                      [&] { return std::ranges::all_of(nodes_, finished); });
  return all_finished ? "" : fmt::format("not finished after {} s", elapsed());
}

}  // namespace starling::gossip::testing
