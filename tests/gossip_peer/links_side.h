// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gossip_peer/peer_cluster.h"

namespace starling::testing {

// The links of one member, and what they told.
struct Side {
  Side(PeerCluster& cluster, std::size_t index, gossip::PeerLinks::Options options,
       gossip::RelayLine::Carrier carrier = {})
      : loop(cluster.loop) {
    options.backoff = {.minimum = std::chrono::milliseconds(1),
                       .maximum = std::chrono::milliseconds(20)};
    links = std::make_unique<gossip::PeerLinks>(
        gossip::PeerLinks::World{cluster.loop, cluster.clock, cluster.log,
                                 *cluster.peers[index]->identity},
        options,
        gossip::PeerLinks::Handlers{
            .hello = [] { return protocol::PeerHello{.epoch = 1}; },
            .on_up = [this](protocol::Member member,
                            const protocol::PeerHello&) { ups.push_back(member); },
            .on_down = [this](protocol::Member,
                              const Error& error) { downs.emplace_back(error.code()); },
            .on_message = [this](protocol::Member,
                                 const protocol::Envelope& e) { messages.push_back(e.message); },
            .check = [](protocol::Member, const protocol::VectorTransfer&) -> Result<void> {
              return {};
            },
            .on_transfer =
                [this](protocol::Member from, gossip::TransferFlow::Whole whole) {
                  transfers.emplace_back(from, whole);
                }},
        std::move(carrier), Rng({.seed = index + 1, .purpose = Purpose::kBackoff}));
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side() { loop.run_task(links->stop()); }

  net::EventLoop& loop;
  std::vector<protocol::Member> ups;
  std::vector<std::string> downs;
  std::vector<protocol::Message> messages;
  std::vector<std::pair<protocol::Member, gossip::TransferFlow::Whole>> transfers;
  std::unique_ptr<gossip::PeerLinks> links;
};

inline std::shared_ptr<const identity::SignedRoster> shared(const identity::SignedRoster& roster) {
  return std::make_shared<const identity::SignedRoster>(roster);
}

}  // namespace starling::testing
