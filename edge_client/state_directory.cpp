// SPDX-License-Identifier: Apache-2.0
#include "edge_client/state_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/base/shell_word.h"

namespace starling::edge_client {
namespace {

std::shared_ptr<const int> open_file(const std::filesystem::path& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (file < 0) return nullptr;
  return {new int(file), [](const int* f) {
            ::close(*f);
            delete f;
          }};
}

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// A lock of an open file tells no owner; the owner has written its number into the file.
long written_process(int file) {
  std::array<char, 24> text{};
  const ssize_t count = ::pread(file, text.data(), text.size(), 0);
  long process = 0;
  if (count > 0) std::from_chars(text.data(), text.data() + count, process);
  return process;
}

Result<void> write_process(int file) {
  const std::string text = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file, 0) == 0 && ::pwrite(file, text.data(), text.size(), 0) > 0) return {};
  return internal("io-error", std::string("cannot write the lock file: ") + std::strerror(errno));
}

}  // namespace

std::string StateDirectory::command(std::string_view command) const {
  return fmt::format("starling-edge {} --state {}", command, shell_word(path.string()));
}

Result<std::optional<std::filesystem::path>> StateDirectory::find_options_file() const {
  std::error_code code;
  if (std::filesystem::exists(options_file(), code)) return std::optional(options_file());
  if (!code) return std::optional<std::filesystem::path>();
  return rejected(code == std::errc::permission_denied ? "no-permission" : "file-unreadable",
                  fmt::format("cannot look for {}: {}", options_file().string(), code.message()));
}

Result<void> StateDirectory::expect_no_coordinator() const {
  std::error_code ignored;
  if (!std::filesystem::exists(path / "coordinator.toml", ignored)) return {};
  return rejected("is-a-coordinator",
                  fmt::format("{} holds a coordinator (coordinator.toml); give the device a state "
                              "directory of its own with --state DIR",
                              path.string()));
}

Result<StateLock> StateLock::acquire(const StateDirectory& state) {
  auto file = open_file(state.lock_file(), O_RDWR | O_CREAT);
  if (!file) {
    return rejected("no-permission", fmt::format("cannot open {}: {}; is {} the state directory?",
                                                 state.lock_file().string(), std::strerror(errno),
                                                 state.path.string()));
  }
  struct flock lock = whole_file();
  if (::fcntl(*file, F_OFD_SETLK, &lock) != 0) {
    return rejected("already-running",
                    fmt::format("process {} runs on {} already; stop it first, or give this one "
                                "another --state",
                                written_process(*file), state.path.string()));
  }
  STARLING_TRY(write_process(*file));
  return StateLock(std::move(file));
}

std::optional<long> StateLock::holder(const StateDirectory& state) {
  const auto file = open_file(state.lock_file(), O_RDONLY);
  if (!file) return std::nullopt;
  struct flock lock = whole_file();
  const bool held = ::fcntl(*file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  if (!held) return std::nullopt;
  return written_process(*file);
}

}  // namespace starling::edge_client
