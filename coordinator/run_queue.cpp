// SPDX-License-Identifier: Apache-2.0
#include "coordinator/run_queue.h"

#include <fmt/format.h>

#include "coordinator/job.h"
#include "coordinator/run_records.h"
#include "core/model/safetensors.h"

namespace starling::coordinator {
namespace {

Result<void> write_model(const store::Checkpoints& checkpoints, const LoadedRun& run) {
  const Bytes header = model::safetensors_header(*run.model->layout(), {});
  const std::array<ByteView, 2> parts = {header, as_bytes(run.model->values())};
  return checkpoints.write(run.version.round, parts);
}

}  // namespace

RunQueue::RunQueue(net::EventLoop& loop, store::Store& store, const Clock& clock,
                   const StateDirectory& state, RunLog& run_log, Log& log, Duration disk_retry,
                   Handlers handlers)
    : loop_(loop),
      store_(store),
      clock_(clock),
      state_(state),
      run_log_(run_log),
      log_(log),
      disk_retry_(disk_retry),
      handlers_(std::move(handlers)),
      retry_(loop, [this] { std::exchange(again_, nullptr)(); }) {}

// --- after a restart ----------------------------------------------------------------------------

Result<void> RunQueue::resume() {
  STARLING_ASSIGN(const auto running, store_.runs(store::RunState::kRunning));
  for (const store::Run& run : running) STARLING_TRY(resume(run));
  return {};
}

Result<void> RunQueue::resume(const store::Run& run) {
  held_ = true;
  const auto recovery = store::recover_run(store_, checkpoints(run.id), run.id, hash_model_file);
  if (!recovery && recovery.error().code() != "model-damaged") return recovery.error();
  if (!recovery) return fail(run.id, recovery.error()), Result<void>();
  for (const std::string& complaint : recovery->complaints) run_log_.say(run.id, complaint);
  const auto job = parse_job(run.job, fmt::format("job of run {}", run.id.value()));
  if (!job) return fail(run.id, job.error()), Result<void>();
  const store::ModelRecord& last = recovery->model;
  const auto loaded = load_running_run(run, checkpoints(run.id), last);
  if (loaded) return resumed(run, last, *loaded);
  wait_for_data(run, last, loaded.error());
  return {};
}

Result<void> RunQueue::resumed(const store::Run& run, const store::ModelRecord& last,
                               const LoadedRun& loaded) {
  STARLING_ASSIGN(const auto rounds, store_.rounds(run.id, last.round));
  run_log_.say(run.id, fmt::format("resumed after round {}", last.round));
  handlers_.on_ready(loaded,
                     to_run_start(run.id, *loaded.context, loaded.version, loaded.model, rounds));
  if (run.stop_requested) handlers_.on_stop(run.id);
  return {};
}

// The rounds so far are worth more than to be given up for a disk that is not mounted yet.
void RunQueue::wait_for_data(const store::Run& run, const store::ModelRecord& last,
                             const Error& error) {
  if (complaint_ != error.message()) {
    run_log_.say(run.id, fmt::format("cannot go on yet: {}; it is tried again every {}, until the "
                                     "run is stopped",
                                     error.message(), format_duration(disk_retry_)));
  }
  complaint_ = error.message();
  again_ = [this, run, last] { resume_again(run, last); };
  retry_.set(loop_.now() + disk_retry_);
}

void RunQueue::resume_again(const store::Run& run, const store::ModelRecord& last) {
  compute<LoadedRun>(
      thread_, loop_, alive_,
      [run, last, checkpoints = checkpoints(run.id)] {
        return load_running_run(run, checkpoints, last);
      },
      [this, id = run.id, last](const Result<LoadedRun>& loaded) {
        const auto now = store_.find_run(id);
        if (!now) return check(now.error());
        if (!*now) return ended();
        if ((*now)->stop_requested) return stop(id);
        if (!loaded) return wait_for_data(**now, last, loaded.error());
        if (const auto done = resumed(**now, last, *loaded); !done) check(done.error());
      });
}

// --- the next pending one -----------------------------------------------------------------------

void RunQueue::load_next() {
  if (held_) return;
  const auto pending = store_.runs(store::RunState::kPending);
  if (!pending) return check(pending.error());
  if (pending->empty()) return;
  held_ = true;
  load(pending->front());
}

void RunQueue::load(const store::Run& run) {
  using Work = std::function<Result<std::shared_ptr<Loading>>()>;
  const Work work = [run, checkpoints = checkpoints(run.id)] {
    auto loading = std::make_shared<Loading>(Loading{load_new_run(run), {}});
    if (loading->run) loading->written = write_model(checkpoints, *loading->run);
    return Result<std::shared_ptr<Loading>>(std::move(loading));
  };
  compute<std::shared_ptr<Loading>>(
      thread_, loop_, alive_, work,
      [this, run](Result<std::shared_ptr<Loading>> loading) { loaded(run, std::move(**loading)); });
}

void RunQueue::loaded(const store::Run& run, Loading loading) {
  if (!loading.run) return fail(run.id, loading.run.error());
  if (loading.written) return start(run, *loading.run);
  if (loading.written.error().kind() != ErrorKind::kOverloaded) {
    return check(loading.written.error());
  }
  log_.error("run {} waits for the disk: {}", run.id.value(), loading.written.error().message());
  again_ = [this, run] { load(run); };
  retry_.set(loop_.now() + disk_retry_);
}

void RunQueue::start(const store::Run& run, const LoadedRun& loaded) {
  const auto now = store_.find_run(run.id);
  if (!now) return check(now.error());
  if (!*now || (*now)->state != store::RunState::kPending) return ended();  // stopped meanwhile
  const store::ModelRecord initial{.sha256 = loaded.version.sha256,
                                   .file = store::Checkpoints::file_name(0),
                                   .bytes = loaded.model->size() * sizeof(float)};
  const auto started = store_.start_run(run.id, initial, clock_.wall_now());
  if (started) {
    return handlers_.on_ready(
        loaded, to_run_start(run.id, *loaded.context, loaded.version, loaded.model, {}));
  }
  if (started.error().kind() != ErrorKind::kOverloaded) return check(started.error());
  log_.error("run {} waits for the disk: {}", run.id.value(), started.error().message());
  again_ = [this, run, loaded] { start(run, loaded); };
  retry_.set(loop_.now() + disk_retry_);
}

void RunQueue::fail(RunId run, const Error& error) {
  run_log_.say(run, fmt::format("run failed: {}", error.message()));
  finish(run, {store::RunState::kFailed, error.code(), error.message()});
}

void RunQueue::stop(RunId run) {
  run_log_.say(run, "run stopped");
  finish(run, {.state = store::RunState::kStopped, .error_code = {}, .error = {}});
}

void RunQueue::finish(RunId run, const store::RunEnd& end) {
  const auto stored = store_.finish_run(run, end, clock_.wall_now());
  if (stored) return ended();
  if (stored.error().kind() != ErrorKind::kOverloaded) return check(stored.error());
  log_.error("run {} waits for the disk: {}", run.value(), stored.error().message());
  again_ = [this, run, end] { finish(run, end); };
  retry_.set(loop_.now() + disk_retry_);
}

void RunQueue::check(const Error& error) { handlers_.on_broken(error); }

}  // namespace starling::coordinator
