// SPDX-License-Identifier: Apache-2.0
// Who may be connected, in memory: what the verify callbacks ask on every handshake. The store
// holds the truth; this follows it within the same turn of the loop.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/identity/certificate.h"
#include "core/store/identity_store.h"

namespace starling::coordinator {

class ClientRegistry {
 public:
  [[nodiscard]] Result<void> load(store::IdentityStore& store);

  void admit(const std::string& name, store::Role role) { active_[name] = role; }
  void revoke(const std::string& name, const std::vector<store::Revocation>& revocations);

  bool is_revoked(const std::string& serial, const Sha256Digest& public_key) const;
  // Whether the holder of this certificate may have a session now: "certificate-revoked",
  // "certificate-expired", "client-unknown" (none of ours, perhaps of a lost database),
  // "wrong-role".
  [[nodiscard]] Result<void> check(const identity::Identity& identity,
                                   const identity::Certificate& certificate, WallTime now) const;
  // Devices and peers, in order of name.
  std::vector<std::string> clients() const;

 private:
  std::map<std::string, store::Role> active_;
  std::set<std::string> revoked_serials_;
  std::set<Sha256Digest> revoked_keys_;
};

}  // namespace starling::coordinator
