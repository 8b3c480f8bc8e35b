// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip_peer/exchange_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace starling::gossip::testing {

using namespace exchange;

ExchangeNetwork::ExchangeNetwork(const World& world)
    : world_(world), rng_({.seed = world.seed}), nodes_(world.members) {
  auto made = topologies::Topology::make(
      {.spec = world.topology, .nodes = static_cast<topologies::Node>(world.members)});
  STARLING_CHECK(made.has_value());
  topology_ = std::move(*made);
  for (Member member = 0; member < world.members; ++member) start(member, 0);
  for (Member a = 0; a < world.members; ++a) {
    for (Member b = 0; b < a; ++b) connect(a, b);
  }
}

void ExchangeNetwork::at(double seconds, std::function<void()> what) {
  queue_.schedule(TimePoint{} + from_seconds(seconds), std::move(what));
}

void ExchangeNetwork::after(double seconds, std::function<void()> what) {
  queue_.schedule(queue_.now() + from_seconds(seconds), std::move(what));
}

Exchange ExchangeNetwork::exchange(Member member) const {
  return nodes_[member].machine->exchange();
}

protocol::Support ExchangeNetwork::support(Member member) const {
  return nodes_[member].machine->support(queue_.now());
}

// --- faults -------------------------------------------------------------------------------------

bool ExchangeNetwork::is_cut(Member a, Member b) const {
  return pulled_.contains(a) != pulled_.contains(b);
}

void ExchangeNetwork::split(Member border, double seconds) {
  std::set<Member> below;
  for (Member member = 0; member < border; ++member) below.insert(member);
  pull(below, seconds);
}

void ExchangeNetwork::pull(const std::set<Member>& members, double seconds) {
  pulled_ = members;
  healed_ = queue_.now() + from_seconds(seconds);
  after(seconds, [this] { pulled_.clear(); });
  for (Member a = 0; a < nodes_.size(); ++a) {
    for (Member b = 0; b < nodes_.size(); ++b) {
      if (!is_cut(a, b)) continue;
      later(a, std::min(seconds, drawn(world_.detection)), Reach{b, false});
      later(a, seconds + drawn(0.5), Reach{b, true});
    }
  }
}

void ExchangeNetwork::kill(Member member, double away, Exchange age) {
  Node& node = nodes_[member];
  if (!node.machine) return;
  const Exchange from = node.machine->exchange() - std::min(node.machine->exchange(), age);
  end(member);
  for (Member other = 0; other < nodes_.size(); ++other) {
    if (other == member) continue;
    ++link_[std::minmax(member, other)];
    later(other, drawn(world_.latency), LinkDown{member});
  }
  after(away, [this, member, from] {
    start(member, from);
    for (Member other = 0; other < nodes_.size(); ++other) {
      if (other != member) connect(member, other);
    }
  });
}

void ExchangeNetwork::lie(Member member, Exchange claim) {
  for (Member other = 0; other < nodes_.size(); ++other) {
    if (other != member)
      send(member, other, HelloReceived{member, claim, true, {.quorum_seconds = 3600}});
  }
}

void ExchangeNetwork::end(Member member) {
  ++nodes_[member].life;
  nodes_[member].machine.reset();
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
  for (Member other = 0; other < nodes_.size(); ++other) {
    if (other == member) continue;
    later(other, drawn(world_.latency), LinkDown{member});
    later(other, drawn(world_.detection), Reach{member, false});
  }
}

Traffic ExchangeNetwork::traffic() const {
  Traffic sum;
  for (const Node& node : nodes_) {
    if (node.machine) sum += node.machine->traffic();
  }
  return sum;
}

std::size_t ExchangeNetwork::copies() const {
  std::size_t sum = 0;
  for (const Node& node : nodes_) sum += node.copies;
  return sum;
}

void ExchangeNetwork::start(Member member, Exchange from) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < nodes_.size(); ++i) names.push_back(fmt::format("node-{}", i));
  ExchangeOptions options = world_.options;
  options.run_age = queue_.now() - TimePoint{};
  nodes_[member].machine =
      std::make_unique<ExchangeMachine>(options, *topology_, member, names, from, queue_.now());
  nodes_[member].finished = false;
  forget_mixed(member);
  nodes_[member].alarm = {};
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
    if (!nodes_[a].linked && nodes_[b].machine) on(b, LinkDown{a});
    if (!nodes_[b].linked && nodes_[a].machine) on(a, LinkDown{b});
    if (!nodes_[a].machine || !nodes_[b].machine) return;
    ++link_[std::minmax(a, b)];
    tell(a, b);
    tell(b, a);
  });
}

void ExchangeNetwork::tell(Member from, Member to) {
  send(from, to, HelloReceived{from, exchange(from), true, support(from)});
  for (const Arrival& arrival : nodes_[from].sent[to]) send(from, to, MessageReceived{arrival});
  later(from, 0, LinkUp{to});
}

// --- events -------------------------------------------------------------------------------------

void ExchangeNetwork::later(Member member, double seconds, Event event) {
  after(seconds, [this, member, life = nodes_[member].life, event = std::move(event)] {
    if (nodes_[member].life == life && nodes_[member].machine) on(member, event);
  });
}

void ExchangeNetwork::send(Member from, Member to, const Event& event) {
  if (world_.loss > 0 && !std::holds_alternative<HelloReceived>(event) &&
      rng_.uniform() < world_.loss)
    return;
  TimePoint when = is_cut(from, to) ? healed_ : queue_.now();
  when += from_seconds(-world_.latency * std::log1p(-rng_.uniform()));
  TimePoint& last = last_[{from, to}];
  last = when = std::max(last, when);
  const std::pair<Member, Member> pair = std::minmax(from, to);
  queue_.schedule(when, [this, from, to, pair, link = link_[pair], event] {
    if (link_[pair] != link || !nodes_[to].machine) return;
    const auto* came = std::get_if<MessageReceived>(&event);
    if (came == nullptr || nodes_[to].machine->wants(from, came->arrival.message.exchange)) {
      on(to, event);
    } else {
      on(to,
         MessageUnused{came->arrival.from, came->arrival.message.exchange, came->arrival.support});
    }
  });
}

void ExchangeNetwork::on(Member member, const Event& event) {
  const auto actions = nodes_[member].machine->on(event, queue_.now());
  for (const Action& action : actions) perform(member, action);
  wake(member);
}

void ExchangeNetwork::wake(Member member) {
  Node& node = nodes_[member];
  const auto deadline = node.machine->next_deadline();
  if (!deadline || (node.alarm > queue_.now() && node.alarm <= *deadline)) return;
  node.alarm = *deadline;
  queue_.schedule(*deadline, [this, member, life = node.life] {
    if (nodes_[member].life == life && nodes_[member].machine) on(member, Tick{});
  });
}

void ExchangeNetwork::perform(Member self, const Action& action) {
  if (const auto* train = std::get_if<Train>(&action)) {
    const Exchange next =
        nodes_[self].trained_for ? *nodes_[self].trained_for + 1 : train->exchange;
    nodes_[self].skipped += train->exchange - std::min(next, train->exchange);
    nodes_[self].trained_for = train->exchange;
    const double work = train->steps * drawn(world_.work) + slowness_[self];
    nodes_[self].trained = queue_.now() + from_seconds(work);
    later(self, work, Trained{});
  } else if (const auto* announce = std::get_if<Announce>(&action)) {
    perform(self, *announce);
  } else if (const auto* ask = std::get_if<Ask>(&action)) {
    if (nodes_[ask->to].machine) send(self, ask->to, Asked{self, ask->exchange, support(self)});
  } else if (const auto* answer = std::get_if<Answer>(&action)) {
    if (nodes_[answer->to].machine) {
      send(self, answer->to,
           Answered{self, answer->asked, answer->exchange, answer->sent, support(self)});
    }
  } else if (const auto* mix = std::get_if<Mix>(&action)) {
    perform(self, *mix);
  } else if (const auto* copy = std::get_if<Copy>(&action)) {
    ++nodes_[self].copies;
    forget_mixed(self);
    const Member donor = copy->donors.front();
    std::optional<Exchange> given;
    if (nodes_[donor].machine && !is_cut(self, donor)) given = exchange(donor);
    later(self, drawn(0.02), Copied{given});
  } else if (std::holds_alternative<Finish>(action)) {
    nodes_[self].finished = true;
  }
}

void ExchangeNetwork::perform(Member self, const Announce& announce) {
  const protocol::MixMessage message{
      .exchange = announce.exchange, .era = announce.era, .next_era = announce.next_era};
  auto& sent = nodes_[self].sent[announce.to];
  while (!sent.empty() &&
         sent.front().message.exchange + world_.options.resent < announce.exchange) {
    sent.pop_front();
  }
  sent.push_back({self, message, support(self), {}});
  if (nodes_[announce.to].machine) send(self, announce.to, MessageReceived{sent.back()});
}

void ExchangeNetwork::perform(Member self, const Mix& mix) {
  const Node& node = nodes_[self];
  const auto senders = node.machine->matrix().senders(self);
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
  waits_.push_back({self, mix.exchange, to_seconds(queue_.now() - node.trained), complete});
  later(self, 0.0001, Mixed{});
}

std::string ExchangeNetwork::run() {
  const auto finished = [](const Node& node) {
    return node.gone || (node.machine && node.finished);
  };
  while (!std::ranges::all_of(nodes_, finished)) {
    const auto next = queue_.pop();
    if (!next) return "nothing happens any more";
    if (now() > world_.seconds_max) return fmt::format("not finished after {} s", now());
    (*next)();
  }
  return "";
}

}  // namespace starling::gossip::testing
