// SPDX-License-Identifier: Apache-2.0
// Sees every fsync of this process while it lives, and can make some fail. For programs that list
// sync_probe.cpp among their sources: its fsync stands in for the C library's.
#pragma once

#include <filesystem>
#include <vector>

namespace starling::testing {

class SyncProbe {
 public:
  SyncProbe();  // at most one at a time
  ~SyncProbe();
  SyncProbe(const SyncProbe&) = delete;
  SyncProbe& operator=(const SyncProbe&) = delete;

  // In order, as the kernel names them.
  std::vector<std::filesystem::path> synced() const;
  bool saw(const std::filesystem::path& path) const;
  // From now on an fsync of `path` fails with EIO.
  void fail(const std::filesystem::path& path);
};

}  // namespace starling::testing
