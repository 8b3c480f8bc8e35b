// SPDX-License-Identifier: Apache-2.0
// What a trainer prints, as lines of the log: cut, without control characters, and no more than a
// log can bear.
#pragma once

#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/line_budget.h"
#include "core/base/log.h"

namespace starling::client {

class TrainerOutput {
 public:
  static constexpr std::size_t kLineBytesMax = 1024;
  static constexpr int kLinesPerMinute = 600;

  // `log` must outlive this.
  explicit TrainerOutput(Log& log) : log_(log) {}

  // Lines end with \n; what a lone \r overwrites on a terminal is not logged.
  void add(std::string_view bytes, TimePoint now);
  // Nothing comes for now: says how many lines were dropped.
  void pause();
  // Nothing comes any more: the last line may lack its end.
  void end(TimePoint now);
  // Of last_line(): what came before belongs to another task.
  void forget_last_line() { last_line_.clear(); }
  // The last that was not blank, also where the log did not get it.
  const std::string& last_line() const { return last_line_; }

 private:
  void finish_line(TimePoint now);

  Log& log_;
  LineBudget budget_{kLinesPerMinute, std::chrono::minutes(1)};
  std::string line_;
  bool returned_ = false;  // the last byte was a \r
  std::string last_line_;
};

}  // namespace starling::client
