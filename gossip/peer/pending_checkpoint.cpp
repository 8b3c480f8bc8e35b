// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/pending_checkpoint.h"

#include <utility>

namespace starling::gossip {

peer::KeepCheckpoint PendingCheckpoint::keep(peer::KeepCheckpoint what) {
  if (pending_ && pending_->checkpoint->run == what.checkpoint->run) {
    what.model_too |= pending_->model_too;
  }
  retry_at_.reset();
  pending_ = std::move(what);
  return *pending_;
}

std::optional<peer::Say> PendingCheckpoint::answered(const peer::CheckpointKept& answer,
                                                     TimePoint now, bool is_last) {
  if (!pending_ || pending_->checkpoint != answer.checkpoint) return std::nullopt;
  if (answer.kept) {
    pending_.reset();
    retry_at_.reset();
    if (std::exchange(problem_, "").empty()) return std::nullopt;
    return peer::Say{LogLevel::kInfo, "the checkpoint is kept now"};
  }
  std::string line = "the checkpoint is not kept: " + answer.kept.error().message();
  if (is_last) return peer::Say{LogLevel::kError, std::move(line)};
  line += "; tried again every " + format_duration(retry_every_);
  retry_at_ = now + retry_every_;
  const std::string code = answer.kept.error().code();
  const bool is_news = std::exchange(problem_, line).empty() || code_ != code;
  code_ = code;
  if (!is_news) return std::nullopt;
  return peer::Say{LogLevel::kWarning, std::move(line)};
}

peer::KeepCheckpoint PendingCheckpoint::retry() {
  retry_at_.reset();
  return *pending_;
}

}  // namespace starling::gossip
