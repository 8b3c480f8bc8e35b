// SPDX-License-Identifier: Apache-2.0
// The device as a gossip peer: a node that begins when there is a roster, and what it exchanges
// with the roster's issuer over the device's one link to it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/issuer/roster_parts.h"
#include "edge_client/edge_options.h"
#include "edge_client/state_directory.h"
#include "edge_client/status_file.h"
#include "gossip/peer/peer_node.h"

namespace starling::edge_client {

class GossipSession {
 public:
  // All of it must outlive the session.
  struct World {
    net::EventLoop& loop;
    const Clock& clock;
    Log& log;
    const StateDirectory& state;
    const identity::IdentityDirectory& identity;
  };
  // The link to the issuer; `send` drops what is said while there is none.
  using Link = gossip::RelayLine::Carrier;

  GossipSession(World world, gossip::PeerNode::Options options, gossip::PeerData trains_on,
                Link link);

  // As of gossip::PeerNode.
  [[nodiscard]] Result<void> start() { return node_.start(); }
  net::Async<void> run();
  void request_stop() { node_.request_stop(); }

  // The issuer has welcomed this device, or is gone; less waits to be sent to it.
  void link_up();
  void link_down();
  void link_drained() { node_.links().issuer_drained(); }
  // True: the message was for the peer. The payload need hold for the call only.
  bool take(const protocol::Envelope& envelope);

  gossip::PeerShell& peer() { return node_.peer(); }
  // Called with every report of the node, at least once a second while it has a roster, and when
  // a roster has come from the issuer.
  void set_on_report(std::function<void()> on_report) { on_report_ = std::move(on_report); }

  // None without a roster.
  std::optional<EdgeStatus::Gossip> status() const;

 private:
  struct HandIn {
    protocol::VectorTransfer transfer;  // with the id that it was sent under last
    SharedBytes data;
  };

  void hand_in(const protocol::VectorTransfer& transfer, SharedBytes data);
  void send_hand_in();
  void pump();

  World world_;
  Link link_;
  std::function<void()> on_report_ = [] {};
  bool linked_ = false;
  issuer::RosterAssembler assembler_;
  gossip::TransferFlow to_issuer_;
  std::optional<HandIn> unanswered_;  // the last model; sent again over the next link
  bool again_ = false;                // or after the next report: the issuer was busy
  gossip::PeerNode node_;
};

// What the device's settings say of its node.
[[nodiscard]] Result<gossip::PeerNode::Options> node_options(const EdgeOptions& options,
                                                             const StateDirectory& state,
                                                             std::string software,
                                                             std::uint64_t seed);

}  // namespace starling::edge_client
