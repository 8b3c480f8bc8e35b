// SPDX-License-Identifier: Apache-2.0
// Stands for `starling-edge start` in tests of the launcher: joins the issuer with its identity,
// waits for the roster, reports steps and hands in made-up models. The seed that the roster tells
// says how it misbehaves.
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <filesystem>

#include "core/base/clock.h"
#include "core/identity/identity_directory.h"
#include "core/issuer/roster_parts.h"
#include "core/link/message_link.h"
#include "core/net/connect.h"
#include "core/net/event_loop.h"

namespace starling {
namespace {

constexpr std::size_t kParameters = 15;  // softmax regression of 4 features and 3 classes
constexpr std::uint64_t kSteps = 4;
constexpr std::uint64_t kEvery = 2;

class PretendEdge {
 public:
  explicit PretendEdge(const std::filesystem::path& state)
      : identity_(*identity::IdentityDirectory::load(state / "identity")) {}

  int run() {
    loop_.run_task(serve());
    return exit_code_;
  }

 private:
  net::Async<void> serve() {
    identity::PeerPolicy policy;
    policy.federation = identity_.identity().federation;
    policy.roles = {identity::Role::kCoordinator};
    policy.time = [this] { return identity::VerificationTime{.now = clock_.wall_now()}; };
    auto tls = net::TlsContext::make_client(net::Protocol::kSession, identity_.credentials(),
                                            std::move(policy));
    std::string host = identity_.coordinator().host;
    const net::ConnectOptions options;
    auto connected =
        co_await net::connect(loop_, std::move(host), identity_.coordinator().port, *tls, options);
    if (!connected) {
      std::fprintf(stderr, "%s\n", connected.error().message().c_str());
      exit_code_ = 4;
      co_return;
    }
    connection_ = std::move(*connected);
    send(protocol::Hello{.software = "pretend"});
    link::MessageLimits limits(wire::from_coordinator(false));
    for (;;) {
      auto frame = co_await connection_->read_frame(limits);
      if (!frame) break;
      limits.expect(wire::from_coordinator(true));
      auto envelope = link::decode(*frame);
      if (!envelope) break;
      take(*envelope);
      if (exit_code_ != 0) break;
    }
  }

  void take(const protocol::Envelope& envelope) {
    if (const auto* part = std::get_if<protocol::RosterPart>(&envelope.message)) {
      auto taken = roster_.take(*part, envelope.payload.view(), nullptr);
      if (taken.whole) begin(*taken.whole);
    } else if (const auto* credit = std::get_if<protocol::Credit>(&envelope.message)) {
      hand_in(credit->task);
    } else if (std::holds_alternative<protocol::UpdateReceived>(envelope.message)) {
      go_on();
    }
  }

  void begin(const Bytes& bytes) {
    const auto roster = identity::SignedRoster::verify(bytes, identity_.credentials().authorities,
                                                       identity_.identity().federation);
    if (!roster) {
      std::fprintf(stderr, "%s\n", roster.error().message().c_str());
      exit_code_ = 5;
      return;
    }
    node_ = *roster->roster().find(identity_.identity().name);
    std::string seed = "1";
    for (const auto& [key, value] : roster->roster().settings) {
      if (key == "seed") seed = value;
    }
    if (seed == "4" || (seed == "5" && node_ == 1)) last_step_ = kEvery;
    if (seed == "2" && node_ == 1) {
      std::fprintf(stderr, "this one breaks\n");
      exit_code_ = 3;
    } else if (seed != "3") {
      go_on();
    }
  }

  // The next steps, and the model after them.
  void go_on() {
    if (step_ == last_step_) return;
    step_ += kEvery;
    send(protocol::PeerReport{.epoch = 1,
                              .exchange = step_ - 1,
                              .step = step_,
                              .state = step_ == kSteps ? "finished" : "training",
                              .loss = 0.5,
                              .loss_steps = kEvery,
                              .bytes_sent = 100 * step_,
                              .messages = step_});
    send(protocol::VectorTransfer{
        .id = TaskId(step_),
        .epoch = 1,
        .content = protocol::WholeModel{.exchange = step_ - 1, .floats = kParameters}});
  }

  void hand_in(TaskId transfer) {
    const std::vector<float> values(kParameters, static_cast<float>(node_));
    send(protocol::Chunk{.task = transfer, .offset = 0},
         SharedBytes::own(to_bytes(std::as_bytes(std::span(values)))));
  }

  void send(const protocol::Message& message, SharedBytes payload = {}) {
    if (!link::send(*connection_, {message, std::move(payload)})) exit_code_ = 6;
  }

  const SystemClock clock_;
  net::EventLoop loop_;
  identity::IdentityDirectory identity_;
  std::unique_ptr<net::Connection> connection_;
  issuer::RosterAssembler roster_;
  std::uint32_t node_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t last_step_ = kSteps;
  int exit_code_ = 0;
};

}  // namespace
}  // namespace starling

// pretend_edge start --state DIR
int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return starling::PretendEdge(argv[3]).run();
}
