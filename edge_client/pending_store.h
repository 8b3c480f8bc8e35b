// SPDX-License-Identifier: Apache-2.0
// Updates that the coordinator has not settled, one file each, so that a restart offers them again
// and nobody retrains. What a crash or a failing disk damaged is set aside, never believed.
//
// TASK.update: "STLPEND1", u64 checksum of all that follows up to the payload, u32 header bytes,
// u32 0, u64 payload bytes, zeros up to 64; the update's head as the wire encodes an UpdateOffer;
// zeros up to a multiple of 64; the payload (the head has its checksum). Little-endian.
#pragma once

#include <filesystem>
#include <vector>

#include "core/base/log.h"
#include "core/client/client_machine.h"

namespace starling::edge_client {

// The file without its payload. Fails as wire::encode_header does.
[[nodiscard]] Result<Bytes> encode_pending_head(const update::ContributionHead& head);
// "pending-damaged" for anything that was not written so, to its last byte.
[[nodiscard]] Result<client::PendingUpdate> decode_pending(Bytes file);

// Of the paths alone, so that any thread may call; calls that concern one task must not overlap.
class PendingStore {
 public:
  struct Options {
    std::uint64_t payload_bytes_max = 4ULL << 30;
    std::size_t updates_max = 4;    // the newest; older ones are removed
    std::size_t set_aside_max = 8;  // damaged files that are kept for whoever wants to look
  };

  PendingStore(std::filesystem::path directory, Options options)
      : directory_(std::move(directory)), options_(options) {}

  // Makes the directory where there is none, sweeps it, and reads what earlier processes left,
  // oldest first. Damaged files cost a warning each.
  [[nodiscard]] Result<std::vector<client::PendingUpdate>> load(Log& log) const;
  // Durably.
  [[nodiscard]] Result<void> store(const client::PendingUpdate& update) const;
  [[nodiscard]] Result<void> forget(TaskId task) const;

  std::filesystem::path file_of(TaskId task) const;

 private:
  Result<client::PendingUpdate> read(const std::filesystem::path& file) const;
  void set_aside(const std::filesystem::path& file, const Error& why, Log& log) const;

  std::filesystem::path directory_;
  Options options_;
};

}  // namespace starling::edge_client
