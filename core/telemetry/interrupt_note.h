// SPDX-License-Identifier: Apache-2.0
// What a program says when Ctrl-C (SIGINT) or SIGTERM ends it at once. For work whose files are
// whole at any moment, so that nothing has to be wound up.
#pragma once

#include <deque>
#include <string>

namespace starling::telemetry {

class InterruptNote {
 public:
  // Until it is destroyed, the two signals print the note on standard error and then end the
  // process as they would have. A signal that the process ignores stays ignored. One object at a
  // time.
  InterruptNote();
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

  // Whole lines. At first there is none.
  void set(std::string note);

 private:
  std::deque<std::string> notes_;  // none moves while a handler may read it
};

}  // namespace starling::telemetry
