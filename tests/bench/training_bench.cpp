// SPDX-License-Identifier: Apache-2.0
// Samples per second of local training on one thread, batch gathering included, beside what the
// kernels alone and Eigen reach on the same products.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "core/base/check.h"
#include "core/data/batch_sampler.h"
#include "core/train/evaluator.h"
#include "core/train/local_trainer.h"
#include "core/train/row_block.h"
#include "tests/bench/eigen_limit.h"

namespace starling::bench {
namespace {

constexpr data::Shape kImage = {1, 28, 28};
constexpr int kClasses = 10;
constexpr std::size_t kRows = 60'000;

// As large as MNIST, so that batches come from memory and not from a cache.
const data::DatasetView& images() {
  static const data::DatasetView view = [] {
    Rng rng({.seed = 1});
    data::Dataset::Content content{.name = "images", .shape = kImage, .classes = kClasses};
    content.features.resize(kRows * kImage.features());
    for (float& value : content.features) {
      value = static_cast<float>(rng.next_u32() >> 8) * 0x1p-24F;
    }
    for (std::size_t i = 0; i < kRows; ++i) {
      content.labels.push_back(static_cast<std::int32_t>(rng.below(kClasses)));
    }
    auto dataset = data::Dataset::make(std::move(content));
    STARLING_CHECK(dataset);
    return data::DatasetView{*dataset};
  }();
  return view;
}

std::shared_ptr<const model::Model> model_of(const model::ModelSpec& spec) {
  auto model = model::make_model(spec, kImage, kClasses);
  STARLING_CHECK(model);
  return *model;
}

const model::ModelSpec kSoftmax = {.kind = "softmax-regression"};
const model::ModelSpec kTwoNn = {.kind = "mlp"};
const model::ModelSpec kCnn = {.kind = "cnn"};

void count_samples(benchmark::State& state, std::uint64_t per_iteration) {
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * per_iteration));
  state.SetLabel(linalg::default_kernels().name);
}

// LocalTrainer as a client runs it: a few hundred steps per call, with a correction as FedProx's
// where asked for.
void train(benchmark::State& state, const model::ModelSpec& spec, const char* optimizer,
           bool corrected) {
  const auto batch = static_cast<int>(state.range(0));
  const int steps = std::max(2, static_cast<int>(state.range(1)) / batch);
  const auto model = model_of(spec);
  train::LocalTrainer trainer(
      model,
      {.local_steps = steps, .batch_size = batch, .optimizer = optimizer, .learning_rate = 1e-3});
  model::Parameters parameters = model::initial_parameters(*model, 1);
  const model::Parameters start = parameters;
  train::TrainingHooks<float> hooks;
  if (corrected) {
    hooks.correct = [x = start.values()](std::span<const float> y, std::span<float> g) {
      for (std::size_t i = 0; i < g.size(); ++i) g[i] += 0.1F * (y[i] - x[i]);
    };
  }
  const std::atomic<bool> stop = false;
  Round round = 0;
  for (auto _ : state) {
    ++round;
    const Rng rng({.seed = 1, .purpose = Purpose::kBatches, .round = round});
    const auto result =
        trainer.train(parameters.values(), images(), round, round, rng, stop, hooks);
    STARLING_CHECK(result);
  }
  count_samples(state, static_cast<std::uint64_t>(batch) * static_cast<std::uint64_t>(steps));
}

// A client of FedAvg's MNIST experiments: 600 rows, one epoch.
void federated_client(benchmark::State& state, const model::ModelSpec& spec) {
  const auto model = model_of(spec);
  train::LocalTrainer trainer(model, {.batch_size = 10, .learning_rate = 1e-3});
  const model::Parameters start = model::initial_parameters(*model, 1);
  model::Parameters parameters = start;
  std::vector<data::DatasetView> clients;
  for (std::uint32_t c = 0; c < 100; ++c) {
    auto rows = std::make_shared<std::vector<std::uint32_t>>();
    for (std::uint32_t i = 0; i < 600; ++i) rows->push_back(c + 100 * i);
    clients.push_back({images().dataset, rows});
  }
  const std::atomic<bool> stop = false;
  Round round = 0;
  for (auto _ : state) {
    ++round;
    std::copy(start.values().begin(), start.values().end(), parameters.values().begin());
    const Rng rng({.seed = 1, .purpose = Purpose::kBatches, .round = round});
    const auto result =
        trainer.train(parameters.values(), clients[round % 100], round, round, rng, stop);
    STARLING_CHECK(result);
  }
  count_samples(state, 600);
}

// One step of one of many nodes, as a gossip simulation does it: other parameters each time.
void node_steps(benchmark::State& state) {
  const auto nodes = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kBatch = 32;
  const auto model = model_of(kSoftmax);
  const auto workspace = model->make_workspace(kBatch);
  std::vector<model::Parameters> parameters(nodes, model::initial_parameters(*model, 1));
  train::RowBlock block;
  block.reserve(kBatch, kImage.features());
  data::BatchSampler sampler(images(), kBatch, Rng({.seed = 1}), data::LastBatch::kWrap);
  std::size_t node = 0;
  for (auto _ : state) {
    const std::span<float> own = parameters[node].values();
    const auto batch = block.gather(*images().dataset, sampler.next());
    model->gradient(own, batch, kBatch, {own, 1, -1e-3F}, *workspace);
    node = (node + 1) % nodes;
  }
  count_samples(state, 1);
}

void evaluate(benchmark::State& state, const model::ModelSpec& spec) {
  const auto model = model_of(spec);
  const model::Parameters parameters = model::initial_parameters(*model, 1);
  for (auto _ : state) {
    STARLING_CHECK(train::evaluate(*model, parameters.values(), images()));
  }
  count_samples(state, kRows);
}

struct LayerSize {
  std::size_t in, out;
};
constexpr LayerSize kTwoNnLayers[] = {{784, 200}, {200, 200}, {200, 10}};

struct LayerBuffers {
  explicit LayerBuffers(LayerSize size, std::size_t rows)
      : x(rows * size.in, 0.5F), w(size.in * size.out, 0.01F), y(rows * size.out), dx(x.size()) {}
  linalg::AlignedVector<float> x, w, y, dx;
};

// The nine products (eight without the first dx) of a 2NN step and nothing else.
void products(benchmark::State& state, bool eigen) {
  const auto rows = static_cast<std::size_t>(state.range(0));
  const linalg::Kernels& kernels = linalg::default_kernels();
  std::vector<LayerBuffers> layers;
  for (const LayerSize size : kTwoNnLayers) layers.emplace_back(size, rows);
  const linalg::AlignedVector<float> bias(200);
  for (auto _ : state) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      LayerBuffers& l = layers[i];
      const auto [in, out] = kTwoNnLayers[i];
      float* const dx = i == 0 ? nullptr : l.dx.data();
      if (eigen) {
        eigen_layer_step({l.x.data(), l.w.data(), l.y.data(), dx, rows, in, out});
        continue;
      }
      const auto in_row = static_cast<std::ptrdiff_t>(in);
      const auto out_row = static_cast<std::ptrdiff_t>(out);
      kernels.affine({l.x.data(), in_row, l.w.data(), in_row, bias.data(), l.y.data(), out_row,
                      rows, out, in, true});
      if (dx != nullptr) {
        kernels.multiply({.a = l.y.data(),
                          .a_row = out_row,
                          .a_inner = 1,
                          .b = l.w.data(),
                          .b_inner = in_row,
                          .c = dx,
                          .c_row = in_row,
                          .rows = rows,
                          .columns = in,
                          .inner = out});
      }
      kernels.scale(l.y.data(), l.y.size(), -1e-12F);
      kernels.multiply({.a = l.y.data(),
                        .a_row = 1,
                        .a_inner = out_row,
                        .b = l.x.data(),
                        .b_inner = in_row,
                        .c = l.w.data(),
                        .c_row = in_row,
                        .rows = out,
                        .columns = in,
                        .inner = rows,
                        .keep = 1});
    }
    benchmark::ClobberMemory();
  }
  count_samples(state, rows);
}

// Arguments: rows per batch, samples per call.
void batches(benchmark::internal::Benchmark* b, int samples) {
  for (const int batch : {10, 32, 128}) b->Args({batch, samples});
}

void register_all() {
  using benchmark::RegisterBenchmark;
  batches(RegisterBenchmark("train/softmax", train, kSoftmax, "sgd", false), 60'000);
  batches(RegisterBenchmark("train/2nn", train, kTwoNn, "sgd", false), 20'000);
  batches(RegisterBenchmark("train/cnn", train, kCnn, "sgd", false), 640);
  batches(RegisterBenchmark("train/2nn/corrected", train, kTwoNn, "sgd", true), 20'000);
  batches(RegisterBenchmark("train/2nn/momentum", train, kTwoNn, "momentum", false), 20'000);
  batches(RegisterBenchmark("train/2nn/adam", train, kTwoNn, "adam", false), 20'000);
  RegisterBenchmark("client/2nn/B10", federated_client, kTwoNn);
  RegisterBenchmark("client/cnn/B10", federated_client, kCnn);
  RegisterBenchmark("node_steps/softmax/B32", node_steps)->Arg(64)->Arg(1024);
  RegisterBenchmark("evaluate/2nn", evaluate, kTwoNn);
  RegisterBenchmark("evaluate/cnn", evaluate, kCnn);
  for (const int batch : {10, 32, 128}) {
    RegisterBenchmark("products/2nn/kernels", products, false)->Arg(batch);
    RegisterBenchmark("products/2nn/eigen", products, true)->Arg(batch);
  }
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  // Eigen's blocks would be mapped and faulted in on every call otherwise; ours are kept.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  benchmark::Initialize(&argc, argv);
  starling::bench::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
