// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sync_probe.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>

#include "core/base/check.h"

namespace starling::testing {
namespace {

struct Seen {
  std::mutex mutex;
  bool watching = false;
  std::vector<std::filesystem::path> synced;
  std::vector<std::filesystem::path> failing;
};

Seen& seen() {
  static Seen instance;
  return instance;
}

// Whether the call is to fail.
bool note(int fd) {
  Seen& probe = seen();
  const std::lock_guard lock(probe.mutex);
  if (!probe.watching) return false;
  std::error_code code;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), code);
  probe.synced.push_back(path);
  return std::ranges::find(probe.failing, path) != probe.failing.end();
}

}  // namespace

SyncProbe::SyncProbe() {
  const std::lock_guard lock(seen().mutex);
  STARLING_CHECK(!seen().watching);
  seen().watching = true;
}

SyncProbe::~SyncProbe() {
  const std::lock_guard lock(seen().mutex);
  seen().watching = false;
  seen().synced.clear();
  seen().failing.clear();
}

std::vector<std::filesystem::path> SyncProbe::synced() const {
  const std::lock_guard lock(seen().mutex);
  return seen().synced;
}

bool SyncProbe::saw(const std::filesystem::path& path) const {
  return std::ranges::count(synced(), std::filesystem::canonical(path)) > 0;
}

void SyncProbe::fail(const std::filesystem::path& path) {
  const auto name = std::filesystem::canonical(path);
  const std::lock_guard lock(seen().mutex);
  seen().failing.push_back(name);
}

}  // namespace starling::testing

extern "C" int fsync(int fd) {
  if (starling::testing::note(fd)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
