// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/server_credentials.h"

#include <algorithm>

#include "coordinator/service/host_names.h"
#include "core/base/durable_file.h"
#include "core/identity/peer_policy.h"
#include "core/identity/roster.h"

namespace starling::coordinator {
namespace {

constexpr std::string_view kName = "coordinator";  // of both
static_assert(kName != identity::kOwnerName, "only the owner takes revocations back");

// What devices dial, and what commands beside the service do.
std::vector<std::string> addresses_of(const CoordinatorSettings& settings) {
  std::vector<std::string> addresses = settings.names();
  std::vector<std::string> local = local_names();
  const auto listen = settings.listen_address();
  if (listen && !is_wildcard(listen->host)) local.push_back(listen->host);
  for (std::string& name : local) {
    if (std::ranges::find(addresses, name) == addresses.end()) addresses.push_back(std::move(name));
  }
  return addresses;
}

bool is_valid(const identity::Certificate& certificate,
              const identity::CertificateAuthority& authority, identity::Side side,
              const identity::PeerPolicy& policy) {
  return identity::verify_peer(std::span(&certificate, 1), std::span(&authority.certificate(), 1),
                               side, policy)
      .has_value();
}

// As a device would judge it: a server at each of its addresses, an issuer by its role.
bool is_good(const identity::Certificate& certificate,
             const identity::CertificateAuthority& authority,
             const identity::CertificateProfile& profile, WallTime now) {
  if (is_due_for_renewal(certificate, now)) return false;
  identity::PeerPolicy policy{.federation = authority.federation(),
                              .roles = {profile.role},
                              .name = profile.name,
                              .time = [now] { return identity::VerificationTime{.now = now}; }};
  if (profile.addresses.empty()) {
    return is_valid(certificate, authority, identity::Side::kClient, policy);
  }
  return std::ranges::all_of(profile.addresses, [&](const std::string& address) {
    policy.address = address;
    return is_valid(certificate, authority, identity::Side::kServer, policy);
  });
}

// While this clock ran ahead, devices may have been told any time up to the end of the certificate
// of then, and one without a clock of its own judges by that. A device's own certificate bounds how
// far ahead it can have been served.
Duration lifetime_until_end_of(const identity::Certificate& earlier,
                               const CoordinatorSettings& settings, WallTime now) {
  const Duration longest = settings.enrol.certificate_lifetime + settings.enrol.server_lifetime;
  return std::min<Duration>(earlier.validity().not_after - now, longest);
}

// In ca/ under the names WHAT-key.pem and WHAT-certificate.pem.
Result<identity::Credentials> kept_credentials(const StateDirectory& state, const std::string& what,
                                               const identity::CertificateAuthority& authority,
                                               identity::CertificateProfile profile,
                                               const CoordinatorSettings& settings, WallTime now) {
  const auto key_file = state.authority() / (what + "-key.pem");
  const auto certificate_file = state.authority() / (what + "-certificate.pem");
  auto key = identity::PrivateKey::load(key_file);
  auto certificate = identity::Certificate::load(certificate_file);
  if (key && certificate && certificate->public_key_digest() == key->public_key_digest() &&
      is_good(*certificate, authority, profile, now)) {
    return identity::Credentials{*key, *certificate, {authority.certificate()}};
  }
  profile.lifetime = settings.enrol.server_lifetime;
  // An issuer is judged at the time that its rosters say.
  if (certificate && profile.role == identity::Role::kCoordinator) {
    profile.lifetime =
        std::max(profile.lifetime, lifetime_until_end_of(*certificate, settings, now));
  }
  STARLING_ASSIGN(const auto credentials, authority.issue_credentials(profile, now));
  STARLING_TRY(credentials.key.save(key_file));
  STARLING_TRY(write_durably(certificate_file, as_bytes(credentials.certificate.pem())));
  return credentials;
}

}  // namespace

bool is_due_for_renewal(const identity::Certificate& certificate, WallTime now) {
  const identity::Validity validity = certificate.validity();
  return now >= validity.not_after - (validity.not_after - validity.not_before) / 3;
}

Result<identity::Credentials> server_credentials(const StateDirectory& state,
                                                 const identity::CertificateAuthority& authority,
                                                 const CoordinatorSettings& settings,
                                                 WallTime now) {
  return kept_credentials(state, "server", authority,
                          {.role = identity::Role::kCoordinator,
                           .name = std::string(kName),
                           .addresses = addresses_of(settings)},
                          settings, now);
}

Result<identity::Credentials> issuer_credentials(const StateDirectory& state,
                                                 const identity::CertificateAuthority& authority,
                                                 const CoordinatorSettings& settings,
                                                 WallTime now) {
  return kept_credentials(state, "issuer", authority,
                          {.role = identity::Role::kIssuer, .name = std::string(kName)}, settings,
                          now);
}

}  // namespace starling::coordinator
