// SPDX-License-Identifier: Apache-2.0
// One description per option: its key, default, unit, range and help. An Options struct is
// described by a free function `template <class V> void describe(V& visit, Options& o)` beside it,
// that calls visit(name, member, FieldInfo) per field; configuration files, flags, validation,
// documentation tables and the wire's settings all come from that one place (see settings.h).
#pragma once

#include <limits>
#include <span>
#include <string_view>

namespace starling {

struct FieldInfo {
  std::string_view help;
  std::string_view unit = "";  // not for durations, whose text carries its unit
  // Both ends are allowed. Of a duration: seconds; of a list: each element.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::span<const std::string_view> choices = {};  // for text fields; empty: any text
};

}  // namespace starling
