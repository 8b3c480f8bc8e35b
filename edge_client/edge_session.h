// SPDX-License-Identifier: Apache-2.0
// The device's program around its shell: the TLS link with the coordinator, what the owner is told
// of it, the status file, and the hooks of the gossip peer. It decides nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/client/client_shell.h"
#include "core/identity/identity_directory.h"
#include "core/net/connect.h"
#include "core/net/task_group.h"
#include "edge_client/advice.h"
#include "edge_client/coordinator_link.h"
#include "edge_client/device_training.h"
#include "edge_client/status_file.h"

namespace starling::edge_client {

class EdgeSession final : private client::Link {
 public:
  // All of it must outlive the session.
  struct World {
    net::EventLoop& loop;
    const Clock& clock;
    Log& log;
    const StateDirectory& state;
    identity::IdentityDirectory& identity;
    const client::PendingStore& pending;
  };
  struct Options {
    client::ClientOptions client;
    client::UpdateOptions updates;
    net::ConnectOptions connect;
    Duration stop_deadline = std::chrono::seconds(5);
  };

  EdgeSession(World world, Options options, Rng backoff, client::Leftovers leftovers,
              Trainers trainers);
  // Requires: run() was not called or has ended.
  ~EdgeSession() override;
  EdgeSession(const EdgeSession&) = delete;
  EdgeSession& operator=(const EdgeSession&) = delete;

  // Connects, trains and reports until request_stop(); then says goodbye within the stop deadline.
  // Ends by itself only with an error of the disk after which nothing written can be trusted.
  // Once.
  net::Async<Result<void>> run();
  // From the loop.
  void request_stop();

  // What of the link is not the machine's, but the gossip peer's. Before run().
  struct Peer {
    std::function<void()> on_link_up = [] {};  // welcomed
    std::function<void()> on_link_down = [] {};
    std::function<void()> on_drained = [] {};  // little waits to be sent any more
    // True: the message is taken. Its payload holds for the call.
    std::function<bool(const protocol::Envelope&)> take = [](const auto&) { return false; };
    std::function<std::optional<EdgeStatus::Gossip>()> status = [] { return std::nullopt; };
    // What contributes in place of the device's own trainer; null: nothing does.
    std::function<std::shared_ptr<client::Trainer>(const client::Train&)> on_train =
        [](const client::Train&) { return nullptr; };
  };
  void set_peer(Peer peer) { peer_ = std::move(peer); }
  // Dropped unless the coordinator has welcomed this device.
  void send_as_peer(const protocol::Envelope& envelope);
  std::size_t queued_bytes() const { return link_ ? link_->queued_bytes() : 0; }
  void refresh_status() { publish_status(); }
  // Another part of this process failed to write a file: ends the session if the disk is broken,
  // as a failure with the session's own files does. Any thread.
  void report_disk(const Error& error) {
    post([error](EdgeSession& session) { session.stop_if_broken(error); });
  }

  const client::ClientMachine& machine() const { return shell_.machine(); }

 private:
  void dial() override { links_.spawn(serve_link()); }
  void hang_up() override { drop_link(); }
  void send(const protocol::Envelope& envelope) override;
  client::ClientShell::Handlers shell_handlers();
  void say(const client::Say& say);

  net::Async<void> serve_link();
  net::Async<void> close_link(std::shared_ptr<net::Connection> connection);
  net::Async<void> sleep_until_stopped();
  void take(const Result<net::Frame>& frame);
  void record_welcome(const protocol::Welcome& welcome);
  void drop_link();
  void lose_link(const Error& error);
  void note_failure(const Error& error);
  void stop_if_broken(const Error& error);
  void finish_event();
  void publish_status();
  void say_revoked(EdgeStatus::Gossip& gossip) const;
  void post(std::function<void(EdgeSession&)> work);  // any thread; dropped once the session ended

  World world_;
  Options options_;
  EdgeStatus status_;
  StatusWriter status_writer_;
  OccasionalReasons reasons_;
  bool quiet_ = false;                     // what the machine says next was said before
  std::string advice_;                     // to be said after it
  std::shared_ptr<net::Connection> link_;  // null: not connected, or hanging up
  std::optional<Error> link_failure_;      // why this side broke the link off
  std::optional<Error> fatal_;
  bool stop_requested_ = false;
  net::TaskGroup links_;    // dialling and reading
  net::TaskGroup closing_;  // saying goodbye, each within the stop deadline
  net::TaskGroup alive_;    // one task, until request_stop()
  Peer peer_;
  bool welcomed_ = false;
  bool revoked_ = false;  // as the coordinator said when this device connected last
  std::shared_ptr<EdgeSession*> self_;
  const Trainers trainers_;
  PooledComputation training_;
  PooledComputation disk_;
  client::ClientShell shell_;
};

}  // namespace starling::edge_client
