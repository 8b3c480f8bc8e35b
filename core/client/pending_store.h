// SPDX-License-Identifier: Apache-2.0
// Updates that the coordinator has not settled, one file each, so that a restart offers them again
// and nothing is trained twice; and of each run the strategy's state after the last update that
// counted, and the one before it, RUN.before, for a run that takes a round back. An update brings
// the state that its commit makes current: then the new state is written, which names the update's
// task, the state's file becomes RUN.before, the new one takes its name, and the update's file is
// removed. A crash before the new state has its name leaves an update that is settled again; a
// later one leaves an update that its state's file names, which the next start drops. What a crash
// or a failing disk damaged is set aside as FILE.damaged, never believed.
//
// TASK.update: "STLPEND1", u64 checksum of all that follows up to the payload, u32 header bytes,
// u32 0, u64 payload bytes, u64 state bytes, u64 checksum of the state, u64 made_from, zeros up to
// 64; the update's head as the wire encodes an UpdateOffer; zeros up to a multiple of 64; the
// payload (the head has its checksum); the state as strategy/state_file.h writes it. RUN.state:
// "STLSTAT1", u64 checksum of all that follows up to the state, u64 run, u64 task, u64 round, u64
// state bytes, u64 checksum of the state, zeros up to 64; the state. Little-endian.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "core/base/disk.h"
#include "core/base/log.h"
#include "core/client/client_machine.h"
#include "core/update/head_codec.h"

namespace starling::client {

using update::HeadCodec;

// The file in parts. Fails as the codec does.
[[nodiscard]] Result<std::vector<SharedBytes>> encode_pending(const HeadCodec& codec,
                                                              const PendingUpdate& update);
// "pending-damaged" for anything that was not written so, to its last byte.
[[nodiscard]] Result<PendingUpdate> decode_pending(const HeadCodec& codec, Bytes file);
std::vector<SharedBytes> encode_committed(const CommittedState& state);
[[nodiscard]] Result<CommittedState> decode_committed(ByteView file);

// A value of paths alone, so that any thread may use a copy; calls that concern one task must not
// overlap.
class PendingStore {
 public:
  struct Options {
    std::uint64_t file_bytes_max = 4ULL << 30;  // a larger one is set aside unread
    std::size_t updates_max = 4;                // older ones that bring no state are removed
    std::size_t set_aside_max = 8;              // damaged files that are kept to be looked at
    Log* log = nullptr;  // of any thread; is told of a directory that had to be made again
  };

  // The disk must outlive all copies of this.
  PendingStore(Disk& disk, std::filesystem::path directory, const HeadCodec& codec, Options options)
      : disk_(&disk), directory_(std::move(directory)), codec_(codec), options_(options) {}

  // Makes the directory where there is none, sweeps it, and reads what earlier processes left,
  // oldest first. Damaged files cost a warning each; what cannot be read now is an error.
  [[nodiscard]] Result<Leftovers> load(Log& log) const;
  // Durably. Makes the directory again if it was removed, as keep() and restore_state() do.
  [[nodiscard]] Result<void> store(const PendingUpdate& update) const;
  [[nodiscard]] Result<void> forget(TaskId task) const;
  // The run's state becomes the one before; where the disk is full both stay as they are.
  [[nodiscard]] Result<void> keep(const CommittedState& state) const;
  // The run's only state from now on.
  [[nodiscard]] Result<void> restore_state(const CommittedState& state) const;
  [[nodiscard]] Result<void> forget_state(RunId run) const;

  // Calls `visit` with each state in a file that can be read. Changes nothing.
  void visit_states(const std::function<void(const StateSnapshot&)>& visit) const;

  std::filesystem::path file_of(TaskId task) const;
  std::filesystem::path file_of(RunId run) const;
  std::filesystem::path file_before(RunId run) const;

 private:
  Result<void> write(const std::filesystem::path& file, std::span<const SharedBytes> parts) const;
  Result<void> sync() const;
  Result<PendingUpdate> read(const std::filesystem::path& file) const;
  Result<CommittedState> read_state(const std::filesystem::path& file) const;
  Result<std::vector<CommittedState>> load_states(Log& log) const;
  Result<void> set_aside(const std::filesystem::path& file, const Error& why, Log& log) const;

  Disk* disk_;
  std::filesystem::path directory_;
  HeadCodec codec_;
  Options options_;
};

}  // namespace starling::client
