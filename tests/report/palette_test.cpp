// SPDX-License-Identifier: Apache-2.0
// Whether everybody can read the page: contrast as WCAG 2.1 computes it, and distances of colours
// as eyes without one kind of cone see them (Machado, Oliveira, Fernandes, 2009, severity 1).
#include "core/report/palette.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace starling::report {
namespace {

using Colour = std::array<double, 3>;
using Matrix = std::array<Colour, 3>;

Colour linear(std::string_view hex) {
  Colour colour{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(std::string(hex.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
    colour[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  return colour;
}

double luminance(const Colour& c) { return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; }

double contrast(std::string_view a, std::string_view b) {
  const double first = luminance(linear(a)) + 0.05;
  const double second = luminance(linear(b)) + 0.05;
  return std::max(first, second) / std::min(first, second);
}

// CIE L*a*b* under D65.
Colour lab(const Colour& c) {
  const auto f = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116; };
  const double x = f((0.4124 * c[0] + 0.3576 * c[1] + 0.1805 * c[2]) / 0.95047);
  const double y = f(luminance(c));
  const double z = f((0.0193 * c[0] + 0.1192 * c[1] + 0.9505 * c[2]) / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

Colour seen(std::string_view hex, const Matrix& eye) {
  const Colour c = linear(hex);
  Colour result{};
  for (std::size_t i = 0; i < 3; ++i) {
    result[i] = std::clamp(eye[i][0] * c[0] + eye[i][1] * c[1] + eye[i][2] * c[2], 0.0, 1.0);
  }
  return lab(result);
}

constexpr std::array<Matrix, 4> kEyes = {{
    {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
    {{{0.152286, 1.052583, -0.204868},
      {0.114503, 0.786281, 0.099216},
      {-0.003882, -0.048116, 1.051998}}},
    {{{0.367322, 0.860646, -0.227968},
      {0.280085, 0.672501, 0.047413},
      {-0.011820, 0.042940, 0.968881}}},
    {{{1.255528, -0.076749, -0.178779},
      {-0.078411, 0.930809, 0.147602},
      {0.004733, 0.691367, 0.303900}}},
}};

class PaletteTest : public ::testing::TestWithParam<Palette> {};

TEST_P(PaletteTest, SeriesStandOutFromThePage) {
  for (const std::string_view colour : GetParam().series) {
    EXPECT_GE(contrast(colour, GetParam().page), 3) << colour;
  }
}

TEST_P(PaletteTest, TextCanBeRead) {
  EXPECT_GE(contrast(GetParam().text, GetParam().page), 7);
  EXPECT_GE(contrast(GetParam().muted, GetParam().page), 4.5);
  EXPECT_GE(contrast(GetParam().muted, GetParam().surface), 4.5);
}

TEST_P(PaletteTest, NoTwoSeriesLookAlikeToAnybody) {
  constexpr double kClearlyDifferent = 10;  // about four just noticeable differences
  for (const Matrix& eye : kEyes) {
    for (std::size_t i = 0; i < GetParam().series.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        const Colour a = seen(GetParam().series[i], eye);
        const Colour b = seen(GetParam().series[k], eye);
        EXPECT_GE(std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]), kClearlyDifferent)
            << GetParam().series[i] << " and " << GetParam().series[k];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, PaletteTest, ::testing::Values(kLight, kDark));

}  // namespace
}  // namespace starling::report
