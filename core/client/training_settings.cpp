// SPDX-License-Identifier: Apache-2.0
#include "core/client/training_settings.h"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/base/utf8.h"

namespace starling::client {
namespace {

constexpr std::array<std::string_view, 5> kPrefixes = {"model", "data", "trainer", "train",
                                                       "strategy"};

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

namespace {

Result<void> check_list(std::string_view key, const std::vector<std::string>& names) {
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    std::string wrong;
    if (name.empty()) {
      wrong = "an empty name";
    } else if (!is_utf8(name)) {
      wrong = "a name that is not UTF-8";
    } else if (!seen.insert(name).second) {
      wrong = "'" + printable(name) + "' twice";
    }
    if (wrong.empty()) continue;
    return wrong_setting("setting-invalid", std::string(key) + " has " + wrong);
  }
  if (FieldText<std::vector<std::string>>::write(names).size() <= kNamesBytesMax) return {};
  return wrong_setting("setting-invalid", std::string(key) + " has more than " +
                                              std::to_string(kNamesBytesMax) +
                                              " bytes, which no message can carry");
}

Result<void> check_numbers(std::string_view key, const std::vector<float>& numbers) {
  const std::size_t bytes = FieldText<std::vector<float>>::write(numbers).size();
  if (bytes <= kScaleBytesMax) return {};
  return wrong_setting("setting-invalid",
                       std::string(key) + " has " + std::to_string(numbers.size()) +
                           " numbers, which take " + std::to_string(bytes) +
                           " bytes, and a message carries " + std::to_string(kScaleBytesMax) +
                           ": scale the files themselves, or state numbers of fewer digits");
}

bool is_number(std::string_view text) {
  return static_cast<bool>(FieldText<double>::read(text, FieldInfo{.help = ""}));
}

}  // namespace

void DataShape::complete() {
  if (input.empty() && !columns.empty()) input = {static_cast<int>(columns.size())};
  if (input.empty() && !scale_offsets.empty()) input = {static_cast<int>(scale_offsets.size())};
  if (classes == 0) classes = static_cast<int>(class_names.size());
}

Result<void> DataShape::check_scaling() const {
  const auto wrong = [](std::string sentence) {
    return wrong_setting("setting-invalid", std::move(sentence));
  };
  if (!scales()) {
    if (scale_offsets.empty() && scale_divisors.empty()) return {};
    return wrong(
        "data.scale-offsets and data.scale-divisors need data.scale, \"standard\" or "
        "\"minmax\", and it is \"none\"");
  }
  if (scale_offsets.size() != scale_divisors.size()) {
    return wrong("data.scale-offsets has " + counted(scale_offsets.size(), "number") +
                 ", and data.scale-divisors " + std::to_string(scale_divisors.size()));
  }
  STARLING_TRY(check_numbers("data.scale-offsets", scale_offsets));
  STARLING_TRY(check_numbers("data.scale-divisors", scale_divisors));
  for (const float divisor : scale_divisors) {
    if (divisor > 0) continue;
    return wrong("data.scale-divisors has " + FieldText<std::vector<float>>::write({divisor}) +
                 ", and each must be above 0; 1 leaves a column that is constant as it is");
  }
  if (input.size() > 1) {
    return wrong(
        "data.scale is for the columns of csv files, and data.input is the shape of "
        "images, which are scaled as they are read");
  }
  const bool fits =
      scale_offsets.empty() || input.empty() || std::cmp_equal(input[0], scale_offsets.size());
  if (fits) return {};
  return wrong("data.scale-offsets has " + counted(scale_offsets.size(), "number") +
               ", and data.input says " + counted(static_cast<std::uint64_t>(input[0]), "feature"));
}

Result<void> DataShape::check_names() const {
  STARLING_TRY(check_list("data.columns", columns));
  STARLING_TRY(check_list("data.class-names", class_names));
  for (const std::string& name : class_names) {
    if (!is_number(name)) continue;
    return wrong_setting("setting-invalid",
                         "data.class-names has the number " + name +
                             ", and a label that is a number stands for the class of this number; "
                             "write texts, or numbers alone and no data.class-names");
  }
  const auto count = [](const std::vector<std::string>& names) {
    return static_cast<std::int64_t>(names.size());
  };
  if (!columns.empty() && !input.empty() && (input.size() > 1 || input[0] != count(columns))) {
    return wrong_setting("setting-invalid", "data.columns has " + std::to_string(columns.size()) +
                                                " names, and data.input is not [" +
                                                std::to_string(columns.size()) + "]");
  }
  if (!class_names.empty() && classes != 0 && classes != count(class_names)) {
    return wrong_setting("setting-invalid",
                         "data.class-names has " + std::to_string(class_names.size()) +
                             " names, and data.classes = " + std::to_string(classes));
  }
  return {};
}

Settings TrainingSettings::to_settings() const {
  Settings all;
  const auto add = [&all](Settings part) { all.insert(all.end(), part.begin(), part.end()); };
  add(changed_settings("model", model));
  add(changed_settings("data", data));
  add(changed_settings("trainer", trainer));
  add(changed_settings("train", train));
  add(changed_settings("strategy", strategy));
  return all;
}

Result<TrainingSettings> TrainingSettings::parse(const Settings& settings) {
  TrainingSettings parsed;
  STARLING_TRY(expect_prefixes(settings, kPrefixes));
  STARLING_TRY(from_settings("model", settings, parsed.model));
  STARLING_TRY(from_settings("data", settings, parsed.data));
  STARLING_TRY(from_settings("trainer", settings, parsed.trainer));
  STARLING_TRY(from_settings("train", settings, parsed.train));
  STARLING_TRY(from_settings("strategy", settings, parsed.strategy));
  STARLING_TRY(parsed.data.check_names());
  STARLING_TRY(parsed.data.check_scaling());
  if (parsed.data.scales() && parsed.data.scale_offsets.empty()) {
    return unsupported("setting-invalid",
                       "data.scale = '" + parsed.data.scale + "' comes without its numbers");
  }
  STARLING_TRY(train::validate(parsed.train));
  return parsed;
}

Result<std::shared_ptr<const model::Model>> TrainingSettings::make_model() const {
  STARLING_ASSIGN(const data::Shape shape, data.shape());
  return model::make_model(model, shape, data.classes);
}

Result<void> check_settings(const TrainerSettings& settings, const model::ModelSpec& model) {
  if (settings.settings.size() > kNamesBytesMax) {
    return wrong_setting("setting-invalid",
                         fmt::format("[trainer] takes {}, and a message carries {}",
                                     format_byte_count(settings.settings.size()),
                                     format_byte_count(kNamesBytesMax)));
  }
  if (!settings.settings.empty()) {
    boost::system::error_code code;
    const auto parsed = boost::json::parse(settings.settings, code);
    if (code || !parsed.is_object()) {
      return wrong_setting(
          "setting-invalid",
          "trainer.settings is not a JSON object, such as '{\"hidden\": 200}', of at "
          "most 32 levels");
    }
    if (!model.is_external()) {
      return wrong_setting("setting-invalid",
                           fmt::format("[trainer] is for custom trainers, and model.kind = "
                                       "'{}' is built in; set model.kind = \"external\"",
                                       model.kind));
    }
  }
  return {};
}

}  // namespace starling::client
