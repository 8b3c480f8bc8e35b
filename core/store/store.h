// SPDX-License-Identifier: Apache-2.0
// The coordinator's memory. Every call is one transaction: it happened entirely, or not at all and
// the same call may be made again; it is durable when it returns, except where "Not durable" says
// that a power cut may take the newest ones. Called from one thread (that of the I/O).
// Failures common to all: "disk-full" (kOverloaded: keep state, try again), "database-io-error",
// "fsync-failed" and "database-damaged" (kInternal: stop, a restart recovers).
#pragma once

#include <filesystem>

#include "core/store/identity_store.h"
#include "core/store/run_store.h"

namespace starling::store {

// The whole, which a service owns; its parts take the store that they need.
class Store : public IdentityStore, public RunStore {
 public:
  // A complete, durable copy in one file (mode 0600) that can be put in the place of starling.db;
  // tokens that are open are revoked in it, and their keys are not there.
  [[nodiscard]] virtual Result<void> backup_to(const std::filesystem::path& path) = 0;
};

}  // namespace starling::store
