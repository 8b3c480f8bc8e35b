// SPDX-License-Identifier: Apache-2.0
// What trains on a device: spans and plain structs only, so that a trainer in another language fits
// behind a C interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace starling::client {

struct TrainingRequest {
  std::span<const std::pair<std::string, std::string>> settings;  // model.*, train.*, strategy.*
  std::uint64_t seed = 0;
  std::uint32_t round = 0;
  std::uint32_t rounds = 0;
};

struct TrainingReport {
  double weight = 0;  // rows held
  double train_loss = 0;
  std::uint64_t samples = 0;
  std::uint64_t steps = 0;
};

class Trainer {
 public:
  virtual ~Trainer() = default;
  // Trains `parameters` (in: the base model) in place. The result depends on the request and the
  // parameters alone. Returns "stopped" soon after `stop` becomes true.
  [[nodiscard]] virtual Result<TrainingReport> train(const TrainingRequest& request,
                                                     std::span<float> parameters,
                                                     const std::atomic<bool>& stop) = 0;
};

}  // namespace starling::client
