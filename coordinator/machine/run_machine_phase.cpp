// SPDX-License-Identifier: Apache-2.0
// What happens within an open phase of a run: tasks go out, inputs down, updates up.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "coordinator/machine/client_fit.h"
#include "coordinator/machine/run_machine.h"
#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "core/train/local_trainer.h"
#include "core/wire/limits.h"

namespace starling::coordinator {
namespace {

// A phase's traffic is written to the store in so many steps where there are more clients.
constexpr std::size_t kTrafficSteps = 32;

// How often an update is requested again that was lost here.
constexpr std::size_t kRepeatsMax = 1;

// More than any client holds.
constexpr double kRowsMax = 0x1p40;

// Of sums of as many terms as there are local steps, relative.
constexpr double kRounding = 1e-6;

// What a client names goes into records, logs and terminals.
bool is_reason_code(const std::string& code) {
  return !code.empty() && code.size() <= 64 && std::all_of(code.begin(), code.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// Codes by which the coordinator decides are its own, but for one that only clients know of.
Error reported(const protocol::TaskFailed& failed) {
  const bool is_circumstance_here = failed.code != client::kMemoryInUse &&
                                    is_circumstance(failed.code, protocol::TaskKind::kTrain);
  const bool is_own =
      is_circumstance_here || failed.code == kNormAboveBound || failed.code.starts_with(kPermanent);
  std::string code = is_reason_code(failed.code) && !is_own ? failed.code : "client-error";
  std::string sentence = printable(failed.message, wire::kSentenceBytesMax);
  if (failed.permanent) code.insert(0, kPermanent);
  return rejected(std::move(code), std::move(sentence));
}

}  // namespace

// --- clients ------------------------------------------------------------------------------------

void RunMachine::came(const std::string& name, const ClientTable::Client&) {
  away_.clear(name);
  start_.missed.came_back(name);
  start_.evaluation_failures.came_back(name);
  if (!phase_) return;
  const auto task = phase_->tasks.task_of(name);
  if (!task) return;
  phase_->absent.clear(*task);
  if (phase_->committing) return;
  const RoundMachine::State state = phase_->tasks.find(*task)->state;
  if (state == RoundMachine::State::kAsked) ask(name, *task);
  if (state == RoundMachine::State::kFailed) tell_task_end(*task);  // perhaps while it was away
}

// How long it may be away is counted from `away_since`.
void RunMachine::went_away(const std::string& name, const ClientTable::Client& client) {
  if (client.seen) away_.set(name, client.away_since + start_.job.round.reconnect_grace);
  if (!phase_) return;
  const auto task = phase_->tasks.task_of(name);
  if (!task) return;
  phase_->downloads.erase(*task);
  phase_->tasks.interrupted(*task);
  if (client.seen) await(*task, client);
}

void RunMachine::revoked(const std::string& name) {
  away_.clear(name);
  if (!phase_ || phase_->committing) return;
  if (const auto task = phase_->tasks.task_of(name)) {
    fail_task(*task,
              not_authorised("certificate-revoked", "the operator revoked the client " + name));
  }
}

// Without any update of it, its task ends when it has been away for too long; one that was not seen
// yet is not waited for. Requires: the client is not connected.
void RunMachine::await(TaskId task, const ClientTable::Client& client) {
  if (phase_->tasks.find(task)->state != RoundMachine::State::kAsked) return;
  phase_->absent.set(task, client.seen ? client.away_since + absence_max(client) : turn_.now);
}

// A client that was not here since the coordinator's own restart was cut off by it.
Duration RunMachine::absence_max(const ClientTable::Client& client) const {
  const Duration grace = start_.job.round.reconnect_grace;
  return !client.greeted ? std::max(grace, options_.restart_grace) : grace;
}

// Sends the task, once it is this one's turn.
void RunMachine::ask(const std::string& name, TaskId task) {
  if (!clients_.is_at_work_on(name, task)) return;
  const RoundMachine::Options& phase = phase_->tasks.options();
  protocol::RoundPlan plan{
      .task = task,
      .run = id(),
      .run_name = start_.job.job.name,
      .round = phase.round,
      .rounds = static_cast<Round>(start_.job.job.rounds),
      .attempt = phase.attempt,
      .seed = start_.job.job.seed,
      .base = start_.at.version,
      .model_bytes = start_.at.model->size() * sizeof(float),
      .settings = start_.settings,
      .schema = schema_for(clients_.find(name)->greeting),
      .deadline = std::max(Duration::zero(), phase_->tasks.deadline() - turn_.now),
      .kind = phase_->kind(),
      .last_counted = start_.counted.last_of(name)};
  if (phase_->kind() == protocol::TaskKind::kTrain) {
    for (const RoundInput& input : start_.at.inputs) plan.inputs.push_back(input.what);
  }
  clients_.send_to(name, std::move(plan));
}

// A client that does not say that it can send vectors in sparse form is asked for dense ones.
update::Schema RunMachine::schema_for(const Greeting& greeting) const {
  update::Schema schema = phase_->schema;
  if (sends_sparse(greeting)) return schema;
  for (update::VectorSpec& vector : schema.vectors) {
    vector.encoding = update::dense_of(vector.encoding);
  }
  return schema;
}

void RunMachine::ask_or_await(const std::string& name, TaskId task) {
  const ClientTable::Client* client = clients_.find(name);
  if (client == nullptr) {
    return fail_task(task, not_authorised("certificate-revoked", "the client was revoked"));
  }
  if (client->session) return ask(name, task);
  await(task, *client);
}

// --- inputs, down -------------------------------------------------------------------------------

void RunMachine::receive(SessionId session, const protocol::ModelRequest& request) {
  const model::Snapshot& model = start_.at.model;
  if (request.input > start_.at.inputs.size()) {
    return clients_.refuse(session, "bad-message", "the task has no such input");
  }
  const SharedBytes bytes = request.input == 0 ? SharedBytes(model, as_bytes(model->values()))
                                               : start_.at.inputs[request.input - 1].bytes;
  auto [download, added] = phase_->downloads.insert_or_assign(
      request.task,
      Download{protocol::TransferSender(bytes, options_.transfer.chunk_bytes_max), request.input});
  if (const auto started = download->second.sender.start(request.offset, request.limit); !started) {
    return clients_.refuse(session, started.error().code(), started.error().message());
  }
  pump(session, request.task);
}

void RunMachine::receive(SessionId session, const protocol::Credit& credit) {
  const auto download = phase_->downloads.find(credit.task);
  if (download == phase_->downloads.end()) return;
  download->second.sender.extend(credit.limit);
  pump(session, credit.task);
}

void RunMachine::pump(SessionId session, TaskId task) {
  const auto download = phase_->downloads.find(task);
  while (auto piece = download->second.sender.next()) {
    phase_->tasks.count_bytes(task, 0, piece->bytes.size());
    turn_.send(
        session,
        protocol::Chunk{.task = task, .offset = piece->offset, .input = download->second.input},
        std::move(piece->bytes));
  }
  if (!download->second.sender.done()) return;
  phase_->downloads.erase(download);
  record_traffic();
}

// At most once for each model that went out, not for each request of a client that asks for its end
// again.
void RunMachine::record_traffic() {
  const RoundMachine& tasks = phase_->tasks;
  const std::uint64_t model_bytes = start_.at.model->size() * sizeof(float);
  const std::size_t models = std::max<std::size_t>(1, tasks.asked() / kTrafficSteps);
  if (tasks.bytes_out() < phase_->traffic_recorded + models * model_bytes) return;
  phase_->traffic_recorded = tasks.bytes_out();
  const RoundMachine::Options& phase = tasks.options();
  turn_.act(RecordTraffic{id(), phase_->kind(), phase.round, phase.attempt, tasks.bytes_in(),
                          tasks.bytes_out()});
}

// --- updates, up --------------------------------------------------------------------------------

void RunMachine::receive(SessionId session, const std::string& client,
                         const protocol::UpdateOffer& offer) {
  const TaskId id = offer.head.task;
  const RoundMachine::Task& known = *phase_->tasks.find(id);
  if (known.state == RoundMachine::State::kCounted) {
    return turn_.send(session, protocol::UpdateReceived{id});
  }
  // It was received whole: the head that came with it counts.
  if (known.state == RoundMachine::State::kWaiting ||
      known.state == RoundMachine::State::kSumming) {
    return;
  }
  if (known.state == RoundMachine::State::kFailed) {
    return turn_.send(session,
                      protocol::TaskEnded{id, known.failure->code(), known.failure->message()});
  }
  const auto refuse = [&](const Error& error) {
    fail_task(id, error);
    blame(client, error, false);
  };
  if (!offer.head.base.matches(start_.at.version)) {
    return fail_task(id, rejected(std::string(kWrongBase), "the update starts from another model"));
  }
  update::ContributionHead head = offer.head;
  if (start_.uniform_weights && phase_->kind() == protocol::TaskKind::kTrain) {
    // It counts as 1: the sums do not bound its rows.
    head.weight = std::min(head.weight, phase_->schema.bounds.weight_max);
  }
  if (const auto valid = update::validate_head(head, phase_->schema); !valid) {
    return refuse(valid.error());
  }
  const auto weight = counted_weight(client, offer.head.weight);
  if (!weight) return refuse(weight.error());
  head.weight = *weight;
  if (const auto bounded = bound_scalars(client, head); !bounded) {
    return refuse(bounded.error());
  }
  const bool is_first = known.weight == 0;
  if (is_first && *weight < offer.head.weight && !start_.uniform_weights) {
    turn_.say(
        start_.id,
        fmt::format("{}: its weight {} is lowered to {} ({})", client, offer.head.weight, *weight,
                    *weight == start_.job.aggregation.weight_max
                        ? "aggregation.weight-max"
                        : fmt::format("aggregation.weight-ratio-max; the clients of the round "
                                      "hold {} rows in the median",
                                      phase_->median_rows)));
  }
  phase_->tasks.offered(id, *weight);
  phase_->uploads[id] = Upload{.head = std::move(head), .receiver = {}};
  phase_->retries.clear(id);
  if (offer.head.payload_bytes > 0) {
    return turn_.act(
        OpenUpload{start_.id, id, offer.head.payload_bytes, offer.head.payload_checksum});
  }
  phase_->tasks.received(id);  // scalars alone
  sum_next();
}

// Nothing proves a weight, nor the rows that a client announces. So no weight exceeds the client's
// own rows (of an evaluation those that it holds out, where it says so), nor a multiple of what its
// round's clients have, nor the run's bound. A client of an earlier version, which
// announces no rows, counts as the median at most.
Result<double> RunMachine::counted_weight(const std::string& client, double weight) const {
  const auto rows = static_cast<double>(announced_rows(clients_.find(client)->greeting));
  const bool trains = phase_->kind() == protocol::TaskKind::kTrain;
  if (rows > 0 && weight > rows) {
    return rejected("weight-above-rows",
                    fmt::format("the {} claims the weight of {} rows; the client announced {}",
                                trains ? "update" : "evaluation", weight, rows));
  }
  if (trains && start_.uniform_weights) return 1.0;
  const AggregationOptions& bounds = start_.job.aggregation;
  return std::min({weight, bounds.weight_max, rows_max(rows)});
}

// Of a client that announced so many, by what the others of its round announced.
double RunMachine::rows_max(double announced) const {
  const double ratio = start_.job.aggregation.weight_ratio_max;
  if (ratio == 0 || phase_->median_rows == 0) return std::numeric_limits<double>::infinity();
  return (announced > 0 ? ratio : 1) * phase_->median_rows;
}

// What a strategy divides or multiplies by is no more than the local steps over the client's own
// rows give, and counts as no more than those over the rows that its weight may be.
Result<void> RunMachine::bound_scalars(const std::string& client,
                                       update::ContributionHead& head) const {
  if (phase_->kind() != protocol::TaskKind::kTrain) return {};
  const train::TrainOptions& training = start_.job.training.train;
  const auto rows = static_cast<double>(announced_rows(clients_.find(client)->greeting));
  const auto largest = [&](double of_rows) {
    const auto counted = static_cast<std::size_t>(std::clamp(of_rows, 1.0, kRowsMax));
    return start_.strategy->scalar_max(training, train::local_steps(training, counted));
  };
  const double possible = largest(rows > 0 ? rows : rows_max(0));
  const double counting = std::min(possible, largest(rows_max(rows)));
  for (const std::string& name : start_.strategy->scalars()) {
    const auto scalar = head.scalars.find(name);
    if (scalar == head.scalars.end()) continue;  // refused when it is summed
    if (scalar->second > possible * (1 + kRounding)) {
      return rejected("bad-scalars",
                      fmt::format("the update's scalar '{}' is {:g}; its local steps give at most "
                                  "{:g}",
                                  name, scalar->second, possible));
    }
    scalar->second = std::min(scalar->second, counting);
  }
  return {};
}

// Of the phase's kind; clients of earlier versions only say their training rows.
std::uint64_t RunMachine::announced_rows(const Greeting& greeting) const {
  const bool evaluates = phase_->kind() == protocol::TaskKind::kEvaluate;
  return evaluates && greeting.held_out > 0 ? greeting.held_out : greeting.rows;
}

// The lower of the two in the middle: of two clients, one alone cannot raise it.
double RunMachine::median_rows(const std::vector<Participant>& participants) const {
  std::vector<std::uint64_t> announced;
  for (const Participant& participant : participants) {
    const ClientTable::Client* client = clients_.find(participant.client);
    const std::uint64_t rows = client ? announced_rows(client->greeting) : 0;
    if (rows > 0) announced.push_back(rows);
  }
  if (announced.empty()) return 0;
  const auto middle = announced.begin() + static_cast<std::ptrdiff_t>((announced.size() - 1) / 2);
  std::ranges::nth_element(announced, middle);
  return static_cast<double>(*middle);
}

void RunMachine::handle(const UploadOpened& event) {
  const auto upload = phase_->uploads.find(event.task);
  if (upload == phase_->uploads.end()) return;
  if (!event.received) {
    if (event.received.error().kind() != ErrorKind::kOverloaded) {
      return fail_task(event.task, event.received.error());
    }
    no_room(event.task, event.received.error());
    phase_->retries.set(event.task, turn_.now + options_.upload_retry);  // no room, no credit
    return;
  }
  const std::uint64_t total = upload->second.head.payload_bytes;
  phase_->retries.clear(event.task);
  phase_->refusals.erase(event.task);
  upload->second.receiver.emplace(total, options_.transfer.window_bytes);
  if (*event.received > 0) upload->second.receiver->resume(*event.received);
  if (upload->second.receiver->done()) {  // before a restart: no chunk comes any more
    phase_->tasks.received(event.task);
    return sum_next();
  }
  clients_.send_to(phase_->tasks.find(event.task)->client,
                   protocol::UpdateAccept{.task = event.task,
                                          .offset = *event.received,
                                          .limit = upload->second.receiver->tell_limit()});
}

void RunMachine::receive(SessionId session, const protocol::Chunk& chunk,
                         const SharedBytes& payload) {
  if (chunk.input != 0)
    return clients_.refuse(session, "bad-message", "a piece of an update names an input");
  if (phase_->tasks.find(chunk.task)->state != RoundMachine::State::kOffered) return;  // settled
  const auto upload = phase_->uploads.find(chunk.task);
  if (upload == phase_->uploads.end() || !upload->second.receiver) return;
  protocol::TransferReceiver& receiver = *upload->second.receiver;
  const auto taken = receiver.take(chunk.offset, payload.size());
  if (!taken) return clients_.refuse(session, taken.error().code(), taken.error().message());
  if (!*taken) return;
  phase_->tasks.count_bytes(chunk.task, payload.size(), 0);
  turn_.act(WriteUpload{chunk.task, chunk.offset, payload});
  if (const auto limit = receiver.credit_due()) {
    turn_.send(session, protocol::Credit{.task = chunk.task, .limit = *limit});
  }
  if (!receiver.done()) return;
  phase_->tasks.received(chunk.task);
  sum_next();
}

void RunMachine::sum_next() {
  while (const auto task = phase_->tasks.next_to_sum()) {
    const auto upload = phase_->uploads.find(*task);
    turn_.act(SumUpload{id(), std::move(upload->second.head), phase_->schema});
    phase_->uploads.erase(upload);
    phase_->retries.clear(*task);
  }
}

void RunMachine::handle(const UploadSummed& event) {
  const RoundMachine::Task* task = phase_->tasks.find(event.task);
  if (task == nullptr || task->state != RoundMachine::State::kSumming) return;
  const std::string client = task->client;
  if (event.damaged_here) return ask_again(client, event.task);
  if (!event.result && event.result.error().kind() == ErrorKind::kOverloaded) {
    no_room(event.task, event.result.error());  // the disk filled while the update was written
    phase_->tasks.lost(event.task);
    if (task->times_lost > kRepeatsMax) {  // of a quota, perhaps, which no free space shows
      fail_task(event.task,
                overloaded(std::string(kNoRoom), "the coordinator had no room for it: " +
                                                     event.result.error().message()));
    } else {
      ask_or_await(client, event.task);
    }
    return sum_next();
  }
  phase_->tasks.summed(event.task, event.result);
  if (event.result) {
    start_.failures.succeeded(client);
    clients_.send_to(client, protocol::UpdateReceived{event.task});
  } else {
    tell_task_end(event.task);
    // Whether it is the client or the bound that is wrong shows when all have come.
    if (event.result.error().code() != kNormAboveBound) blame(client, event.result.error(), false);
    sum_next();
  }
  clients_.release(client, event.task);
}

// The client offers its update at once, and nothing is there any more to go on from. A disk that
// damages it every time would make it send its update again and again.
void RunMachine::ask_again(const std::string& name, TaskId task) {
  phase_->tasks.lost(task);
  if (phase_->tasks.find(task)->times_lost > kRepeatsMax) {
    turn_.say(id(), fmt::format("the received update of {} cannot be read back, as before; the "
                                "coordinator's disk may be failing",
                                name));
    fail_task(task, retry("io-error", "the coordinator could not read back the update received"));
  } else {
    turn_.say(id(), fmt::format("the received update of {} cannot be read back (damaged or "
                                "unreadable); it is requested again in full",
                                name));
    ask_or_await(name, task);
  }
  sum_next();
}

// A full disk is said once a phase, as far as the phase is logged: each upload waits for the same.
void RunMachine::no_room(TaskId task, const Error& error) {
  phase_->refusals.insert_or_assign(task, error);
  if (error.code() != "disk-full" || phase_->is_repetition) return;
  if (std::exchange(phase_->said_disk_full, true)) return;
  turn_.say(id(), fmt::format("{} updates wait for the disk: {}", label(phase_->tasks.options()),
                              error.message()));
}

// The new connection, on which the update is offered again, has none of its pieces under way.
void RunMachine::handle(const UploadStalled& event) {
  if (phase_->uploads.erase(event.task) == 0) return;
  const std::string name = phase_->tasks.find(event.task)->client;
  const Error error = timed_out(
      std::string(kUploadStalled),
      fmt::format("its upload brought less than {} in {} while other uploads waited for its room",
                  format_byte_count(kProgressBytes), format_duration(kProgressTime)));
  if (phase_->stalled.insert_or_assign(event.task, error).second) {
    turn_.say(id(), fmt::format("{} {}: {}; it may offer the update again",
                                label(phase_->tasks.options()), name, error.message()));
  }
  phase_->tasks.interrupted(event.task);
  const ClientTable::Client* client = clients_.find(name);
  if (client == nullptr || !client->session) return;
  clients_.refuse(*client->session, error.code(), error.message() + ": offer the update again");
}

// Clients did not miss a deadline that the coordinator kept them from.
void RunMachine::fail_late_uploads() {
  if (phase_->tasks.counted() >= phase_->tasks.options().updates_wanted) return;
  for (const auto& [task, error] : phase_->stalled) phase_->tasks.failed(task, error);
  for (const auto& [task, refusal] : phase_->refusals) {
    phase_->tasks.failed(
        task, overloaded(std::string(kNoRoom),
                         "the coordinator had no room for it in time: " + refusal.message()));
  }
}

// --- failures -----------------------------------------------------------------------------------

void RunMachine::receive(const std::string& client, const protocol::TaskFailed& failed) {
  const RoundMachine::State state = phase_->tasks.find(failed.task)->state;
  if (state == RoundMachine::State::kFailed) return tell_task_end(failed.task);
  if (state == RoundMachine::State::kSumming || state == RoundMachine::State::kCounted) return;
  const Error error = reported(failed);
  fail_task(failed.task, error);
  blame(client, error, failed.permanent);
}

void RunMachine::blame(const std::string& client, const Error& error, bool permanent) {
  if (phase_->kind() != protocol::TaskKind::kTrain) return;  // note_evaluation()
  if (is_circumstance(error.code(), protocol::TaskKind::kTrain)) return;
  if (error.code() == client::kStateLost && start_.counted.contains(client)) return;
  if (!start_.failures.failed(client, error.message(), permanent)) return;
  turn_.say(id(), fmt::format("{} is left out of this run from now on: {} ({})", client,
                              permanent ? "it cannot do its tasks"
                                        : fmt::format("its last {} tasks failed",
                                                      ClientFailures::kInARowMax),
                              error.message()));
}

// A client that fails to evaluate may still train. By what is recorded of the phase, so that a
// restart decides alike.
void RunMachine::note_evaluation(const RoundSummary& summary) {
  if (summary.kind != protocol::TaskKind::kEvaluate) return;
  ClientPauses& pauses = start_.evaluation_failures;
  const auto left_out =
      count_evaluations(summary.contributors, summary.failures, summary.round, pauses);
  note_returns(summary, pauses);
  for (const std::string& client : left_out) {
    const ClientPauses::Row* row = pauses.find_left_out(client, summary.round);
    if (row == nullptr) continue;
    turn_.say(id(), fmt::format("{} is not asked to evaluate in this run for now: {} evaluations "
                                "that were waited for failed, without one that counted between "
                                "({}); it is asked again from round {} on",
                                client, row->in_a_row, row->reason, row->next_chance));
  }
}

void RunMachine::note_missed(const RoundSummary& summary) {
  const auto left_out =
      count_missed(summary.contributors, summary.failures, summary.round, start_.missed);
  note_returns(summary, start_.missed);
  for (const std::string& client : left_out) {
    const ClientPauses::Row* row = start_.missed.find_left_out(client, summary.round);
    if (row == nullptr) continue;
    turn_.say(id(), fmt::format("{} is left out of this run for now: {} trainings in a row ended "
                                "without its update ({}); it is asked again from round {} on",
                                client, row->in_a_row, row->reason, row->next_chance));
  }
}

// A client whose absence counts when its phase ends may have connected again before.
void RunMachine::note_returns(const RoundSummary& summary, ClientPauses& pauses) {
  for (const RoundFailure& failure : summary.failures) {
    if (failure.code != kDisconnected || !clients_.connected(failure.client)) continue;
    pauses.came_back(failure.client);
  }
}

// It says that it has finished what an earlier attempt asked it for, good for the next one. Only
// the update itself ends the row of those that it missed.
void RunMachine::offered_late(const std::string& client, TaskId task) {
  const auto asked = abandoned_.find(client);
  if (asked != abandoned_.end() && asked->second == task) start_.missed.came_back(client);
}

void RunMachine::blame_for_norms(const RoundSummary& summary, bool commits) {
  if (!start_.norm_raises.attempt_ended(summary.contributors, summary.failures, commits,
                                        start_.norms)) {
    return;
  }
  for (const RoundFailure& failure : summary.failures) {
    if (failure.code == kNormAboveBound)
      blame(failure.client, rejected(failure.code, failure.reason), false);
  }
}

void RunMachine::fail_task(TaskId id, const Error& error) {
  if (!phase_->tasks.failed(id, error)) return;
  phase_->uploads.erase(id);
  phase_->retries.clear(id);
  phase_->downloads.erase(id);
  phase_->absent.clear(id);
  turn_.act(DropUpload{id});
  tell_task_end(id);
  clients_.release(phase_->tasks.find(id)->client, id);
}

void RunMachine::tell_task_end(TaskId id) {
  const RoundMachine::Task& task = *phase_->tasks.find(id);
  clients_.send_to(task.client,
                   protocol::TaskEnded{id, task.failure->code(), task.failure->message()});
}

void RunMachine::end_all_tasks(const Error& reason) {
  for (const auto& [id, task] : phase_->tasks.tasks()) {
    clients_.send_to(task.client, protocol::TaskEnded{id, reason.code(), reason.message()});
  }
}

// --- what is due --------------------------------------------------------------------------------

void RunMachine::advance() {
  if (!phase_ || phase_->committing) return;
  give_up_absent();
  retry_uploads();
  close_if_due();
}

// A selected client that stays away longer than the grace is not waited for.
void RunMachine::give_up_absent() {
  for (const TaskId id : phase_->absent.take_due(turn_.now)) {
    const ClientTable::Client& client = *clients_.find(phase_->tasks.find(id)->client);
    fail_task(id,
              retry(std::string(kDisconnected), fmt::format("the client was disconnected for {}",
                                                            format_duration(absence_max(client)))));
  }
}

void RunMachine::retry_uploads() {
  for (const TaskId id : phase_->retries.take_due(turn_.now)) {
    const update::ContributionHead& head = phase_->uploads.at(id).head;
    turn_.act(OpenUpload{start_.id, id, head.payload_bytes, head.payload_checksum});
  }
}

void RunMachine::close_if_due() {
  const RoundMachine::Verdict verdict = phase_->tasks.verdict(turn_.now);
  if (verdict == RoundMachine::Verdict::kOpen) return;
  fail_late_uploads();
  for (const auto& [task, upload] : phase_->uploads) turn_.act(DropUpload{task});
  phase_->uploads.clear();
  phase_->retries = {};
  phase_->downloads.clear();
  phase_->absent = {};
  RoundSummary summary = phase_->tasks.close(turn_.now);
  if (summary.kind == protocol::TaskKind::kTrain) {
    note_missed(summary);
    blame_for_norms(summary, verdict == RoundMachine::Verdict::kCommit);
  }
  if (verdict == RoundMachine::Verdict::kAbandon) return abandon(std::move(summary));
  phase_->committing = true;
  phase_->closing = summary;
  turn_.act(CommitRound{std::move(summary)});
}

}  // namespace starling::coordinator
