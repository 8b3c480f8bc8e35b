// SPDX-License-Identifier: Apache-2.0
// Summing updates: the exact sum beside plain loops over the same memory, in elements per second.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/aggregate/fixed_point_sum.h"
#include "core/aggregate/weighted_mean.h"
#include "core/base/check.h"
#include "core/base/disk.h"
#include "core/base/durable_file.h"
#include "core/base/rng.h"
#include "core/update/contribution.h"

namespace starling::bench {
namespace {

std::vector<float> random_values(std::size_t count) {
  Rng rng({.seed = 1});
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.normal() * 1e-3);
  return values;
}

void count_elements(benchmark::State& state, std::size_t elements) {
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * elements));
}

// Of this thread on a processor: the machine may do other things.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Work>
double seconds_of(int times, Work work) {
  const double start = processor_seconds();
  for (int i = 0; i < times; ++i) {
    work();
    benchmark::ClobberMemory();
  }
  return processor_seconds() - start;
}

// The bytes that add() moves (an update read, the sums read and written) beside those that memcpy
// moves (read and written) in a working set of the same size, by turns in one run.
void fixed_point(benchmark::State& state, double weight, std::size_t sum_bytes) {
  constexpr int kTimes = 8;
  const auto values = random_values(static_cast<std::size_t>(state.range(0)));
  aggregate::FixedPointSum sum(
      values.size(), aggregate::FixedPointScale::for_bounds(0x1p24, 0x1p24, 1000).value());
  const std::size_t working_set = values.size() * (sizeof(float) + sum_bytes);
  const Bytes from(working_set / 2, std::byte{1});
  Bytes to(working_set / 2);
  sum.add(weight, values);
  double adding = 0;
  double copying = 0;
  for (auto _ : state) {
    const double seconds = seconds_of(kTimes, [&] {
      weight = -weight;  // the sums stay as small as they are
      sum.add(weight, values);
    });
    state.SetIterationTime(seconds);
    adding += seconds;
    copying += seconds_of(kTimes, [&] { std::memcpy(to.data(), from.data(), to.size()); });
  }
  STARLING_CHECK(sum.memory_bytes() == values.size() * sum_bytes);
  count_elements(state, kTimes * values.size());
  const auto times = static_cast<double>(state.iterations() * kTimes);
  const auto moved = static_cast<double>(values.size() * (sizeof(float) + 2 * sum_bytes));
  const double add_rate = moved * times / adding;
  const double copy_rate = static_cast<double>(2 * to.size()) * times / copying;
  state.counters["add_GB/s"] = add_rate / 1e9;
  state.counters["copy_GB/s"] = copy_rate / 1e9;
  state.counters["ratio"] = add_rate / copy_rate;
}

// What an aggregation that depends on the order would cost.
template <class Accumulator>
void plain(benchmark::State& state) {
  const auto values = random_values(static_cast<std::size_t>(state.range(0)));
  std::vector<Accumulator> sum(values.size());
  for (auto _ : state) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum[i] += Accumulator{600} * static_cast<Accumulator>(values[i]);
    }
    benchmark::ClobberMemory();
  }
  count_elements(state, values.size());
}

struct Upload {
  explicit Upload(std::size_t elements)
      : owner(std::make_shared<const std::vector<float>>(random_values(elements))),
        payload(owner, as_bytes(*owner)),
        schema{.vectors = {{.name = "model", .elements = elements}},
               .bounds = {.contributions_max = 1U << 20}},
        head{.task = TaskId(1),
             .weight = 1,
             .vectors = schema.vectors,
             .payload_bytes = payload.size(),
             .payload_checksum = checksum(payload.view())} {}

  std::shared_ptr<const std::vector<float>> owner;
  SharedBytes payload;
  update::Schema schema;
  update::ContributionHead head;
};

struct UploadedFile {
  explicit UploadedFile(ByteView content) {
    STARLING_CHECK(write_durably(path, content));
    open = SystemDisk().open(path).value();
    std::filesystem::remove(path);
  }
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("upload-{}", ::getpid());
  std::unique_ptr<DiskFile> open;
};

void validate(benchmark::State& state) {
  const Upload upload(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    auto contribution = update::validate(upload.head, upload.payload, upload.schema);
    STARLING_CHECK(contribution);
    benchmark::DoNotOptimize(contribution);
  }
  count_elements(state, upload.owner->size());
}

// All that the coordinator does with an update that was received: checksum, finite and within the
// bounds, norm, sum.
void whole_upload(benchmark::State& state) {
  const Upload upload(static_cast<std::size_t>(state.range(0)));
  auto mean = aggregate::WeightedMean::create(upload.schema, {}).value();
  for (auto _ : state) {
    const auto contribution = update::validate(upload.head, upload.payload, upload.schema).value();
    STARLING_CHECK(mean.accumulate(contribution).has_value());
  }
  count_elements(state, upload.owner->size());
}

// The same, of an update that is in a file, as the spool has large ones.
void whole_upload_from_file(benchmark::State& state) {
  const Upload upload(static_cast<std::size_t>(state.range(0)));
  const UploadedFile file(upload.payload.view());
  auto mean = aggregate::WeightedMean::create(upload.schema, {}).value();
  for (auto _ : state) {
    const auto contribution =
        update::validate(upload.head, update::Payload(*file.open), upload.schema).value();
    STARLING_CHECK(mean.accumulate(contribution).has_value());
  }
  count_elements(state, upload.owner->size());
}

// Of 10,000,000 values, this share of which is not zero, in runs as a layer's rows are.
std::vector<float> values_of_density(std::int64_t percent) {
  Rng rng({.seed = 2});
  std::vector<float> values = random_values(10'000'000);
  constexpr std::size_t kRun = 100;
  for (std::size_t first = 0; first < values.size(); first += kRun) {
    if (rng.below(100) < static_cast<std::uint64_t>(percent)) continue;
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(first), kRun, 0.0F);
  }
  return values;
}

const std::vector<update::VectorSpec> kAskedSparse = {
    {.encoding = update::Encoding::kSparseFloat32Delta, .elements = 10'000'000}};

// What a client spends on the sparse form; where all values are sent, on finding that out.
void encode(benchmark::State& state) {
  const std::vector<float> values = values_of_density(state.range(0));
  std::vector<float> work = values;
  std::uint64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::ranges::copy(values, work.begin());
    state.ResumeTiming();
    bytes = update::payload_bytes(update::encode(work, kAskedSparse));
  }
  count_elements(state, values.size());
  state.counters["MB"] = static_cast<double>(bytes) / 1e6;
}

// What the coordinator spends on a sparse update: its check, and reading it once.
void validate_sparse(benchmark::State& state) {
  std::vector<float> values = values_of_density(state.range(0));
  const update::Schema schema{.vectors = kAskedSparse};
  update::ContributionHead head{.weight = 1, .vectors = update::encode(values, kAskedSparse)};
  head.payload_bytes = update::payload_bytes(head.vectors);
  const SharedBytes payload(nullptr, as_bytes(values).first(head.payload_bytes));
  head.payload_checksum = checksum(payload.view());
  for (auto _ : state) {
    auto contribution = update::validate(head, payload, schema);
    STARLING_CHECK(contribution);
    benchmark::DoNotOptimize(contribution);
  }
  count_elements(state, values.size());
}

void read_sparse(benchmark::State& state) {
  std::vector<float> values = values_of_density(state.range(0));
  const update::Schema schema{.vectors = kAskedSparse};
  update::ContributionHead head{.weight = 1, .vectors = update::encode(values, kAskedSparse)};
  head.payload_bytes = update::payload_bytes(head.vectors);
  const SharedBytes payload(nullptr, as_bytes(values).first(head.payload_bytes));
  head.payload_checksum = checksum(payload.view());
  const auto contribution = update::validate(head, payload, schema).value();
  for (auto _ : state) {
    STARLING_CHECK(contribution.for_each_block(
        0, 64 * 1024, [](std::size_t, auto block) { benchmark::DoNotOptimize(block.data()); }));
  }
  count_elements(state, values.size());
}

BENCHMARK_CAPTURE(fixed_point, one integer, 600, 8)
    ->Arg(100'000)
    ->Arg(1'200'000)
    ->Arg(10'000'000)
    ->UseManualTime();
BENCHMARK_CAPTURE(fixed_point, two integers, 0x1p24, 16)
    ->Arg(100'000)
    ->Arg(1'200'000)
    ->Arg(10'000'000)
    ->UseManualTime();
BENCHMARK(plain<double>)->Name("plain double")->Arg(100'000)->Arg(1'200'000)->Arg(10'000'000);
BENCHMARK(plain<float>)->Name("plain float")->Arg(100'000)->Arg(1'200'000)->Arg(10'000'000);
BENCHMARK(whole_upload)->Name("whole upload")->Arg(100'000)->Arg(1'200'000)->Arg(10'000'000);
BENCHMARK(whole_upload_from_file)
    ->Name("whole upload from a file")
    ->Arg(100'000)
    ->Arg(1'200'000)
    ->Arg(10'000'000);
BENCHMARK(validate)->Arg(100'000)->Arg(1'200'000)->Arg(10'000'000);
// By the percentage of 10,000,000 elements that are not zero.
BENCHMARK(encode)->Arg(100)->Arg(50)->Arg(10)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(validate_sparse)->Arg(50)->Arg(10)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(read_sparse)->Arg(50)->Arg(10)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace starling::bench

BENCHMARK_MAIN();
