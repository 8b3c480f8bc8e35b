// SPDX-License-Identifier: Apache-2.0
// A peer's machine alone: events in, actions out. It belongs to a node of a world of which nothing
// else runs; SetRoster and Prepare are answered at once, computations by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "gossip/peer/network_run.h"
#include "gossip/peer/peer_machine.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::testing {

class MachineBench {
 public:
  using Member = protocol::Member;

  explicit MachineBench(gossip::NetOptions options = gossip::testing::small_network("ring", 3),
                        Member place = 0)
      : world(options, 1),
        machine(listening(world.options), *world.peers[place]->identity,
                [this, place](const gossip::NetworkRun& run, Member self, std::uint64_t step,
                              std::optional<gossip::FallbackPace> pace) {
                  ++local_steps_made;
                  return std::make_shared<gossip::LocalSteps>(run, world.experiment.parts[place],
                                                              self, step, pace);
                }),
        wall(world.wall_now()) {}

  static gossip::PeerOptions listening(gossip::PeerOptions options) {
    options.listens = true;
    return options;
  }
  void feed(gossip::peer::Event event) {
    for (gossip::peer::Action& action : machine.on(std::move(event), now, wall)) {
      const auto* prepare = std::get_if<gossip::peer::Prepare>(&action);
      const bool renews = std::holds_alternative<gossip::peer::SetRoster>(action);
      if (const auto* compute = std::get_if<gossip::peer::Compute>(&action)) {
        computations.push_back(*compute);
        trainings += compute->what == gossip::peer::Compute::What::kTraining ? 1 : 0;
      }
      const auto wanted = prepare != nullptr ? std::optional(*prepare) : std::nullopt;
      actions.push_back(std::move(action));
      if (renews) feed(gossip::peer::LinksRenewed{links});
      if (wanted && prepares) feed(prepared(*wanted));
    }
  }
  gossip::peer::Prepared prepared(const gossip::peer::Prepare& wanted) {
    const identity::Roster& roster = wanted.roster->roster();
    return {roster.epoch, derive(roster), wanted.wants_checkpoint ? kept : std::nullopt};
  }
  Result<gossip::NetworkRun> derive(const identity::Roster& roster) const {
    const data::Dataset& dataset = *world.experiment.parts[0].dataset;
    return gossip::derive_run(roster, dataset.shape(), dataset.classes());
  }
  void give(const identity::SignedRoster& roster,
            gossip::peer::Source source = gossip::peer::Source::kIssuer) {
    feed(gossip::peer::RosterReceived{std::make_shared<const identity::SignedRoster>(roster),
                                      source});
  }
  void pass(Duration time) {
    now += time;
    wall += std::chrono::floor<std::chrono::milliseconds>(time);
  }
  void tick(Duration later = {}) {
    pass(later);
    feed(gossip::peer::Tick{});
  }
  // Of the computation that was asked for first.
  void compute() {
    ASSERT_FALSE(computations.empty());
    const gossip::peer::Compute next = computations.front();
    computations.pop_front();
    next.work();
    feed(gossip::peer::Computed{next.session});
  }
  void hear(Member from, protocol::Message message) {
    feed(gossip::peer::MessageReceived{from, {std::move(message), {}}});
  }
  // A neighbour's message of this exchange.
  void hear_model(Member from, protocol::Exchange exchange, float value = 0,
                  protocol::Support support = {}) {
    const std::size_t size = world.experiment.parameters();
    const protocol::VectorTransfer transfer{
        .epoch = machine.roster()->epoch,
        .content = protocol::MixMessage{.exchange = exchange, .first = size},
        .support = support};
    const std::vector<float> values(size, value);
    feed(gossip::peer::TransferReceived{
        from, {transfer, SharedBytes::own(to_bytes(as_bytes(std::span(values))))}});
  }
  // Answers what was asked of this member since clear() with columns of this value.
  void hear_columns(Member from, protocol::Exchange exchange, float value,
                    protocol::Support support = {}) {
    for (const auto& ask : sent<protocol::ColumnsAsk>(from)) {
      const std::vector<float> values(ask.end - ask.begin, value);
      const protocol::VectorTransfer transfer{
          .epoch = ask.epoch,
          .content =
              protocol::ModelColumns{
                  .exchange = exchange, .begin = ask.begin, .floats = values.size()},
          .support = support};
      if (!machine.check(from, transfer)) continue;
      feed(gossip::peer::TransferReceived{
          from, {transfer, SharedBytes::own(to_bytes(as_bytes(std::span(values))))}});
    }
  }
  protocol::PeerHello hello_of(protocol::Exchange exchange, bool begun = true) const {
    return {.epoch = machine.roster()->epoch, .exchange = exchange, .begun = begun};
  }

  // Of the actions since clear().
  template <class A>
  std::vector<A> of() const {
    std::vector<A> found;
    for (const auto& action : actions) {
      if (const auto* is = std::get_if<A>(&action)) found.push_back(*is);
    }
    return found;
  }
  template <class M>  // messages to one member
  std::vector<M> sent(Member to) const {
    std::vector<M> found;
    for (const auto& send : of<gossip::peer::Send>()) {
      const auto* message = std::get_if<M>(&send.message);
      if (send.to == to && message != nullptr) found.push_back(*message);
    }
    return found;
  }
  template <class C>
  struct Sent {
    C content;
    gossip::peer::SendTransfer send;
  };
  template <class C>
  std::vector<Sent<C>> transfers() const {
    std::vector<Sent<C>> found;
    for (const auto& send : of<gossip::peer::SendTransfer>()) {
      if (const auto* is = std::get_if<C>(&send.transfer.content)) found.push_back({*is, send});
    }
    return found;
  }
  bool said(std::string_view part) const {
    return std::ranges::any_of(of<gossip::peer::Say>(), [&](const auto& say) {
      return say.line.find(part) != std::string::npos;
    });
  }
  void clear() { actions.clear(); }
  std::string state() const { return machine.report(now, wall).state; }
  protocol::Exchange exchange() const { return machine.report(now, wall).exchange; }

  PeerWorld world;
  gossip::PeerMachine machine;
  TimePoint now{};
  WallTime wall;
  std::vector<std::pair<Member, protocol::PeerHello>> links;  // as LinksRenewed says
  bool prepares = true;
  std::optional<gossip::Checkpoint> kept;  // on the disk
  std::vector<gossip::peer::Action> actions;
  std::deque<gossip::peer::Compute> computations;
  int trainings = 0;  // asked for
  int local_steps_made = 0;
};

}  // namespace starling::testing
