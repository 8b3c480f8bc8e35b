// SPDX-License-Identifier: Apache-2.0
// A device's gossip peer: the peer's shell on the event loop, with connections, threads and the
// system's disk.
#pragma once

#include "core/net/task_group.h"
#include "gossip/peer/peer_links.h"
#include "gossip/peer/peer_shell.h"

namespace starling::gossip {

class PeerNode {
 public:
  using World = PeerLinks::World;
  struct Options : PeerShell::Options {  // `listens` follows from links.listen
    PeerLinks::Options links;
  };

  // `relay`: the link with the issuer, as of PeerLinks. A trainer must outlive the node.
  PeerNode(World world, Options options, PeerData data, PeerShell::Issuer issuer,
           RelayLine::Carrier relay = {});
  // To be destroyed only where run() was not called or has ended.
  PeerNode(const PeerNode&) = delete;
  PeerNode& operator=(const PeerNode&) = delete;

  // Opens the listener; then as PeerShell::start.
  [[nodiscard]] Result<void> start();
  // Until request_stop(); then says goodbye and keeps a checkpoint. Once.
  net::Async<void> run();
  void request_stop();

  PeerShell& peer() { return shell_; }
  const PeerShell& peer() const { return shell_; }
  PeerLinks& links() { return *links_; }

 private:
  net::Async<void> sleep_until(const bool& happened);

  net::EventLoop& loop_;
  SystemDisk disk_;
  PooledComputation training_;
  PooledComputation disk_work_;
  PeerLinks* links_ = nullptr;  // the shell's
  PeerShell shell_;
  bool stopping_ = false;
  bool closed_ = false;  // the shell
  net::TaskGroup sleeping_;
};

}  // namespace starling::gossip
