// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/peer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <ostream>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/escape_controls.h"
#include "core/telemetry/quantities.h"
#include "core/telemetry/text_table.h"

namespace starling::gossip {
namespace {

std::map<std::string, std::size_t> count_states(std::span<const PeerRow> rows) {
  std::map<std::string, std::size_t> counts;
  for (const PeerRow& row : rows) ++counts[row.state];
  return counts;
}

// Which rows to show, in the order of the network.
std::vector<std::size_t> choose(std::span<const PeerRow> rows, std::size_t room) {
  std::vector<std::size_t> chosen(rows.size());
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  if (rows.size() <= room) return chosen;
  const auto counts = count_states(rows);
  std::ranges::stable_sort(chosen, [&](std::size_t a, std::size_t b) {
    const std::size_t alike_a = counts.at(rows[a].state);
    const std::size_t alike_b = counts.at(rows[b].state);
    return alike_a != alike_b ? alike_a < alike_b : rows[a].step < rows[b].step;
  });
  chosen.resize(room);
  std::ranges::sort(chosen);
  return chosen;
}

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "-";
}

// "16 peers: 14 training, 2 down  steps 100 to 120  sent 38.4 MB  3 not shown"
std::string summary(std::span<const PeerRow> rows, std::size_t hidden) {
  std::string text = counted(rows.size(), "peer") + ":";
  std::string_view mark = " ";
  for (const auto& [state, count] : count_states(rows)) {
    text += fmt::format("{}{} {}", mark, count, escape_controls(state));
    mark = ", ";
  }
  const auto [least, most] = std::ranges::minmax_element(rows, {}, &PeerRow::step);
  text += least->step == most->step ? fmt::format("  step {}", least->step)
                                    : fmt::format("  steps {} to {}", least->step, most->step);
  std::uint64_t sent = 0;
  for (const PeerRow& row : rows) sent += row.bytes_sent;
  text += "  sent " + telemetry::format_bytes(sent);
  return hidden == 0 ? text : text + fmt::format("  {} not shown", hidden);
}

}  // namespace

std::string peer_table(std::span<const PeerRow> rows, std::size_t columns, std::size_t lines_max) {
  STARLING_CHECK(lines_max >= 3);
  if (rows.empty()) return {};
  telemetry::TextTable table(
      {"NODE", "STATE", ">STEP", ">NEIGHBOURS", ">LOSS", ">DISTANCE", ">SENT", ">RECEIVED"});
  const std::vector<std::size_t> chosen = choose(rows, lines_max - 2);
  for (const std::size_t i : chosen) {
    const PeerRow& row = rows[i];
    table.add({row.name, escape_controls(row.state), std::to_string(row.step),
               fmt::format("{}/{}", row.neighbours, row.expected), number(row.loss),
               number(row.distance), telemetry::format_bytes(row.bytes_sent),
               telemetry::format_bytes(row.bytes_received)});
  }
  const std::string whole = table.text() + summary(rows, rows.size() - chosen.size()) + "\n";
  std::string text;
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = whole.find('\n', begin);
    text += telemetry::fit(std::string_view(whole).substr(begin, end - begin), columns);
    text += '\n';
    begin = end + 1;
  }
  return text;
}

LiveTable::LiveTable(std::ostream& out, const Clock& clock, const telemetry::Terminal& terminal,
                     Duration redraw_every)
    : out_(out), clock_(clock), terminal_(terminal), redraw_every_(redraw_every) {}

bool LiveTable::is_due() const {
  return terminal_.interactive && (!shown_ || clock_.now() - *shown_ >= redraw_every_);
}

void LiveTable::show(std::span<const PeerRow> rows) {
  if (!terminal_.interactive) return;
  waiting_.assign(rows.begin(), rows.end());
  if (is_due()) redraw();
}

void LiveTable::finish() {
  if (!waiting_.empty()) redraw();
}

void LiveTable::redraw() {
  shown_ = clock_.now();
  // The last column may wrap, and the cursor stands on a line of its own below the table.
  table_ = peer_table(waiting_, static_cast<std::size_t>(terminal_.columns) - 1,
                      static_cast<std::size_t>(terminal_.rows) - 1);
  waiting_.clear();
  erase();
  draw();
  out_.flush();
}

void LiveTable::print(std::string_view line) {
  erase();
  out_ << line << '\n';
  draw();
  out_.flush();
}

void LiveTable::erase() {
  if (lines_ > 0) out_ << fmt::format("\x1b[{}A\r\x1b[J", lines_);
  lines_ = 0;
}

void LiveTable::draw() {
  out_ << table_;
  lines_ = static_cast<std::size_t>(std::ranges::count(table_, '\n'));
}

}  // namespace starling::gossip
