// SPDX-License-Identifier: Apache-2.0
// A device without data: the client's own shell over a real TLS session, which answers each
// training task at once with the same payload, and passes on what the coordinator sends, to be
// timed. Its updates are in memory only.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "core/client/client_shell.h"
#include "core/identity/identity_directory.h"
#include "core/net/connection.h"
#include "core/net/event_loop.h"
#include "core/net/task_group.h"
#include "core/sim/virtual_computation.h"

namespace starling::bench {

// What every client sends; made once.
struct ReadyUpdate {
  explicit ReadyUpdate(std::uint64_t elements);
  SharedBytes payload;
  std::uint64_t checksum;
};

class ReadyClient final : private client::Link {
 public:
  using Heard = std::function<void(const protocol::Message&)>;

  // `directory` is a device's that has joined. All references must outlive the client.
  ReadyClient(net::EventLoop& loop, const std::filesystem::path& directory,
              const ReadyUpdate& update, Heard heard);
  ~ReadyClient() override;

  void start() { shell_.handle(client::Tick{}); }
  net::Async<void> stop();

 private:
  void dial() override { links_.spawn(serve_link()); }
  void hang_up() override;
  void send(const protocol::Envelope& envelope) override;
  net::Async<void> serve_link();
  Result<client::PendingUpdate> answer(const client::Train& task) const;

  net::EventLoop& loop_;
  SystemClock clock_;
  identity::IdentityDirectory identity_;
  const ReadyUpdate& update_;
  Heard heard_;
  std::shared_ptr<net::Connection> link_;
  net::TaskGroup links_;
  sim::ImmediateComputation computation_;
  std::unique_ptr<Disk> disk_;
  client::PendingStore pending_;
  client::ClientShell shell_;
};

}  // namespace starling::bench
