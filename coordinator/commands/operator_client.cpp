// SPDX-License-Identifier: Apache-2.0
#include "coordinator/commands/operator_client.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "coordinator/service/coordinator_options.h"
#include "coordinator/service/host_names.h"
#include "coordinator/service/state_directory.h"
#include "core/net/connect.h"
#include "core/net/deadline.h"

namespace starling::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPing = std::chrono::seconds(20);
constexpr Duration kGoodbye = std::chrono::milliseconds(500);
constexpr std::size_t kAnswerBytesMax = std::size_t{1} << 30;

Error connection_error(std::string_view code, std::string message) {
  return rejected(fmt::format("connection-{}", code), std::move(message))
      .as(ErrorCategory::kNotConnected);
}

// Before the first start of a service.
Result<identity::HostPort> configured_address(const StateDirectory& state) {
  CoordinatorSettings settings;
  config::Binder binder;
  settings.bind(binder);
  STARLING_TRY(binder.read_file(state.options_file()));
  return settings.listen_address();
}

// Beside the service: where it listens, whatever devices dial.
Result<identity::HostPort> address_of(const StateDirectory& state,
                                      const identity::IdentityDirectory& directory) {
  std::error_code ignored;
  if (!fs::exists(state.options_file(), ignored)) return directory.coordinator();
  auto address = read_address(state);
  if (!address) {
    STARLING_ASSIGN(address, configured_address(state));
  }
  if (address->port == 0) return directory.coordinator();
  if (is_wildcard(address->host)) address->host = "127.0.0.1";
  return address;
}

Error unreachable(const Error& error) {
  const bool nobody = error.code() == "cannot-connect" || error.code() == "deadline";
  if (!nobody) return connection_error(error.code(), error.message());
  return connection_error(
      error.code(),
      fmt::format("no coordinator answers: {}; 'starling-coordinator serve DIR' starts one",
                  error.message()));
}

Error lost(const Error& error) {
  return connection_error("lost", "the coordinator went away: " + error.message());
}

}  // namespace

Result<identity::IdentityDirectory> load_operator_identity(const fs::path& state) {
  auto directory = identity::IdentityDirectory::load(StateDirectory(state).operator_identity());
  if (!directory && directory.error().code() == "not-joined") {
    directory = identity::IdentityDirectory::load(state);
  }
  if (directory && directory->identity().role == identity::Role::kOperator) return directory;
  if (directory) {
    return not_authorised("connection-role",
                          state.string() + " is the identity of a " +
                              std::string(to_string(directory->identity().role)) +
                              "; commands need an operator's");
  }
  if (directory.error().code() != "not-joined") {
    return not_authorised(
        "connection-identity",
        fmt::format("the operator's identity cannot be read: {}", directory.error().message()));
  }
  return not_authorised(
      "connection-identity",
      fmt::format(
          "no operator's identity in {}: name the coordinator's state directory, or that of "
          "an operator who joined, with --state or STARLING_HOME",
          fs::absolute(state).lexically_normal().string()));
}

Result<std::unique_ptr<OperatorClient>> OperatorClient::connect(const fs::path& state,
                                                                const Clock& clock) {
  STARLING_ASSIGN(const auto directory, load_operator_identity(state));
  STARLING_ASSIGN(const auto address, address_of(StateDirectory(state), directory));
  identity::PeerPolicy policy;
  policy.federation = directory.identity().federation;
  policy.roles = {identity::Role::kCoordinator};
  const WallTime last = directory.last_authenticated();
  policy.time = [&clock, last] {
    return identity::VerificationTime{.now = clock.wall_now(), .last_authenticated = last};
  };
  STARLING_ASSIGN(auto tls, net::TlsContext::make_client(net::Protocol::kSession,
                                                         directory.credentials(), policy));
  auto loop = std::make_unique<net::EventLoop>();
  auto connection =
      net::run_task(*loop, net::connect(*loop, address.host, address.port, std::move(tls), {}));
  if (!connection) return unreachable(connection.error());
  return std::unique_ptr<OperatorClient>(
      new OperatorClient(std::move(loop), std::move(*connection)));
}

OperatorClient::OperatorClient(std::unique_ptr<net::EventLoop> loop,
                               std::unique_ptr<net::Connection> connection)
    : loop_(std::move(loop)),
      connection_(std::move(connection)),
      limits_(wire::to_operator()),
      ping_(*loop_, [this] { keep_alive(); }) {
  ping_.set(loop_->now() + kPing);
}

OperatorClient::~OperatorClient() {
  ping_.clear();
  loop_->run_task(connection_->close(loop_->now() + kGoodbye));
}

// An answer that is followed may say nothing for hours; both sides want to be heard.
void OperatorClient::keep_alive() {
  (void)link::send(*connection_, {protocol::Ping{}, {}});  // reading tells of a broken connection
  ping_.set(loop_->now() + kPing);
}

Result<bool> OperatorClient::take(const net::Frame& frame) {
  STARLING_ASSIGN(const auto envelope, link::decode(frame));
  if (const auto* bye = std::get_if<protocol::Bye>(&envelope.message)) {
    return connection_error(bye->code, "the coordinator closed the connection: " + bye->message);
  }
  const auto* reply = std::get_if<protocol::OperatorReply>(&envelope.message);
  if (reply == nullptr || reply->id != last_id_) return false;
  if (reply->code == "draining") return lost(retry(reply->code, reply->message));
  if (!reply->code.empty()) {
    return rejected(reply->code, reply->message).as(reply->category);
  }
  STARLING_TRY(on_piece_(envelope.payload.view()));
  return reply->last;
}

net::Async<Result<void>> OperatorClient::receive() {
  for (;;) {
    auto frame = co_await connection_->read_frame(limits_);
    if (!frame) co_return lost(frame.error());
    const Result<bool> complete = take(*frame);
    if (!complete) co_return complete.error();
    if (*complete) co_return Result<void>();
  }
}

Result<void> OperatorClient::stream(const std::string& command, Settings arguments,
                                    std::string_view payload, OnPiece on_piece,
                                    std::optional<TimePoint> deadline) {
  if (payload.size() > protocol::kChunkBytesMax) {
    return wrong_setting("too-large", fmt::format("what is sent has {} bytes; the limit is {}",
                                                  payload.size(), protocol::kChunkBytesMax));
  }
  on_piece_ = std::move(on_piece);
  protocol::OperatorRequest request{
      .id = ++last_id_, .command = command, .arguments = std::move(arguments)};
  STARLING_TRY(link::send(*connection_,
                          {std::move(request), SharedBytes::own(to_bytes(as_bytes(payload)))}));
  if (!deadline) return net::run_task(*loop_, receive());
  return net::run_task(*loop_, net::with_deadline(*loop_, *deadline, command, receive()));
}

Result<std::string> OperatorClient::ask_text(const std::string& command, Settings arguments,
                                             std::string_view payload) {
  std::string text;
  STARLING_TRY(stream(command, std::move(arguments), payload, [&text](ByteView piece) {
    if (text.size() + piece.size() > kAnswerBytesMax) {
      return Result<void>(rejected("answer-too-large", "the answer is larger than 1 GB"));
    }
    text += as_text(piece);
    return Result<void>();
  }));
  return text;
}

Result<boost::json::value> OperatorClient::ask(const std::string& command, Settings arguments,
                                               std::string_view payload) {
  STARLING_ASSIGN(const std::string text, ask_text(command, std::move(arguments), payload));
  boost::system::error_code code;
  auto value = boost::json::parse(text, code);
  if (!code) return value;
  return rejected("bad-answer", "the coordinator's answer is not JSON: " + code.message());
}

}  // namespace starling::coordinator
