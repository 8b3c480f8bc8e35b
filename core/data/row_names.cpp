// SPDX-License-Identifier: Apache-2.0
#include "core/data/row_names.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include "core/base/counted.h"
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

std::string list(const std::vector<std::string>& names) {
  return list_some(names, kNamed,
                   [](const std::string& name) { return "'" + printable(name) + "'"; });
}

std::vector<std::string> missing_in(const Places& there, const std::vector<std::string>& wanted) {
  std::vector<std::string> missing;
  std::ranges::copy_if(wanted, std::back_inserter(missing),
                       [&](const std::string& name) { return !there.contains(name); });
  return missing;
}

Error columns_differ(const std::vector<std::string>& missing,
                     const std::vector<std::string>& unknown, const NamedAs& as) {
  const std::string wanted = as.is_private ? "that the run was made for" : "of " + as.run;
  const std::string beside = as.is_private
                                 ? counted(unknown.size(), "column") + " that the run has not"
                                 : "it has " + list(unknown) + ", which " + as.run + " has not";
  return unsupported("columns-differ", "the columns of " + as.data + " are not those " + wanted +
                                           ": " +
                                           (missing.empty() ? "" : "it has no " + list(missing)) +
                                           (missing.empty() || unknown.empty() ? "" : ", and ") +
                                           (unknown.empty() ? "" : beside));
}

// For each column of the run the dataset's; nothing: in the same order.
Result<std::optional<std::vector<std::size_t>>> find_columns(const Dataset& dataset,
                                                             const RowNames& names,
                                                             const NamedAs& as) {
  const std::vector<std::string>& own = dataset.feature_names();
  if (names.columns.empty() || own.empty() || own == names.columns) {
    return std::optional<std::vector<std::size_t>>();
  }
  const Places places = places_of(own);
  const auto missing = missing_in(places, names.columns);
  const auto unknown = missing_in(places_of(names.columns), own);
  if (!missing.empty() || !unknown.empty() || own.size() != names.columns.size()) {
    return columns_differ(missing, unknown, as);
  }
  std::vector<std::size_t> from;
  for (const std::string& name : names.columns) from.push_back(places.at(name));
  return std::optional(std::move(from));
}

Error texts_without_numbers(const NamedAs& as) {
  if (!as.is_private && !as.run_is_job) {
    return unsupported("text-labels", "the labels of " + as.data + " are texts, and those of " +
                                          as.run + " are numbers: write both alike");
  }
  return unsupported("text-labels", "the labels of " + as.data + " are texts, and " + as.run +
                                        " does not say which class each one is: set "
                                        "data.class-names in " +
                                        (as.run_is_job ? "it" : "its job") +
                                        ", or write the classes' numbers, from 0");
}

Error unknown_classes(const std::vector<std::string>& unknown, const RowNames& names,
                      const NamedAs& as) {
  const bool is_one = unknown.size() == 1;
  const std::string labels = as.is_private
                                 ? counted(unknown.size(), "label")
                                 : (is_one ? "the label " : "the labels ") + list(unknown);
  return unsupported("unknown-class", labels + " of " + as.data +
                                          (is_one ? " is no class" : " are no classes") + " of " +
                                          as.run + ", which are " + list(names.classes));
}

// For each class of the dataset the run's; nothing: the same.
Result<std::optional<std::vector<std::int32_t>>> find_classes(const Dataset& dataset,
                                                              const RowNames& names,
                                                              const NamedAs& as) {
  const std::vector<std::string>& own = dataset.class_names();
  const bool is_numbered = own.empty() && !dataset.class_column().empty();
  if (is_numbered && !names.classes.empty()) {
    return unsupported("unknown-class",
                       "the labels of " + as.data + " are numbers, and " +
                           (as.is_private ? "the run's classes" : "the classes of " + as.run) +
                           " are texts: " + list(names.classes));
  }
  if (own == names.classes || own.empty()) return std::optional<std::vector<std::int32_t>>();
  if (names.classes.empty()) return texts_without_numbers(as);
  const Places places = places_of(names.classes);
  if (const auto unknown = missing_in(places, own); !unknown.empty()) {
    return unknown_classes(unknown, names, as);
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
  return {dataset.feature_names(), dataset.class_names(), dataset.scaling()};
}

Result<bool> fits(const Dataset& dataset, const RowNames& names, const NamedAs& as) {
  STARLING_ASSIGN(const auto columns, find_columns(dataset, names, as));
  STARLING_ASSIGN(const auto classes, find_classes(dataset, names, as));
  STARLING_TRY(check_scaling(dataset, names.scaling, columns.has_value()));
  return !columns && !classes && dataset.scaling() == names.scaling;
}

Result<void> fit_to(std::shared_ptr<const Dataset>& dataset, const RowNames& names,
                    const NamedAs& as) {
  STARLING_ASSIGN(const auto columns, find_columns(*dataset, names, as));
  STARLING_ASSIGN(const auto classes, find_classes(*dataset, names, as));
  STARLING_TRY(check_scaling(*dataset, names.scaling, columns.has_value()));
  const bool scales = dataset->scaling() != names.scaling;
  if (!columns && !classes && !scales) return {};
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
  if (scales) {
    STARLING_TRY(scale_rows(content.features, names.columns, names.scaling));
    content.bytes.clear();
    content.scaling = names.scaling;
  }
  dataset = Dataset::make(std::move(content)).value();
  return {};
}

}  // namespace starling::data
