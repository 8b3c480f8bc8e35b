// SPDX-License-Identifier: Apache-2.0
// Colours of series, after Okabe and Ito (2008), darkened or lightened until each stands out from
// the page by at least 3:1 and no two look alike with a colour vision deficiency (a test computes
// both). Series are told apart by their marks too, so a page in greys can be read.
#pragma once

#include <array>
#include <string_view>

namespace starling::report {

struct Palette {
  std::string_view page;     // background
  std::string_view text;     // of the page
  std::string_view muted;    // axis labels, captions
  std::string_view line;     // borders and grids
  std::string_view surface;  // of cards and tables' heads
  std::array<std::string_view, 6> series;
};

inline constexpr Palette kLight = {
    .page = "#ffffff",
    .text = "#1c2229",
    .muted = "#56616d",
    .line = "#d9dee3",
    .surface = "#f5f7f9",
    .series = {"#0063a6", "#d55e00", "#00936b", "#c1669b", "#7a5200", "#222222"}};

inline constexpr Palette kDark = {
    .page = "#14181d",
    .text = "#e8ecf0",
    .muted = "#a3aebb",
    .line = "#363f49",
    .surface = "#1c2229",
    .series = {"#4fa8f0", "#e8762c", "#1db58a", "#db8fc2", "#f0e442", "#ffffff"}};

}  // namespace starling::report
