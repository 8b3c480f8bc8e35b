// SPDX-License-Identifier: Apache-2.0
// Links between peers in virtual time, for whole peers (PeerShell) in one process. A connection
// behaves as TCP does: what is sent arrives in order and whole, waits while the way is cut, and is
// lost with the connection. Wanted members are dialled with backoff, as PeerLinks does, and
// transfers flow under credit (TransferFlow). The same calls give the same run.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/backoff.h"
#include "core/base/rng.h"
#include "core/sim/virtual_scheduler.h"
#include "gossip/peer/peer_transport.h"

namespace starling::gossip {

class PeerNetwork {
 public:
  struct Options {
    // How long a frame of so many bytes is under way between these peers, by their names.
    std::function<Duration(const std::string& from, const std::string& to, std::size_t bytes)>
        passage =
            [](const auto&, const auto&, std::size_t) { return std::chrono::milliseconds(1); };
    Duration connect_deadline = std::chrono::seconds(5);
    Duration greeting_deadline = std::chrono::seconds(10);
    Duration retransmission = std::chrono::milliseconds(200);  // after a cut has ended
    Duration stall_max = std::chrono::seconds(30);  // something to send, and none of it leaves
    Duration idle_max = std::chrono::seconds(120);  // nothing comes
    // Bytes under way before more is taken. More are as long as all arrives soon, as a TCP
    // connection sends ahead what a round trip takes.
    std::size_t queue_low = 256 * 1024;
    Duration sent_ahead = std::chrono::milliseconds(500);
    Backoff::Options backoff{.minimum = std::chrono::milliseconds(100),
                             .maximum = std::chrono::seconds(5)};
  };
  // The scheduler must outlive the network.
  PeerNetwork(sim::VirtualScheduler& scheduler, Options options);
  ~PeerNetwork();
  PeerNetwork(const PeerNetwork&) = delete;
  PeerNetwork& operator=(const PeerNetwork&) = delete;

  // The links of the process that runs under this name; its end (the destructor) resets them as a
  // kill does. One process a name at a time. The network must outlive it.
  std::unique_ptr<PeerTransport> attach(const std::string& name, PeerTransport::Handlers handlers,
                                        Rng backoff);
  // The process says goodbye on all links and makes none any more.
  void leave(const std::string& name);

  // One way: nothing that is sent arrives until the way is mended.
  void cut(const std::string& from, const std::string& to);
  void mend(const std::string& from, const std::string& to);
  bool is_cut(const std::string& from, const std::string& to) const {
    return cuts_.contains({from, to});
  }
  // The process of this name is stopped in mid-turn (SIGSTOP): it hears and does nothing until it
  // is thawed or ends. What is sent to it waits, and nobody who dials it gets an answer.
  void freeze(const std::string& name);
  void thaw(const std::string& name);
  // Connections between these end at once on both sides.
  void reset(const std::string& a, const std::string& b);

 private:
  class Links;
  struct Connection;
  using ConnectionPtr = std::shared_ptr<Connection>;

  void dial(const std::string& from, const std::string& to);
  void connect(const std::string& from, const std::string& to);
  void carry(const ConnectionPtr& connection, int side, std::optional<protocol::Envelope> frame);
  void schedule_delivery(const ConnectionPtr& connection, int to);
  void deliver(const ConnectionPtr& connection, int to);
  bool is_full(const ConnectionPtr& connection, int to) const;
  void end_if_idle(const ConnectionPtr& connection, int side);
  bool is_frozen(const std::string& name) const { return frozen_.contains(name); }
  // Does this on a turn of the process: at once, unless it is frozen.
  void on_turn(const std::string& name, std::function<void()> work);
  Links* process(const std::string& name) const;

  sim::VirtualScheduler& scheduler_;
  Options options_;
  std::map<std::string, Links*> processes_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::map<std::string, std::vector<std::function<void()>>> frozen_;  // turns that wait
  std::vector<std::weak_ptr<Connection>> connections_;
  std::uint64_t processes_attached_ = 0;
  std::uint64_t connections_made_ = 0;
};

}  // namespace starling::gossip
