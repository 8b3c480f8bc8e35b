// SPDX-License-Identifier: Apache-2.0
#include "core/client/trainer_output.h"

#include <utility>

#include "core/base/counted.h"
#include "core/base/escape_controls.h"
#include "core/base/utf8.h"

namespace starling::client {

void TrainerOutput::add(std::string_view bytes, TimePoint now) {
  for (const char byte : bytes) {
    const bool overwritten = std::exchange(returned_, byte == '\r') && byte != '\n';
    if (overwritten) line_.clear();
    if (byte == '\n') {
      finish_line(now);
    } else if (byte != '\r' && line_.size() <= kLineBytesMax) {
      line_ += byte;
    }
  }
}

void TrainerOutput::finish_line(TimePoint now) {
  const std::string line = escape_controls(clean_sentence(line_, kLineBytesMax));
  line_.clear();
  if (line.find_first_not_of(' ') != line.npos) last_line_ = line;
  if (!budget_.spend(now)) return;
  pause();
  log_.info("trainer: {}", line);
}

void TrainerOutput::pause() {
  const std::uint64_t dropped = budget_.take_unsaid();
  if (dropped == 0) return;
  log_.info("trainer: {} {} dropped", counted(dropped, "line"), dropped == 1 ? "was" : "were");
}

void TrainerOutput::end(TimePoint now) {
  if (!line_.empty()) finish_line(now);
  pause();
}

}  // namespace starling::client
