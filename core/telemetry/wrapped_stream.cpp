// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/wrapped_stream.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <streambuf>
#include <string>
#include <string_view>

#include "core/base/terminal_log.h"
#include "core/base/word_wrap.h"

namespace starling::telemetry {
namespace {

constexpr char kEscape = '\x1b';

// Bytes at the front that move the cursor or erase: '\r' and "ESC [ ... letter".
std::size_t cursor_bytes(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && (text[at] == '\r' || text[at] == kEscape)) {
    const bool sequence = text[at] == kEscape;
    at = sequence ? text.find_first_of("ABCDEFGHJKSTm", at) : at;
    if (at == text.npos) return text.size();
    ++at;
  }
  return at;
}

bool is_prose(std::string_view line) {
  const bool is_data = line.starts_with('{') || line.starts_with("[{") || line.starts_with('<');
  return !line.starts_with(' ') && !is_data && line.find(kEscape) == line.npos;
}

}  // namespace

class WrappedStream::Buffer final : public std::streambuf {
 public:
  Buffer(std::streambuf& below, std::size_t columns) : below_(below), columns_(columns) {}

  std::streambuf& below() { return below_; }
  // What has no end of line yet.
  void release() {
    below_.sputn(line_.data(), static_cast<std::streamsize>(line_.size()));
    line_.clear();
  }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char byte = traits_type::to_char_type(c);
    return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    for (const char c : std::string_view(bytes, static_cast<std::size_t>(count))) {
      line_ += c;
      if (c == '\n') write_line();
    }
    return count;
  }
  // A progress bar has no end of line: it begins where the line does.
  int sync() override {
    if (cursor_bytes(line_) > 0) release();
    return below_.pubsync();
  }

 private:
  void write_line() {
    const std::string_view whole = std::string_view(line_).substr(0, line_.size() - 1);
    const std::string_view line = whole.substr(cursor_bytes(whole));
    if (columns_of(line) <= columns_ || !is_prose(line)) return release();
    line_ = std::string(whole.substr(0, whole.size() - line.size())) + wrap(line, columns_) + '\n';
    release();
  }

  std::streambuf& below_;
  const std::size_t columns_;
  std::string line_;
};

WrappedStream::WrappedStream(std::ostream& out, std::size_t columns) : out_(out) {
  if (columns == SIZE_MAX) return;
  buffer_ = std::make_unique<Buffer>(*out.rdbuf(), std::max<std::size_t>(columns, 20));
  out.rdbuf(buffer_.get());
}

WrappedStream::~WrappedStream() {
  if (!buffer_) return;
  buffer_->release();
  out_.rdbuf(&buffer_->below());
  out_.flush();
}

std::unique_ptr<Log> make_program_log(LogLevel level, const Environment& environment) {
  const Terminal terminal = detect_terminal(STDERR_FILENO, environment);
  if (!terminal.interactive) return make_stderr_log(level);
  return make_terminal_log(level, terminal.line_max);
}

ProgramOutput::ProgramOutput(const Environment& environment)
    : terminal_(detect_terminal(STDOUT_FILENO, environment)),
      out_(std::cout, terminal_.line_max),
      err_(std::cerr, detect_terminal(STDERR_FILENO, environment).line_max) {}

}  // namespace starling::telemetry
