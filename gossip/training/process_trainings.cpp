// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/process_trainings.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/counted.h"
#include "core/client/checked_trainer.h"
#include "core/linalg/kernels.h"
#include "core/model/external_model.h"
#include "gossip/training/archive_optimizer.h"

namespace starling::gossip {

using client::TrainerAnswer;
using client::TrainerOperation;

double rate_of(const ProcessTrainings::Options& options, std::uint32_t round) {
  return train::learning_rate_at(options.train, static_cast<Round>(round),
                                 static_cast<Round>(options.steps));
}

// One local phase of one node.
class ProcessTrainings::Phase final : public LocalTraining<float> {
 public:
  Phase(ProcessTrainings& all, Node node, unsigned thread, std::uint64_t step)
      : all_(all),
        host_(*all.hosts_[thread]),
        steps_(all.steps_[thread]),
        result_(all.results_[thread]),
        optimizer_(all.optimizers_[node]),
        place_({.client = all.clients_[node],
                .seed = all.options_.seed,
                // Who is faster than others takes more steps than the run has.
                .round = static_cast<std::uint32_t>(std::min(step + 1, all.options_.steps)),
                .rounds = static_cast<std::uint32_t>(all.options_.steps)}) {}

  Result<double> step(std::span<float> x, double rate) override {
    const client::TrainerTask task = make_task(1, rate);
    return loss_of([&] {
      return steps_.step(host_, {task, batches_, rate}, x, optimizer_, {}, stop());
    });
  }

  Result<double> steps(std::span<float> x, double rate, int count) override {
    double loss = 0;
    if (!optimizer_.is_plain_sgd()) {
      for (int k = 0; k < count; ++k) {
        STARLING_ASSIGN(const double of_step, step(x, rate));
        loss += of_step;
      }
      return loss;
    }
    const client::TrainerTask task = make_task(count, rate);
    result_.resize(x.size());  // of an answer that is refused part may be there already
    STARLING_ASSIGN(loss, loss_of([&]() -> Result<TrainerAnswer> {
                      STARLING_ASSIGN(TrainerAnswer answer, host_.run(TrainerOperation::kFit, task,
                                                                      {x, result_}, stop()));
                      STARLING_TRY(check_steps(answer, count));
                      return answer;
                    }));
    std::ranges::copy(result_, x.begin());
    return loss * count;
  }

  Result<double> gradient(std::span<const float> x, std::span<float> gradient) override {
    const client::TrainerTask task = make_task(1, all_.options_.train.learning_rate);
    return loss_of([&] { return steps_.gradient(host_, task, batches_, x, gradient, stop()); });
  }

 private:
  client::TrainerTask make_task(int steps, double rate) const {
    train::TrainOptions options = all_.options_.train;
    options.local_steps = steps;
    return client::make_task(place_, options, rate, all_.options_.settings);
  }

  // Where it says its steps: one that takes epochs in place of H steps is another algorithm.
  static Result<void> check_steps(const TrainerAnswer& answer, int asked) {
    if (answer.steps == 0 || answer.steps == static_cast<std::uint64_t>(asked)) return {};
    return wrong_setting(
        "steps-differ",
        fmt::format("the trainer took {} in a local phase of {}; let it take as many as "
                    "train.local-steps says",
                    counted(answer.steps, "step"), asked));
  }

  const std::atomic<bool>& stop() const { return all_.retries_.stop; }

  // Of the answer; counts the batch.
  template <class Call>
  Result<double> loss_of(const Call& call) {
    const auto answer = with_retries(all_.retries_, place_.client, [&]() -> Result<TrainerAnswer> {
      STARLING_TRY(all_.check_model(host_));
      return call();
    });
    if (!answer) return answer.error().within(place_.client);
    ++batches_;
    return answer->loss;
  }

  ProcessTrainings& all_;
  client::TrainerHost& host_;
  client::TrainerSteps& steps_;
  linalg::AlignedVector<float>& result_;
  train::Optimizer& optimizer_;
  const client::TaskPlace place_;
  std::uint64_t batches_ = 0;  // of this phase so far
};

ProcessTrainings::ProcessTrainings(Options options, std::vector<client::TrainerHost*> hosts,
                                   std::vector<std::string> clients, Retries retries)
    : options_(std::move(options)),
      hosts_(std::move(hosts)),
      clients_(std::move(clients)),
      retries_(std::move(retries)),
      steps_(hosts_.size(), client::TrainerSteps(*options_.layout, options_.train)),
      results_(hosts_.size()) {
  for (std::size_t node = 0; node < clients_.size(); ++node) {
    optimizers_.emplace_back(options_.train, options_.layout->size(), linalg::default_kernels());
  }
}

std::unique_ptr<LocalTraining<float>> ProcessTrainings::begin(Node node, unsigned thread,
                                                              std::uint64_t step) {
  return std::make_unique<Phase>(*this, node, thread, step);
}

void ProcessTrainings::archive(Archive& state) {
  for (train::Optimizer& optimizer : optimizers_) archive_optimizer(state, optimizer);
}

Result<void> ProcessTrainings::check_model(client::TrainerHost& host) const {
  STARLING_ASSIGN(const client::TrainerDescription description,
                  host.describe(options_.settings.object(), retries_.stop));
  if (*description.layout == *options_.layout) return {};
  const model::ModelSpec spec{.kind = std::string(model::kExternalKind),
                              .layout = model::digest_of(*options_.layout).hex()};
  return client::check_tensors(spec, options_.layout->size(), description);
}

}  // namespace starling::gossip
