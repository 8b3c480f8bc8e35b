// SPDX-License-Identifier: Apache-2.0
// Owns an open file descriptor, or none.
#pragma once

#include <unistd.h>

#include <utility>

namespace starling {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = other.release();
    }
    return *this;
  }

  int get() const { return fd_; }  // -1: none
  int release() { return std::exchange(fd_, -1); }
  // What ::close returns; 0 where there is none.
  int close() {
    const int fd = release();
    return fd < 0 ? 0 : ::close(fd);
  }

 private:
  int fd_ = -1;
};

}  // namespace starling
