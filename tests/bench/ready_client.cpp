// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/ready_client.h"

#include "core/base/check.h"
#include "core/linalg/aligned.h"
#include "core/link/message_link.h"
#include "core/wire/update_head.h"
#include "edge_client/coordinator_link.h"

namespace starling::bench {
namespace {

// Takes every file and has none.
class NoDisk final : public Disk {
 public:
  Result<void> write(const std::filesystem::path&, std::span<const SharedBytes>) override {
    return {};
  }
  Result<std::unique_ptr<DiskFile>> open(const std::filesystem::path& path) override {
    return rejected("file-missing", path.string());
  }
  Result<std::unique_ptr<GrowingFile>> open_growing(const std::filesystem::path& path,
                                                    Content) override {
    return rejected("file-missing", path.string());
  }
  Result<std::unique_ptr<GrowingFile>> make_nameless(
      const std::filesystem::path& directory) override {
    return rejected("file-missing", directory.string());
  }
  Result<std::optional<std::uint64_t>> free_bytes(const std::filesystem::path&) override {
    return std::optional<std::uint64_t>();
  }
  Result<std::vector<DiskEntry>> list(const std::filesystem::path&) override {
    return std::vector<DiskEntry>();
  }
  Result<void> remove(const std::filesystem::path&) override { return {}; }
  Result<void> rename(const std::filesystem::path&, const std::filesystem::path&) override {
    return {};
  }
  Result<void> sync(const std::filesystem::path&) override { return {}; }
  Result<void> make_directory(const std::filesystem::path&, Access) override { return {}; }
};

identity::IdentityDirectory load(const std::filesystem::path& directory) {
  auto loaded = identity::IdentityDirectory::load(directory / "identity");
  STARLING_CHECK(loaded);
  return std::move(*loaded);
}

}  // namespace

ReadyUpdate::ReadyUpdate(std::uint64_t elements) {
  const auto values = std::make_shared<linalg::AlignedVector<float>>(elements);
  for (std::uint64_t i = 0; i < elements; ++i) {
    (*values)[i] = 1e-3F * static_cast<float>(static_cast<int>(i % 2001) - 1000);
  }
  payload = SharedBytes(values, as_bytes(std::span<const float>(*values)));
  checksum = starling::checksum(payload.view());
}

ReadyClient::ReadyClient(net::EventLoop& loop, const std::filesystem::path& directory,
                         const ReadyUpdate& update, Heard heard)
    : loop_(loop),
      identity_(load(directory)),
      update_(update),
      heard_(std::move(heard)),
      links_(loop),
      computation_(loop),
      disk_(std::make_unique<NoDisk>()),
      pending_(*disk_, directory, wire::kUpdateHeads, {}),
      shell_({loop, *this, pending_, computation_, computation_,
              [this](const client::Train& task, client::Trainer*, const std::atomic<bool>&,
                     unsigned) { return answer(task); }},
             {.rows = 1}, Rng({}), {}, {}) {}

ReadyClient::~ReadyClient() = default;

Result<client::PendingUpdate> ReadyClient::answer(const client::Train& task) const {
  client::PendingUpdate update;
  update.head = {.task = task.plan.task,
                 .base = task.plan.base,
                 .weight = 1,
                 .vectors = task.plan.schema.vectors,
                 .scalars = {{"train_loss", 1}},
                 .payload_bytes = update_.payload.size(),
                 .payload_checksum = update_.checksum};
  update.payload = update_.payload;
  return update;
}

void ReadyClient::hang_up() {
  if (const auto link = std::exchange(link_, nullptr)) link->abort();
}

void ReadyClient::send(const protocol::Envelope& envelope) {
  if (link_ && !link::send(*link_, envelope)) link_->abort();
}

net::Async<void> ReadyClient::serve_link() {
  net::ConnectOptions options;
  options.connection.queue_bytes_max = 32 << 20;
  auto connected = co_await edge_client::connect_to_coordinator(loop_, identity_, clock_, options);
  if (!connected) {
    shell_.handle(client::Disconnected{connected.error()});
    co_return;
  }
  const std::shared_ptr<net::Connection> connection = std::move(*connected);
  link_ = connection;
  link::MessageLimits limits(wire::from_coordinator(false));
  shell_.handle(client::Connected{});
  while (link_ == connection) {
    auto frame = co_await connection->read_frame(limits);
    if (link_ != connection) break;
    auto envelope = frame ? link::decode(*frame) : Result<protocol::Envelope>(frame.error());
    if (!envelope) {
      link_ = nullptr;
      shell_.handle(client::Disconnected{envelope.error()});
      break;
    }
    const protocol::Message message = envelope->message;
    shell_.handle(client::Received{std::move(*envelope)});
    heard_(message);
    const bool up = shell_.machine().link() == client::ClientMachine::Link::kUp;
    limits.expect(wire::from_coordinator(up));
  }
}

net::Async<void> ReadyClient::stop() {
  shell_.handle(client::Stop{});
  co_await links_.stop();
}

}  // namespace starling::bench
