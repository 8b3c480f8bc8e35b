// SPDX-License-Identifier: Apache-2.0
#include "core/train/evaluator.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/linalg/sum.h"
#include "core/train/row_block.h"

namespace starling::train {
namespace {

// Part of every recorded loss: another size sums in another order.
constexpr std::size_t kBlockRows = 256;

// What one thread needs.
struct Worker {
  std::unique_ptr<model::Workspace> workspace;
  RowBlock block;
  std::vector<std::uint32_t> rows;
};

class BlockEvaluation {
 public:
  BlockEvaluation(const model::Model& model, std::span<const float> parameters,
                  const data::DatasetView& view, unsigned threads)
      : model_(model),
        parameters_(parameters),
        view_(view),
        block_rows_(std::min({kBlockRows, model.rows_max(), view.size()})),
        losses_((view.size() + block_rows_ - 1) / block_rows_),
        correct_(losses_.size()),
        workers_(threads) {}

  std::size_t blocks() const { return losses_.size(); }

  void run(std::size_t index, unsigned thread) {
    Worker& worker = workers_[thread];
    if (!worker.workspace) prepare(worker);
    const model::Score score = model_.score(parameters_, batch(index, worker), *worker.workspace);
    losses_[index] = score.loss_sum;
    correct_[index] = score.correct;
  }

  Evaluation result() const {
    std::uint64_t correct = 0;
    for (const std::uint64_t count : correct_) correct += count;
    const auto samples = static_cast<double>(view_.size());
    return {.loss = linalg::pairwise_sum(losses_) / samples,
            .accuracy = static_cast<double>(correct) / samples,
            .samples = view_.size()};
  }

 private:
  void prepare(Worker& worker) const {
    worker.workspace = model_.make_workspace(block_rows_);
    if (view_.rows) worker.block.reserve(block_rows_, model_.input().features());
  }

  model::Batch batch(std::size_t index, Worker& worker) const {
    const std::size_t begin = index * block_rows_;
    const std::size_t rows = std::min(block_rows_, view_.size() - begin);
    const data::Dataset& dataset = *view_.dataset;
    if (view_.rows) {
      return worker.block.gather(dataset, std::span(*view_.rows).subspan(begin, rows));
    }
    return {dataset.row(begin).data(), dataset.labels().data() + begin, rows};
  }

  const model::Model& model_;
  std::span<const float> parameters_;
  const data::DatasetView& view_;
  std::size_t block_rows_;
  std::vector<double> losses_;
  std::vector<std::uint64_t> correct_;
  std::vector<Worker> workers_;
};

}  // namespace

bool is_metric_name(std::string_view name) {
  return is_train_metric_name(name) && name != "accuracy";
}

bool is_train_metric_name(std::string_view name) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/@%";
  return !name.empty() && name.size() <= kMetricNameBytesMax && name != "loss" &&
         name.find_first_not_of(kLetters) == name.npos;
}

Result<Evaluation> evaluate(const model::Model& model, std::span<const float> parameters,
                            const data::DatasetView& view, ComputePool* pool,
                            const std::atomic<bool>* stop) {
  const auto stopped = [stop] { return stop != nullptr && stop->load(std::memory_order_relaxed); };
  STARLING_CHECK(parameters.size() == model.layout()->size());
  STARLING_TRY(check_data(model, view));
  BlockEvaluation evaluation(model, parameters, view, pool == nullptr ? 1 : pool->threads());
  if (pool == nullptr) {
    for (std::size_t i = 0; i < evaluation.blocks() && !stopped(); ++i) evaluation.run(i, 0);
  } else {
    pool->for_each(evaluation.blocks(), [&](std::size_t index, unsigned thread) {
      if (!stopped()) evaluation.run(index, thread);
    });
  }
  if (stopped()) return retry("stopped", "the evaluation was stopped");
  return evaluation.result();
}

}  // namespace starling::train
