// SPDX-License-Identifier: Apache-2.0
// The links of a peer with the other members of its roster, as the peer's shell sees them: a device
// has connections (PeerLinks), a simulation has a network in virtual time. All calls and handlers
// are on the peer's turns.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/base/shared_bytes.h"
#include "core/identity/roster.h"
#include "core/protocol/messages.h"
#include "gossip/peer/transfer_flow.h"

namespace starling::gossip {

using protocol::Member;

class PeerTransport {
 public:
  // A handler may call the transport, but not destroy it.
  struct Handlers {
    std::function<protocol::PeerHello()> hello;  // what this peer says of itself
    // Greeted: messages may flow. Later hellos come as messages.
    std::function<void(Member, const protocol::PeerHello&)> on_up;
    // A link that was up broke, or a member could not be reached: "cannot-dial", or "shut-out"
    // where it does not take this device for a member.
    std::function<void(Member, const Error&)> on_down;
    std::function<void(Member, const protocol::Envelope&)> on_message;  // payload: for the call
    // Whether an announced transfer is wanted; asked before memory is taken for it.
    std::function<Result<void>(Member, const protocol::VectorTransfer&)> check;
    // A piece of one that is not whole yet came. Optional.
    std::function<void(Member, const protocol::VectorTransfer&)> on_piece;
    std::function<void(Member, TransferFlow::Whole)> on_transfer;
  };
  struct Counters {
    std::uint64_t wire_bytes_in = 0;  // of TLS, handshakes included; relayed: of the frames
    std::uint64_t wire_bytes_out = 0;
    std::uint64_t transfers_out = 0;
  };
  virtual ~PeerTransport() = default;

  // From now on these are the members; links with others end at once. Null: nobody.
  virtual void set_roster(std::shared_ptr<const identity::SignedRoster> roster) = 0;
  // Of every link, as of TransferFlow; for what is sent from now on.
  virtual void set_messages_max(std::size_t messages_max) = 0;
  // These are dialled until they are there, and again when they are lost.
  virtual void keep(std::set<Member> members) = 0;
  // Whether links with other members end when they are idle (link_rules.h). At first: they stay.
  virtual void end_idle_links(bool ends) = 0;
  // Dialled once, where there is no link: a probe is to be sent.
  virtual void reach(Member member) = 0;

  virtual bool is_up(Member member) const = 0;
  virtual std::vector<std::pair<Member, protocol::PeerHello>> all_up() const = 0;
  // Dropped where there is no link.
  virtual void send(Member to, const protocol::Message& message, SharedBytes payload) = 0;
  void send(Member to, const protocol::Message& message) { send(to, message, {}); }
  virtual void send_transfer(Member to, const protocol::VectorTransfer& transfer, SharedBytes data,
                             TransferFlow::Urgency urgency) = 0;
  virtual Counters counters() const = 0;
};

}  // namespace starling::gossip
