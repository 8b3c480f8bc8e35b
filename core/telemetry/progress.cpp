// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>

namespace starling::telemetry {

namespace {

// No number is cut, unless the first fact is wider than the line.
std::string fit_facts(std::string_view text, std::size_t columns) {
  return std::string(fit(leading_facts(text, columns), columns));
}

}  // namespace

std::string bar(double fraction, std::size_t columns, bool unicode) {
  static constexpr std::array<std::string_view, 8> kEighths = {" ", "▏", "▎", "▍",
                                                               "▌", "▋", "▊", "▉"};
  fraction = std::clamp(fraction, 0.0, 1.0);
  const auto inside = static_cast<double>(std::max<std::size_t>(columns, 3) - 2);
  const auto eighths = static_cast<std::size_t>(fraction * inside * 8);
  std::string text = unicode ? "▕" : "[";
  for (std::size_t i = 0; i < static_cast<std::size_t>(inside); ++i) {
    const std::size_t part = std::clamp<std::size_t>(eighths, 8 * i, 8 * i + 8) - 8 * i;
    if (unicode) {
      text += part == 8 ? "█" : kEighths[part];
    } else {
      text += part == 8 ? '#' : '-';
    }
  }
  return text + (unicode ? "▏" : "]");
}

std::string format_elapsed(Duration duration) {
  const double seconds = to_seconds(duration);
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

Progress::Progress(std::ostream& out, const Clock& clock, const Terminal& terminal,
                   std::uint64_t total, ProgressOptions options)
    : out_(out),
      clock_(clock),
      terminal_(terminal),
      options_(std::move(options)),
      total_(total),
      started_(clock.now()),
      shown_(started_) {}

Progress::~Progress() { erase(); }

// "12/20 rounds  1.9 s  about 3.1 s left  accuracy 0.84"
std::string Progress::describe() const {
  const Duration elapsed = clock_.now() - started_;
  const std::uint64_t units = done_ / options_.per_unit;
  std::string text = total_ > 0
                         ? fmt::format("{}/{} {}", units, total_ / options_.per_unit, options_.unit)
                         : fmt::format("{} {}", units, options_.unit);
  text += "  " + format_elapsed(elapsed);
  if (done_ > 0 && done_ < total_) {
    const double left =
        to_seconds(elapsed) / static_cast<double>(done_) * static_cast<double>(total_ - done_);
    text += "  about " + format_elapsed(from_seconds(std::min(left, 1e9))) + " left";
  }
  return note_.empty() ? text : text + "  " + note_;
}

void Progress::update(std::uint64_t done, std::string_view note) {
  done_ = done;
  note_ = note;
  const Duration since = clock_.now() - shown_;
  const bool complete = total_ > 0 && done_ >= total_;
  if (terminal_.interactive) {
    if (complete || !drawn_ || since >= options_.redraw_every) draw();
  } else if (since >= options_.line_every) {
    out_ << describe() << std::endl;
    shown_ = clock_.now();
  }
}

void Progress::print(std::string_view line) {
  const bool again = drawn_;
  erase();
  out_ << line << '\n';
  if (again) draw();
  out_.flush();
}

void Progress::draw() {
  constexpr std::size_t kBarColumns = 24;
  const auto columns = static_cast<std::size_t>(terminal_.columns) - 1;  // the last one may wrap
  std::string text = describe();
  if (total_ > 0 && columns >= 2 * kBarColumns) {
    const double fraction = static_cast<double>(done_) / static_cast<double>(total_);
    const std::string drawing = bar(fraction, kBarColumns, terminal_.unicode);
    text = (terminal_.colour ? "\x1b[32m" + drawing + "\x1b[0m" : drawing) + " " +
           fit_facts(text, columns - kBarColumns - 1);
  } else {
    text = fit_facts(text, columns);
  }
  out_ << "\r\x1b[K" << text << std::flush;
  shown_ = clock_.now();
  drawn_ = true;
}

void Progress::erase() {
  if (drawn_) out_ << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace starling::telemetry
