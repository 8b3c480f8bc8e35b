// SPDX-License-Identifier: Apache-2.0
#include "core/report/chart_style.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "core/report/markup.h"

namespace starling::report {

std::string colour_class(int style) { return fmt::format("s{}", style % kColours); }

std::string dashes(int style) {
  static constexpr std::array<std::string_view, 4> kDashes = {"", "8 4", "3 3", "10 3 3 3"};
  return std::string(kDashes[static_cast<std::size_t>(style / kColours) % kDashes.size()]);
}

std::string mark(int style, double x, double y) {
  // Paths around the origin: a circle, a square, two triangles, a diamond and a cross.
  static constexpr std::array<std::string_view, kColours> kShapes = {
      "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0z",
      "m-2.9-2.9h5.8v5.8h-5.8z",
      "m0-4l3.8 6.6h-7.6z",
      "m0-4.2l3.8 4.2l-3.8 4.2l-3.8-4.2z",
      "m0 4l3.8-6.6h-7.6z",
      "m-3.6-2.2l1.4-1.4l2.2 2.2l2.2-2.2l1.4 1.4l-2.2 2.2l2.2 2.2l-1.4 1.4l-2.2-2.2l-2.2 2.2"
      "l-1.4-1.4l2.2-2.2z"};
  const int shape = (style + style / kColours) % kColours;
  return fmt::format("<path class=\"mark\" d=\"M{} {}{}\"/>", units(x), units(y),
                     kShapes[static_cast<std::size_t>(shape)]);
}

}  // namespace starling::report
