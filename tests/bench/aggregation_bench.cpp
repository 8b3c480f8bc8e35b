// SPDX-License-Identifier: Apache-2.0
// Summing updates: the exact sum beside plain loops over the same memory, in elements per second.
#include <benchmark/benchmark.h>

#include <vector>

#include "core/aggregate/fixed_point_sum.h"
#include "core/base/check.h"
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

void fixed_point(benchmark::State& state) {
  const auto values = random_values(static_cast<std::size_t>(state.range(0)));
  aggregate::FixedPointSum sum(
      values.size(), aggregate::FixedPointScale::for_bounds(0x1p24, 0x1p24, 1000).value());
  for (auto _ : state) {
    sum.add(600, values);
    benchmark::ClobberMemory();
  }
  count_elements(state, values.size());
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

void validate(benchmark::State& state) {
  const auto owner = std::make_shared<const std::vector<float>>(
      random_values(static_cast<std::size_t>(state.range(0))));
  const SharedBytes payload(owner, as_bytes(*owner));
  const update::Schema schema{.vectors = {{.name = "model", .elements = owner->size()}}};
  const update::ContributionHead head{.task = TaskId(1),
                                      .weight = 600,
                                      .vectors = schema.vectors,
                                      .payload_bytes = payload.size(),
                                      .payload_checksum = checksum(payload.view())};
  for (auto _ : state) {
    auto contribution = update::validate(head, payload, schema);
    STARLING_CHECK(contribution);
    benchmark::DoNotOptimize(contribution);
  }
  count_elements(state, owner->size());
}

BENCHMARK(fixed_point)->Arg(200'000)->Arg(1'000'000)->Arg(10'000'000);
BENCHMARK(plain<double>)->Name("plain double")->Arg(200'000)->Arg(1'000'000)->Arg(10'000'000);
BENCHMARK(plain<float>)->Name("plain float")->Arg(200'000)->Arg(1'000'000)->Arg(10'000'000);
BENCHMARK(validate)->Arg(200'000)->Arg(1'000'000)->Arg(10'000'000);

}  // namespace
}  // namespace starling::bench

BENCHMARK_MAIN();
