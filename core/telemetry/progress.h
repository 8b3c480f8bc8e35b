// SPDX-License-Identifier: Apache-2.0
// How far a long piece of work is: on a terminal one bar that is redrawn in place, below the lines
// that the work prints; elsewhere a plain line now and then.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/telemetry/terminal.h"

namespace starling::telemetry {

struct ProgressOptions {
  std::string unit = "rounds";
  std::uint64_t per_unit = 1;  // steps of the total that make one displayed unit
  Duration redraw_every = std::chrono::milliseconds(100);  // of the bar
  Duration line_every = std::chrono::seconds(10);          // where there is no bar
};

class Progress {
 public:
  // `out` and `clock` must outlive it. A total of 0: not known.
  Progress(std::ostream& out, const Clock& clock, const Terminal& terminal, std::uint64_t total,
           ProgressOptions options = {});
  // Takes the bar away.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total; `note` stands at the bar's end where there is room for it whole.
  void update(std::uint64_t done, std::string_view note = "");
  // A line of the work itself, in full, above the bar.
  void print(std::string_view line);

 private:
  std::string describe() const;
  void draw();
  void erase();

  std::ostream& out_;
  const Clock& clock_;
  Terminal terminal_;
  ProgressOptions options_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::string note_;
  TimePoint started_;
  TimePoint shown_;
  bool drawn_ = false;
};

// `columns` wide: "[####----]"; in Unicode with eighths of a column.
std::string bar(double fraction, std::size_t columns, bool unicode);

// "0.4 s", "12 s", "3 min 20 s", "2 h 5 min"
std::string format_elapsed(Duration duration);

}  // namespace starling::telemetry
