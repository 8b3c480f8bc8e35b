// SPDX-License-Identifier: Apache-2.0
#include "coordinator/coordinator_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "core/wire/limits.h"

namespace starling::coordinator {
namespace {

// What a client names goes into records, logs and terminals.
bool is_reason_code(const std::string& code) {
  return !code.empty() && code.size() <= 64 && std::all_of(code.begin(), code.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

}  // namespace

CoordinatorMachine::CoordinatorMachine(CoordinatorOptions options) : options_(std::move(options)) {}

std::vector<Action> CoordinatorMachine::on(Event event, TimePoint now) {
  now_ = now;
  std::visit([this](auto& e) { handle(e); }, event);
  if (!draining_) advance();
  return std::exchange(actions_, {});
}

std::optional<TimePoint> CoordinatorMachine::next_deadline() const {
  if (draining_) return std::nullopt;
  std::optional<TimePoint> next;
  const auto consider = [&next](TimePoint time) { next = next ? std::min(*next, time) : time; };
  if (!sessions_.empty()) consider(sessions_due_);
  if (!active_) return next;
  if (active_->retry_at) consider(*active_->retry_at);
  if (!active_->round || active_->committing) return next;
  if (!active_->round->summing()) consider(active_->round->deadline());
  for (const auto& [task, upload] : active_->uploads) {
    if (upload.retry_at) consider(*upload.retry_at);
  }
  for (const auto& [id, task] : active_->round->tasks()) {
    if (task.state != RoundMachine::State::kAsked) continue;
    const auto client = clients_.find(task.client);
    if (client != clients_.end() && !client->second.session) {
      consider(client->second.away_since + active_->start.job.round.reconnect_grace);
    }
  }
  return next;
}

bool CoordinatorMachine::connected(const std::string& client) const {
  const auto found = clients_.find(client);
  return found != clients_.end() && found->second.session.has_value();
}

std::optional<TimePoint> CoordinatorMachine::heard_at(const std::string& client) const {
  const auto found = clients_.find(client);
  if (found == clients_.end() || !found->second.session) return std::nullopt;
  return sessions_.at(*found->second.session).heard_at;
}

const RoundMachine* CoordinatorMachine::round() const {
  return active_ && active_->round ? &*active_->round : nullptr;
}

// --- who is there -------------------------------------------------------------------------------

void CoordinatorMachine::handle(ClientAdmitted& event) {
  Client& client = clients_[event.client];
  client.seen = client.seen || event.seen_before;
  client.away_since = now_;
}

void CoordinatorMachine::handle(ClientRevoked& event) {
  std::vector<SessionId> sessions;
  for (const auto& [id, session] : sessions_) {
    if (session.client == event.client) sessions.push_back(id);
  }
  const Error reason =
      rejected("certificate-revoked", "the operator revoked the client " + event.client);
  for (const SessionId id : sessions) refuse(id, reason.code(), reason.message());
  if (active_ && active_->round && !active_->committing) {
    if (const auto task = active_->round->task_of(event.client)) fail_task(*task, reason);
  }
  clients_.erase(event.client);
}

void CoordinatorMachine::handle(SessionOpened& event) {
  STARLING_CHECK(!sessions_.contains(event.session));
  const Session session{.client = event.client, .opened_at = now_, .heard_at = now_};
  sessions_due_ =
      sessions_.empty() ? deadline_of(session) : std::min(sessions_due_, deadline_of(session));
  sessions_[event.session] = session;
}

TimePoint CoordinatorMachine::deadline_of(const Session& session) const {
  return session.greeted ? session.heard_at + options_.silence_max
                         : session.opened_at + options_.greeting_deadline;
}

void CoordinatorMachine::handle(SessionClosed& event) { leave(event.session); }

void CoordinatorMachine::leave(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const std::string name = found->second.client;
  sessions_.erase(found);
  const auto client = clients_.find(name);
  if (client == clients_.end() || client->second.session != id) return;
  client->second.session.reset();
  client->second.away_since = now_;
  --connected_;
  actions_.push_back(ClientSeen{name, std::nullopt});
  if (!active_ || !active_->round) return;
  if (const auto task = active_->round->task_of(name)) {
    active_->downloads.erase(*task);
    active_->round->interrupted(*task);
  }
}

void CoordinatorMachine::refuse(SessionId id, const std::string& code, const std::string& message) {
  send(id, protocol::Bye{code, message});
  actions_.push_back(CloseSession{id, code, message});
  leave(id);
}

// --- messages -----------------------------------------------------------------------------------

void CoordinatorMachine::handle(MessageReceived& event) {
  const auto found = sessions_.find(event.session);
  if (found == sessions_.end()) return;  // it was closed from this side
  const SessionId id = event.session;
  Session& session = found->second;
  session.heard_at = now_;
  const protocol::Message& message = event.envelope.message;
  if (const auto* hello = std::get_if<protocol::Hello>(&message))
    return receive(id, session, *hello);
  if (const auto* bye = std::get_if<protocol::Bye>(&message)) return receive(id, session, *bye);
  if (!session.greeted) return refuse(id, "bad-message", "the first message must be Hello");
  if (const auto* ping = std::get_if<protocol::Ping>(&message)) {
    return send(id, protocol::Pong{ping->nonce});
  }
  if (const auto* chunk = std::get_if<protocol::Chunk>(&message)) {
    return receive(id, session, *chunk, event.envelope.payload);
  }
  if (const auto* offer = std::get_if<protocol::UpdateOffer>(&message)) {
    return receive(id, session, *offer);
  }
  if (const auto* request = std::get_if<protocol::ModelRequest>(&message)) {
    return receive(id, session, *request);
  }
  if (const auto* credit = std::get_if<protocol::Credit>(&message)) {
    return receive(id, session, *credit);
  }
  if (const auto* failed = std::get_if<protocol::TaskFailed>(&message)) {
    return receive(id, session, *failed);
  }
  if (!std::holds_alternative<protocol::Pong>(message)) {
    refuse(id, "bad-message", "a client does not send this message");
  }
}

void CoordinatorMachine::handle(SessionHeard& event) {
  const auto found = sessions_.find(event.session);
  if (found != sessions_.end()) found->second.heard_at = now_;
}

void CoordinatorMachine::receive(SessionId id, Session& session, const protocol::Hello& hello) {
  if (session.greeted) return;  // a repetition
  if (hello.version_min > protocol::kVersion || hello.version_max < protocol::kVersion) {
    return refuse(
        id, "version",
        fmt::format("this coordinator speaks protocol version {}; {} speaks {} to {}",
                    protocol::kVersion, session.client, hello.version_min, hello.version_max));
  }
  const auto client = clients_.find(session.client);
  if (client == clients_.end()) {
    return refuse(id, "certificate-revoked", "this client is not admitted any more");
  }
  session.greeted = true;
  sessions_due_ = std::min(sessions_due_, deadline_of(session));
  const auto earlier = client->second.session;
  if (earlier && *earlier != id) {  // a new connection of the same identity replaces a dead one
    refuse(*earlier, "replaced", "another connection of the same client took over");
  }
  client->second.session = id;
  client->second.seen = true;
  ++connected_;
  actions_.push_back(ClientSeen{session.client, hello.rows});
  send(id, protocol::Welcome{.version = protocol::kVersion,
                             .federation = options_.federation,
                             .client = session.client,
                             .heartbeat = options_.heartbeat});
  if (!active_ || !active_->round || active_->committing) return;
  const auto task = active_->round->task_of(session.client);
  if (task && active_->round->tasks().at(*task).state == RoundMachine::State::kAsked) {
    send_plan(id, *task);
  }
}

void CoordinatorMachine::receive(SessionId id, Session&, const protocol::Bye&) {
  actions_.push_back(CloseSession{id, "bye", "the client said goodbye"});
  leave(id);
}

const RoundMachine::Task* CoordinatorMachine::open_task(TaskId task,
                                                        const std::string& client) const {
  if (!active_ || !active_->round || active_->committing) return nullptr;
  return active_->round->find(task, client);
}

void CoordinatorMachine::receive(SessionId id, Session& session,
                                 const protocol::ModelRequest& request) {
  if (!open_task(request.task, session.client)) return settle_unknown(id, session, request.task);
  const model::Snapshot& model = active_->start.model;
  const SharedBytes bytes(model, as_bytes(model->values()));
  auto [download, added] = active_->downloads.insert_or_assign(
      request.task, protocol::TransferSender(bytes, options_.transfer.chunk_bytes_max));
  if (const auto started = download->second.start(request.offset, request.limit); !started) {
    return refuse(id, started.error().code(), started.error().message());
  }
  pump_download(id, request.task);
}

void CoordinatorMachine::receive(SessionId id, Session& session, const protocol::Credit& credit) {
  if (!open_task(credit.task, session.client)) return;
  const auto download = active_->downloads.find(credit.task);
  if (download == active_->downloads.end()) return;
  download->second.extend(credit.limit);
  pump_download(id, credit.task);
}

void CoordinatorMachine::pump_download(SessionId id, TaskId task) {
  const auto download = active_->downloads.find(task);
  while (auto piece = download->second.next()) {
    active_->round->count_bytes(task, 0, piece->bytes.size());
    send(id, protocol::Chunk{.task = task, .offset = piece->offset}, std::move(piece->bytes));
  }
  if (download->second.done()) active_->downloads.erase(download);
}

void CoordinatorMachine::receive(SessionId id, Session& session,
                                 const protocol::UpdateOffer& offer) {
  const TaskId task = offer.head.task;
  const RoundMachine::Task* known = open_task(task, session.client);
  if (!known) return settle_unknown(id, session, task);
  if (known->state == RoundMachine::State::kCounted)
    return send(id, protocol::UpdateReceived{task});
  if (known->state == RoundMachine::State::kSumming) return;
  if (known->state == RoundMachine::State::kFailed) {
    return send(id, protocol::TaskEnded{task, known->failure->code(), known->failure->message()});
  }
  if (offer.head.base != active_->start.version) {
    return fail_task(task, rejected("wrong-base", "the update starts from another model"));
  }
  if (const auto valid = update::validate_head(offer.head, active_->start.schema); !valid) {
    return fail_task(task, valid.error());
  }
  active_->round->offered(task, offer.head.weight);
  active_->uploads[task] = Uploading{.head = offer.head};
  actions_.push_back(OpenUpload{task, offer.head.payload_bytes});
}

void CoordinatorMachine::handle(UploadOpened& event) {
  if (!active_ || !active_->round) return;
  const auto upload = active_->uploads.find(event.task);
  if (upload == active_->uploads.end()) return;
  if (!event.received) {
    if (event.received.error().kind() != ErrorKind::kOverloaded) {
      return fail_task(event.task, event.received.error());
    }
    upload->second.retry_at = now_ + options_.upload_retry;  // no room, no credit; try again
    return;
  }
  const std::uint64_t total = upload->second.head.payload_bytes;
  upload->second.retry_at.reset();
  upload->second.receiver.emplace(total, options_.transfer.window_bytes);
  if (*event.received > 0) upload->second.receiver->resume(*event.received);
  const RoundMachine::Task& task = active_->round->tasks().at(event.task);
  send_to(task.client, protocol::UpdateAccept{.task = event.task,
                                              .offset = *event.received,
                                              .limit = upload->second.receiver->tell_limit()});
}

void CoordinatorMachine::receive(SessionId id, Session& session, const protocol::Chunk& chunk,
                                 const SharedBytes& payload) {
  const RoundMachine::Task* task = open_task(chunk.task, session.client);
  if (!task || task->state != RoundMachine::State::kOffered) return;  // it was settled meanwhile
  const auto upload = active_->uploads.find(chunk.task);
  if (upload == active_->uploads.end() || !upload->second.receiver) return;
  protocol::TransferReceiver& receiver = *upload->second.receiver;
  const auto taken = receiver.take(chunk.offset, payload.size());
  if (!taken) return refuse(id, taken.error().code(), taken.error().message());
  if (!*taken) return;
  active_->round->count_bytes(chunk.task, payload.size(), 0);
  actions_.push_back(WriteUpload{chunk.task, chunk.offset, payload});
  if (const auto limit = receiver.credit_due()) {
    send(id, protocol::Credit{.task = chunk.task, .limit = *limit});
  }
  if (!receiver.done()) return;
  active_->round->received(chunk.task);
  sum_next();
}

void CoordinatorMachine::sum_next() {
  while (const auto task = active_->round->next_to_sum()) {
    const auto upload = active_->uploads.find(*task);
    actions_.push_back(SumUpload{std::move(upload->second.head), active_->start.schema});
    active_->uploads.erase(upload);
  }
}

void CoordinatorMachine::handle(UploadSummed& event) {
  if (!active_ || !active_->round) return;
  const auto& tasks = active_->round->tasks();
  const auto task = tasks.find(event.task);
  if (task == tasks.end() || task->second.state != RoundMachine::State::kSumming) return;
  active_->round->summed(event.task, event.result);
  if (!event.result) sum_next();
  if (!event.result) return tell_task_end(event.task);
  send_to(task->second.client, protocol::UpdateReceived{event.task});
}

void CoordinatorMachine::receive(SessionId id, Session& session,
                                 const protocol::TaskFailed& failed) {
  if (!open_task(failed.task, session.client)) return settle_unknown(id, session, failed.task);
  fail_task(failed.task, rejected(is_reason_code(failed.code) ? failed.code : "client-error",
                                  printable(failed.message, wire::kSentenceBytesMax)));
}

// What is not of the open round may have been counted before a restart or while the client was
// away: the store knows.
void CoordinatorMachine::settle_unknown(SessionId id, const Session& session, TaskId task) {
  if (active_ && active_->committing && active_->round->find(task, session.client)) {
    return;  // the commit under way will settle it
  }
  actions_.push_back(LookUpTask{id, session.client, task});
}

void CoordinatorMachine::handle(TaskLookedUp& event) {
  if (sessions_.contains(event.session)) send(event.session, std::move(event.settlement));
}

void CoordinatorMachine::fail_task(TaskId id, const Error& error) {
  if (!active_->round->failed(id, error)) return;
  active_->uploads.erase(id);
  active_->downloads.erase(id);
  actions_.push_back(DropUpload{id});
  tell_task_end(id);
}

void CoordinatorMachine::tell_task_end(TaskId id) {
  const RoundMachine::Task& task = active_->round->tasks().at(id);
  send_to(task.client, protocol::TaskEnded{id, task.failure->code(), task.failure->message()});
}

// --- runs and rounds ----------------------------------------------------------------------------

void CoordinatorMachine::handle(RunSubmitted& event) { queue_.push_back(std::move(event.start)); }

void CoordinatorMachine::handle(StopRun& event) {
  if (active_ && active_->start.id == event.run) active_->stop_requested = true;
  const auto queued = std::find_if(queue_.begin(), queue_.end(),
                                   [&](const RunStart& run) { return run.id == event.run; });
  if (queued != queue_.end()) queue_.erase(queued);
}

// Sessions are looked at when the earliest of their deadlines, as far as it was known at the last
// look, has come: hearing from one only moves its deadline further away.
void CoordinatorMachine::handle(Tick&) {
  if (sessions_.empty() || now_ < sessions_due_) return;
  std::vector<std::pair<SessionId, Error>> dead;
  sessions_due_ = TimePoint::max();
  for (const auto& [id, session] : sessions_) {
    sessions_due_ = std::min(sessions_due_, deadline_of(session));
    if (!session.greeted && now_ >= session.opened_at + options_.greeting_deadline) {
      dead.emplace_back(id, retry("deadline", "no Hello came within the deadline"));
    } else if (session.greeted && now_ >= session.heard_at + options_.silence_max) {
      dead.emplace_back(id, retry("silent", fmt::format("nothing was heard for {}",
                                                        format_duration(options_.silence_max))));
    }
  }
  for (const auto& [id, reason] : dead) refuse(id, reason.code(), reason.message());
}

void CoordinatorMachine::handle(Drain&) {
  draining_ = true;
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const SessionId id : ids) {
    refuse(id, "draining", "the coordinator is stopping; it will be back");
  }
}

void CoordinatorMachine::advance() {
  start_next_run();
  if (!active_ || active_->committing) return;
  if (active_->stop_requested) return finish_run(FinishRun::State::kStopped, std::nullopt);
  if (!active_->round) return try_open_round();
  give_up_absent();
  retry_uploads();
  close_round_if_due();
}

void CoordinatorMachine::start_next_run() {
  if (active_ || queue_.empty() || draining_) return;
  active_.emplace(std::move(queue_.front()));
  queue_.pop_front();
  const RunStart& start = active_->start;
  if (!start.open) return;
  // A restart resumes the attempt that was open: the same cohort and tasks, a fresh deadline.
  OpenAttempt open = *start.open;
  active_->start.open.reset();
  active_->start.attempts_made = open.attempt - 1;
  open_round(std::move(open.participants), open.attempt, true);
}

bool CoordinatorMachine::may_come_back(const Client& client) const {
  return client.seen &&
         (client.session || now_ < client.away_since + active_->start.job.round.reconnect_grace);
}

std::vector<std::string> CoordinatorMachine::eligible() const {
  std::vector<std::string> names;
  for (const auto& [name, client] : clients_) {
    if (may_come_back(client)) names.push_back(name);
  }
  return names;
}

void CoordinatorMachine::try_open_round() {
  if (active_->retry_at && now_ < *active_->retry_at) return;
  active_->retry_at.reset();
  const RunStart& start = active_->start;
  const RoundOptions& options = start.job.round;
  const Round next = start.version.round + 1;
  if (next > static_cast<Round>(start.job.job.rounds)) {
    return finish_run(FinishRun::State::kCompleted, std::nullopt);
  }
  const Attempt attempt = start.attempts_made + 1;
  const SelectionKey key{start.id, start.job.job.seed, next, attempt};
  if (const auto recorded = start.recorded_contributors.find(next);
      recorded != start.recorded_contributors.end()) {
    const std::size_t count = recorded->second.size();
    const bool there = std::all_of(recorded->second.begin(), recorded->second.end(),
                                   [this](const std::string& name) { return connected(name); });
    if (!there) return;
    return open_round(select_clients(recorded->second, count, key), attempt, false);
  }
  const std::size_t awaited =
      static_cast<std::size_t>(next == 1 ? options.clients_awaited() : options.updates_needed());
  const std::size_t there = next == 1 ? clients_connected() : eligible().size();
  if (there < awaited) {
    if (!std::exchange(active_->said_waiting, true)) {
      say(fmt::format("[round {}/{}] waiting for {} clients ({} connected)", next,
                      start.job.job.rounds, awaited, clients_connected()));
    }
    return;
  }
  open_round(select_clients(eligible(), static_cast<std::size_t>(options.asked()), key), attempt,
             false);
}

void CoordinatorMachine::open_round(std::vector<Participant> participants, Attempt attempt,
                                    bool resumed) {
  active_->said_waiting = false;
  RunStart& start = active_->start;
  const RoundOptions& options = start.job.round;
  const Round round = start.version.round + 1;
  const std::size_t asked = participants.size();
  start.schema.bounds.contributions_max =
      std::max<std::uint32_t>(1, static_cast<std::uint32_t>(asked));
  active_->round.emplace(
      RoundMachine::Options{
          .run = start.id,
          .round = round,
          .attempt = attempt,
          .updates_wanted = std::min(static_cast<std::size_t>(options.cohort), asked),
          .updates_needed = std::min(static_cast<std::size_t>(options.updates_needed()), asked),
          .deadline = options.deadline},
      participants, now_);
  actions_.push_back(BeginRound{start.id, round, attempt, resumed, participants, start.schema,
                                start.version, clients_.size()});
  say(fmt::format("[round {}/{}] {} {} of {} clients{}", round, start.job.job.rounds,
                  resumed ? "resumed with" : "selected", asked, clients_.size(),
                  attempt > 1 ? fmt::format(" (attempt {})", attempt) : ""));
  for (const Participant& participant : participants) {
    const auto client = clients_.find(participant.client);
    if (client == clients_.end()) {
      fail_task(participant.task, rejected("certificate-revoked", "the client was revoked"));
    } else if (client->second.session) {
      send_plan(*client->second.session, participant.task);
    }
  }
}

void CoordinatorMachine::send_plan(SessionId session, TaskId task) {
  const RunStart& start = active_->start;
  const RoundMachine::Options& round = active_->round->options();
  send(session, protocol::RoundPlan{
                    .task = task,
                    .run = start.id,
                    .run_name = start.job.job.name,
                    .round = round.round,
                    .rounds = static_cast<Round>(start.job.job.rounds),
                    .attempt = round.attempt,
                    .seed = start.job.job.seed,
                    .base = start.version,
                    .model_bytes = start.model->size() * sizeof(float),
                    .settings = start.settings,
                    .schema = start.schema,
                    .deadline = std::max(Duration::zero(), active_->round->deadline() - now_)});
}

// A selected client that stays away longer than the grace is not waited for.
void CoordinatorMachine::give_up_absent() {
  std::vector<TaskId> absent;
  for (const auto& [id, task] : active_->round->tasks()) {
    if (task.state != RoundMachine::State::kAsked) continue;
    const auto client = clients_.find(task.client);
    if (client != clients_.end() && !may_come_back(client->second)) absent.push_back(id);
  }
  const Duration grace = active_->start.job.round.reconnect_grace;
  for (const TaskId id : absent) {
    fail_task(id, retry("disconnected",
                        fmt::format("the client was disconnected for {}", format_duration(grace))));
  }
}

void CoordinatorMachine::retry_uploads() {
  for (auto& [task, upload] : active_->uploads) {
    if (!upload.retry_at || now_ < *upload.retry_at) continue;
    upload.retry_at.reset();
    actions_.push_back(OpenUpload{task, upload.head.payload_bytes});
  }
}

void CoordinatorMachine::close_round_if_due() {
  const RoundMachine::Verdict verdict = active_->round->verdict(now_);
  if (verdict == RoundMachine::Verdict::kOpen) return;
  for (const auto& [task, upload] : active_->uploads) actions_.push_back(DropUpload{task});
  active_->uploads.clear();
  active_->downloads.clear();
  RoundSummary summary = active_->round->close(now_);
  if (verdict == RoundMachine::Verdict::kAbandon) return abandon_round(std::move(summary));
  active_->committing = true;
  active_->closing = summary;
  actions_.push_back(CommitRound{std::move(summary)});
}

// Nobody is told: what is finished or in training is still good for the next attempt.
void CoordinatorMachine::abandon_round(RoundSummary summary) {
  const RoundOptions& options = active_->start.job.round;
  const Error reason =
      retry("too-few-updates",
            fmt::format("{} of the {} updates that were needed", summary.contributors.size(),
                        active_->round->options().updates_needed));
  say(fmt::format("[round {}/{}] abandoned: {}", summary.round, active_->start.job.job.rounds,
                  reason.message()));
  active_->start.attempts_made = summary.attempt;
  active_->round.reset();
  actions_.push_back(AbandonRound{std::move(summary), reason});
  if (active_->start.attempts_made < static_cast<Attempt>(options.attempts_max)) {
    active_->retry_at = now_ + options.retry_pause;
    return;
  }
  finish_run(
      FinishRun::State::kFailed,
      retry(reason.code(), fmt::format("round {} was abandoned {} times, the last time with {}",
                                       active_->start.version.round + 1,
                                       active_->start.attempts_made, reason.message())));
}

void CoordinatorMachine::end_all_tasks(const Error& reason) {
  for (const auto& [id, task] : active_->round->tasks()) {
    send_to(task.client, protocol::TaskEnded{id, reason.code(), reason.message()});
  }
}

void CoordinatorMachine::handle(RoundDurable& event) {
  STARLING_CHECK(active_ && active_->committing);
  active_->committing = false;
  const RoundSummary summary = std::exchange(active_->closing, {});
  if (!event.next) {
    RoundSummary failed = summary;
    failed.committed = false;
    actions_.push_back(AbandonRound{std::move(failed), event.next.error()});
    end_all_tasks(event.next.error());
    active_->round.reset();
    return finish_run(FinishRun::State::kFailed, event.next.error());
  }
  RunStart& start = active_->start;
  start.version = event.next->first;
  start.model = std::move(event.next->second);
  start.attempts_made = 0;
  for (const Contributor& contributor : summary.contributors) {
    send_to(contributor.client, protocol::RoundCommitted{.task = contributor.task,
                                                         .run = summary.run,
                                                         .round = summary.round,
                                                         .model_sha256 = start.version.sha256});
  }
  for (const auto& [id, task] : active_->round->tasks()) {
    if (task.state == RoundMachine::State::kFailed) tell_task_end(id);
  }
  active_->round.reset();
}

void CoordinatorMachine::finish_run(FinishRun::State state, std::optional<Error> error) {
  if (active_->round) {
    const Error stopped = rejected("run-stopped", "the run was stopped");
    for (const auto& [task, upload] : active_->uploads) actions_.push_back(DropUpload{task});
    actions_.push_back(AbandonRound{active_->round->close(now_, stopped), stopped});
    end_all_tasks(stopped);
  }
  actions_.push_back(FinishRun{active_->start.id, state, std::move(error)});
  active_.reset();
  start_next_run();
  if (active_ && !active_->round) try_open_round();
}

// --- saying -------------------------------------------------------------------------------------

void CoordinatorMachine::send(SessionId session, protocol::Message message, SharedBytes payload) {
  actions_.push_back(Send{session, {std::move(message), std::move(payload)}});
}

void CoordinatorMachine::send_to(const std::string& name, protocol::Message message) {
  const auto client = clients_.find(name);
  if (client != clients_.end() && client->second.session) {
    send(*client->second.session, std::move(message));
  }
}

void CoordinatorMachine::say(std::string line) {
  actions_.push_back(Say{active_ ? active_->start.id : RunId{}, std::move(line)});
}

}  // namespace starling::coordinator
