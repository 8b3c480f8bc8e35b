// SPDX-License-Identifier: Apache-2.0
#include "core/base/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

namespace starling {

DirectoryLock::DirectoryLock(const std::filesystem::path& directory)
    : directory_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (directory_.get() < 0) return;
  if (::flock(directory_.get(), LOCK_EX | LOCK_NB) == 0) {
    state_ = State::kTaken;
  } else if (errno == EWOULDBLOCK) {
    state_ = State::kHeldElsewhere;
  }
}

}  // namespace starling
