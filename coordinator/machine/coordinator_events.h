// SPDX-License-Identifier: Apache-2.0
// What the coordinator's machine is told and what it answers: events come in with the time, actions
// go out for a shell (the service or the simulator) to perform in order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/job/early_stopping.h"
#include "coordinator/job/job.h"
#include "coordinator/job/norm_bound.h"
#include "coordinator/machine/client_failures.h"
#include "coordinator/machine/client_pauses.h"
#include "coordinator/machine/client_sampler.h"
#include "coordinator/machine/lost_states.h"
#include "coordinator/machine/round_machine.h"
#include "coordinator/machine/run_position.h"
#include "core/model/parameters.h"
#include "core/protocol/messages.h"
#include "core/protocol/transfer.h"
#include "core/store/records.h"
#include "core/strategy/strategy.h"

namespace starling::coordinator {

// As it is stored, so that a restarted coordinator knows what its clients can do.
using Greeting = store::Greeting;

// A phase that an earlier process opened and did not close.
struct OpenAttempt {
  protocol::TaskKind kind = protocol::TaskKind::kTrain;
  Round round = 0;
  Attempt attempt = 0;
  std::vector<Participant> participants;
  std::uint64_t population = 0;  // admitted clients that could do the run when it opened
  std::uint64_t bytes_in = 0;    // as last recorded
  std::uint64_t bytes_out = 0;
};

// Of one round, without the open one.
struct PastAttempts {
  Attempt last = 0;  // its number; the next one has the next
  int failed = 0;    // abandoned because of their own course, not withdrawn for a damaged model
};

// What a recorded run met that its job does not say, by round. Empty: nothing is repeated.
struct Replay {
  std::map<Round, std::vector<std::string>> contributors;
  std::map<Round, std::vector<std::string>> lost;  // whose states were gone before that round
  std::map<Round, std::uint64_t> populations;      // as in OpenAttempt; none: those of now
};

// A run to hold: where it stands, and what its clients need to know.
struct RunStart {
  RunId id;
  Job job;
  Settings settings;  // of the tasks
  update::Schema schema;
  std::shared_ptr<const strategy::ServerStrategy<float>> strategy;
  bool uniform_weights = false;        // every client counts the same
  std::vector<std::string> abilities;  // that a client needs for it
  RunPosition at;
  std::map<Round, PastAttempts> attempts;  // of the rounds after `at`
  std::optional<OpenAttempt> open;
  // The last task of each client that abandoned attempts of the round after `at` asked.
  std::map<std::string, TaskId> abandoned;
  RecentNorms norms;        // up to `at`
  RecentNorms first_norms;  // of the first rounds that committed, as many
  NormRaises norm_raises;   // by the attempts so far
  CountedUpdates counted;   // up to `at`
  ClientFailures failures;  // at trainings
  ClientPauses missed{ClientPauses::kTrainingsInARowMax};
  ClientPauses evaluation_failures{ClientPauses::kEvaluationsInARowMax};
  EarlyStopping stopping;                // what was measured so far
  bool evaluated = false;                // by clients, the model of `at`, or it was tried
  std::map<Round, Attempt> evaluations;  // the last attempt of each model, from `at` on
  Replay replay;
};

// --- events -------------------------------------------------------------------------------------
struct ClientAdmitted {
  std::string client;
  bool seen_before = false;  // it was connected to an earlier process: it may come back soon
  Greeting greeting = {};    // its last one
};
struct ClientRevoked {
  std::string client;
};
struct SessionOpened {
  SessionId session;
  std::string client;  // from the certificate; admitted
};
struct SessionClosed {
  SessionId session;
};
struct MessageReceived {
  SessionId session;
  protocol::Envelope envelope;
};
struct SessionHeard {  // something came that is not for this machine
  SessionId session;
};
struct RunSubmitted {
  RunStart start;
};
struct StopRun {
  RunId run;
};
struct UploadOpened {  // the answer to OpenUpload
  TaskId task;
  Result<std::uint64_t> received;  // where to go on, after an interruption
};
struct UploadStalled {  // it lost its room to others that waited
  TaskId task;
};
struct UploadSummed {  // the answer to SumUpload
  TaskId task;
  Result<double> result;  // the update's norm
  // It failed for what was received and damaged since, by a power cut or on a bad disk: its client
  // sends it again.
  bool damaged_here = false;
};
// What is durable: of a train phase the next position, of any phase what was measured.
struct Durable {
  std::optional<RunPosition> next;
  std::optional<Measured> measured;
};
struct RoundDurable {  // the answer to CommitRound
  RunId run;
  Result<Durable> result;
};
struct TaskLookedUp {  // the answer to LookUpTask: a message that settles it
  SessionId session;
  protocol::Message settlement;
};
struct Tick {};
struct Drain {};  // say goodbye to everyone; open rounds stay open for the next start
using Event = std::variant<ClientAdmitted, ClientRevoked, SessionOpened, SessionClosed,
                           MessageReceived, SessionHeard, RunSubmitted, StopRun, UploadOpened,
                           UploadStalled, UploadSummed, RoundDurable, TaskLookedUp, Tick, Drain>;

// --- actions ------------------------------------------------------------------------------------
struct Send {
  SessionId session;
  protocol::Envelope envelope;
};
struct CloseSession {
  SessionId session;
  std::string code;
  std::string message;
};
struct BeginRound {  // a phase: durable before anything after it is performed; a new aggregate
  RunId run;
  protocol::TaskKind kind;
  Round round;
  Attempt attempt;
  bool resumed;  // the phase is in the store already
  std::vector<Participant> participants;
  update::Schema schema;
  RunPosition base;
  std::uint64_t population;        // admitted clients that can do the run
  std::optional<double> norm_max;  // an update of a larger norm is refused
};
struct OpenUpload {
  RunId run;
  TaskId task;
  std::uint64_t bytes;
  std::uint64_t checksum;  // of the whole update
};
struct WriteUpload {  // a failure shows in the answer to SumUpload
  TaskId task;
  std::uint64_t offset;
  SharedBytes bytes;
};
struct DropUpload {
  TaskId task;
};
struct SumUpload {  // validate, then add to the run's aggregate; drops the upload, unless the run's
                    // rule needs all at once: then at the phase's end
  RunId run;
  update::ContributionHead head;
  update::Schema schema;
};
struct RecordTraffic {  // so far, of the open phase; what a kill loses of it is not counted
  RunId run;
  protocol::TaskKind kind;
  Round round;
  Attempt attempt;
  std::uint64_t bytes_in;
  std::uint64_t bytes_out;
};
struct CommitRound {  // aggregate, evaluate, make durable: RoundDurable
  RoundSummary summary;
};
struct StopEvaluation {  // the run is being stopped: give up the evaluation of its round
  RunId run;
};
struct AbandonRound {
  RoundSummary summary;
  Error reason;
  bool is_repetition = false;  // of many like it: not logged
};
struct RunWaits {  // it has begun to wait for clients: others may open rounds
  RunId run;
};
struct FinishRun {
  RunId run;
  enum class State { kCompleted, kFailed, kStopped } state;
  std::optional<Error> error;
};
struct LookUpTask {  // a task that is not of the open round
  SessionId session;
  std::string client;
  TaskId task;
};
struct ClientSeen {
  std::string client;
  std::optional<Greeting> greeting;
};
struct Say {  // a line of the run's log; run 0: of the service's
  RunId run;
  std::string line;
};
using Action = std::variant<Send, CloseSession, BeginRound, OpenUpload, WriteUpload, DropUpload,
                            SumUpload, RecordTraffic, CommitRound, StopEvaluation, AbandonRound,
                            RunWaits, FinishRun, LookUpTask, ClientSeen, Say>;

struct CoordinatorOptions {
  std::string federation = "federation";
  std::size_t runs_max = 4;  // that have a phase open at a time
  Duration heartbeat = std::chrono::seconds(10);
  Duration silence_max = std::chrono::seconds(60);         // nothing heard: the session is closed
  Duration greeting_deadline = std::chrono::seconds(10);   // from opened to Hello
  Duration upload_retry = std::chrono::milliseconds(200);  // when the spool was full
  // After a restart at least so long: clients may try to connect every 30 s only (backoff-max).
  Duration restart_grace = std::chrono::seconds(60);
  protocol::TransferOptions transfer;
};

}  // namespace starling::coordinator
