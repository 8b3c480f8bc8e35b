// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service_certificates.h"

#include "coordinator/certificate_records.h"
#include "core/identity/identity_directory.h"

namespace starling::coordinator {

Result<std::shared_ptr<const net::TlsContext>> make_service_tls(
    const identity::Credentials& credentials, const std::string& federation, const Clock& clock,
    const ClientRegistry& registry) {
  identity::PeerPolicy policy;
  policy.federation = federation;
  policy.roles = {identity::Role::kDevice, identity::Role::kPeer, identity::Role::kOperator};
  policy.time = [&clock] { return identity::JudgementTime{.now = clock.wall_now()}; };
  policy.is_revoked = [&registry](const std::string& serial, const Sha256Digest& fingerprint) {
    return registry.is_revoked(serial, fingerprint);
  };
  return net::TlsContext::make_server(credentials, {{net::Protocol::kSession, std::move(policy)},
                                                    {net::Protocol::kEnrolment, std::nullopt}});
}

Result<void> renew_local_operator(const StateDirectory& state,
                                  const identity::CertificateAuthority& authority,
                                  const CoordinatorSettings& settings, store::Store& store,
                                  WallTime now) {
  const auto directory = identity::IdentityDirectory::load(state.operator_identity());
  if (!directory || !is_due_for_renewal(directory->credentials().certificate, now)) return {};
  const std::string& name = directory->identity().name;
  STARLING_ASSIGN(const auto client, store.find_client(name));
  if (!client || client->state != store::ClientState::kActive) return {};
  STARLING_ASSIGN(const auto credentials,
                  authority.issue_credentials({.role = identity::Role::kOperator,
                                               .name = name,
                                               .lifetime = settings.enrol.operator_lifetime},
                                              now));
  STARLING_TRY(store.add_certificate(to_record(credentials.certificate, name)));
  return identity::IdentityDirectory::save(state.operator_identity(), credentials,
                                           directory->coordinator());
}

}  // namespace starling::coordinator
