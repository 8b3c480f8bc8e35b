// SPDX-License-Identifier: Apache-2.0
// A command's side of the operator protocol: one connection with an operator's certificate, one
// request after the other, each awaited to its end.
#pragma once

#include <boost/json/value.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/settings.h"
#include "core/identity/identity_directory.h"
#include "core/link/message_link.h"
#include "core/net/alarm.h"
#include "core/net/event_loop.h"

namespace starling::coordinator {

// The identity with which the commands of `state` speak: of its operator/, or of itself.
// "connection-identity", "connection-role"
[[nodiscard]] Result<identity::IdentityDirectory> load_operator_identity(
    const std::filesystem::path& state);

class OperatorClient {
 public:
  // `state`: a coordinator's state directory, or an operator's identity (or a directory with
  // operator/ in it) that was copied or joined. Beside a service its own address is dialled.
  // Errors, all with codes that begin with "connection-": nobody answers, no identity, refused.
  [[nodiscard]] static Result<std::unique_ptr<OperatorClient>> connect(
      const std::filesystem::path& state, const Clock& clock);
  ~OperatorClient();

  // The whole answer, which is JSON, as the coordinator wrote it: its numbers are exact.
  [[nodiscard]] Result<std::string> ask_text(const std::string& command, Settings arguments,
                                             std::string_view payload = {});
  // The whole answer. Boost.JSON reads a number to the last bit but one.
  [[nodiscard]] Result<boost::json::value> ask(const std::string& command, Settings arguments,
                                               std::string_view payload = {});

  using OnPiece = std::function<Result<void>(ByteView piece)>;
  // The answer piece by piece, as it comes; an error of `on_piece` ends it. "deadline" if the last
  // piece has not come by then.
  [[nodiscard]] Result<void> stream(const std::string& command, Settings arguments,
                                    std::string_view payload, OnPiece on_piece,
                                    std::optional<TimePoint> deadline = std::nullopt);
  TimePoint now() const { return loop_->now(); }

 private:
  OperatorClient(std::unique_ptr<net::EventLoop> loop, std::unique_ptr<net::Connection> connection);

  net::Async<Result<void>> receive();
  // Whether the answer is complete.
  Result<bool> take(const net::Frame& frame);
  void keep_alive();

  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<net::Connection> connection_;
  link::MessageLimits limits_;
  net::Alarm ping_;
  std::uint64_t last_id_ = 0;
  OnPiece on_piece_;
};

}  // namespace starling::coordinator
