// SPDX-License-Identifier: Apache-2.0
// What makes a message fit to travel (limits.h), judged on the plain structs: one gate for what is
// sent and for what is received.
#pragma once

#include "core/base/error.h"
#include "core/protocol/messages.h"

namespace starling::wire {

// Each fails with "message-too-large" (a text or list beyond its limit), "bad-message" (anything
// else that no peer may send) or "unknown-encoding". What has a gate of its own behind the wire
// keeps its own reason codes there: weight and scalars of an update (update::validate_head), the
// encodings that a task names (client::ClientMachine).
[[nodiscard]] Result<void> check(const protocol::Hello& hello);
[[nodiscard]] Result<void> check(const protocol::Welcome& welcome);
[[nodiscard]] Result<void> check(const protocol::RoundPlan& plan);
[[nodiscard]] Result<void> check(const protocol::ModelRequest& request);
[[nodiscard]] Result<void> check(const protocol::Chunk& chunk);
[[nodiscard]] Result<void> check(const protocol::Credit& credit);
[[nodiscard]] Result<void> check(const protocol::UpdateOffer& offer);
[[nodiscard]] Result<void> check(const protocol::UpdateAccept& accept);
[[nodiscard]] Result<void> check(const protocol::UpdateReceived& received);
[[nodiscard]] Result<void> check(const protocol::RoundCommitted& committed);
[[nodiscard]] Result<void> check(const protocol::TaskEnded& ended);
[[nodiscard]] Result<void> check(const protocol::TaskFailed& failed);
[[nodiscard]] Result<void> check(const protocol::Ping& ping);
[[nodiscard]] Result<void> check(const protocol::Pong& pong);
[[nodiscard]] Result<void> check(const protocol::Bye& bye);
[[nodiscard]] Result<void> check(const protocol::OperatorRequest& request);
[[nodiscard]] Result<void> check(const protocol::OperatorReply& reply);
[[nodiscard]] Result<void> check(const protocol::PeerHello& hello);
[[nodiscard]] Result<void> check(const protocol::RosterAsk& ask);
[[nodiscard]] Result<void> check(const protocol::RosterPart& part);
[[nodiscard]] Result<void> check(const protocol::Swim& swim);
[[nodiscard]] Result<void> check(const protocol::VectorTransfer& transfer);
[[nodiscard]] Result<void> check(const protocol::ColumnsAsk& ask);
[[nodiscard]] Result<void> check(const protocol::ColumnsPutOff& answer);
[[nodiscard]] Result<void> check(const protocol::MixAsk& ask);
[[nodiscard]] Result<void> check(const protocol::MixAnswer& answer);
[[nodiscard]] Result<void> check(const protocol::ReduceNote& note);
[[nodiscard]] Result<void> check(const protocol::PeerReport& report);
[[nodiscard]] Result<void> check(const protocol::Relay& relay);

// There are `count` of `what`.
[[nodiscard]] Result<void> check_count(std::string_view what, std::size_t count,
                                       std::size_t count_max);

}  // namespace starling::wire
