// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/client_registry.h"

#include "coordinator/service/certificate_records.h"

namespace starling::coordinator {

Result<void> ClientRegistry::load(store::IdentityStore& store) {
  STARLING_ASSIGN(const auto clients, store.clients());
  STARLING_ASSIGN(const auto revocations, store.revocations());
  for (const store::Client& client : clients) {
    if (client.state == store::ClientState::kActive) active_[client.name] = client.role;
  }
  for (const store::Revocation& revocation : revocations) {
    revoked_serials_.insert(revocation.serial);
    revoked_keys_.insert(revocation.fingerprint);
  }
  return {};
}

void ClientRegistry::revoke(const std::string& name,
                            const std::vector<store::Revocation>& revocations) {
  active_.erase(name);
  for (const store::Revocation& revocation : revocations) {
    revoked_serials_.insert(revocation.serial);
    revoked_keys_.insert(revocation.fingerprint);
  }
}

bool ClientRegistry::is_revoked(const std::string& serial, const Sha256Digest& public_key) const {
  return revoked_serials_.contains(serial) || revoked_keys_.contains(public_key);
}

Result<void> ClientRegistry::check(const identity::Identity& identity,
                                   const identity::Certificate& certificate, WallTime now) const {
  if (is_revoked(certificate.serial(), certificate.public_key_digest())) {
    return not_authorised("certificate-revoked",
                          "the certificate of " + identity.name + " was revoked");
  }
  if (now > certificate.validity().not_after) {
    return not_authorised("certificate-expired",
                          "the certificate of " + identity.name + " expired at " +
                              format_rfc3339(certificate.validity().not_after));
  }
  const auto client = active_.find(identity.name);
  if (client == active_.end()) {
    return not_authorised("client-unknown", "no client " + identity.name + " is admitted here");
  }
  if (to_identity(client->second) != identity.role) {
    return not_authorised("wrong-role", identity.name + " is admitted as " +
                                            std::string(store::to_string(client->second)) +
                                            ", not as " + std::string(to_string(identity.role)));
  }
  return {};
}

std::vector<std::string> ClientRegistry::clients() const {
  std::vector<std::string> names;
  for (const auto& [name, role] : active_) {
    if (role != store::Role::kOperator) names.push_back(name);
  }
  return names;
}

}  // namespace starling::coordinator
