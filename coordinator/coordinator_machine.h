// SPDX-License-Identifier: Apache-2.0
// The coordinator as a deterministic machine: sessions, runs, rounds and their attempts. One round
// is open at a time: it is of the first run, in the order of submission, that could open one when
// the last round ended. A run that waits for clients holds up no other run and keeps its place. The
// machine owns no socket, clock, thread, file or randomness: events come in with the time, actions
// go out for a shell (the service or the simulator) to perform in order. An event costs time
// logarithmic in the clients and tasks, unless it begins or ends a run or a round, revokes a client
// or drains.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/client_sampler.h"
#include "coordinator/job.h"
#include "coordinator/norm_bound.h"
#include "coordinator/round_machine.h"
#include "core/base/deadlines.h"
#include "core/model/parameters.h"
#include "core/protocol/messages.h"
#include "core/protocol/transfer.h"

namespace starling::coordinator {

// An attempt that an earlier process opened and did not close.
struct OpenAttempt {
  Round round = 0;
  Attempt attempt = 0;
  std::vector<Participant> participants;
  std::uint64_t bytes_in = 0;  // as last recorded
  std::uint64_t bytes_out = 0;
};

// Of one round, without the open one.
struct PastAttempts {
  Attempt last = 0;  // its number; the next one has the next
  int failed = 0;    // abandoned because of their own course, not withdrawn for a damaged model
};

// A run to hold: where it stands, and what its clients need to know.
struct RunStart {
  RunId id;
  Job job;
  Settings settings;  // of the round plans
  update::Schema schema;
  update::ModelVersion version;  // round 0, or the last committed round
  model::Snapshot model;
  std::map<Round, PastAttempts> attempts;  // of the rounds after `version`
  std::optional<OpenAttempt> open;
  RecentNorms norms;  // up to `version`
  // Replay of a recorded run: who contributed, by round; empty: draw.
  std::map<Round, std::vector<std::string>> recorded_contributors;
};

// --- events -------------------------------------------------------------------------------------
struct ClientAdmitted {
  std::string client;
  bool seen_before = false;  // it was connected to an earlier process: it may come back soon
  std::uint64_t rows = 0;    // as it announced last; 0: not yet
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
struct UploadSummed {  // the answer to SumUpload
  TaskId task;
  Result<double> result;  // the update's norm
};
struct RoundDurable {  // the answer to CommitRound
  Result<std::pair<update::ModelVersion, model::Snapshot>> next;
};
struct TaskLookedUp {  // the answer to LookUpTask: a message that settles it
  SessionId session;
  protocol::Message settlement;
};
struct Tick {};
struct Drain {};  // say goodbye to everyone; open rounds stay open for the next start
using Event = std::variant<ClientAdmitted, ClientRevoked, SessionOpened, SessionClosed,
                           MessageReceived, SessionHeard, RunSubmitted, StopRun, UploadOpened,
                           UploadSummed, RoundDurable, TaskLookedUp, Tick, Drain>;

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
struct BeginRound {  // durable before anything after it is performed; makes a new aggregate
  RunId run;
  Round round;
  Attempt attempt;
  bool resumed;  // the attempt is in the store already
  std::vector<Participant> participants;
  update::Schema schema;
  update::ModelVersion base;
  model::Snapshot model;           // of `base`
  std::size_t clients;             // admitted
  std::optional<double> norm_max;  // an update of a larger norm is refused
};
struct OpenUpload {
  TaskId task;
  std::uint64_t bytes;
};
struct WriteUpload {  // a failure shows in the answer to SumUpload
  TaskId task;
  std::uint64_t offset;
  SharedBytes bytes;
};
struct DropUpload {
  TaskId task;
};
struct SumUpload {  // validate, then add to the aggregate; drops the upload
  update::ContributionHead head;
  update::Schema schema;
};
struct RecordTraffic {  // so far, of the open attempt; what a kill loses of it is not counted
  RunId run;
  Round round;
  Attempt attempt;
  std::uint64_t bytes_in;
  std::uint64_t bytes_out;
};
struct CommitRound {  // aggregate, evaluate, make durable: RoundDurable
  RoundSummary summary;
};
struct AbandonRound {
  RoundSummary summary;
  Error reason;
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
  std::optional<std::uint64_t> rows;
};
struct Say {  // a line of the run's log; run 0: of the service's
  RunId run;
  std::string line;
};
using Action = std::variant<Send, CloseSession, BeginRound, OpenUpload, WriteUpload, DropUpload,
                            SumUpload, RecordTraffic, CommitRound, AbandonRound, RunWaits,
                            FinishRun, LookUpTask, ClientSeen, Say>;

struct CoordinatorOptions {
  std::string federation = "federation";
  Duration heartbeat = std::chrono::seconds(10);
  Duration silence_max = std::chrono::seconds(60);         // nothing heard: the session is closed
  Duration greeting_deadline = std::chrono::seconds(10);   // from opened to Hello
  Duration upload_retry = std::chrono::milliseconds(200);  // when the spool was full
  protocol::TransferOptions transfer;
};

class CoordinatorMachine {
 public:
  explicit CoordinatorMachine(CoordinatorOptions options);
  CoordinatorMachine(const CoordinatorMachine&) = delete;
  CoordinatorMachine& operator=(const CoordinatorMachine&) = delete;

  std::vector<Action> on(Event event, TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  bool connected(const std::string& client) const;
  // When a client that is connected was heard last.
  std::optional<TimePoint> heard_at(const std::string& client) const;
  std::size_t clients_connected() const { return connected_; }
  // Whose round is open; else the first one that is held; null when none is held.
  const RunStart* active_run() const;
  const RoundMachine* round() const;
  // Whether every run that is held waits for clients.
  bool idle() const;
  // Why a run that is held has no round open, as "4 clients (2 connected)"; empty where it has one,
  // is about to open one, or is not held.
  std::string waits_for(RunId run) const;
  // How many tasks, clients and sessions were looked at so far, which is what events have cost.
  std::uint64_t work() const;

 private:
  struct Session {
    std::string client;
    bool greeted = false;
    TimePoint opened_at{};
    TimePoint heard_at{};
  };
  struct Client {
    std::optional<SessionId> session;  // greeted
    TimePoint away_since{};
    bool seen = false;
    std::uint64_t rows = 0;  // announced in its last greeting; 0: not announced
  };
  struct Uploading {
    update::ContributionHead head;
    std::optional<protocol::TransferReceiver> receiver;  // once there is room for it
  };
  struct HeldRun {
    explicit HeldRun(RunStart s) : start(std::move(s)) {}
    RunStart start;
    std::optional<RoundMachine> round;
    bool committing = false;
    bool stop_requested = false;
    std::size_t awaited = 0;  // clients for which it waits; 0: it does not
    std::optional<TimePoint> retry_at;
    // Clients that were seen, are not connected and may come back, until when.
    Deadlines<std::string> away;
    std::string missing;  // of a replay's contributors, when they were last looked at
    // Of the open round:
    double median_rows = 0;  // of its clients that announced any, the lower median; 0: none did
    std::map<TaskId, protocol::TransferSender> downloads;
    std::map<TaskId, Uploading> uploads;
    Deadlines<TaskId> retries;  // of uploads for which there was no room
    Deadlines<TaskId> absent;   // asked, and the client is not connected: when it is given up
    RoundSummary closing;       // while committing
  };

  void handle(ClientAdmitted&);
  void handle(ClientRevoked&);
  void handle(SessionOpened&);
  void handle(SessionClosed&);
  void handle(MessageReceived&);
  void handle(SessionHeard&);
  void handle(RunSubmitted&);
  void handle(StopRun&);
  void handle(UploadOpened&);
  void handle(UploadSummed&);
  void handle(RoundDurable&);
  void handle(TaskLookedUp&);
  void handle(Tick&);
  void handle(Drain&);

  void receive(SessionId, Session&, const protocol::Hello&);
  void receive(SessionId, Session&, const protocol::ModelRequest&);
  void receive(SessionId, Session&, const protocol::Credit&);
  void receive(SessionId, Session&, const protocol::UpdateOffer&);
  void receive(SessionId, Session&, const protocol::Chunk&, const SharedBytes&);
  void receive(SessionId, Session&, const protocol::TaskFailed&);
  void receive(SessionId, Session&, const protocol::Bye&);

  void advance();  // after every event: whatever can happen now, happens
  void open_next_round();
  void try_open_round(HeldRun& run);
  void open_round(HeldRun& run, OpenAttempt open, bool resumed);
  void wait_for_clients(HeldRun& run, std::size_t awaited);
  void close_round_if_due();
  void abandon_round(RoundSummary summary);
  void give_up_absent();
  void retry_uploads();
  void sum_next();
  void finish_run(HeldRun& run, FinishRun::State state, std::optional<Error> error);
  void tell_task_end(TaskId task);
  void end_all_tasks(const Error& reason);

  std::vector<std::string> eligible(const HeldRun& run);
  bool all_connected(HeldRun& run, const std::vector<std::string>& names);
  void went_away(const std::string& name, const Client& client);
  void came_back(const std::string& name);
  void await(TaskId task, const Client& client);
  void end_round();
  void record_traffic();
  TimePoint deadline_of(const Session& session) const;
  // The task if it belongs to the open round and to this client; else null.
  const RoundMachine::Task* open_task(TaskId task, const std::string& client) const;
  // The weight that an offered one counts as. "weight-above-rows"
  Result<double> counted_weight(const std::string& client, double weight) const;
  double median_rows(const std::vector<Participant>& participants) const;
  void send_plan(SessionId session, TaskId task);
  void pump_download(SessionId session, TaskId task);
  void fail_task(TaskId task, const Error& error);
  void leave(SessionId session);
  void refuse(SessionId session, const std::string& code, const std::string& message);
  void settle_unknown(SessionId session, const Session&, TaskId task);
  void send(SessionId session, protocol::Message message, SharedBytes payload = {});
  void send_to(const std::string& client, protocol::Message message);
  void say(RunId run, std::string line);

  CoordinatorOptions options_;
  TimePoint now_{};
  std::vector<Action> actions_;
  std::map<SessionId, Session> sessions_;
  Deadlines<SessionId> sessions_due_;      // not later than the session's deadline
  std::map<std::string, Client> clients_;  // admitted, in order of name
  std::size_t connected_ = 0;              // of them, with a greeted session
  std::map<RunId, HeldRun> runs_;          // in order of submission
  HeldRun* active_ = nullptr;  // of them, the one whose round is open or being committed
  bool draining_ = false;
  std::uint64_t work_ = 0;  // but that of the open round
};

}  // namespace starling::coordinator
