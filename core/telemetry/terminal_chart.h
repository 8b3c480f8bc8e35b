// SPDX-License-Identifier: Apache-2.0
// A small curve as text, for the end of a run in a terminal: braille dots (two by four a character)
// where Unicode can be shown, else one mark a character.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/telemetry/terminal.h"

namespace starling::telemetry {

struct ChartOptions {
  std::string title;            // "accuracy"
  std::string x_label;          // "round"
  int rows = 8;                 // of the plot itself, 2 .. 100
  int columns_max = 80;         // of the whole; the terminal may allow less
  std::vector<double> at = {};  // the x of each value, ascending; empty: 1, 2, 3, ...
};

// Lines with their ends; "TITLE: no values" where nothing is finite. Values that are not finite
// (rounds without evaluation) are passed over, their neighbours joined. Requires: `at` is empty or
// has an x for each value.
std::string line_chart(std::span<const double> values, const Terminal& terminal,
                       const ChartOptions& options);

}  // namespace starling::telemetry
