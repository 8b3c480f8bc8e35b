// SPDX-License-Identifier: Apache-2.0
// Files of uploads that outlive the process and that nothing writes at the moment: parts that an
// earlier process received, and updates in a sum that a kill would lose. Each is worth less than
// room for a new upload, so any of them may be removed at any time.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "core/base/disk.h"
#include "core/base/ids.h"

namespace starling::store {

// Ties received bytes to one update: another update of the same task starts from its beginning.
struct UploadKey {
  TaskId task;
  RunId run;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  // of the whole payload
  friend auto operator<=>(const UploadKey&, const UploadKey&) = default;
};

class KeptUploads {
 public:
  // Finds what earlier processes left: TASK-RUN-BYTES-CHECKSUM.upload, numbers in hexadecimal.
  // Other files of that ending, empty ones and those longer than their name says are removed.
  KeptUploads(Disk& disk, std::filesystem::path directory);

  std::filesystem::path path_of(const UploadKey& key) const;
  // Counts a file that is there and holds so many bytes, perhaps none.
  void add(const UploadKey& key, std::uint64_t received);
  // Leaves the file to the caller, if it is kept.
  void take(const UploadKey& key);
  // These remove files.
  void remove_others(const UploadKey& key);  // of its task
  void remove(TaskId task);
  void remove(RunId run);
  void keep_only(const std::set<TaskId>& tasks);
  // One of a run that is not spared; false: none is left.
  bool remove_one(const std::function<bool(RunId)>& spares);
  bool contains(const UploadKey& key) const { return files_.contains(key); }

  // On disk, in whole pages.
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t bytes(RunId run) const;

 private:
  using Files = std::map<UploadKey, std::uint64_t>;  // bytes on disk
  void find();
  void uncount(Files::const_iterator file);
  Files::iterator remove(Files::iterator file);

  Disk& disk_;
  std::filesystem::path directory_;
  Files files_;
  std::uint64_t bytes_ = 0;
  std::map<RunId, std::uint64_t> run_bytes_;  // the same by run
};

}  // namespace starling::store
