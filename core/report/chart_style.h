// SPDX-License-Identifier: Apache-2.0
// How a series looks: a colour class and the shape of its marks, which tells it apart in greys.
#pragma once

#include <string>

#include "core/report/palette.h"

namespace starling::report {

inline constexpr int kColours = static_cast<int>(std::tuple_size_v<decltype(Palette::series)>);

// "s0" .. "s5": a class that sets the colour; styles beyond the colours begin anew with other
// marks.
std::string colour_class(int style);
// SVG's stroke-dasharray; empty for whole lines, which the first kColours styles have.
std::string dashes(int style);
// An SVG element of about 7 by 7 units around (x, y), filled with the current colour. The first
// 36 styles differ in colour or shape.
std::string mark(int style, double x, double y);

}  // namespace starling::report
