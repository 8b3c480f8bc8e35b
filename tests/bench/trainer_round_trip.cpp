// SPDX-License-Identifier: Apache-2.0
// A model to a trainer that gives it back unchanged (trainers/echo.py), beside what it cannot do
// without: the two copies, the check of its values, and a memcpy. trainer_round_trip PYTHON ECHO
// [MILLIONS-OF-VALUES [RUNS]]
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "core/client/tensor_memory.h"
#include "core/client/trainer_host.h"
#include "core/linalg/kernels.h"
#include "tests/support/temporary_directory.h"

namespace starling::client {
namespace {

class Quiet final : public Log {
 public:
  void write(LogLevel level, std::string_view line) override {
    if (level >= LogLevel::kWarning) fmt::print(stderr, "{}\n", line);
  }
};

template <class Step>
double milliseconds_of(const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  step();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// The first one pays for fresh memory; the others' median.
template <class Step>
void print_row(const char* name, int runs, const Step& step) {
  std::vector<double> times;
  const double first = milliseconds_of(step);
  for (int i = 0; i < runs; ++i) times.push_back(milliseconds_of(step));
  std::ranges::sort(times);
  fmt::print("{:<22} {:8.0f} {:8.0f} {:8.0f} {:8.0f}\n", name, first, times[times.size() / 2],
             times.front(), times.back());
}

int run(const std::string& python, const std::string& script, std::size_t values, int runs) {
  const testing::TemporaryDirectory directory;
  const std::string settings = fmt::format(R"({{"values": {}}})", values);
  const TrainerTask task{.client = "client-1",
                         .round = 1,
                         .rounds = 1,
                         .seed = 1,
                         .train = "{}",
                         .settings = settings};
  std::vector<float> model(values, 0.5F);
  std::vector<float> copy;
  std::atomic<bool> stop = false;
  Quiet log;
  TrainerHost::Options options;
  options.trainer.command = {python, script};
  options.directory = directory.path();
  TrainerHost host(options, log);
  if (const auto described = host.describe(settings, stop); !described) {
    fmt::print(stderr, "{}\n", described.error().message());
    return 1;
  }
  const std::span<float> all(model);
  const auto check = [](const Result<void>& done) {
    if (!done) fmt::print(stderr, "{}\n", done.error().message());
  };
  fmt::print("{:<22} {:>8} {:>8} {:>8} {:>8}\n", "ms", "first", "median", "least", "most");
  print_row("memcpy", runs, [&] {
    copy.resize(values);
    std::memcpy(copy.data(), model.data(), values * sizeof(float));
  });
  auto memory = TensorMemory::make(directory.path());
  // Behind each other, as the host places them: what a copy takes depends on the places, too.
  const std::uint64_t bytes = (values * sizeof(float) + TensorMemory::kAlignment - 1) /
                              TensorMemory::kAlignment * TensorMemory::kAlignment;
  check(memory->reserve(2 * bytes));
  check(memory->write(bytes, all));
  print_row("to shared memory", runs, [&] { check(memory->write(0, all)); });
  print_row("from shared memory", runs, [&] { check(memory->read(bytes, all)); });
  print_row("finite check", runs, [&] {
    if (!linalg::default_kernels().all_finite(model.data(), values)) fmt::print("not finite\n");
  });
  print_row("to a trainer and back", runs, [&] {
    const auto answer = host.run(TrainerOperation::kFit, task, {all, all}, stop);
    if (!answer) fmt::print(stderr, "{}\n", answer.error().message());
  });
  return 0;
}

}  // namespace
}  // namespace starling::client

int main(int count, char** arguments) {
  if (count < 3) {
    fmt::print(stderr, "usage: trainer_round_trip PYTHON ECHO [MILLIONS-OF-VALUES [RUNS]]\n");
    return 2;
  }
  const double millions = count > 3 ? std::stod(arguments[3]) : 100;
  return starling::client::run(arguments[1], arguments[2], static_cast<std::size_t>(millions * 1e6),
                               count > 4 ? std::stoi(arguments[4]) : 7);
}
