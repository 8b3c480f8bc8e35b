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
                                              aggregate::Report&& report) {
  STARLING_CHECK(report.vectors.size() == 1 && report.vectors[0].size() == base.size());
  linalg::AlignedVector<float> next;
  next.reserve(base.size());  // and grows as the means go, so that the two are never there whole
  bool finite = true;
  report.vectors[0].consume([&](std::size_t first, std::span<const double> mean_delta) {
    const auto before = base.values().subspan(first, mean_delta.size());
    next.insert(next.end(), before.begin(), before.end());
    for (std::size_t i = 0; i < mean_delta.size(); ++i) {
      float& value = next[first + i];
      value = static_cast<float>(static_cast<double>(value) + mean_delta[i]);
      finite = finite && std::isfinite(value);
    }
  });
  if (!finite) {
    return rejected("diverged", "the averaged model is not finite; use a smaller learning rate");
  }
  return model::Parameters(base.layout(), std::move(next));
}

}  // namespace starling::strategy
