// SPDX-License-Identifier: Apache-2.0
#include "core/data/synthetic.h"

#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "core/base/parameter_list.h"
#include "core/base/rng.h"

namespace starling::data {
namespace {

template <class Visitor>
void describe(Visitor& visit, SyntheticSpec& spec) {
  visit("rows", spec.rows, FieldInfo{.help = "rows of each split", .min = 1, .max = 1u << 31});
  visit("features", spec.features, FieldInfo{.help = "numbers a row", .min = 1, .max = 1 << 20});
  visit("classes", spec.classes, FieldInfo{.help = "clusters", .min = 1, .max = 65536});
  visit("noise", spec.noise,
        FieldInfo{.help = "standard deviation around a centre", .min = 0, .max = 1e6});
  visit("seed", spec.seed, FieldInfo{.help = "of centres and rows"});
}

std::vector<Field> parameters(SyntheticSpec& spec) {
  FieldCollector collect("");
  describe(collect, spec);
  return std::move(collect).take();
}

}  // namespace

Result<SyntheticSpec> SyntheticSpec::parse(std::string_view text) {
  SyntheticSpec spec;
  if (auto read = read_parameters(text, parameters(spec)); !read) {
    return wrong_setting("dataset-spec", "the synthetic data set '" + printable(text) + "' " +
                                             read.error().message());
  }
  return spec;
}

std::string SyntheticSpec::to_string() const {
  SyntheticSpec copy = *this;
  return write_parameters(parameters(copy));
}

SyntheticGenerator::SyntheticGenerator(const SyntheticSpec& spec, std::string_view split)
    : spec_(spec), split_(hash_name(split)) {
  const auto features = static_cast<std::size_t>(spec.features);
  centres_.resize(static_cast<std::size_t>(spec.classes) * features);
  Rng rng({.seed = spec.seed, .purpose = Purpose::kSynthetic, .node = hash_name("centres")});
  for (float& value : centres_) value = static_cast<float>(rng.normal());
}

std::span<const float> SyntheticGenerator::centre(std::int32_t label) const {
  const auto features = static_cast<std::size_t>(spec_.features);
  return std::span(centres_).subspan(static_cast<std::size_t>(label) * features, features);
}

void SyntheticGenerator::fill(std::uint32_t row, std::span<float> out) const {
  STARLING_CHECK(out.size() == static_cast<std::size_t>(spec_.features));
  Rng rng({.seed = spec_.seed, .purpose = Purpose::kSynthetic, .node = split_, .round = row});
  const std::span<const float> m = centre(label(row));
  for (std::size_t j = 0; j < out.size(); ++j) {
    out[j] = static_cast<float>(m[j] + spec_.noise * rng.normal());
  }
}

}  // namespace starling::data
