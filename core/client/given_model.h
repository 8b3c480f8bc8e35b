// SPDX-License-Identifier: Apache-2.0
// In place of a training: a model that was trained elsewhere, so that a round gets what lies
// between its base and that model.
#pragma once

#include "core/base/shared_bytes.h"
#include "core/client/trainer.h"

namespace starling::client {

class GivenModel final : public Trainer {
 public:
  // `model`: [d] floats.
  GivenModel(SharedBytes model, TrainingReport report)
      : model_(std::move(model)), report_(report) {}

  // "wrong-vectors" unless the base has as many parameters.
  Result<TrainingReport> train(const TrainingRequest& request, std::span<float> parameters,
                               const train::TrainingHooks<float>& hooks,
                               const std::atomic<bool>& stop) override;

 private:
  SharedBytes model_;
  TrainingReport report_;
};

}  // namespace starling::client
