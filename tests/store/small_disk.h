// SPDX-License-Identifier: Apache-2.0
// A small real file system, to be filled; needs the right to mount one.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>

#include "tests/store/child_process.h"

namespace starling::store {

inline constexpr int kNoMount = 77;

// Runs `body` where `directory` is a small disk of its own; the rest of the machine never sees it.
// `limits`: options of tmpfs. Returns what the body does, or kNoMount.
inline int on_small_disk(const std::filesystem::path& directory, const char* limits,
                         const std::function<int()>& body) {
  ChildProcess child([&](int) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory.c_str(), "tmpfs", 0, limits) != 0) {
      return kNoMount;
    }
    return body();
  });
  return child.wait();
}

// Takes all room that is left.
inline void fill(const std::filesystem::path& file) {
  std::ofstream out(file, std::ios::binary);
  const std::string block(1024, 'x');
  while (out.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
  }
}

}  // namespace starling::store
