// SPDX-License-Identifier: Apache-2.0
// The peers of a launched network as people watch them: on a terminal one table that is redrawn in
// place below the lines that the run prints; elsewhere those lines alone.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/telemetry/terminal.h"

namespace starling::gossip {

struct PeerRow {
  std::string name;
  std::string state;  // as reported, or what the launcher knows: starting, paused, down
  std::uint64_t step = 0;
  std::uint32_t neighbours = 0;  // heard in the last exchange
  std::uint32_t expected = 0;    // that there should have been
  std::optional<double> loss;
  std::optional<double> distance;  // from the mean of all, at the last evaluation
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

// At most `lines_max` lines of at most `columns` columns, each with its end: headers, rows, and a
// last one about all. Where not every row has room, those in an unusual state come first, then
// those that are furthest behind. Requires: lines_max >= 3.
std::string peer_table(std::span<const PeerRow> rows, std::size_t columns, std::size_t lines_max);

class LiveTable {
 public:
  // `out` and `clock` must outlive it.
  LiveTable(std::ostream& out, const Clock& clock, const telemetry::Terminal& terminal,
            Duration redraw_every = std::chrono::milliseconds(250));
  // Leaves the last table standing.
  ~LiveTable() = default;
  LiveTable(const LiveTable&) = delete;
  LiveTable& operator=(const LiveTable&) = delete;

  bool is_due() const;  // whether show() would draw
  void show(std::span<const PeerRow> rows);
  // Draws what show() was given last, also where it did not draw it.
  void finish();
  // A line of the run itself, in full, above the table.
  void print(std::string_view line);

 private:
  void redraw();
  void erase();
  void draw();

  std::ostream& out_;
  const Clock& clock_;
  telemetry::Terminal terminal_;
  Duration redraw_every_;
  std::optional<TimePoint> shown_;
  std::vector<PeerRow> waiting_;  // that were not drawn yet
  std::string table_;
  std::size_t lines_ = 0;  // that are on the screen
};

}  // namespace starling::gossip
