// SPDX-License-Identifier: Apache-2.0
// What a coordinator remembers, as plain values. Times are wall time for people and certificates;
// a missing value is an empty optional, never a sentinel.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/base/ids.h"

namespace starling::store {

enum class Role { kDevice, kPeer, kOperator };
enum class ClientState { kActive, kRevoked };
enum class TokenState { kOpen, kUsed, kRevoked, kLocked, kExpired };
enum class RunState { kPending, kRunning, kCompleted, kFailed, kStopped };
// What the clients of a cohort are asked for. A round has one train phase that commits its model,
// and may have an evaluate phase, in which clients evaluate that model on their own rows.
enum class PhaseKind { kTrain, kEvaluate };
enum class RoundState { kOpen, kCommitted, kAbandoned };
enum class TaskOutcome { kOpen, kCommitted, kExpired, kAbandoned };

// The words that commands print and the database holds: "device", "active", "open", ...
std::string_view to_string(Role role);
std::string_view to_string(ClientState state);
std::string_view to_string(TokenState state);
std::string_view to_string(RunState state);
std::string_view to_string(PhaseKind kind);
std::string_view to_string(RoundState state);
std::string_view to_string(TaskOutcome outcome);
[[nodiscard]] Result<Role> parse_role(std::string_view word);  // "role-unknown"

// True of completed, failed and stopped.
bool is_finished(RunState state);

struct Federation {
  std::string name;
  WallTime created;
  friend bool operator==(const Federation&, const Federation&) = default;
};

struct Certificate {
  std::string serial;  // lower-case hex
  std::string client;
  Sha256Digest fingerprint;  // of the SubjectPublicKeyInfo
  std::string pem;
  WallTime not_before;
  WallTime not_after;
  std::optional<WallTime> revoked_at;
  friend bool operator==(const Certificate&, const Certificate&) = default;
};

// What the verify callback needs to know: both the certificate and its key are refused.
struct Revocation {
  std::string serial;
  Sha256Digest fingerprint;
  WallTime revoked_at;
  friend bool operator==(const Revocation&, const Revocation&) = default;
};

// What a client said of itself when it last connected.
struct Greeting {
  std::uint64_t rows = 0;                 // of training; 0: not said
  std::vector<std::string> abilities;     // sorted words; empty: an earlier version
  std::vector<std::uint32_t> input = {};  // the shape of its rows; empty: not said
  std::uint32_t classes = 0;
  std::uint64_t held_out = 0;  // rows that it evaluates on; 0: none, or not said
  friend bool operator==(const Greeting&, const Greeting&) = default;
};

// A name that joined. The certificate is the newest one; older ones stay valid to their end.
struct Client {
  std::string name;
  Role role = Role::kDevice;
  ClientState state = ClientState::kActive;
  WallTime joined;
  std::optional<WallTime> last_seen;
  Greeting greeting = {};  // empty until it connected
  std::string certificate_serial;
  Sha256Digest certificate_fingerprint;
  WallTime certificate_expires;
  friend bool operator==(const Client&, const Client&) = default;
};

// When a client was last heard.
struct ClientHeard {
  std::string client;
  WallTime time;
};

// A one-use permission to join. Only the MAC key derived from its secret is kept.
struct Token {
  static constexpr std::uint32_t kBadTriesMax = 5;

  std::string id;  // 8 bytes, lower-case hex
  std::string client;
  Role role = Role::kDevice;
  std::vector<std::string> addresses;  // HOST:PORT of a peer that may be reached; none of others
  Bytes mac_key;                       // 32 bytes
  WallTime created;
  WallTime expires;
  TokenState state = TokenState::kOpen;
  std::uint32_t bad_tries = 0;
  std::optional<Sha256Digest> csr_sha256;         // once used
  std::optional<std::string> certificate_serial;  // once used
  friend bool operator==(const Token&, const Token&) = default;
};

struct Redemption {
  Certificate certificate;
  bool repeated = false;  // the same request again: nothing was changed
};

struct NewRun {
  std::string name;
  std::uint64_t seed = 0;
  std::string submit_token;                         // empty: none, every submission is a new run
  std::string job;                                  // the TOML as submitted
  std::optional<Sha256Digest> initial_sha256 = {};  // of the file that model.initial names, if any
};

struct Run {
  RunId id;
  std::string name;
  RunState state = RunState::kPending;
  std::uint64_t seed = 0;
  std::string submit_token;
  std::string job;
  WallTime submitted;
  std::optional<WallTime> started;
  std::optional<WallTime> ended;
  std::string error_code;  // both empty unless failed
  std::string error;
  bool stop_requested = false;
  std::string settings = {};  // as given to start_run; empty before, and of runs of old versions
  std::optional<Sha256Digest> initial_sha256 = {};  // as submitted or recorded since
  friend bool operator==(const Run&, const Run&) = default;
};

struct RunEnd {
  RunState state = RunState::kCompleted;  // completed, failed or stopped
  std::string error_code;                 // where failed
  std::string error;
};

// An attempt at a phase of a round; each kind counts its attempts from 1.
struct AttemptKey {
  RunId run;
  Round round = 1;
  Attempt attempt = 1;
  PhaseKind kind = PhaseKind::kTrain;
  friend auto operator<=>(const AttemptKey&, const AttemptKey&) = default;
};

struct CohortMember {
  std::string client;
  TaskId task;
  friend bool operator==(const CohortMember&, const CohortMember&) = default;
};

struct NewAttempt {
  AttemptKey key;
  std::vector<CohortMember> cohort;
  Sha256Digest base_model;
  WallTime started;
  std::uint64_t population = 0;  // admitted clients that could do the run then; 0: not known
};

// `task` may be of an earlier attempt of the same phase: a finished update of the same base model
// is still good.
struct Contribution {
  std::string client;
  TaskId task;
  double weight = 0;           // finite, positive; of an evaluation: the rows evaluated
  std::optional<double> norm;  // of the update; missing in evaluations and old rounds
  friend bool operator==(const Contribution&, const Contribution&) = default;
};

// Why a client of the cohort did not count.
struct Failure {
  std::string client;
  std::string code;
  std::string reason;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  friend bool operator==(const Failure&, const Failure&) = default;
};

using MetricValues = std::map<std::string, double>;  // a custom trainer's numbers, by name

struct Evaluation {
  std::optional<double> loss;
  std::optional<double> accuracy;
  MetricValues metrics = {};
  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

// What an attempt came to, whether committed or abandoned. A NaN counts as missing. `evaluation`:
// the coordinator's own in a train phase, the clients' together in an evaluate phase.
struct AttemptResult {
  std::vector<Contribution> contributions;  // where abandoned: received, but in no model
  std::vector<Failure> failures;
  std::optional<double> train_loss;
  MetricValues train_metrics = {};
  Evaluation evaluation;
  double seconds = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  friend bool operator==(const AttemptResult&, const AttemptResult&) = default;
};

// Why an attempt came to nothing.
struct Abandonment {
  std::string code;
  std::string reason;
  friend bool operator==(const Abandonment&, const Abandonment&) = default;
};

// Whether the attempt was given up for a model that was found damaged, its own or its base.
bool is_withdrawal(const Abandonment& why);

// The file of a strategy's state, which stands beside the model's.
struct StateFile {
  Sha256Digest sha256;  // over the whole file
  std::uint64_t bytes = 0;
  friend bool operator==(const StateFile&, const StateFile&) = default;
};

// A model whose files were durable before this was written.
struct ModelRecord {
  Round round = 0;
  Sha256Digest sha256;             // over the float32 values in layout order
  Evaluation evaluation;           // of the round that made it; ignored when written
  Evaluation federated;            // of its evaluate phase; ignored when written
  std::optional<StateFile> state;  // of the strategy, where it has any
  friend bool operator==(const ModelRecord&, const ModelRecord&) = default;
};

struct RoundRecord {
  AttemptKey key;
  RoundState state = RoundState::kOpen;
  std::vector<CohortMember> cohort;  // in the order in which it was opened
  Sha256Digest base_model;
  WallTime started;
  AttemptResult result;                    // while open: only the bytes so far
  std::optional<Sha256Digest> model;       // of a committed train phase
  std::optional<Abandonment> abandonment;  // where abandoned
  std::uint64_t population = 0;            // as in NewAttempt
  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

struct TaskRecord {
  TaskId id;
  AttemptKey attempt;
  std::string client;
  TaskOutcome outcome = TaskOutcome::kOpen;
  friend bool operator==(const TaskRecord&, const TaskRecord&) = default;
};

// A task and what became of its phase.
struct TaskEnd {
  TaskRecord task;
  RunState run = RunState::kPending;
  std::optional<Sha256Digest> model;  // of the task's round, once a phase of its kind is committed
  bool passed = false;                // an evaluation of a round that the run has gone on from
  friend bool operator==(const TaskEnd&, const TaskEnd&) = default;
};

struct LogLine {
  std::uint64_t sequence = 0;  // from 1 within its run
  WallTime time;
  std::string text;
  friend bool operator==(const LogLine&, const LogLine&) = default;
};

}  // namespace starling::store
