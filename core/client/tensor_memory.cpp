// SPDX-License-Identifier: Apache-2.0
#include "core/client/tensor_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/base/bytes.h"
#include "core/client/trainer_messages.h"

namespace starling::client {
namespace {

constexpr std::uint64_t kPage = 4096;

Error memory_error(const char* doing) {
  return internal("io-error", std::string("the memory shared with the trainer cannot be ") + doing +
                                  ": " + std::strerror(errno));
}

int open_without_name(const std::filesystem::path& directory) {
  const int memory = ::memfd_create("starling-trainer", MFD_CLOEXEC);
  if (memory >= 0) return memory;
  const int file = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) return file;
  std::string name = (directory / "memory-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

std::uint64_t TensorMemory::place_after(std::uint64_t bytes) {
  static_assert(kPage / 2 % kAlignment == 0);
  return (bytes + kPage - 1) / kPage * kPage + kPage / 2;
}

Result<TensorMemory> TensorMemory::make(const std::filesystem::path& directory) {
  FileDescriptor file(open_without_name(directory));
  if (file.get() >= 0) return TensorMemory(std::move(file));
  return retry("trainer-cannot-start",
               "the trainer cannot be started: no memory to share with it, "
               "nor a file in " +
                   directory.string() + ": " + std::strerror(errno));
}

// A trainer that makes it larger takes memory that no limit counts.
Result<void> TensorMemory::check_size() const {
  struct stat found {};
  if (::fstat(file_.get(), &found) != 0) return memory_error("read");
  const auto size = static_cast<std::uint64_t>(found.st_size);
  if (size < bytes_) return protocol_error("has cut off the shared memory (descriptor 5)");
  if (size > bytes_) return protocol_error("has made the shared memory (descriptor 5) larger");
  return {};
}

Result<void> TensorMemory::reserve(std::uint64_t bytes) {
  STARLING_TRY(check_size());
  if (bytes <= bytes_) return {};
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) return memory_error("made larger");
  bytes_ = bytes;
  return {};
}

Result<void> TensorMemory::write(std::uint64_t offset, std::span<const float> values) {
  for (ByteView left = as_bytes(values); !left.empty();) {
    const ssize_t written =
        ::pwrite(file_.get(), left.data(), left.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return memory_error("written");
    offset += static_cast<std::uint64_t>(written);
    left = left.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> TensorMemory::read(std::uint64_t offset, std::span<float> values) const {
  STARLING_TRY(check_size());
  for (MutableByteView left = std::as_writable_bytes(values); !left.empty();) {
    const ssize_t got = ::pread(file_.get(), left.data(), left.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return memory_error("read");
    if (got == 0) return protocol_error("has cut off the shared memory (descriptor 5)");
    offset += static_cast<std::uint64_t>(got);
    left = left.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

}  // namespace starling::client
