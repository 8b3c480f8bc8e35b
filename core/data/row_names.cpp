// SPDX-License-Identifier: Apache-2.0
#include "core/data/row_names.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/list_some.h"
#include "core/base/nearest_name.h"

namespace starling::data {
namespace {

constexpr std::size_t kNamed = 5;

using Places = std::map<std::string_view, std::size_t>;

Places places_of(const std::vector<std::string>& names) {
  Places places;
  for (std::size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
  return places;
}

std::string quoted(const std::string& name) { return "'" + printable(name) + "'"; }

std::vector<std::string> missing_in(const std::vector<std::string>& wanted, const Places& there) {
  std::vector<std::string> missing;
  for (const std::string& name : wanted) {
    if (!there.contains(name)) missing.push_back(quoted(name));
  }
  return missing;
}

std::string list(const std::vector<std::string>& names) {
  return list_some(names, kNamed, std::identity());
}

Error columns_differ(const Dataset& dataset, const std::vector<std::string>& missing,
                     const std::vector<std::string>& unknown) {
  std::string text =
      "the columns of " + dataset.name() + " are not those that the run was made for:";
  if (!missing.empty()) text += " it lacks " + list(missing);
  if (!unknown.empty())
    text += (missing.empty() ? " the run has no " : "; the run has no ") + list(unknown);
  return unsupported("columns-differ", text);
}

// For each column of the run the dataset's; nothing: in the same order.
Result<std::optional<std::vector<std::size_t>>> find_columns(const Dataset& dataset,
                                                             const RowNames& names) {
  const std::vector<std::string>& own = dataset.feature_names();
  if (names.columns.empty() || own.empty() || own == names.columns) {
    return std::optional<std::vector<std::size_t>>();
  }
  const Places places = places_of(own);
  const auto missing = missing_in(names.columns, places);
  const auto unknown = missing_in(own, places_of(names.columns));
  if (!missing.empty() || !unknown.empty()) return columns_differ(dataset, missing, unknown);
  std::vector<std::size_t> from;
  for (const std::string& name : names.columns) from.push_back(places.at(name));
  return std::optional(std::move(from));
}

// For each class of the dataset the run's; nothing: the same.
Result<std::optional<std::vector<std::int32_t>>> find_classes(const Dataset& dataset,
                                                              const RowNames& names) {
  const std::vector<std::string>& own = dataset.class_names();
  const bool is_numbered = own.empty() && !dataset.class_column().empty();
  if (is_numbered && !names.classes.empty()) {
    return unsupported("unknown-class", "the labels of " + dataset.name() +
                                            " are numbers, and the run's classes are texts: " +
                                            list_some(names.classes, kNamed, quoted));
  }
  if (own == names.classes || own.empty()) return std::optional<std::vector<std::int32_t>>();
  if (names.classes.empty()) {
    return unsupported("text-labels",
                       "the labels of " + dataset.name() +
                           " are texts, and the run does not say which class each one is: set "
                           "data.class-names in its job, or write the classes' numbers, from 0");
  }
  const Places places = places_of(names.classes);
  const auto unknown = missing_in(own, places);
  if (!unknown.empty()) {
    return unsupported("unknown-class", "labels of " + dataset.name() +
                                            " are no classes of the run: " + list(unknown) +
                                            " (data.class-names)");
  }
  std::vector<std::int32_t> to;
  for (const std::string& name : own) to.push_back(static_cast<std::int32_t>(places.at(name)));
  return std::optional(std::move(to));
}

template <class T>
void permute(std::vector<T>& rows, const std::vector<std::size_t>& from) {
  std::vector<T> row(from.size());
  for (std::size_t at = 0; at < rows.size(); at += from.size()) {
    for (std::size_t i = 0; i < from.size(); ++i) row[i] = rows[at + from[i]];
    std::ranges::copy(row, rows.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace

RowNames names_of(const Dataset& dataset) {
  return {dataset.feature_names(), dataset.class_names()};
}

Result<bool> fits(const Dataset& dataset, const RowNames& names) {
  STARLING_ASSIGN(const auto columns, find_columns(dataset, names));
  STARLING_ASSIGN(const auto classes, find_classes(dataset, names));
  return !columns && !classes;
}

Result<void> fit_to(std::shared_ptr<const Dataset>& dataset, const RowNames& names) {
  STARLING_ASSIGN(const auto columns, find_columns(*dataset, names));
  STARLING_ASSIGN(const auto classes, find_classes(*dataset, names));
  if (!columns && !classes) return {};
  Dataset::Content content = Dataset::take(std::move(dataset));
  if (columns) {
    permute(content.features, *columns);
    permute(content.bytes, *columns);
    content.feature_names = names.columns;
  }
  if (classes) {
    for (std::int32_t& label : content.labels) {
      label = (*classes)[static_cast<std::size_t>(label)];
    }
    content.class_names = names.classes;
    content.classes = static_cast<int>(names.classes.size());
  }
  dataset = Dataset::make(std::move(content)).value();
  return {};
}

}  // namespace starling::data
