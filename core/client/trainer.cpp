// SPDX-License-Identifier: Apache-2.0
#include "core/client/trainer.h"

namespace starling::client {
namespace {

Error cannot(const char* what) {
  return unsupported("unsupported-operation", std::string("this client's trainer cannot ") + what);
}

}  // namespace

Result<double> Trainer::full_gradient(const TrainingRequest&, std::span<const float>,
                                      std::span<float>, const std::atomic<bool>&) {
  return cannot("compute the gradient over all its rows");
}

Result<double> Trainer::loss(const TrainingRequest&, std::span<const float>,
                             const std::atomic<bool>&) {
  return cannot("compute the loss over all its rows");
}

Result<train::Evaluation> Trainer::evaluate(const TrainingRequest&, std::span<const float>,
                                            const std::atomic<bool>&) {
  return cannot("evaluate a model");
}

}  // namespace starling::client
