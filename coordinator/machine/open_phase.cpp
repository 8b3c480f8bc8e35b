// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/open_phase.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/machine/client_exclusion.h"
#include "coordinator/machine/client_fit.h"
#include "core/base/nearest_name.h"
#include "core/client/abilities.h"
#include "core/wire/limits.h"

namespace starling::coordinator {
namespace {

// How often an update is requested again that was lost here.
constexpr std::size_t kRepeatsMax = 1;

// What a client names goes into records, logs and terminals.
bool is_reason_code(const std::string& code) {
  return !code.empty() && code.size() <= 64 && std::all_of(code.begin(), code.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// Codes by which the coordinator decides are its own, but for one that only clients know of, of
// trainings.
Error reported(const protocol::TaskFailed& failed, bool trains) {
  const bool is_known_here = trains && failed.code == client::kMemoryInUse;
  const bool is_circumstance_here =
      !is_known_here && is_circumstance(failed.code, protocol::TaskKind::kTrain);
  const bool is_own =
      is_circumstance_here || failed.code == kNormAboveBound || failed.code.starts_with(kPermanent);
  std::string code = is_reason_code(failed.code) && !is_own ? failed.code : "client-error";
  std::string sentence = printable(failed.message, wire::kSentenceBytesMax);
  if (failed.permanent) code.insert(0, kPermanent);
  return rejected(std::move(code), std::move(sentence));
}

// An earlier version takes the columns of its file as they stand.
Settings known_settings(Settings settings, const Greeting& greeting) {
  if (std::ranges::binary_search(greeting.abilities, client::kNamesAbility)) return settings;
  std::erase_if(settings, [](const auto& setting) { return setting.first == "data.columns"; });
  return settings;
}

// A client that does not say that it can send vectors in sparse form is asked for dense ones.
update::Schema known_schema(update::Schema schema, const Greeting& greeting) {
  if (sends_sparse(greeting)) return schema;
  for (update::VectorSpec& vector : schema.vectors) {
    vector.encoding = update::dense_of(vector.encoding);
  }
  return schema;
}

}  // namespace

OpenPhase::OpenPhase(const RunScope& run, const RoundMachine::Options& options,
                     const std::vector<Participant>& participants, update::Schema schema,
                     bool is_repetition)
    : run_(run),
      tasks_(options, participants, run.turn.now),
      schema_(std::move(schema)),
      bounds_(run.start, options.kind, participants, run.clients),
      transfers_(run, tasks_, schema_, !is_repetition),
      is_repetition_(is_repetition) {}

std::optional<TimePoint> OpenPhase::next_deadline() const {
  if (closed_) return std::nullopt;
  std::optional<TimePoint> next;
  const auto consider = [&next](std::optional<TimePoint> time) {
    if (time) next = next ? std::min(*next, *time) : time;
  };
  if (!tasks_.summing()) consider(tasks_.deadline());
  consider(transfers_.next_deadline());
  consider(absent_.next());
  return next;
}

// --- clients ------------------------------------------------------------------------------------

void OpenPhase::came(const std::string& name) {
  const auto task = tasks_.task_of(name);
  if (!task) return;
  absent_.clear(*task);
  if (closed_) return;
  const RoundMachine::State state = tasks_.find(*task)->state;
  if (state == RoundMachine::State::kAsked) ask(name, *task);
  if (state == RoundMachine::State::kFailed) tell_task_end(*task);  // perhaps while it was away
}

// How long it may be away is counted from `away_since`.
void OpenPhase::went_away(const std::string& name, const ClientTable::Client& client) {
  const auto task = tasks_.task_of(name);
  if (!task) return;
  transfers_.interrupt(*task);
  if (client.seen) await(*task, client);
}

void OpenPhase::revoked(const std::string& name) {
  if (closed_) return;
  if (const auto task = tasks_.task_of(name)) {
    fail_task(*task,
              not_authorised("certificate-revoked", "the operator revoked the client " + name));
  }
}

// Without any update of it, its task ends when it has been away for too long; one that was not seen
// yet is not waited for. Requires: the client is not connected.
void OpenPhase::await(TaskId task, const ClientTable::Client& client) {
  if (tasks_.find(task)->state != RoundMachine::State::kAsked) return;
  absent_.set(task, client.seen ? client.away_since + absence_max(client) : run_.turn.now);
}

// A client that was not here since the coordinator's own restart was cut off by it.
Duration OpenPhase::absence_max(const ClientTable::Client& client) const {
  const Duration grace = run_.start.job.round.reconnect_grace;
  return !client.greeted ? std::max(grace, run_.options.restart_grace) : grace;
}

void OpenPhase::ask_all(const std::vector<Participant>& participants) {
  for (const auto& [client, task] : participants) {
    if (run_.clients.find(client)) run_.clients.assign(client, task);
    ask_or_await(client, task);
  }
}

void OpenPhase::ask(const std::string& name, TaskId task) {
  if (!run_.clients.is_at_work_on(name, task)) return;
  const RunStart& start = run_.start;
  const RoundMachine::Options& phase = tasks_.options();
  protocol::RoundPlan plan{
      .task = task,
      .run = start.id,
      .run_name = start.job.job.name,
      .round = phase.round,
      .rounds = static_cast<Round>(start.job.job.rounds),
      .attempt = phase.attempt,
      .seed = start.job.job.seed,
      .base = start.at.version,
      .model_bytes = start.at.model->size() * sizeof(float),
      .settings = known_settings(start.settings, run_.clients.find(name)->greeting),
      .schema = known_schema(schema_, run_.clients.find(name)->greeting),
      .deadline = std::max(Duration::zero(), tasks_.deadline() - run_.turn.now),
      .kind = phase.kind,
      .last_counted = start.counted.last_of(name)};
  if (trains()) {
    for (const RoundInput& input : start.at.inputs) plan.inputs.push_back(input.what);
  }
  run_.clients.send_to(name, std::move(plan));
}

void OpenPhase::ask_or_await(const std::string& name, TaskId task) {
  const ClientTable::Client* client = run_.clients.find(name);
  if (client == nullptr) {
    return fail_task(task, not_authorised("certificate-revoked", "the client was revoked"));
  }
  if (client->session) return ask(name, task);
  await(task, *client);
}

// --- updates ------------------------------------------------------------------------------------

void OpenPhase::receive(const std::string& client, const protocol::UpdateOffer& offer) {
  const TaskId id = offer.head.task;
  const RoundMachine::Task& known = *tasks_.find(id);
  switch (known.state) {
    case RoundMachine::State::kAsked:
    case RoundMachine::State::kOffered:
      break;
    case RoundMachine::State::kWaiting:
    case RoundMachine::State::kSumming:
      return;  // it was received whole: the head that came with it counts
    case RoundMachine::State::kCounted:
      return run_.clients.send_to(client, protocol::UpdateReceived{id});
    case RoundMachine::State::kFailed:
      return tell_task_end(id);
  }
  if (!offer.head.base.matches(run_.start.at.version)) {
    return fail_task(id, rejected(std::string(kWrongBase), "the update starts from another model"));
  }
  auto head = bounds_.apply(offer.head, schema_, run_.clients.find(client)->greeting);
  if (!head) return fail_by_client(client, id, head.error());
  const bool is_first = known.weight == 0;
  if (is_first && head->weight < offer.head.weight && !run_.start.uniform_weights) {
    run_.say(fmt::format("{}: its weight {} is lowered to {} ({})", client, offer.head.weight,
                         head->weight, bounds_.describe_bound(head->weight)));
  }
  transfers_.offered(std::move(*head));
}

void OpenPhase::handle(const UploadOpened& event) {
  if (const auto done = transfers_.handle(event); !done) fail_task(event.task, done.error());
}

void OpenPhase::handle(const UploadSummed& event) {
  const RoundMachine::Task* task = tasks_.find(event.task);
  if (task == nullptr || task->state != RoundMachine::State::kSumming) return;
  const std::string client = task->client;
  if (event.damaged_here) {
    run_.say(fmt::format("the received update of {} cannot be read back{}", client,
                         task->times_lost < kRepeatsMax
                             ? " (damaged or unreadable); it is requested again in full"
                             : ", as before; the coordinator's disk may be failing"));
    return ask_again(client, event.task,
                     retry("io-error", "the coordinator could not read back the update received"));
  }
  if (!event.result && event.result.error().kind() == ErrorKind::kOverloaded) {
    transfers_.no_room(event.task, event.result.error());  // the disk filled while it was written
    return ask_again(client, event.task,
                     overloaded(std::string(kNoRoom), "the coordinator had no room for it: " +
                                                          event.result.error().message()));
  }
  tasks_.summed(event.task, event.result);
  if (event.result) {
    if (trains()) run_.start.failures.succeeded(client);
    run_.clients.send_to(client, protocol::UpdateReceived{event.task});
  } else {
    tell_task_end(event.task);
    // Whether it is the client or the bound that is wrong shows when all have come.
    if (trains() && event.result.error().code() != kNormAboveBound) {
      blame(run_, client, event.result.error());
    }
    transfers_.sum_next();
  }
  run_.clients.release(client, event.task);
}

// The client offers its update at once, and nothing is there any more to go on from. A disk that
// damages it every time, or a quota that no free space shows, would make it send its update again
// and again: then the task fails with `reason`.
void OpenPhase::ask_again(const std::string& name, TaskId task, const Error& reason) {
  tasks_.lost(task);
  if (tasks_.find(task)->times_lost > kRepeatsMax) {
    fail_task(task, reason);
  } else {
    ask_or_await(name, task);
  }
  transfers_.sum_next();
}

// --- failures -----------------------------------------------------------------------------------

void OpenPhase::receive(const std::string& client, const protocol::TaskFailed& failed) {
  const RoundMachine::State state = tasks_.find(failed.task)->state;
  if (state == RoundMachine::State::kFailed) return tell_task_end(failed.task);
  if (state == RoundMachine::State::kSumming || state == RoundMachine::State::kCounted) return;
  fail_by_client(client, failed.task, reported(failed, trains()), failed.permanent);
}

void OpenPhase::fail_task(TaskId id, const Error& error) {
  if (!tasks_.failed(id, error)) return;
  transfers_.drop(id);
  absent_.clear(id);
  tell_task_end(id);
  run_.clients.release(tasks_.find(id)->client, id);
}

// Of failed evaluations the run takes note when the phase is over.
void OpenPhase::fail_by_client(const std::string& name, TaskId id, const Error& error,
                               bool permanent) {
  fail_task(id, error);
  if (trains()) blame(run_, name, error, permanent);
}

void OpenPhase::tell_task_end(TaskId id) {
  const RoundMachine::Task& task = *tasks_.find(id);
  run_.clients.send_to(task.client,
                       protocol::TaskEnded{id, task.failure->code(), task.failure->message()});
}

void OpenPhase::tell_failed_tasks() {
  for (const auto& [id, task] : tasks_.tasks()) {
    if (task.state == RoundMachine::State::kFailed) tell_task_end(id);
  }
}

void OpenPhase::end_all_tasks(const Error& reason) {
  for (const auto& [id, task] : tasks_.tasks()) {
    run_.clients.send_to(task.client, protocol::TaskEnded{id, reason.code(), reason.message()});
  }
}

// --- what is due --------------------------------------------------------------------------------

void OpenPhase::advance() {
  give_up_absent();
  transfers_.retry_uploads();
}

// A selected client that stays away longer than the grace is not waited for.
void OpenPhase::give_up_absent() {
  for (const TaskId id : absent_.take_due(run_.turn.now)) {
    const ClientTable::Client& client = *run_.clients.find(tasks_.find(id)->client);
    fail_task(id,
              retry(std::string(kDisconnected), fmt::format("the client was disconnected for {}",
                                                            format_duration(absence_max(client)))));
  }
}

RoundSummary OpenPhase::close(const std::optional<Error>& ended) {
  closed_ = true;
  if (!ended) transfers_.fail_late();
  transfers_.drop_all();
  absent_ = {};
  return tasks_.close(run_.turn.now, ended);
}

void OpenPhase::release_all() {
  for (const auto& [id, task] : tasks_.tasks()) run_.clients.release(task.client, id);
}

}  // namespace starling::coordinator
