// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/initial_models.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "core/base/rng.h"

namespace starling::gossip {
namespace {

constexpr std::string_view kKey = "spread=";
constexpr double kDistanceMax = 1e6;
// Of Purpose::kInitialization; the common model is drawn from attempt 0.
constexpr std::uint32_t kDirections = 1;

std::vector<double> direction_of(std::uint64_t seed, std::uint32_t node, std::size_t size) {
  Rng rng(
      {.seed = seed, .purpose = Purpose::kInitialization, .node = node, .attempt = kDirections});
  std::vector<double> direction(size);
  double squares = 0;
  for (double& value : direction) {
    value = rng.normal();
    squares += value * value;
  }
  const double length = std::sqrt(squares);
  for (double& value : direction) value /= length;
  return direction;
}

}  // namespace

Result<double> initial_spread(const model::ModelSpec& spec) {
  const std::string_view text = spec.initial;
  if (spec.is_external()) {
    if (!text.starts_with(kKey)) return 0.0;
    return wrong_setting("setting-invalid",
                         "model.initial = '" + spec.initial +
                             "' is for built-in models: a custom trainer makes its initial model "
                             "itself; leave model.initial out, or name a safetensors file");
  }
  if (text.empty()) return 0.0;
  double distance = 0;
  if (text.starts_with(kKey)) {
    const char* const last = text.data() + text.size();
    const auto [end, code] = std::from_chars(text.data() + kKey.size(), last, distance);
    const bool is_number = code == std::errc() && end == last;
    if (is_number && distance >= 0 && distance <= kDistanceMax) return distance;
  }
  return wrong_setting(
      "setting-invalid",
      fmt::format("model.initial = '{}' says nothing of a built-in model, which is drawn from the "
                  "seed; leave it out, or write spread=DISTANCE, with a distance from 0 to {:.0f}, "
                  "to have each node begin that far from the common model",
                  spec.initial, kDistanceMax));
}

std::vector<float> initial_model_of(const NetOptions& options, std::span<const float> common,
                                    std::uint32_t node) {
  std::vector<float> model(common.begin(), common.end());
  const double distance = *initial_spread(options.model);
  if (distance == 0) return model;
  const std::vector<double> direction = direction_of(options.run.seed, node, model.size());
  for (std::size_t i = 0; i < model.size(); ++i) {
    model[i] = static_cast<float>(static_cast<double>(model[i]) + distance * direction[i]);
  }
  return model;
}

}  // namespace starling::gossip
