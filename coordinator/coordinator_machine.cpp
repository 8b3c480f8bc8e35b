// SPDX-License-Identifier: Apache-2.0
#include "coordinator/coordinator_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/counted.h"
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
  const auto consider = [&next](std::optional<TimePoint> time) {
    if (time) next = next ? std::min(*next, *time) : time;
  };
  consider(sessions_due_.next());
  if (!active_) {
    for (const auto& [id, run] : runs_) consider(run.retry_at);
    return next;
  }
  if (active_->committing) return next;
  if (!active_->round->summing()) consider(active_->round->deadline());
  consider(active_->retries.next());
  consider(active_->absent.next());
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
  return active_ ? &*active_->round : nullptr;
}

const RunStart* CoordinatorMachine::active_run() const {
  if (active_) return &active_->start;
  return runs_.empty() ? nullptr : &runs_.begin()->second.start;
}

bool CoordinatorMachine::idle() const {
  return !active_ && std::ranges::all_of(runs_, [](const auto& r) { return r.second.awaited > 0; });
}

std::string CoordinatorMachine::waits_for(RunId id) const {
  const auto found = runs_.find(id);
  if (found == runs_.end() || &found->second == active_) return "";
  const HeldRun& run = found->second;
  if (run.awaited > connected_) {
    return fmt::format("{} ({} connected)", counted(run.awaited, "client"), connected_);
  }
  if (!active_) return "";
  return fmt::format("round {} of run {}", active_->round->options().round,
                     active_->start.id.value());
}

std::uint64_t CoordinatorMachine::work() const {
  return work_ + (active_ ? active_->round->work() : 0);
}

// --- who is there -------------------------------------------------------------------------------

void CoordinatorMachine::handle(ClientAdmitted& event) {
  Client& client = clients_[event.client];
  client.seen = client.seen || event.seen_before;
  if (client.rows == 0) client.rows = event.rows;
  client.away_since = now_;
  if (!client.session) went_away(event.client, client);
}

void CoordinatorMachine::handle(ClientRevoked& event) {
  work_ += sessions_.size();
  std::vector<SessionId> sessions;
  for (const auto& [id, session] : sessions_) {
    if (session.client == event.client) sessions.push_back(id);
  }
  const Error reason =
      not_authorised("certificate-revoked", "the operator revoked the client " + event.client);
  for (const SessionId id : sessions) refuse(id, reason.code(), reason.message());
  if (active_ && !active_->committing) {
    if (const auto task = active_->round->task_of(event.client)) fail_task(*task, reason);
  }
  clients_.erase(event.client);
  came_back(event.client);  // no longer waited for
}

void CoordinatorMachine::handle(SessionOpened& event) {
  STARLING_CHECK(!sessions_.contains(event.session));
  const Session session{.client = event.client, .opened_at = now_, .heard_at = now_};
  sessions_due_.set(event.session, deadline_of(session));
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
  sessions_due_.clear(id);
  const auto client = clients_.find(name);
  if (client == clients_.end() || client->second.session != id) return;
  client->second.session.reset();
  client->second.away_since = now_;
  --connected_;
  actions_.push_back(ClientSeen{name, std::nullopt});
  if (active_) {
    if (const auto task = active_->round->task_of(name)) {
      active_->downloads.erase(*task);
      active_->round->interrupted(*task);
    }
  }
  went_away(name, client->second);
}

// Requires: the client is not connected. How long it may be away is counted from `away_since`.
void CoordinatorMachine::went_away(const std::string& name, const Client& client) {
  if (!client.seen) return;
  for (auto& [id, run] : runs_) {
    run.away.set(name, client.away_since + run.start.job.round.reconnect_grace);
  }
  if (!active_) return;
  if (const auto task = active_->round->task_of(name)) await(*task, client);
}

void CoordinatorMachine::came_back(const std::string& name) {
  for (auto& [id, run] : runs_) run.away.clear(name);
  if (!active_) return;
  if (const auto task = active_->round->task_of(name)) active_->absent.clear(*task);
}

// Requires: the client is not connected. Without any update of it, its task ends when it has been
// away for too long; one that was not seen yet is not waited for.
void CoordinatorMachine::await(TaskId task, const Client& client) {
  if (active_->round->find(task)->state != RoundMachine::State::kAsked) return;
  const Duration grace = active_->start.job.round.reconnect_grace;
  active_->absent.set(task, client.seen ? client.away_since + grace : now_);
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
  sessions_due_.set(id, deadline_of(session));
  const auto earlier = client->second.session;
  if (earlier && *earlier != id) {  // a new connection of the same identity replaces a dead one
    refuse(*earlier, "replaced", "another connection of the same client took over");
  }
  client->second.session = id;
  client->second.seen = true;
  client->second.rows = hello.rows;
  ++connected_;
  came_back(session.client);
  actions_.push_back(ClientSeen{session.client, hello.rows});
  send(id, protocol::Welcome{.version = protocol::kVersion,
                             .federation = options_.federation,
                             .client = session.client,
                             .heartbeat = options_.heartbeat});
  if (!active_ || active_->committing) return;
  const auto task = active_->round->task_of(session.client);
  if (task && active_->round->find(*task)->state == RoundMachine::State::kAsked) {
    send_plan(id, *task);
  }
}

void CoordinatorMachine::receive(SessionId id, Session&, const protocol::Bye&) {
  actions_.push_back(CloseSession{id, "bye", "the client said goodbye"});
  leave(id);
}

const RoundMachine::Task* CoordinatorMachine::open_task(TaskId task,
                                                        const std::string& client) const {
  if (!active_ || active_->committing) return nullptr;
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
  if (!download->second.done()) return;
  active_->downloads.erase(download);
  record_traffic();
}

// Once for each model that went out, not for each request of a client that asks for its end again.
void CoordinatorMachine::record_traffic() {
  const RoundMachine& round = *active_->round;
  const std::uint64_t model_bytes = active_->start.model->size() * sizeof(float);
  if (round.bytes_out() < active_->traffic_recorded + model_bytes) return;
  active_->traffic_recorded = round.bytes_out();
  actions_.push_back(RecordTraffic{round.options().run, round.options().round,
                                   round.options().attempt, round.bytes_in(), round.bytes_out()});
}

void CoordinatorMachine::receive(SessionId id, Session& session,
                                 const protocol::UpdateOffer& offer) {
  const TaskId task = offer.head.task;
  const RoundMachine::Task* known = open_task(task, session.client);
  if (!known) return settle_unknown(id, session, task);
  if (known->state == RoundMachine::State::kCounted)
    return send(id, protocol::UpdateReceived{task});
  // It was received whole: the head that came with it counts.
  if (known->state == RoundMachine::State::kWaiting ||
      known->state == RoundMachine::State::kSumming) {
    return;
  }
  if (known->state == RoundMachine::State::kFailed) {
    return send(id, protocol::TaskEnded{task, known->failure->code(), known->failure->message()});
  }
  if (offer.head.base != active_->start.version) {
    return fail_task(task, rejected("wrong-base", "the update starts from another model"));
  }
  if (const auto valid = update::validate_head(offer.head, active_->start.schema); !valid) {
    return fail_task(task, valid.error());
  }
  const auto weight = counted_weight(session.client, offer.head.weight);
  if (!weight) return fail_task(task, weight.error());
  const bool is_new = known->state == RoundMachine::State::kAsked && known->weight != *weight;
  if (is_new && *weight < offer.head.weight) {
    say(active_->start.id,
        fmt::format("{}: the weight {} counts as {} (aggregation.weight-max, weight-ratio-max)",
                    session.client, offer.head.weight, *weight));
  }
  active_->round->offered(task, *weight);
  Uploading& upload = active_->uploads[task] = Uploading{.head = offer.head};
  upload.head.weight = *weight;
  active_->retries.clear(task);
  actions_.push_back(OpenUpload{task, offer.head.payload_bytes});
}

// Nothing proves a weight, nor the rows that a client announces. So no weight exceeds the client's
// own rows, nor a multiple of what its round's clients have, nor the run's bound. Who announced no
// rows, an older client, counts as the median at most.
Result<double> CoordinatorMachine::counted_weight(const std::string& client, double weight) const {
  const auto rows = static_cast<double>(clients_.at(client).rows);
  if (rows > 0 && weight > rows) {
    return rejected("weight-above-rows",
                    fmt::format("the update claims the weight of {} rows; the client announced {}",
                                weight, rows));
  }
  const AggregationOptions& bounds = active_->start.job.aggregation;
  double largest = bounds.weight_max;
  if (bounds.weight_ratio_max > 0 && active_->median_rows > 0) {
    const double ratio = rows > 0 ? bounds.weight_ratio_max : 1;
    largest = std::min(largest, ratio * active_->median_rows);
  }
  return std::min(weight, largest);
}

// The lower of two: among two clients, one's word does not raise it.
double CoordinatorMachine::median_rows(const std::vector<Participant>& participants) const {
  std::vector<std::uint64_t> announced;
  for (const Participant& participant : participants) {
    const auto client = clients_.find(participant.client);
    if (client != clients_.end() && client->second.rows > 0)
      announced.push_back(client->second.rows);
  }
  if (announced.empty()) return 0;
  const auto middle = announced.begin() + static_cast<std::ptrdiff_t>((announced.size() - 1) / 2);
  std::ranges::nth_element(announced, middle);
  return static_cast<double>(*middle);
}

void CoordinatorMachine::handle(UploadOpened& event) {
  if (!active_) return;
  const auto upload = active_->uploads.find(event.task);
  if (upload == active_->uploads.end()) return;
  if (!event.received) {
    if (event.received.error().kind() != ErrorKind::kOverloaded) {
      return fail_task(event.task, event.received.error());
    }
    active_->retries.set(event.task, now_ + options_.upload_retry);  // no room, no credit
    return;
  }
  const std::uint64_t total = upload->second.head.payload_bytes;
  active_->retries.clear(event.task);
  upload->second.receiver.emplace(total, options_.transfer.window_bytes);
  if (*event.received > 0) upload->second.receiver->resume(*event.received);
  const RoundMachine::Task& task = *active_->round->find(event.task);
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
    active_->retries.clear(*task);
  }
}

void CoordinatorMachine::handle(UploadSummed& event) {
  if (!active_) return;
  const RoundMachine::Task* task = active_->round->find(event.task);
  if (task == nullptr || task->state != RoundMachine::State::kSumming) return;
  active_->round->summed(event.task, event.result);
  if (!event.result) sum_next();
  if (!event.result) return tell_task_end(event.task);
  send_to(task->client, protocol::UpdateReceived{event.task});
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
  active_->retries.clear(id);
  active_->downloads.erase(id);
  active_->absent.clear(id);
  actions_.push_back(DropUpload{id});
  tell_task_end(id);
}

void CoordinatorMachine::tell_task_end(TaskId id) {
  const RoundMachine::Task& task = *active_->round->find(id);
  send_to(task.client, protocol::TaskEnded{id, task.failure->code(), task.failure->message()});
}

// --- runs and rounds ----------------------------------------------------------------------------

void CoordinatorMachine::handle(RunSubmitted& event) {
  const RunId id = event.start.id;
  const auto [held, is_new] = runs_.try_emplace(id, std::move(event.start));
  STARLING_CHECK(is_new);
  HeldRun& run = held->second;
  work_ += clients_.size();
  for (const auto& [name, client] : clients_) {
    if (client.session || !client.seen) continue;
    run.away.set(name, client.away_since + run.start.job.round.reconnect_grace);
  }
}

void CoordinatorMachine::handle(StopRun& event) {
  const auto held = runs_.find(event.run);
  if (held == runs_.end()) return;
  if (&held->second == active_ && active_->committing) {
    active_->stop_requested = true;
    return;
  }
  finish_run(held->second, FinishRun::State::kStopped, std::nullopt);
}

// Hearing from a session only moves its deadline further away, which is noted here, when the one
// that was noted before has come.
void CoordinatorMachine::handle(Tick&) {
  std::vector<std::pair<SessionId, Error>> dead;
  for (const SessionId id : sessions_due_.take_due(now_)) {
    ++work_;
    const Session& session = sessions_.at(id);
    if (now_ < deadline_of(session)) {
      sessions_due_.set(id, deadline_of(session));
    } else if (session.greeted) {
      dead.emplace_back(id, retry("silent", fmt::format("nothing was heard for {}",
                                                        format_duration(options_.silence_max))));
    } else {
      dead.emplace_back(id, timed_out("deadline", "no Hello came within the deadline"));
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
  if (active_ && active_->committing) return;
  do {  // an attempt that is abandoned makes room for another run
    if (!active_) open_next_round();
    if (!active_) return;
    give_up_absent();
    retry_uploads();
    close_round_if_due();
  } while (!active_);
}

void CoordinatorMachine::open_next_round() {
  for (auto next = runs_.begin(); next != runs_.end() && !active_;) {
    HeldRun& run = (next++)->second;  // which may end here
    try_open_round(run);
  }
}

// Those that may be asked: connected, or away for less than the grace.
std::vector<std::string> CoordinatorMachine::eligible(const HeldRun& run) {
  work_ += clients_.size();
  const Duration grace = run.start.job.round.reconnect_grace;
  std::vector<std::string> names;
  for (const auto& [name, client] : clients_) {
    if (client.seen && (client.session || now_ < client.away_since + grace)) names.push_back(name);
  }
  return names;
}

// Asked at every event while some are missing: the one that was missing before is looked at first.
bool CoordinatorMachine::all_connected(HeldRun& run, const std::vector<std::string>& names) {
  if (!run.missing.empty() && !connected(run.missing)) return false;
  work_ += names.size();
  const auto missing =
      std::ranges::find_if_not(names, [this](const auto& name) { return connected(name); });
  run.missing = missing == names.end() ? "" : *missing;
  return missing == names.end();
}

void CoordinatorMachine::try_open_round(HeldRun& run) {
  if (run.retry_at && now_ < *run.retry_at) return;
  run.retry_at.reset();
  if (run.start.open) {
    // A restart resumes the attempt that was open: the same cohort and tasks, a fresh deadline.
    return open_round(run, *std::exchange(run.start.open, std::nullopt), true);
  }
  const RunStart& start = run.start;
  const RoundOptions& options = start.job.round;
  const Round next = start.version.round + 1;
  if (next > static_cast<Round>(start.job.job.rounds)) {
    return finish_run(run, FinishRun::State::kCompleted, std::nullopt);
  }
  const auto past = start.attempts.find(next);
  const Attempt attempt = past == start.attempts.end() ? 1 : past->second.last + 1;
  const SelectionKey key{start.id, start.job.job.seed, next, attempt};
  if (const auto recorded = start.recorded_contributors.find(next);
      recorded != start.recorded_contributors.end()) {
    const std::size_t count = recorded->second.size();
    if (!all_connected(run, recorded->second)) return;
    return open_round(run, {next, attempt, select_clients(recorded->second, count, key)}, false);
  }
  const auto awaited =
      static_cast<std::size_t>(next == 1 ? options.clients_awaited() : options.updates_needed());
  run.away.take_due(now_);
  const std::size_t there = connected_ + (next == 1 ? 0 : run.away.size());
  if (there < awaited) return wait_for_clients(run, awaited);
  const auto asked = static_cast<std::size_t>(options.asked());
  open_round(run, {next, attempt, select_clients(eligible(run), asked, key)}, false);
}

void CoordinatorMachine::wait_for_clients(HeldRun& run, std::size_t awaited) {
  if (std::exchange(run.awaited, awaited) > 0) return;
  say(run.start.id,
      fmt::format("[round {}/{}] waiting for {} ({} connected)", run.start.version.round + 1,
                  run.start.job.job.rounds, counted(awaited, "client"), clients_connected()));
  actions_.push_back(RunWaits{run.start.id});
}

void CoordinatorMachine::open_round(HeldRun& run, OpenAttempt open, bool resumed) {
  active_ = &run;
  run.awaited = 0;
  RunStart& start = run.start;
  const RoundOptions& options = start.job.round;
  const Round round = open.round;
  const std::vector<Participant>& participants = open.participants;
  const std::size_t asked = participants.size();
  start.schema.bounds.contributions_max =
      std::max<std::uint32_t>(1, static_cast<std::uint32_t>(asked));
  run.round.emplace(
      RoundMachine::Options{
          .run = start.id,
          .round = round,
          .attempt = open.attempt,
          .updates_wanted = std::min(static_cast<std::size_t>(options.cohort), asked),
          .updates_needed = std::min(static_cast<std::size_t>(options.updates_needed()), asked),
          .deadline = options.deadline,
          .bytes_in = open.bytes_in,
          .bytes_out = open.bytes_out},
      participants, now_);
  run.traffic_recorded = open.bytes_out;
  run.median_rows = median_rows(participants);
  const auto norm_max = NormBound::parse(start.job.aggregation.norm_max).value().limit(start.norms);
  actions_.push_back(BeginRound{start.id, round, open.attempt, resumed, participants, start.schema,
                                start.version, start.model, clients_.size(), norm_max});
  say(start.id, fmt::format("[round {}/{}] {} {} of {} clients{}", round, start.job.job.rounds,
                            resumed ? "resumed with" : "selected", asked, clients_.size(),
                            open.attempt > 1 ? fmt::format(" (attempt {})", open.attempt) : ""));
  for (const Participant& participant : participants) {
    const auto client = clients_.find(participant.client);
    if (client == clients_.end()) {
      fail_task(participant.task, not_authorised("certificate-revoked", "the client was revoked"));
    } else if (client->second.session) {
      send_plan(*client->second.session, participant.task);
    } else {
      await(participant.task, client->second);
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
  const Duration grace = active_->start.job.round.reconnect_grace;
  for (const TaskId id : active_->absent.take_due(now_)) {
    fail_task(id, retry("disconnected",
                        fmt::format("the client was disconnected for {}", format_duration(grace))));
  }
}

void CoordinatorMachine::retry_uploads() {
  for (const TaskId id : active_->retries.take_due(now_)) {
    actions_.push_back(OpenUpload{id, active_->uploads.at(id).head.payload_bytes});
  }
}

void CoordinatorMachine::close_round_if_due() {
  const RoundMachine::Verdict verdict = active_->round->verdict(now_);
  if (verdict == RoundMachine::Verdict::kOpen) return;
  for (const auto& [task, upload] : active_->uploads) actions_.push_back(DropUpload{task});
  active_->uploads.clear();
  active_->retries = {};
  active_->downloads.clear();
  active_->absent = {};
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
  HeldRun& run = *active_;
  say(run.start.id, fmt::format("[round {}/{}] abandoned: {}", summary.round,
                                run.start.job.job.rounds, reason.message()));
  PastAttempts& past = run.start.attempts[summary.round];
  past.last = summary.attempt;
  ++past.failed;
  end_round();
  actions_.push_back(AbandonRound{std::move(summary), reason});
  if (past.failed < options.attempts_max) {
    run.retry_at = now_ + options.retry_pause;
    return;
  }
  finish_run(run, FinishRun::State::kFailed,
             retry(reason.code(),
                   fmt::format("round {} was abandoned {} times, the last time with {}",
                               run.start.version.round + 1, past.failed, reason.message())));
}

void CoordinatorMachine::end_all_tasks(const Error& reason) {
  for (const auto& [id, task] : active_->round->tasks()) {
    send_to(task.client, protocol::TaskEnded{id, reason.code(), reason.message()});
  }
}

void CoordinatorMachine::handle(RoundDurable& event) {
  STARLING_CHECK(active_ && active_->committing);
  HeldRun& run = *active_;
  run.committing = false;
  const RoundSummary summary = std::exchange(run.closing, {});
  if (!event.next) {
    RoundSummary failed = summary;
    failed.committed = false;
    actions_.push_back(AbandonRound{std::move(failed), event.next.error()});
    end_all_tasks(event.next.error());
    end_round();
    return finish_run(run, FinishRun::State::kFailed, event.next.error());
  }
  RunStart& start = run.start;
  start.version = event.next->first;
  start.model = std::move(event.next->second);
  start.attempts.erase(start.attempts.begin(), start.attempts.upper_bound(start.version.round));
  std::vector<double>& norms = start.norms.emplace_back();
  for (const Contributor& contributor : summary.contributors) norms.push_back(contributor.norm);
  if (start.norms.size() > NormBound::kRounds) start.norms.pop_front();
  for (const Contributor& contributor : summary.contributors) {
    send_to(contributor.client, protocol::RoundCommitted{.task = contributor.task,
                                                         .run = summary.run,
                                                         .round = summary.round,
                                                         .model_sha256 = start.version.sha256});
  }
  for (const auto& [id, task] : active_->round->tasks()) {
    if (task.state == RoundMachine::State::kFailed) tell_task_end(id);
  }
  end_round();
  if (run.stop_requested) finish_run(run, FinishRun::State::kStopped, std::nullopt);
}

void CoordinatorMachine::end_round() {
  work_ += active_->round->work();
  active_->round.reset();
  active_ = nullptr;
}

void CoordinatorMachine::finish_run(HeldRun& run, FinishRun::State state,
                                    std::optional<Error> error) {
  if (&run == active_) {
    const Error stopped = rejected("run-stopped", "the run was stopped");
    for (const auto& [task, upload] : run.uploads) actions_.push_back(DropUpload{task});
    actions_.push_back(AbandonRound{run.round->close(now_, stopped), stopped});
    end_all_tasks(stopped);
    end_round();
  }
  const RunId id = run.start.id;
  actions_.push_back(FinishRun{id, state, std::move(error)});
  runs_.erase(id);
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

void CoordinatorMachine::say(RunId run, std::string line) {
  actions_.push_back(Say{run, std::move(line)});
}

}  // namespace starling::coordinator
