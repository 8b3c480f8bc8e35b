// SPDX-License-Identifier: Apache-2.0
// The coordinator's own certificates, in ca/ beside the authority that they come from: that of its
// server, and that of the issuer which signs a gossip network's rosters. Each key does one thing,
// so the one that is stolen is replaced without the other.
#pragma once

#include "coordinator/service/coordinator_options.h"
#include "coordinator/service/state_directory.h"
#include "core/identity/certificate_authority.h"

namespace starling::coordinator {

// The kept credentials while they name every address that they should and are not near their end;
// otherwise new ones, which are kept.
[[nodiscard]] Result<identity::Credentials> server_credentials(
    const StateDirectory& state, const identity::CertificateAuthority& authority,
    const CoordinatorSettings& settings, WallTime now);

// The same of the key that signs rosters, with the role of an issuer and without any address.
[[nodiscard]] Result<identity::Credentials> issuer_credentials(
    const StateDirectory& state, const identity::CertificateAuthority& authority,
    const CoordinatorSettings& settings, WallTime now);

// Whether less than a third of its life remains.
bool is_due_for_renewal(const identity::Certificate& certificate, WallTime now);

}  // namespace starling::coordinator
