// SPDX-License-Identifier: Apache-2.0
#include "core/client/trainer_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "core/base/check.h"
#include "core/client/trainer_process.h"
#include "core/linalg/kernels.h"

namespace starling::client {
namespace {

namespace fs = std::filesystem;

constexpr Duration kCancelGrace = std::chrono::seconds(1);
constexpr Duration kStopGrace = std::chrono::seconds(2);
constexpr Duration kLook = std::chrono::milliseconds(100);  // between two looks at `stop`
constexpr int kDoublingsMax = 16;                           // of the pause
constexpr Duration kWatchedStartDeadline = std::chrono::minutes(10);
constexpr Duration kWatchedTaskDeadline = std::chrono::days(30);
constexpr std::size_t kDescriptionsMax = 64;  // for more settings it is asked again

// A NaN that no computation gives, where a result begins: still there afterwards, none was written.
const float kUnwritten = std::bit_cast<float>(0x7FC5'7A91U);

TimePoint steady_now() { return SystemClock().now(); }

Error stopped() { return retry("stopped", "the trainer's task was stopped"); }

Result<fs::path> make_directory(const fs::path& directory) {
  std::error_code error;
  fs::path path = fs::absolute(directory, error);
  if (!error && fs::create_directories(path, error)) {
    fs::permissions(path, fs::perms::owner_all, error);
  }
  if (!error) return path;
  return rejected("trainer-cannot-start",
                  fmt::format("the trainer cannot be started: its directory {} cannot be made: {}",
                              directory.string(), error.message()));
}

}  // namespace

TrainerOptions trainer_of(const std::string& command_line) {
  return {.command = {"/bin/sh", "-c", "exec " + command_line},
          .start_deadline = kWatchedStartDeadline,
          .task_deadline = kWatchedTaskDeadline};
}

bool is_answer(const Error& error) {
  return error.code() == "trainer-failed" ||
         (!error.code().starts_with("trainer-") && error.kind() == ErrorKind::kRejected);
}

Duration TrainerHost::Options::pause_after(int failures) const {
  return std::min(pause_max, pause_min * (1L << std::clamp(failures - 1, 0, kDoublingsMax)));
}

TrainerHost::TrainerHost(Options options, Log& log) : options_(std::move(options)), log_(log) {
  STARLING_CHECK(!options_.trainer.command.empty());
}

TrainerHost::~TrainerHost() { stop(); }

Result<TrainerHost::Turn> TrainerHost::wait_for_turn(const std::atomic<bool>& stop) {
  Turn turn(turn_, std::defer_lock);
  while (!stop.load(std::memory_order_relaxed)) {
    if (turn.try_lock_for(kLook)) return turn;
  }
  return stopped();
}

Result<TrainerDescription> TrainerHost::describe(const std::string& settings,
                                                 const std::atomic<bool>& stop,
                                                 const std::string& client) {
  STARLING_ASSIGN(const Turn turn, wait_for_turn(stop));
  STARLING_ASSIGN(const TrainerDescription* description,
                  described({client.empty() ? options_.client : client, settings}, stop));
  return *description;
}

// Valid until the process is asked for the next one.
Result<const TrainerDescription*> TrainerHost::described(const Subject& subject,
                                                         const std::atomic<bool>& stop) {
  STARLING_TRY(start_where_needed(stop));
  const bool asked = question_ && question_->subject == subject;
  if (question_) {
    const auto finished = finish_question(stop);
    // What it had to say of another subject does not matter here.
    if (!finished && (asked || question_)) return finished.error();
    STARLING_TRY(start_where_needed(stop));  // the other question may have ended the process
  }
  if (!described_.contains(subject)) {
    STARLING_TRY(ask(subject));
    STARLING_TRY(finish_question(stop));
  }
  return &described_.at(subject);
}

Result<TrainerAnswer> TrainerHost::run(TrainerOperation operation, const TrainerTask& task,
                                       Vectors vectors, const std::atomic<bool>& stop,
                                       std::optional<std::uint64_t> step) {
  STARLING_ASSIGN(const Turn turn, wait_for_turn(stop));
  STARLING_ASSIGN(const TrainerDescription* description,
                  described({options_.client, task.settings}, stop));
  if (!description->can(operation)) return cannot_do(*description, operation);
  TensorPlaces places;
  const bool has_result = operation != TrainerOperation::kEvaluate;
  if (auto written = write_parameters(places, vectors, has_result); !written) {
    return failed(written.error());
  }
  const std::uint64_t id = ++last_id_;
  STARLING_ASSIGN(const std::string request, task_request(id, operation, task, places, step));
  process_->send(request);
  STARLING_ASSIGN(const std::string line, answer_to(id, operation, stop));
  auto answer = read_answer(line, id, operation);
  if (!answer && answer.error().code() == kTrainerProtocol) return failed(answer.error());
  if (answer && !vectors.result.empty()) {
    STARLING_TRY(read_result(places, operation, vectors.result));
  }
  failures_ = 0;
  return answer;
}

void TrainerHost::stop() {
  const Turn turn(turn_);
  if (process_) process_->stop(stop_request(), kStopGrace);
  forget_process();
}

// A process that has ended since its last answer is no failure of a task.
Result<void> TrainerHost::start_where_needed(const std::atomic<bool>& stop) {
  if (process_ && !question_) {
    if (auto idle = process_->check_idle(); !idle) {
      if (idle.error().code() == kTrainerProtocol) return failed(idle.error());
      log_.warning("{}; it is started again", idle.error().message());
      forget_process();
    }
  }
  if (process_) return {};
  // A task that failed at once here would count as another failure of this client.
  while (steady_now() < start_at_) {
    if (stop.load(std::memory_order_relaxed)) return stopped();
    std::this_thread::sleep_for(std::min(kLook, start_at_ - steady_now()));
  }
  if (auto started = start(); !started) return failed(started.error());
  return {};
}

// It describes itself first.
Result<void> TrainerHost::start() {
  STARLING_TRY(make_directory(options_.directory));
  STARLING_ASSIGN(
      process_, TrainerProcess::start({.command = options_.trainer.command,
                                       .directory = options_.directory,
                                       .memory_bytes_max = options_.trainer.memory_max * 1'000'000,
                                       .threads = options_.threads},
                                      log_));
  return {};
}

Result<void> TrainerHost::ask(const Subject& subject) {
  STARLING_ASSIGN(const fs::path directory, make_directory(options_.directory));
  const std::uint64_t id = ++last_id_;
  STARLING_ASSIGN(const std::string request,
                  describe_request(id, subject.first, directory.string(), subject.second));
  process_->send(request);
  question_ = Question{id, subject, steady_now() + options_.trainer.start_deadline};
  return {};
}

Result<void> TrainerHost::finish_question(const std::atomic<bool>& stop) {
  const auto line = process_->receive(
      {.deadline = question_->deadline,
       .at_deadline = fmt::format("has not described itself within {} and was killed; a device or "
                                  "coordinator allows longer by trainer.start-deadline",
                                  format_duration(options_.trainer.start_deadline)),
       .stop = stop});
  if (!line && line.error().code() == "stopped") return stopped();
  if (!line) return failed(line.error());
  const Question question = *std::exchange(question_, std::nullopt);
  auto description = read_description(*line, question.id);
  if (description) {
    remember(question.subject, std::move(*description));
    return {};
  }
  if (description.error().code() == kTrainerProtocol) return failed(description.error());
  return description.error();
}

void TrainerHost::remember(const Subject& subject, TrainerDescription description) {
  std::erase_if(described_,
                [&](const auto& entry) { return entry.first.first != options_.client; });
  if (described_.size() >= kDescriptionsMax) described_.clear();
  described_.insert_or_assign(subject, std::move(description));
}

Result<std::string> TrainerHost::answer_to(std::uint64_t id, TrainerOperation operation,
                                           const std::atomic<bool>& stop) {
  auto line =
      process_->receive({.deadline = steady_now() + options_.trainer.task_deadline,
                         .at_deadline = fmt::format(
                             "has not answered '{}' within {} and was killed; raise "
                             "trainer.task-deadline if it needs longer",
                             to_string(operation), format_duration(options_.trainer.task_deadline)),
                         .stop = stop});
  if (line) return line;
  if (line.error().code() == "stopped") return cancelled(id);
  return failed(line.error());
}

// The result lies behind the parameters.
Result<void> TrainerHost::write_parameters(TensorPlaces& places, Vectors vectors, bool has_result) {
  TensorMemory& memory = process_->memory();
  const std::uint64_t bytes = vectors.parameters.size_bytes();
  const std::uint64_t result_bytes = vectors.result.empty() ? bytes : vectors.result.size_bytes();
  if (bytes > 0) places.parameters = {0, bytes};
  const std::uint64_t place = TensorMemory::place_after(bytes);
  if (has_result) places.result = {place, result_bytes};
  STARLING_TRY(memory.reserve(has_result ? place + result_bytes : bytes));
  places.memory_bytes = memory.bytes();
  STARLING_TRY(memory.write(0, vectors.parameters));
  if (!has_result || result_bytes == 0) return {};
  return memory.write(places.result->offset, {&kUnwritten, 1});
}

Result<void> TrainerHost::read_result(const TensorPlaces& places, TrainerOperation operation,
                                      std::span<float> result) {
  if (auto read = process_->memory().read(places.result->offset, result); !read) {
    return failed(read.error());
  }
  if (std::bit_cast<std::uint32_t>(result.front()) == std::bit_cast<std::uint32_t>(kUnwritten)) {
    return failed(protocol_error(
        fmt::format("answered '{}' without a result in the shared memory", to_string(operation))));
  }
  if (linalg::default_kernels().all_finite(result.data(), result.size())) return {};
  return rejected("diverged",
                  fmt::format("a value that the trainer gave back from '{}' is not finite; lower "
                              "the learning rate or set clip-norm",
                              to_string(operation)));
}

// Not a failure of the trainer, whatever it does now.
Error TrainerHost::cancelled(std::uint64_t id) {
  static const std::atomic<bool> kNever = false;
  process_->send(cancel_request(id));
  const auto line = process_->receive(
      {.deadline = steady_now() + kCancelGrace, .at_deadline = "", .stop = kNever});
  const auto answer = line ? read_answer(*line, id, TrainerOperation::kInitialize)
                           : Result<TrainerAnswer>(line.error());
  const bool in_order = line && (answer || answer.error().code() != kTrainerProtocol);
  if (!in_order) {
    log_.info("the trainer has not answered soon after its task was cancelled; it was killed");
    forget_process();
  }
  return stopped();
}

Error TrainerHost::failed(Error error) {
  forget_process();
  ++failures_;
  start_at_ = steady_now() + options_.pause_after(failures_);
  return error;
}

void TrainerHost::forget_process() {
  process_.reset();
  question_.reset();
  described_.clear();
}

}  // namespace starling::client
