// SPDX-License-Identifier: Apache-2.0
// The directory in which a coordinator keeps everything: what stands where, and how it is made.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/identity/host_port.h"

namespace starling::coordinator {

class StateDirectory {
 public:
  explicit StateDirectory(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path options_file() const { return root_ / "coordinator.toml"; }
  std::filesystem::path database() const { return root_ / "starling.db"; }
  std::filesystem::path models() const { return root_ / "models"; }
  std::filesystem::path models(RunId run) const { return models() / std::to_string(run.value()); }
  std::filesystem::path roster() const { return root_ / "gossip" / "roster"; }
  // Lines of SHA-256 of public keys: what rosters revoke. Written by hand; there need be none.
  std::filesystem::path revoked() const { return root_ / "gossip" / "revoked"; }
  std::filesystem::path spool() const { return root_ / "spool"; }
  std::filesystem::path trainer() const { return root_ / "trainer"; }  // what it keeps itself
  std::filesystem::path authority() const { return root_ / "ca"; }
  std::filesystem::path operator_identity() const { return root_ / "operator"; }
  // HOST:PORT where the service listens, or did last: a flag may have overruled coordinator.toml.
  std::filesystem::path address() const { return root_ / "address"; }

 private:
  std::filesystem::path root_;
};

// "init-interrupted" where `state` has what init makes, but no coordinator.toml, which is written
// last.
[[nodiscard]] Result<void> expect_not_interrupted(const StateDirectory& state);

// Of StateDirectory::address(); "file-missing" before the first start.
[[nodiscard]] Result<identity::HostPort> read_address(const StateDirectory& state);

struct InitOptions {
  std::string federation;  // empty: from the directory's name
  std::string listen = "0.0.0.0:7443";
  std::vector<std::string> names;  // empty: the address to listen on, or this machine's
};

struct InitResult {
  std::string federation;
  std::string listen;
  std::vector<std::string> names;
  std::string authority;  // SHA-256 of its public key
};

// Makes a new state directory. "directory-not-empty", "init-interrupted", "bad-name",
// "setting-invalid" and what the disk says. coordinator.toml is written last: it stands for the
// whole.
[[nodiscard]] Result<InitResult> init_state_directory(const std::filesystem::path& root,
                                                      const InitOptions& options,
                                                      const Clock& clock);

}  // namespace starling::coordinator
