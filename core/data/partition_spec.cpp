// SPDX-License-Identifier: Apache-2.0
// The text of a PartitionSpec: which keys each scheme has, and their ranges.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "core/base/nearest_name.h"
#include "core/base/parameter_list.h"
#include "core/data/partition.h"

namespace starling::data {
namespace {

constexpr std::array<std::string_view, 10> kSchemes = {
    "iid",     "shards",      "dirichlet", "pathological", "quantity",
    "natural", "exponential", "square",    "linear",       "balanced-dirichlet"};
constexpr std::array<std::string_view, 3> kAssignments = {"random", "first-deterministic",
                                                          "deterministic"};
constexpr double kPartsMax = std::numeric_limits<std::uint32_t>::max();

std::string_view name_of(Scheme scheme) { return kSchemes[static_cast<std::size_t>(scheme)]; }

struct Range {
  double min = 0, max = 0;
};

// The keys that belong to spec.scheme; `assignment` is the text behind spec.assignment. `index`:
// what spec.index may be; empty: without the part.
std::vector<Field> parameters(PartitionSpec& spec, std::string& assignment,
                              std::optional<Range> index) {
  FieldCollector visit("");
  switch (spec.scheme) {
    case Scheme::kDirichlet:
    case Scheme::kQuantity:
      visit("alpha", spec.alpha, {.help = "concentration", .min = 1e-6, .max = 1e6});
      visit("min", spec.rows_min, {.help = "rows a part", .min = 0, .max = kPartsMax});
      break;
    case Scheme::kBalancedDirichlet:
      visit("alpha", spec.alpha, {.help = "concentration", .min = 1e-6, .max = 1e6});
      break;
    case Scheme::kShards:
      visit("per-part", spec.shards_per_part, {.help = "shards a part", .min = 1, .max = 1e6});
      break;
    case Scheme::kPathological:
      visit("classes", spec.classes_per_part, {.help = "classes a part", .min = 1, .max = 1e6});
      visit("assign", assignment, {.help = "how classes are drawn", .choices = kAssignments});
      break;
    case Scheme::kNatural:
      visit("column", spec.column, {.help = "CSV column whose values are the parts"});
      break;
    default:
      break;
  }
  visit("seed", spec.seed, {.help = "of this partition"});
  if (index) {
    visit("index", spec.index,
          {.help = "which part, from 1", .min = index->min, .max = index->max});
    visit("of", spec.of, {.help = "how many parts", .min = 1, .max = kPartsMax});
  }
  return std::move(visit).take();
}

Error bad_spec(std::string_view text, const std::string& why) {
  return wrong_setting("partition-spec", "the partition '" + printable(text) + "' " + why);
}

Result<void> check_part(std::string_view text, const PartitionSpec& spec) {
  if ((spec.index == 0) != (spec.of == 0)) {
    if (spec.index == 0) {
      const std::string parts = std::to_string(spec.of);
      return bad_spec(text, "has " + parts +
                                " parts and does not say which one to hold: add index=, " +
                                "from 1 to " + parts);
    }
    return bad_spec(text, "does not say of how many parts it is number " +
                              std::to_string(spec.index) + ": add of=");
  }
  if (spec.scheme == Scheme::kNatural && spec.column.empty()) {
    return bad_spec(text, "needs a column: write natural:column=NAME");
  }
  return {};
}

// As many as there are parts, where the text says that: `of` may stand behind `index`.
Range index_range(PartitionSpec spec, std::string_view list) {
  std::string assignment(kAssignments[0]);
  (void)read_parameters(list, parameters(spec, assignment, Range{0, kPartsMax}));
  return {1, spec.of == 0 ? kPartsMax : static_cast<double>(spec.of)};
}

}  // namespace

Result<PartitionSpec> PartitionSpec::parse(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto scheme = std::ranges::find(kSchemes, text.substr(0, colon));
  if (scheme == kSchemes.end()) {
    return bad_spec(text, "is not known; the schemes are " + join_names(kSchemes) +
                              suggestion(text.substr(0, colon), kSchemes));
  }
  PartitionSpec spec;
  spec.scheme = static_cast<Scheme>(scheme - kSchemes.begin());
  std::string assignment(kAssignments[0]);
  const std::string_view list = text.substr(std::min(colon + 1, text.size()));
  const std::vector<Field> fields = parameters(spec, assignment, index_range(spec, list));
  if (auto read = read_parameters(list, fields); !read) {
    return bad_spec(text, read.error().message());
  }
  spec.assignment = static_cast<ClassAssignment>(std::ranges::find(kAssignments, assignment) -
                                                 kAssignments.begin());
  STARLING_TRY(check_part(text, spec));
  return spec;
}

std::string PartitionSpec::to_string() const {
  PartitionSpec copy = *this;
  std::string text(kAssignments[static_cast<std::size_t>(assignment)]);
  const auto part = index != 0 ? std::optional(Range{1, kPartsMax}) : std::nullopt;
  return std::string(name_of(scheme)) + ":" + write_parameters(parameters(copy, text, part));
}

}  // namespace starling::data
