// SPDX-License-Identifier: Apache-2.0
#include "core/client/given_model.h"

#include <cstring>

namespace starling::client {

Result<TrainingReport> GivenModel::train(const TrainingRequest&, std::span<float> parameters,
                                         const train::TrainingHooks<float>&,
                                         const std::atomic<bool>&) {
  if (parameters.size_bytes() != model_.size()) {
    return rejected("wrong-vectors", "the round's model has another size than the given one");
  }
  std::memcpy(parameters.data(), model_.view().data(), model_.size());
  return report_;
}

}  // namespace starling::client
