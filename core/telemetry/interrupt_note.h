// SPDX-License-Identifier: Apache-2.0
// What a program says when Ctrl-C (SIGINT) or SIGTERM ends it: at once, where its files are whole
// at any moment, or after it has saved what it was asked to.
#pragma once

#include <deque>
#include <string>

namespace starling::telemetry {

class InterruptNote {
 public:
  enum class On {
    kEnd,  // the process ends
    kAsk,  // the first signal only makes asked() true, and the program calls end(); the second ends
  };

  // Until it is destroyed, the two signals print the note on standard error and then end the
  // process as they would have. A signal that the process ignores stays ignored. One object at a
  // time.
  explicit InterruptNote(On on = On::kEnd);
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

  // Whole lines. At first there is none.
  void set(std::string note);
  // What the signal that asks prints, where the program may take long to end; at first nothing.
  void set_asking(std::string note);

  // From any thread.
  bool asked() const;
  // What the signal that asked would have done. Requires: asked().
  [[noreturn]] void end() const;

 private:
  std::deque<std::string> notes_;  // none moves while a handler may read it
};

}  // namespace starling::telemetry
