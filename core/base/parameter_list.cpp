// SPDX-License-Identifier: Apache-2.0
#include "core/base/parameter_list.h"

#include <algorithm>

#include "core/base/nearest_name.h"

namespace starling {
namespace {

Result<void> read_parameter(std::string_view item, const std::vector<Field>& fields,
                            std::vector<bool>& seen) {
  const std::size_t equals = item.find('=');
  const std::string_view key = item.substr(0, equals);
  const auto field = std::ranges::find(fields, key, &Field::key);
  if (field == fields.end()) {
    std::vector<std::string_view> known;
    for (const Field& f : fields) known.push_back(f.key);
    return wrong_setting("parameter", "has no key '" + printable(key) + "'; its keys are " +
                                          join_names(known) + suggestion(key, known));
  }
  if (equals == item.npos) {
    return wrong_setting("parameter",
                         "gives no value for '" + field->key + "'; write " + field->key + "=VALUE");
  }
  const auto at = static_cast<std::size_t>(field - fields.begin());
  if (seen[at]) return wrong_setting("parameter", "gives '" + field->key + "' twice");
  seen[at] = true;
  if (auto set = field->set(item.substr(equals + 1)); !set) {
    return wrong_setting("parameter", "is wrong: " + set.error().message());
  }
  return {};
}

}  // namespace

Result<void> read_parameters(std::string_view text, const std::vector<Field>& fields) {
  std::vector<bool> seen(fields.size());
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    STARLING_TRY(read_parameter(text.substr(0, comma), fields, seen));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return {};
}

std::string write_parameters(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) {
    if (!text.empty()) text += ',';
    text += field.key + "=" + field.text();
  }
  return text;
}

}  // namespace starling
