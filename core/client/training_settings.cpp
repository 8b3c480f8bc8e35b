// SPDX-License-Identifier: Apache-2.0
#include "core/client/training_settings.h"

#include <array>

namespace starling::client {
namespace {

constexpr std::array<std::string_view, 4> kPrefixes = {"model", "data", "train", "strategy"};

}  // namespace

DataShape DataShape::of(const data::Shape& shape, int classes) {
  if (shape.channels == 1 && shape.height == 1) return {{shape.width}, classes};
  return {{shape.channels, shape.height, shape.width}, classes};
}

Result<data::Shape> DataShape::shape() const {
  if (input.size() == 1) return data::Shape{1, 1, input[0]};
  if (input.size() == 3) return data::Shape{input[0], input[1], input[2]};
  return wrong_setting("bad-input-shape",
                       "the model's input must be [features] or [channels, height, width]");
}

Settings TrainingSettings::to_settings() const {
  Settings all;
  const auto add = [&all](Settings part) { all.insert(all.end(), part.begin(), part.end()); };
  add(changed_settings("model", model));
  add(changed_settings("data", data));
  add(changed_settings("train", train));
  add(changed_settings("strategy", strategy));
  return all;
}

Result<TrainingSettings> TrainingSettings::parse(const Settings& settings) {
  TrainingSettings parsed;
  STARLING_TRY(expect_prefixes(settings, kPrefixes));
  STARLING_TRY(from_settings("model", settings, parsed.model));
  STARLING_TRY(from_settings("data", settings, parsed.data));
  STARLING_TRY(from_settings("train", settings, parsed.train));
  STARLING_TRY(from_settings("strategy", settings, parsed.strategy));
  STARLING_TRY(train::validate(parsed.train));
  return parsed;
}

Result<std::shared_ptr<const model::Model>> TrainingSettings::make_model() const {
  STARLING_ASSIGN(const data::Shape shape, data.shape());
  return model::make_model(model, shape, data.classes);
}

}  // namespace starling::client
