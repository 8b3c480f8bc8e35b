// SPDX-License-Identifier: Apache-2.0
// Sentences on a terminal: what is written to a stream is broken at blanks where it is wider than
// the terminal, which would break it within words and numbers.
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>

#include "core/base/log.h"
#include "core/telemetry/terminal.h"

namespace starling::telemetry {

class WrappedStream {
 public:
  // Until this is destroyed, the lines of `out` are broken after at most `columns`, and go on two
  // columns in. Left as they are: lines that begin with a blank (commands to copy, drawings), JSON,
  // XML, and coloured ones. `out` must outlive this. With SIZE_MAX nothing changes.
  WrappedStream(std::ostream& out, std::size_t columns);
  ~WrappedStream();
  WrappedStream(const WrappedStream&) = delete;
  WrappedStream& operator=(const WrappedStream&) = delete;

 private:
  class Buffer;
  std::ostream& out_;
  std::unique_ptr<Buffer> buffer_;  // null: nothing is changed
};

// The log of a program, on standard error; its lines too are broken where that is a terminal. For
// main.
std::unique_ptr<Log> make_program_log(LogLevel level, const Environment& environment);

// std::cout and std::cerr of a program, each with lines as wide as what it is shown on. For main.
class ProgramOutput {
 public:
  explicit ProgramOutput(const Environment& environment);

  // That std::cout is shown on.
  const Terminal& terminal() const { return terminal_; }

 private:
  const Terminal terminal_;
  const WrappedStream out_;
  const WrappedStream err_;
};

}  // namespace starling::telemetry
