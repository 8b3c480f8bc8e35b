// SPDX-License-Identifier: Apache-2.0
#include "core/client/trainer_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "core/base/bytes.h"
#include "core/base/nearest_name.h"
#include "core/client/trainer_messages.h"

namespace starling::client {
namespace {

using std::chrono::milliseconds;

constexpr Duration kTick = milliseconds(100);  // `stop` is looked at so often
constexpr Duration kMemoryCheckInterval = milliseconds(250);
constexpr Duration kCloseGrace = std::chrono::seconds(1);
constexpr std::size_t kReadBytes = 64 * 1024;
constexpr int kNotFound = 127;     // of a shell: no such program
constexpr int kReadsPerTurn = 16;  // so that a flood does not keep a turn from its end
constexpr int kRequestsNumber = 3, kAnswersNumber = 4, kMemoryNumber = 5;  // in the trainer

TimePoint now() { return SystemClock().now(); }

Error cannot_start_trainer(const std::string& why) {
  return wrong_setting("trainer-cannot-start",
                       "the trainer cannot be started: " + why + "; look at trainer.command");
}

struct Pipe {
  FileDescriptor reader;
  FileDescriptor writer;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return retry("trainer-cannot-start",
                 std::string("the trainer cannot be started: ") + std::strerror(errno));
  }
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void make_non_blocking(const FileDescriptor& file) {
  ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) | O_NONBLOCK);
}

// What is there, at most a turn's worth, to `take`. False at the end of the pipe.
template <class Take>
bool read_some(const FileDescriptor& file, Take take) {
  std::array<char, kReadBytes> buffer;
  for (int i = 0; i < kReadsPerTurn; ++i) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got == 0) return false;
    if (got < 0) return true;  // nothing more; or interrupted: the next turn goes on
    take(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
  }
  return true;
}

// A shell looks for a program without a directory on PATH alone.
std::string advice_for_file(const std::vector<std::string>& command) {
  constexpr std::string_view kExec = "exec ";
  std::string_view line = command.back();
  if (!line.starts_with(kExec)) return {};
  line.remove_prefix(kExec.size());
  const std::string name(line.substr(0, line.find(' ')));
  std::error_code ignored;
  if (name.find('/') != name.npos || !std::filesystem::is_regular_file(name, ignored)) return {};
  return fmt::format("; name the interpreter, as in \"python3 {0}\", or run it as ./{0}",
                     printable(name));
}

}  // namespace

struct TrainerProcess::Pipes {
  Pipe requests, answers, printed;
};

Result<std::unique_ptr<TrainerProcess>> TrainerProcess::start(const Options& options, Log& log) {
  STARLING_ASSIGN(TensorMemory memory, TensorMemory::make(options.directory));
  Pipes pipes;
  STARLING_ASSIGN(pipes.requests, make_pipe());
  STARLING_ASSIGN(pipes.answers, make_pipe());
  STARLING_ASSIGN(pipes.printed, make_pipe());
  std::vector<std::string> environment = environment_without("STARLING_");
  environment.emplace_back("STARLING_TRAINER=1");
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    if (std::getenv(name) != nullptr) continue;  // somebody decided
    environment.push_back(fmt::format("{}={}", name, options.threads));
  }
  auto process = Subprocess::start({.arguments = options.command,
                                    .environment = std::move(environment),
                                    .descriptors = {{STDOUT_FILENO, pipes.printed.writer.get()},
                                                    {STDERR_FILENO, pipes.printed.writer.get()},
                                                    {kRequestsNumber, pipes.requests.reader.get()},
                                                    {kAnswersNumber, pipes.answers.writer.get()},
                                                    {kMemoryNumber, memory.descriptor()}},
                                    .guarded = true});
  if (!process) return cannot_start_trainer(process.error().message());
  return std::unique_ptr<TrainerProcess>(
      new TrainerProcess(options, std::move(memory), std::move(pipes), std::move(*process), log));
}

// This side keeps the reading end of the requests too: where the trainer has gone, a write then
// fills the pipe and raises no SIGPIPE.
TrainerProcess::TrainerProcess(const Options& options, TensorMemory memory, Pipes pipes,
                               std::unique_ptr<Subprocess> process, Log& log)
    : command_(options.command),
      memory_bytes_max_(options.memory_bytes_max),
      memory_(std::move(memory)),
      requests_(std::move(pipes.requests.writer)),
      requests_reader_(std::move(pipes.requests.reader)),
      answers_(std::move(pipes.answers.reader)),
      printed_(std::move(pipes.printed.reader)),
      process_(std::move(process)),
      output_(log) {
  for (const FileDescriptor* file : {&requests_, &answers_, &printed_}) make_non_blocking(*file);
}

TrainerProcess::~TrainerProcess() {
  process_->kill_group(SIGKILL);
  process_->wait();
  read_output();
  output_.end(now());
}

Result<std::string> TrainerProcess::receive(const Patience& patience) {
  std::string line;
  for (;;) {
    const TimePoint before = now();
    turn(std::clamp<Duration>(patience.deadline - before, Duration::zero(), kTick));
    if (take_line(line)) {
      STARLING_TRY(check_memory(now()));
      return line;
    }
    if (received_.size() > kTrainerLineBytesMax) {
      return protocol_error("answered with a line of more than " +
                            format_byte_count(kTrainerLineBytesMax));
    }
    if (process_->try_wait()) {
      read_answers();
      if (take_line(line)) return line;
      return died();
    }
    if (patience.stop.load(std::memory_order_relaxed)) {
      return retry("stopped", "the trainer's task was stopped");
    }
    const TimePoint after = now();
    STARLING_TRY(check_memory(after));
    if (after >= patience.deadline) {
      return timed_out("trainer-deadline", "the trainer " + patience.at_deadline);
    }
    if (answers_closed_ != TimePoint::max() && after >= answers_closed_ + kCloseGrace) {
      return protocol_error("closed its answers (descriptor 4) and did not end");
    }
  }
}

Result<void> TrainerProcess::check_idle() {
  turn(Duration::zero());
  if (!received_.empty()) {
    return protocol_error("answered what was not asked for: '" +
                          printable(received_.substr(0, received_.find('\n'))) + "'");
  }
  if (process_->try_wait()) return died();
  return check_memory(now());
}

void TrainerProcess::stop(std::string_view farewell, Duration grace) {
  const TimePoint deadline = now() + grace;
  send(farewell);
  write_requests();
  requests_.close();
  unsent_.clear();
  while (!process_->try_wait() && now() < deadline) {
    received_.clear();
    turn(std::min<Duration>(deadline - now(), kTick));
  }
}

void TrainerProcess::turn(Duration limit) {
  std::array<pollfd, 4> files = {
      pollfd{.fd = answers_.get(), .events = POLLIN, .revents = 0},
      pollfd{.fd = printed_.get(), .events = POLLIN, .revents = 0},
      pollfd{.fd = process_->pidfd(), .events = POLLIN, .revents = 0},
      pollfd{.fd = unsent_.empty() ? -1 : requests_.get(), .events = POLLOUT, .revents = 0}};
  const auto wait = std::chrono::ceil<milliseconds>(std::max<Duration>(limit, Duration::zero()));
  ::poll(files.data(), files.size(), static_cast<int>(wait.count()));
  write_requests();
  read_answers();
  read_output();
}

void TrainerProcess::write_requests() {
  while (!unsent_.empty()) {
    const ssize_t written = ::write(requests_.get(), unsent_.data(), unsent_.size());
    if (written <= 0) return;  // full: poll() says when to go on
    unsent_.erase(0, static_cast<std::size_t>(written));
  }
}

void TrainerProcess::read_answers() {
  if (answers_.get() < 0) return;
  const bool open = read_some(answers_, [this](std::string_view bytes) {
    if (received_.size() <= kTrainerLineBytesMax) received_ += bytes;
  });
  if (open) return;
  answers_.close();
  answers_closed_ = now();
}

void TrainerProcess::read_output() {
  if (printed_.get() < 0) return;
  const bool open =
      read_some(printed_, [this](std::string_view bytes) { output_.add(bytes, now()); });
  if (!open) printed_.close();
}

bool TrainerProcess::take_line(std::string& line) {
  const std::size_t end = received_.find('\n', searched_);
  searched_ = end == received_.npos ? received_.size() : 0;
  if (end == received_.npos || end > kTrainerLineBytesMax) return false;
  line = received_.substr(0, end);
  received_.erase(0, end + 1);
  answered_ = true;
  output_.pause();
  return true;
}

// Its last words are what people need.
Error TrainerProcess::died() {
  const ProcessEnd end = process_->wait();
  read_output();
  output_.end(now());
  if (end.exit_code == 0 && !answered_) {
    const std::string& last = output_.last_line();
    return retry("trainer-died",
                 fmt::format("the trainer ended with exit code 0 before it described itself{}; a "
                             "trainer in Python must call starling.serve(...)",
                             last.empty() ? "" : " and printed '" + printable(last, 512) + "'"));
  }
  const bool killed = end.exit_code == 128 + SIGKILL;
  const std::string how =
      end.text() + (killed ? " (as the kernel does where memory runs out)" : "");
  if (output_.last_line().empty()) {
    return retry("trainer-died",
                 fmt::format("the trainer {} and printed nothing; run its command by hand to see "
                             "what it lacks",
                             how));
  }
  return retry("trainer-died",
               fmt::format("the trainer {}: {}{}", how, printable(output_.last_line(), 512),
                           end.exit_code == kNotFound ? advice_for_file(command_) : ""));
}

Result<void> TrainerProcess::check_memory(TimePoint at) {
  if (memory_bytes_max_ == 0 || at < next_memory_check_) return {};
  next_memory_check_ = at + kMemoryCheckInterval;
  STARLING_TRY(memory_.check_size());
  const std::uint64_t bytes = resident_bytes_of_group(process_->id());
  if (bytes <= memory_bytes_max_) return {};
  return retry("trainer-memory",
               fmt::format("the trainer took {} of memory, and trainer.memory-max allows {}; it "
                           "was killed: allow it more, or let it take less, as with smaller "
                           "batches",
                           format_byte_count(bytes), format_byte_count(memory_bytes_max_)));
}

}  // namespace starling::client
