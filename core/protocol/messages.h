// SPDX-License-Identifier: Apache-2.0
// What coordinator, clients and operators say to each other, as plain structs: the machines'
// language. core/wire turns them into bytes. Any message may be repeated harmlessly; the task id is
// the idempotency key of everything that concerns a round.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/settings.h"
#include "core/base/shared_bytes.h"
#include "core/protocol/peer_messages.h"
#include "core/update/contribution.h"

namespace starling::protocol {

inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kChunkBytesMax = 64 * 1024;  // payload of one frame

// Client -> coordinator, first. Who speaks stands in the certificate, not here.
struct Hello {
  std::uint16_t version_min = kVersion;
  std::uint16_t version_max = kVersion;
  std::string software;    // "starling-edge 0.1.0"
  std::uint64_t rows = 0;  // training rows the client holds
  // What it can do, as words ("evaluate", "scaffold", ...; see client/abilities.h). Empty: an
  // earlier version, which knows federated averaging of the built-in models.
  std::vector<std::string> abilities = {};
  std::vector<std::uint32_t> input = {};  // the shape of a row; empty: not said
  std::uint32_t classes = 0;              // 0: not said
  std::uint64_t held_out = 0;             // rows that it evaluates on; 0: none, or not said
  friend bool operator==(const Hello&, const Hello&) = default;
};

// Coordinator -> client: the highest version both know, and how often to be heard.
struct Welcome {
  std::uint16_t version = kVersion;
  std::string federation;
  std::string client;
  Duration heartbeat{};            // send something at least this often
  std::uint64_t wall_time_ms = 0;  // the coordinator's clock, for devices without one
  bool reads_sparse = false;       // vectors in the sparse form; not an earlier version
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

enum class TaskKind : std::uint8_t {
  kTrain = 0,     // answered with vectors and scalars
  kEvaluate = 1,  // the base on the rows that are held out: answered with scalars
};

// A vector that a task needs beside its model. The hash of its bytes is its version: who holds it
// does not fetch it.
struct TaskInput {
  std::string name;
  Sha256Digest sha256;
  std::uint64_t bytes = 0;
  update::Encoding encoding = update::Encoding::kFloat32;
  friend bool operator==(const TaskInput&, const TaskInput&) = default;
};

// A client's last training that counted in a run: what it remembers of the run is its outcome.
struct CountedTask {
  TaskId task;      // 0: none counted
  Round round = 0;  // in which it counted
  friend bool operator==(const CountedTask&, const CountedTask&) = default;
};

// Coordinator -> client: a task. Answered by ModelRequest (for each input that is not held), then
// UpdateOffer or TaskFailed.
struct RoundPlan {
  TaskId task;
  RunId run;
  std::string run_name;
  Round round = 0;
  Round rounds = 0;
  Attempt attempt = 0;
  std::uint64_t seed = 0;
  update::ModelVersion base;
  std::uint64_t model_bytes = 0;
  Settings settings;  // model.*, train.*, strategy.*; an unknown one is a named refusal
  update::Schema schema;
  Duration deadline{};  // from now; a duration, since clocks differ
  TaskKind kind = TaskKind::kTrain;
  std::vector<TaskInput> inputs = {};  // beside the model
  CountedTask last_counted = {};       // of this client; not said where base.run_key is 0
  friend bool operator==(const RoundPlan&, const RoundPlan&) = default;
};

// Client -> coordinator: send an input of the task from `offset`, up to `limit` for now. It takes
// the place of an earlier request of the task.
struct ModelRequest {
  TaskId task;
  std::uint64_t offset = 0;
  std::uint64_t limit = 0;
  std::uint16_t input = 0;  // 0: the base model; i: the i-th of the plan's inputs, from 1
  friend bool operator==(const ModelRequest&, const ModelRequest&) = default;
};

// Either way: bytes [offset, offset + payload) of an input or of the update of a task.
struct Chunk {
  TaskId task;
  std::uint64_t offset = 0;
  std::uint16_t input = 0;  // as of the request; 0 of an update
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

// Receiver of a bulk -> sender: bytes before `limit` may be sent. Absolute, so repeats are
// harmless.
struct Credit {
  TaskId task;
  std::uint64_t limit = 0;
  friend bool operator==(const Credit&, const Credit&) = default;
};

// Client -> coordinator: a finished update; repeated after every reconnect until it is settled.
struct UpdateOffer {
  update::ContributionHead head;
  friend bool operator==(const UpdateOffer&, const UpdateOffer&) = default;
};

// Coordinator -> client: send from `offset` (what has arrived already is kept), up to `limit`.
struct UpdateAccept {
  TaskId task;
  std::uint64_t offset = 0;
  std::uint64_t limit = 0;
  friend bool operator==(const UpdateAccept&, const UpdateAccept&) = default;
};

// Coordinator -> client: whole, valid and summed, but not yet durable. Keep it.
struct UpdateReceived {
  TaskId task;
  friend bool operator==(const UpdateReceived&, const UpdateReceived&) = default;
};

// Coordinator -> client: the round is durable and the task counted in it. Forget the update.
struct RoundCommitted {
  TaskId task;
  RunId run;
  Round round = 0;
  Sha256Digest model_sha256;
  friend bool operator==(const RoundCommitted&, const RoundCommitted&) = default;
};

// Coordinator -> client: the task is over and did not count: "round-closed", "abandoned",
// "not-finite", "run-stopped", "unknown-task" ... Forget it.
struct TaskEnded {
  TaskId task;
  std::string code;
  std::string message;
  friend bool operator==(const TaskEnded&, const TaskEnded&) = default;
};

// Client -> coordinator: no update will come of this task.
struct TaskFailed {
  TaskId task;
  std::string code;
  std::string message;
  bool permanent = false;  // nor of another one of its run
  friend bool operator==(const TaskFailed&, const TaskFailed&) = default;
};

struct Ping {
  std::uint64_t nonce = 0;
  friend bool operator==(const Ping&, const Ping&) = default;
};
struct Pong {
  std::uint64_t nonce = 0;
  friend bool operator==(const Pong&, const Pong&) = default;
};

// Either way, last: why the connection closes.
struct Bye {
  std::string code;
  std::string message;
  friend bool operator==(const Bye&, const Bye&) = default;
};

// Operator -> coordinator: "run-submit", "client-list", ... The payload holds what is too long for
// an argument (a job file).
struct OperatorRequest {
  std::uint64_t id = 0;
  std::string command;
  Settings arguments;
  friend bool operator==(const OperatorRequest&, const OperatorRequest&) = default;
};

// Coordinator -> operator: one or more per request, the last one marked. The payload is JSON, or a
// piece of a file. `code` is empty where the request succeeded. An earlier coordinator says kFailed
// of every category.
struct OperatorReply {
  std::uint64_t id = 0;
  bool last = true;
  std::string code;
  std::string message;
  ErrorCategory category = ErrorCategory::kFailed;
  friend bool operator==(const OperatorReply&, const OperatorReply&) = default;
};

using AnyMessage = std::variant<Hello, Welcome, RoundPlan, ModelRequest, Chunk, Credit, UpdateOffer,
                                UpdateAccept, UpdateReceived, RoundCommitted, TaskEnded, TaskFailed,
                                Ping, Pong, Bye, OperatorRequest, OperatorReply, PeerHello,
                                RosterAsk, RosterPart, Swim, VectorTransfer, ColumnsAsk,
                                ColumnsPutOff, MixAsk, MixAnswer, ReduceNote, PeerReport, Relay>;

template <typename T>
concept IsMessage = []<typename... Ts>(std::variant<Ts...>*) {
  return (std::same_as<T, Ts> || ...);
}(static_cast<AnyMessage*>(nullptr));

// The variant, with what a compiler would otherwise generate for 29 alternatives in each source
// file that copies or destroys a message: these are compiled once, in messages.cpp. std::get_if,
// std::holds_alternative and std::visit take it as they take the variant.
class Message : public AnyMessage {
 public:
  Message();  // a Hello
  template <IsMessage T>
  Message(T alternative);  // NOLINT(google-explicit-constructor): a message is any of them
  Message(const Message& other);
  Message(Message&& other) noexcept;
  Message& operator=(const Message& other);
  Message& operator=(Message&& other) noexcept;
  ~Message();

  friend bool operator==(const Message& a, const Message& b);
};

// A message and the raw bytes behind it (Chunk, OperatorRequest, OperatorReply, RosterPart and
// Relay; else empty).
struct Envelope {
  Message message;
  SharedBytes payload;
};

}  // namespace starling::protocol
