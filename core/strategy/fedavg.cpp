// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/fedavg.h"

#include <cmath>

#include "core/aggregate/weighted_mean.h"
#include "core/base/check.h"

namespace starling::strategy {

SharedBytes FedAvgClient::contribute(std::span<const float> base,
                                     linalg::AlignedVector<float> trained) const {
  STARLING_CHECK(base.size() == trained.size());
  const auto owner = std::make_shared<linalg::AlignedVector<float>>(std::move(trained));
  const std::span<float> values = *owner;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= base[i];
  return {owner, as_bytes(values)};
}

update::Schema FedAvgServer::schema(const model::Layout& layout,
                                    const update::Bounds& bounds) const {
  return {.vectors = {{.name = "model", .elements = layout.size()}}, .bounds = bounds};
}

Result<std::unique_ptr<aggregate::Aggregator>> FedAvgServer::make_aggregator(
    const update::Schema& schema) const {
  STARLING_ASSIGN(aggregate::WeightedMean mean,
                  aggregate::WeightedMean::create(schema, {"train_loss"}));
  return std::unique_ptr<aggregate::Aggregator>(
      std::make_unique<aggregate::WeightedMean>(std::move(mean)));
}

Result<model::Parameters> FedAvgServer::apply(const model::Parameters& base,
                                              const aggregate::Report& report) {
  STARLING_CHECK(report.vectors.size() == 1 && report.vectors[0].size() == base.size());
  model::Parameters next = base;
  const std::span<float> values = next.values();
  const std::vector<double>& mean_delta = report.vectors[0];
  bool finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<double>(values[i]) + mean_delta[i]);
    finite = finite && std::isfinite(values[i]);
  }
  if (!finite) {
    return rejected("diverged", "the averaged model is not finite; use a smaller learning rate");
  }
  return next;
}

}  // namespace starling::strategy
