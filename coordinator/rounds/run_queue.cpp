// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/run_queue.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/job/job.h"
#include "coordinator/machine/repetition.h"
#include "coordinator/rounds/run_records.h"
#include "core/base/counted.h"

namespace starling::coordinator {

RunQueue::RunQueue(Parts parts, Options options, Handlers handlers)
    : parts_(std::move(parts)),
      options_(options),
      handlers_(std::move(handlers)),
      retry_(parts_.scheduler.make_timer([this] { try_all_again(); })) {}

void RunQueue::wait_for_disk(RunId run, const Error& error, std::function<void()> step) {
  Wait& wait = waits_[run];
  wait.why = error.message();
  if (is_logged(++wait.times)) {
    parts_.log.error("run {} waits for the disk: {}", run.value(), wait.why);
  }
  try_again(run, std::move(step));
}

void RunQueue::try_again(RunId run, std::function<void()> step) {
  if (again_.empty()) retry_->set(parts_.scheduler.now() + options_.disk_retry);
  again_[run] = std::move(step);
}

void RunQueue::try_all_again() {
  for (const auto& [run, step] : std::exchange(again_, {})) step();
}

// --- after a restart ----------------------------------------------------------------------------

Result<void> RunQueue::load_running() {
  STARLING_ASSIGN(std::vector<store::Run> running, parts_.store.runs(store::RunState::kRunning));
  std::set<RunId> open;
  for (const store::Run& run : running) {
    held_.insert(run.id);
    STARLING_ASSIGN(const auto attempt, parts_.store.find_open_attempt(run.id));
    if (attempt) open.insert(run.id);
  }
  // Its clients are at work: it comes before one that could begin a round.
  std::ranges::stable_partition(running, [&](const auto& run) { return open.contains(run.id); });
  for (const store::Run& run : running) STARLING_TRY(load_running(run));
  return {};
}

Result<void> RunQueue::load_running(const store::Run& run) {
  const auto recovery =
      store::recover_run(parts_.store, parts_.checkpoints(run.id), run.id, hash_model_file);
  if (!recovery && recovery.error().code() == "models-missing") {
    wait_to_resume(run, recovery.error(), [this, id = run.id] { load_again(id); });
    return {};
  }
  if (!recovery && recovery.error().code() != "model-damaged") return recovery.error();
  if (!recovery) return fail(run.id, recovery.error()), Result<void>();
  for (const std::string& complaint : recovery->complaints) parts_.run_log.say(run.id, complaint);
  if (!can_read_job(run)) return {};
  const store::ModelRecord& last = recovery->model;
  running_.push_back(
      {run, last,
       load_running_run(run, parts_.strategies, parts_.prepare, parts_.checkpoints(run.id), last)});
  return {};
}

// Else the run fails: no later attempt could read it.
bool RunQueue::can_read_job(const store::Run& run) {
  const auto job =
      parse_job(run.job, fmt::format("job of run {}", run.id.value()), parts_.strategies);
  if (!job) fail(run.id, job.error());
  return job.has_value();
}

Result<void> RunQueue::resume() {
  for (const Running& running : std::exchange(running_, {})) {
    if (running.loaded) {
      STARLING_TRY(resumed(running.run, running.last, *running.loaded));
    } else {
      wait_for_data(running.run, running.last, running.loaded.error());
    }
  }
  return {};
}

// The run as it is now, if it is still to go on: one that is gone or is to be stopped ends here.
std::optional<store::Run> RunQueue::find_waiting(RunId id) {
  auto run = parts_.store.find_run(id);
  if (!run) {
    check(run.error());
  } else if (!*run || store::is_finished((*run)->state)) {
    ended(id);
  } else if ((*run)->stop_requested) {
    stop(id);
  } else {
    return *std::move(run);
  }
  return std::nullopt;
}

void RunQueue::load_again(RunId id) {
  if (!find_waiting(id)) return;
  const auto models = parts_.store.models(id);
  if (!models) return check(models.error());
  compute<std::string>(
      parts_.computation, alive_,
      [checkpoints = parts_.checkpoints(id), newest = models->back()](unsigned) {
        return store::find_damage(checkpoints, newest, hash_model_file);
      },
      [this, id, models = *models](const Result<std::string>& damage) {
        if (const auto run = find_waiting(id)) models_came(*run, models, damage);
      });
}

// As long as files are being copied, nothing is concluded from those that are missing. `damage`: of
// the newest model.
void RunQueue::models_came(const store::Run& run, const std::vector<store::ModelRecord>& models,
                           const Result<std::string>& damage) {
  const auto again = [this, id = run.id] { load_again(id); };
  if (!damage) return wait_to_resume(run, damage.error(), again);
  if (!damage->empty()) {
    return wait_to_resume(
        run, retry("models-missing", *damage + "; a new start goes on from an earlier one"), again);
  }
  const auto unknown = store::set_aside_unknown(parts_.checkpoints(run.id), run.id, models);
  if (!unknown && unknown.error().kind() != ErrorKind::kOverloaded) return check(unknown.error());
  if (!unknown) return wait_to_resume(run, unknown.error(), again);
  for (const std::string& sentence : *unknown) parts_.run_log.say(run.id, sentence);
  if (can_read_job(run)) resume_again(run, models.back());
}

Result<void> RunQueue::resumed(const store::Run& run, const store::ModelRecord& last,
                               const LoadedRun& loaded) {
  STARLING_ASSIGN(const auto rounds, parts_.store.rounds(run.id, 1));
  STARLING_ASSIGN(const auto open, parts_.store.find_open_attempt(run.id));
  STARLING_ASSIGN(const auto evaluations, parts_.store.evaluations(run.id, 1));
  complaints_.erase(run.id);
  parts_.run_log.say(run.id, fmt::format("resumed after round {}", last.round));
  handlers_.on_ready(loaded,
                     to_run_start(run.id, *loaded.context, loaded.at, rounds, open, evaluations));
  if (run.stop_requested) handlers_.on_stop(run.id);
  return {};
}

// The rounds so far are worth more than to be given up for a disk that is not mounted yet.
void RunQueue::wait_to_resume(const store::Run& run, const Error& error,
                              std::function<void()> again) {
  std::string& complaint = complaints_[run.id];
  if (complaint != error.message()) {
    parts_.run_log.say(run.id,
                       fmt::format("cannot go on yet: {}; it is tried again every {}, until the "
                                   "run is stopped",
                                   error.message(), format_duration(options_.disk_retry)));
  }
  complaint = error.message();
  try_again(run.id, std::move(again));
}

void RunQueue::wait_for_data(const store::Run& run, const store::ModelRecord& last,
                             const Error& error) {
  wait_to_resume(run, error, [this, run, last] { resume_again(run, last); });
}

void RunQueue::resume_again(const store::Run& run, const store::ModelRecord& last) {
  compute<LoadedRun>(
      parts_.computation, alive_,
      [run, last, &strategies = parts_.strategies, prepare = parts_.prepare,
       checkpoints = parts_.checkpoints(run.id)](unsigned) {
        return load_running_run(run, strategies, prepare, checkpoints, last);
      },
      [this, id = run.id, last](const Result<LoadedRun>& loaded) {
        const auto now = find_waiting(id);
        if (!now) return;
        if (!loaded) return wait_for_data(*now, last, loaded.error());
        if (const auto done = resumed(*now, last, *loaded); !done) check(done.error());
      });
}

// --- the next pending one -----------------------------------------------------------------------

void RunQueue::try_job(const Job& job, Completion<TriedJob> done) {
  std::optional<LearnedShape> learned;
  std::optional<Error> refusal;
  auto found = coordinator::learn_shape(job, handlers_.clients());
  if (found && lacks_shape(job)) {
    learned = std::move(*found);
  } else if (lacks_shape(job) && found.error().code() == "shapes-differ") {
    refusal = wrong_setting("shapes-differ", describe_disagreement(job, handlers_.clients()));
  } else if (lacks_shape(job) && !shape_may_come(handlers_.clients())) {
    refusal = wrong_setting("no-data-shape",
                            "the job does not say the shape of its data, and no client that has "
                            "joined says one that suits it: name an evaluate.dataset, set "
                            "data.input and data.classes, or update the clients");
  }
  compute<TriedJob>(
      parts_.computation, alive_,
      [job, learned, refusal, prepare = parts_.prepare,
       is_made = trainer_initializes(job)](unsigned) -> Result<TriedJob> {
        if (refusal) return *refusal;
        auto tried = coordinator::try_job(job, prepare, learned, is_made);
        return tried ? tried : as_wrong_job(tried.error());
      },
      std::move(done));
}

void RunQueue::load_next() {
  if (draining_ || loading_ || held_.size() >= held_max() || !another_may_be_active()) return;
  const auto runs = parts_.store.runs(store::RunState::kPending);
  if (!runs) return check(runs.error());
  std::map<RunId, Pending> waiting;
  for (const store::Run& run : *runs) {
    auto pending = find_pending(run);
    // A held run is already making or loading its initial model.
    if (pending && (held_.contains(run.id) || !may_begin(*pending))) {
      waiting.emplace(run.id, *std::move(pending));
      continue;
    }
    held_.insert(run.id);
    if (pending) pending_.insert_or_assign(run.id, *pending);
    if (pending && trainer_initializes(pending->job)) {
      initialize(run, pending->job);
      return load_next();
    }
    loading_ = run.id;
    if (!pending) return load(run, std::nullopt);  // to fail by name
    return load(run, learn_shape(pending->job));
  }
  pending_ = std::move(waiting);
}

// None of a job that cannot be read.
std::optional<RunQueue::Pending> RunQueue::find_pending(const store::Run& run) const {
  if (const auto known = pending_.find(run.id); known != pending_.end()) return known->second;
  auto job = parse_job(run.job, "job", parts_.strategies);
  if (!job) return std::nullopt;
  client::TrainingSettings settings = job->training;
  settings.strategy = parts_.strategies.for_clients(settings.strategy);
  auto abilities = needed_abilities(settings);
  return Pending{*std::move(job), std::move(abilities)};
}

// Nothing where the job says it.
std::optional<LearnedShape> RunQueue::learn_shape(const Job& job) const {
  if (!lacks_shape(job)) return std::nullopt;
  const auto learned = coordinator::learn_shape(job, handlers_.clients());
  return learned ? std::optional(*learned) : std::nullopt;
}

bool RunQueue::may_begin(const Pending& pending) const {
  const Job& job = pending.job;
  if (initializing_ && trainer_initializes(job)) return false;
  if (!lacks_shape(job)) return !lacks_clients(pending, job.training.data, held_.size());
  // The first client to come does not decide for all.
  const auto learned = learn_shape(job);
  const std::size_t connected = handlers_.clients().count_connected();
  const auto needed = static_cast<std::size_t>(job.clients_awaited());
  if (!learned || std::max(learned->announced, connected) < needed) return false;
  return !lacks_clients(pending, learned->shape, held_.size());
}

// Beside so many other runs that have begun. Where there is none, the run begins without enough
// clients: it blocks no other, and its log says what it waits for. Up to runs-max runs take turns
// with the same clients; beyond them a run needs clients that are idle. Runs whose clients are away
// take part in no turns.
bool RunQueue::lacks_clients(const Pending& pending, const client::DataShape& shape,
                             std::size_t others) const {
  if (others == 0) return false;
  const AbleClients able = count_able(pending, shape);
  const bool takes_turns = handlers_.runs_contending() < options_.runs_max;
  const std::size_t usable = takes_turns ? able.connected : able.free;
  return usable < static_cast<std::size_t>(pending.job.clients_awaited());
}

AbleClients RunQueue::count_able(const Pending& pending, const client::DataShape& shape) const {
  return count_connected_able(handlers_.clients(), pending.abilities, shape);
}

void RunQueue::clients_changed() {
  const auto may_begin = [this](const auto& entry) { return this->may_begin(entry.second); };
  if (std::ranges::any_of(pending_, may_begin)) load_next();
}

// Where the shape of the run's data was known only when they had been read: whether it waits for
// clients of this shape like others, instead of taking the place of one that could go.
bool RunQueue::put_back(RunId run, const client::DataShape& shape) {
  const auto found = pending_.find(run);
  if (found == pending_.end()) return false;  // it was stopped meanwhile
  Pending& pending = found->second;
  client::DataShape& known = pending.job.training.data;
  const bool was_known = lacks_shape(pending.job) || pending.job.training.model.is_external() ||
                         (!known.input.empty() && known.classes > 0);
  if (was_known || !lacks_clients(pending, shape, held_.size() - 1)) return false;
  known = shape;
  ended(run);
  return true;
}

void RunQueue::ended(RunId run) {
  held_.erase(run);
  complaints_.erase(run);
  waits_.erase(run);
  if (loading_ == run) loading_.reset();
  load_next();
}

void RunQueue::stopped(RunId run) {
  if (!initializing_ || initializing_->run != run) return;
  initializing_->stop.request_stop();
  initializing_.reset();
  ended(run);
}

void RunQueue::drain() {
  draining_ = true;
  if (initializing_) initializing_->stop.request_stop();
  initializing_.reset();
}

std::string RunQueue::waits_for(const store::Run& run) const {
  if (const auto wait = waits_.find(run.id); wait != waits_.end()) {
    return "the disk: " + wait->second.why;
  }
  if (const auto complaint = complaints_.find(run.id); complaint != complaints_.end()) {
    return "its files to be readable: " + complaint->second;
  }
  if (initializing_ && initializing_->run == run.id) {
    return "the coordinator's trainer, which makes the model to begin with";
  }
  if (run.state != store::RunState::kPending || held_.contains(run.id)) return "";
  const auto pending = find_pending(run);
  if (initializing_ && pending && trainer_initializes(pending->job)) {
    return fmt::format("the coordinator's trainer, which makes the model of run {}",
                       initializing_->run.value());
  }
  const bool lacks = pending && lacks_shape(pending->job);
  if (held_.empty() && !lacks) return "";
  if (held_.size() >= held_max()) {
    return fmt::format("another run to end: {} have begun, which is the limit", held_.size());
  }
  if (!pending || !another_may_be_active()) return "its turn";
  client::DataShape shape = pending->job.training.data;
  if (lacks) {
    const auto learned = coordinator::learn_shape(pending->job, handlers_.clients());
    if (!learned) {
      return learned.error().code() == "shapes-differ"
                 ? "clients that agree on the shape of their data: " +
                       describe_disagreement(pending->job, handlers_.clients())
                 : "a client that says the shape of its data";
    }
    shape = learned->shape;
  }
  const AbleClients able = count_able(*pending, shape);
  std::string there = describe_connected(handlers_.clients().count_connected(), able.connected);
  if (held_.size() >= options_.runs_max && able.free < able.connected) {
    there += fmt::format(", {} at work for other runs", able.connected - able.free);
  }
  return fmt::format("{} ({})",
                     counted(static_cast<std::uint64_t>(pending->job.clients_awaited()), "client"),
                     there);
}

bool RunQueue::trainer_initializes(const Job& job) const {
  return parts_.external != nullptr && parts_.external->makes_models() && lacks_initial_model(job);
}

void RunQueue::initialize(const store::Run& run, const Job& job) {
  initializing_ = Initializing{run.id, {}};
  parts_.run_log.say(run.id, fmt::format("the coordinator's trainer makes the model to begin with, "
                                         "from seed {}",
                                         job.job.seed));
  compute<model::Snapshot>(
      parts_.waiting, alive_,
      [id = run.id, job, stop = initializing_->stop.get_token(),
       external = parts_.external](unsigned) { return external->initialize(id, job, stop); },
      [this, run](const Result<model::Snapshot>& made) { initialized(run, made); });
}

void RunQueue::initialized(const store::Run& run, const Result<model::Snapshot>& made) {
  if (!initializing_ || initializing_->run != run.id) return;  // it is not needed any more
  initializing_.reset();
  if (!made) return fail(run.id, made.error().within("the model to begin with"));
  load(run, std::nullopt, *made);
}

void RunQueue::load(const store::Run& run, const std::optional<LearnedShape>& learned,
                    const model::Snapshot& made) {
  compute<LoadedRun>(
      parts_.computation, alive_,
      [run, learned, made, &strategies = parts_.strategies, prepare = parts_.prepare](unsigned) {
        return load_new_run(run, strategies, prepare, learned, made);
      },
      [this, run, learned](const Result<LoadedRun>& result) { loaded(run, learned, result); });
}

// Nothing is written of a run that stays pending: the store would not know its files.
void RunQueue::loaded(const store::Run& run, const std::optional<LearnedShape>& learned,
                      const Result<LoadedRun>& loaded) {
  if (!loaded) return fail(run.id, loaded.error());
  if (put_back(run.id, loaded->context->job.training.data)) return;
  write_initial(run, learned, *loaded);
}

void RunQueue::write_initial(const store::Run& run, const std::optional<LearnedShape>& learned,
                             const LoadedRun& loaded) {
  if (!find_waiting(run.id)) return;
  compute<store::ModelRecord>(
      parts_.computation, alive_,
      [loaded, checkpoints = parts_.checkpoints(run.id)](unsigned) {
        return write_position(checkpoints, loaded.at, loaded.context->job_settings());
      },
      [this, run, learned, loaded](const Result<store::ModelRecord>& initial) {
        if (initial) return start(run, learned, loaded, *initial);
        if (initial.error().kind() != ErrorKind::kOverloaded) return check(initial.error());
        wait_for_disk(run.id, initial.error(),
                      [this, run, learned, loaded] { write_initial(run, learned, loaded); });
      });
}

Result<void> RunQueue::record_start(RunId run, const LoadedRun& loaded,
                                    const store::ModelRecord& initial) {
  if (loaded.made_sha256) {
    STARLING_TRY(parts_.store.record_initial(run, *loaded.made_sha256));
  }
  return parts_.store.start_run(run, initial, loaded.context->job_settings(),
                                parts_.clock.wall_now());
}

void RunQueue::start(const store::Run& run, const std::optional<LearnedShape>& learned,
                     const LoadedRun& loaded, const store::ModelRecord& initial) {
  if (!find_waiting(run.id)) return;
  const auto started = record_start(run.id, loaded, initial);
  if (started) {
    if (loading_ == run.id) loading_.reset();
    pending_.erase(run.id);
    waits_.erase(run.id);
    if (learned) parts_.run_log.say(run.id, learned->line());
    if (loaded.made_sha256) {
      parts_.run_log.say(run.id,
                         "the model to begin with is made: SHA-256 " + loaded.made_sha256->hex());
    }
    handlers_.on_ready(loaded, to_run_start(run.id, *loaded.context, loaded.at, {}, std::nullopt));
    return load_next();  // perhaps there is room for one more
  }
  if (started.error().kind() != ErrorKind::kOverloaded) return check(started.error());
  wait_for_disk(run.id, started.error(),
                [this, run, learned, loaded, initial] { start(run, learned, loaded, initial); });
}

void RunQueue::fail(RunId run, const Error& error) {
  finish(run, {store::RunState::kFailed, error.code(), error.message()});
}

void RunQueue::stop(RunId run) {
  finish(run, {.state = store::RunState::kStopped, .error_code = {}, .error = {}});
}

void RunQueue::finish(RunId run, const store::RunEnd& end) {
  const auto now = parts_.store.find_run(run);
  if (!now) return check(now.error());
  if (!*now || store::is_finished((*now)->state)) return ended(run);  // stopped meanwhile
  const auto stored = parts_.store.finish_run(run, end, parts_.clock.wall_now());
  if (stored) {
    parts_.run_log.say(run, end_line(end));
    return ended(run);
  }
  if (stored.error().kind() != ErrorKind::kOverloaded) return check(stored.error());
  wait_for_disk(run, stored.error(), [this, run, end] { finish(run, end); });
}

void RunQueue::check(const Error& error) { handlers_.on_broken(error); }

}  // namespace starling::coordinator
