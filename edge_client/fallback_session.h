// SPDX-License-Identifier: Apache-2.0
// The device while its coordinator is gone: around the machine that decides when it trains on by
// gossip and what it contributes afterwards. The gossip itself is the peer's.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <variant>

#include "core/base/clock.h"
#include "core/base/compute_pool.h"
#include "core/base/log.h"
#include "core/client/client_machine.h"
#include "core/client/trainer.h"
#include "core/net/alarm.h"
#include "edge_client/edge_session.h"
#include "edge_client/gossip_session.h"
#include "gossip/fallback/fallback_machine.h"

namespace starling::edge_client {

class FallbackSession {
 public:
  // All references must outlive the session. `rows`: held by this device. Goes on with what an
  // earlier process left in `path`.
  FallbackSession(net::EventLoop& loop, const Clock& clock, Log& log, gossip::PeerShell& peer,
                  std::uint64_t rows, std::filesystem::path path);

  // Of the link with the coordinator.
  void link_up() { on(gossip::fallback::CoordinatorConnected{}); }
  void link_down() { on(gossip::fallback::CoordinatorLost{}); }
  void see(const protocol::Envelope& envelope);
  // The peer's roster may be another.
  void look() { on(gossip::fallback::TermsChanged{peer_.standby()}); }
  // A task has begun: what contributes in place of a training, or null.
  std::shared_ptr<client::Trainer> take_training(const client::Train& train);

  // What was trained is kept for the next process. Nothing but the destructor may follow.
  void stop();

  // Called on another thread when the file cannot be written or removed. To be set before the event
  // loop runs.
  void set_on_disk_error(std::function<void(const Error&)> on_disk_error) {
    on_disk_error_ = std::move(on_disk_error);
  }

  const gossip::FallbackMachine& machine() const { return machine_; }

 private:
  void on(gossip::fallback::Event event);
  void perform(const gossip::fallback::Begin& begin);
  void perform(const gossip::fallback::Pause&);
  void perform(const gossip::fallback::ReadProgress&);
  void perform(const gossip::fallback::Keep& keep);
  void perform(const gossip::fallback::Forget&);
  void perform(const gossip::fallback::Merge& merge);
  void perform(const gossip::fallback::Say& say);

  void restore();

  net::EventLoop& loop_;
  const Clock& clock_;
  Log& log_;
  gossip::PeerShell& peer_;
  std::uint64_t rows_;
  const std::filesystem::path path_;
  gossip::FallbackMachine machine_;
  std::shared_ptr<client::Trainer> merging_;  // the answer to what is asked just now
  net::Alarm alarm_;
  std::function<void(const Error&)> on_disk_error_ = [](const Error&) {};
  ComputePool disk_{1};
};

// All ways between the link's owner, the peer, and what the device does without the link. Before
// session.run(); all three must outlive it.
void join_up(EdgeSession& session, GossipSession& gossip, FallbackSession& fallback);

}  // namespace starling::edge_client
