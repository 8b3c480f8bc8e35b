// SPDX-License-Identifier: Apache-2.0
// The directory in which a device keeps everything, and the lock that one running process holds on
// it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"

namespace starling::edge_client {

struct StateDirectory {
  std::filesystem::path path;

  std::filesystem::path options_file() const { return path / "edge.toml"; }
  // options_file(), or nothing where there is none: then everything has its default.
  // "no-permission" or "file-unreadable" where this cannot be told.
  [[nodiscard]] Result<std::optional<std::filesystem::path>> find_options_file() const;
  std::filesystem::path identity() const { return path / "identity"; }
  std::filesystem::path pending() const { return path / "pending"; }
  std::filesystem::path trainer() const { return path / "trainer"; }  // its own files
  std::filesystem::path gossip() const { return path / "gossip"; }
  std::filesystem::path lock_file() const { return path / "lock"; }
  std::filesystem::path status_file() const { return path / "status.json"; }
  // "starling-edge COMMAND --state PATH", as the owner would type it.
  std::string command(std::string_view command) const;
  // "is-a-coordinator" where the directory is a coordinator's, whose gossip/roster is not a
  // device's.
  [[nodiscard]] Result<void> expect_no_coordinator() const;
};

// Held as long as the object lives; the kernel lets go of it when a process dies, however it does.
class StateLock {
 public:
  // "already-running", with the process that holds it.
  [[nodiscard]] static Result<StateLock> acquire(const StateDirectory& state);
  // The process that holds the lock; nothing where none does. Takes no lock itself.
  [[nodiscard]] static std::optional<long> holder(const StateDirectory& state);

 private:
  explicit StateLock(std::shared_ptr<const int> file) : file_(std::move(file)) {}
  std::shared_ptr<const int> file_;
};

}  // namespace starling::edge_client
