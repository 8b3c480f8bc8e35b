// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "core/base/check.h"
#include "core/model/safetensors.h"

namespace starling::strategy {
namespace {

constexpr std::string_view kScalar = "scalar.";

std::string write_scalar(double value) {
  return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value));
}

Result<double> read_scalar(const std::string& text) {
  std::uint64_t bits = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, bits, 16);
  if (code != std::errc() || stop != end || text.size() != 16) {
    return rejected("bad-state", "a scalar of a strategy's state cannot be read");
  }
  return std::bit_cast<double>(bits);
}

}  // namespace

std::vector<SharedBytes> encode_state(const StateSnapshot& state) {
  std::vector<model::TensorInfo> tensors;
  std::vector<SharedBytes> parts(1);
  for (const auto& [name, values] : state->vectors) {
    tensors.push_back({.name = name, .shape = {static_cast<std::int64_t>(values.size())}});
    parts.emplace_back(state, as_bytes(std::span<const float>(values)));
  }
  model::Metadata metadata;
  for (const auto& [name, value] : state->scalars) {
    metadata[std::string(kScalar) + name] = write_scalar(value);
  }
  const auto layout = model::Layout::make(std::move(tensors));
  STARLING_CHECK(layout);
  parts[0] = SharedBytes::own(model::safetensors_header(**layout, metadata));
  return parts;
}

Result<StateSnapshot> parse_state(ByteView file) {
  STARLING_ASSIGN(const model::SafetensorsFile read, model::parse_safetensors(file));
  State<float> state;
  for (const model::TensorInfo& tensor : read.parameters.layout()->tensors()) {
    const std::span<const float> values = read.parameters.values(tensor);
    state.vectors.emplace(tensor.name, linalg::AlignedVector<float>(values.begin(), values.end()));
  }
  for (const auto& [key, text] : read.metadata) {
    if (!key.starts_with(kScalar)) continue;
    STARLING_ASSIGN(const double value, read_scalar(text));
    state.scalars.emplace(key.substr(kScalar.size()), value);
  }
  return std::make_shared<const State<float>>(std::move(state));
}

}  // namespace starling::strategy
