// SPDX-License-Identifier: Apache-2.0
// What a round plan says about training, as named settings: new keys need no new message, and one
// that this version does not know is refused by name rather than ignored.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/settings.h"
#include "core/data/dataset.h"
#include "core/data/row_names.h"
#include "core/model/model.h"
#include "core/strategy/options.h"
#include "core/train/train_options.h"

namespace starling::client {

// As text, each list of names of a run.
inline constexpr std::size_t kNamesBytesMax = 16 * 1024;
// As text, each list of numbers that a run scales columns by: all lists together fit a message.
inline constexpr std::size_t kScaleBytesMax = 12 * 1024;

inline constexpr const char* kScaleNone = "none";
inline constexpr const char* kScaleStandard = "standard";
inline constexpr std::array<std::string_view, 3> kScales = {kScaleNone, kScaleStandard, "minmax"};

// The rows that the model is made for: their shape, [features] or [channels, height, width], and
// the names of what they hold, where a file says them; and how columns are scaled.
struct DataShape {
  std::vector<int> input;
  int classes = 0;
  std::vector<std::string> columns;
  std::vector<std::string> class_names;
  std::string scale = kScaleNone;
  std::vector<float> scale_offsets;
  std::vector<float> scale_divisors;

  static DataShape of(const data::Shape& shape, int classes);
  [[nodiscard]] Result<data::Shape> shape() const;
  data::RowNames names() const { return {columns, class_names, {scale_offsets, scale_divisors}}; }
  bool scales() const { return scale != kScaleNone; }
  // What is not said of the shape becomes what the names, or the numbers of the scaling, say of it.
  void complete();
  // Whether the names fit the shape and each other: "setting-invalid".
  [[nodiscard]] Result<void> check_names() const;
  // Whether the scaling fits the shape, and its numbers each other: "setting-invalid". Its numbers
  // may still have to be computed.
  [[nodiscard]] Result<void> check_scaling() const;
};

template <class Visitor>
void describe(Visitor& visit, DataShape& o) {
  visit("input", o.input,
        FieldInfo{.help = "shape of a row: [features] or [channels, height, width]; empty: that of "
                          "the evaluation data set, else of more than half of the clients",
                  .min = 1,
                  .max = 1 << 24});
  visit("classes", o.classes,
        FieldInfo{.help = "number of classes; 0: those of the evaluation data set, else as many as "
                          "more than a quarter of the clients say at least",
                  .min = 0,
                  .max = 1 << 20});
  visit(
      "columns", o.columns,
      FieldInfo{.help = "names of the features in the model's order, by which the columns of csv "
                        "files are matched; empty: those of the evaluation data set, else columns "
                        "count by position"});
  visit("class-names", o.class_names,
        FieldInfo{.help =
                      "how files write class 0, 1, ... where their labels are texts; empty: those "
                      "of the evaluation data set, else labels are numbers"});
  visit("scale", o.scale,
        FieldInfo{.help = "how columns of csv files are scaled: standard subtracts a column's mean "
                          "and divides by its standard deviation, minmax subtracts its minimum and "
                          "divides by its maximum less the minimum",
                  .choices = kScales});
  visit("scale-offsets", o.scale_offsets,
        FieldInfo{.help = "what data.scale subtracts from each feature, in the model's order; "
                          "empty: computed from the evaluation data set"});
  visit("scale-divisors", o.scale_divisors,
        FieldInfo{.help = "what data.scale then divides each feature by, above 0; empty: computed "
                          "from the evaluation data set"});
}

// What the clients' own trainers are given as it stands.
struct TrainerSettings {
  std::string settings;

  std::string object() const { return settings.empty() ? "{}" : settings; }
};

template <class Visitor>
void describe(Visitor& visit, TrainerSettings& o) {
  visit("settings", o.settings,
        FieldInfo{
            .help = "a JSON object for the clients' own trainers (model.kind = \"external\"); in a "
                    "file the keys of [trainer] instead, whatever their names"});
}

// Whether they are a JSON object that a message carries, and `model` is external where there are
// any: "setting-invalid".
[[nodiscard]] Result<void> check_settings(const TrainerSettings& settings,
                                          const model::ModelSpec& model);

struct TrainingSettings {
  model::ModelSpec model;
  DataShape data;
  TrainerSettings trainer;
  train::TrainOptions train;
  strategy::StrategyOptions strategy;

  // Those that differ from their defaults: a device of an earlier version knows no others that do
  // not concern it.
  Settings to_settings() const;
  // "unknown-setting", "setting-invalid", and those of the options' own validation.
  [[nodiscard]] static Result<TrainingSettings> parse(const Settings& settings);
  [[nodiscard]] Result<std::shared_ptr<const model::Model>> make_model() const;
};

}  // namespace starling::client
