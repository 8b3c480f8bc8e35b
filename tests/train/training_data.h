// SPDX-License-Identifier: Apache-2.0
// Small data sets and models for the training tests.
#pragma once

#include <gtest/gtest.h>

#include <atomic>

#include "core/base/rng.h"
#include "core/data/synthetic.h"
#include "core/model/model.h"

namespace starling::train {

inline const model::ModelSpec kSmallMlp = {.kind = "mlp", .hidden = {12}};
inline const std::atomic<bool> kGo = false;

inline Rng batches(std::uint64_t seed = 1) {
  return Rng({.seed = seed, .purpose = Purpose::kBatches});
}

// Gaussian clusters (data/synthetic.h), one a class.
inline data::DatasetView clusters(std::uint32_t rows, int features, int classes,
                                  double noise = 0.5) {
  const data::SyntheticGenerator generator(
      {.rows = rows, .features = features, .classes = classes, .noise = noise, .seed = 3}, "train");
  const auto width = static_cast<std::size_t>(features);
  data::Dataset::Content content{.name = "clusters", .shape = {1, 1, features}, .classes = classes};
  content.features.resize(rows * width);
  for (std::uint32_t row = 0; row < rows; ++row) {
    generator.fill(row, std::span(content.features).subspan(row * width, width));
    content.labels.push_back(generator.label(row));
  }
  return {data::Dataset::make(std::move(content)).value()};
}

inline data::DatasetView rows_of(const data::DatasetView& view, std::vector<std::uint32_t> rows) {
  return {view.dataset, std::make_shared<const std::vector<std::uint32_t>>(std::move(rows))};
}

inline std::shared_ptr<const model::Model> model_for(const data::DatasetView& view,
                                                     const model::ModelSpec& spec) {
  return model::make_model(spec, view.dataset->shape(), view.dataset->classes()).value();
}

}  // namespace starling::train
