// SPDX-License-Identifier: Apache-2.0
#include "core/data/dataset.h"

#include <cmath>

#include "core/base/check.h"

namespace starling::data {
namespace {

Error misfit(const std::string& name, const std::string& why) {
  return rejected("dataset-shape", "the data set " + name + " does not fit together: " + why);
}

Result<void> check_values(const Dataset::Content& content) {
  const std::size_t features = content.shape.features();
  for (std::size_t i = 0; i < content.labels.size(); ++i) {
    if (content.labels[i] < 0 || content.labels[i] >= content.classes) {
      return rejected("label-out-of-range",
                      content.name + ": row " + std::to_string(i + 1) + " has the label " +
                          std::to_string(content.labels[i]) + ", but there are " +
                          std::to_string(content.classes) + " classes (0 is the first)");
    }
  }
  for (std::size_t i = 0; i < content.features.size(); ++i) {
    if (!std::isfinite(content.features[i])) {
      return rejected("not-finite", content.name + ": row " + std::to_string(i / features + 1) +
                                        ", feature " + std::to_string(i % features + 1) +
                                        " is not a finite number");
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Dataset>> Dataset::make(Content content) {
  const Shape& shape = content.shape;
  if (shape.channels < 1 || shape.height < 1 || shape.width < 1) {
    return misfit(content.name, "a row has no features");
  }
  if (content.features.size() != content.labels.size() * shape.features()) {
    return misfit(content.name, std::to_string(content.labels.size()) + " labels, but " +
                                    std::to_string(content.features.size()) + " feature values");
  }
  if (!content.bytes.empty() && content.bytes.size() != content.features.size()) {
    return misfit(content.name, "not every feature has a byte");
  }
  if (!content.groups.empty() && content.groups.size() != content.labels.size()) {
    return misfit(content.name, "not every row has a group");
  }
  for (std::uint32_t group : content.groups) {
    if (group >= content.group_names.size()) return misfit(content.name, "a group has no name");
  }
  STARLING_TRY(check_values(content));
  return std::shared_ptr<const Dataset>(new Dataset(std::move(content)));
}

// Every dataset was made as one that is not const.
Dataset::Content Dataset::take(std::shared_ptr<const Dataset> dataset) {
  if (dataset.use_count() > 1) return dataset->content_;
  return std::move(std::const_pointer_cast<Dataset>(dataset)->content_);
}

}  // namespace starling::data
