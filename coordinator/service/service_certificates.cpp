// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/service_certificates.h"

#include "coordinator/service/certificate_records.h"
#include "core/identity/identity_directory.h"
#include "core/identity/signing_request.h"

namespace starling::coordinator {
namespace {

// Not: no directory at all, which somebody took away, nor one that this process cannot read.
bool is_damaged(const Error& error) {
  return error.code() == "bad-certificate" || error.code() == "bad-key" ||
         error.code() == "file-missing";
}

Result<identity::HostPort> local_address(const CoordinatorSettings& settings) {
  STARLING_ASSIGN(identity::HostPort address, settings.listen_address());
  const auto names = settings.names();
  if (!names.empty()) address.host = names.front();
  return address;
}

}  // namespace

Result<std::shared_ptr<const net::TlsContext>> make_service_tls(
    const identity::Credentials& credentials, const std::string& federation, const Clock& clock,
    const ClientRegistry& registry) {
  identity::PeerPolicy policy;
  policy.federation = federation;
  policy.roles = {identity::Role::kDevice, identity::Role::kPeer, identity::Role::kOperator};
  // A certificate of this authority that is not valid yet was issued while this clock ran ahead. It
  // counts as just begun: who could not connect yet could never be admitted again.
  policy.time = [&clock] {
    const WallTime now = clock.wall_now();
    return identity::VerificationTime{.now = now, .last_authenticated = now};
  };
  policy.is_revoked = [&registry](const std::string& serial, const Sha256Digest& public_key) {
    return registry.is_revoked(serial, public_key);
  };
  return net::TlsContext::make_server(credentials, {{net::Protocol::kSession, std::move(policy)},
                                                    {net::Protocol::kEnrolment, std::nullopt}});
}

Result<void> renew_local_operator(const StateDirectory& state,
                                  const identity::CertificateAuthority& authority,
                                  const CoordinatorSettings& settings, store::IdentityStore& store,
                                  WallTime now, Log& log) {
  const auto directory = identity::IdentityDirectory::load(state.operator_identity());
  if (!directory && !is_damaged(directory.error())) return {};
  if (directory && !is_due_for_renewal(directory->credentials().certificate, now)) return {};
  const std::string name = directory ? directory->identity().name : kLocalOperator;
  STARLING_ASSIGN(const auto client, store.find_client(name));
  if (!client || client->state != store::ClientState::kActive) return {};
  if (!directory) log.warning("the operator gets a new identity: {}", directory.error().message());
  const auto key = directory ? directory->credentials().key : identity::PrivateKey::generate();
  STARLING_ASSIGN(const auto certificate,
                  authority.issue(identity::SigningRequest::make(key),
                                  {.role = identity::Role::kOperator,
                                   .name = name,
                                   .lifetime = settings.enrol.operator_lifetime},
                                  now));
  STARLING_TRY(store.add_certificate(to_record(certificate, name)));
  STARLING_ASSIGN(const auto own_address, local_address(settings));
  return identity::IdentityDirectory::save(
      state.operator_identity(),
      {.key = key, .certificate = certificate, .authorities = {authority.certificate()}},
      directory ? directory->coordinator() : own_address);
}

}  // namespace starling::coordinator
