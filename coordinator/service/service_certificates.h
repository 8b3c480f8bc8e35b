// SPDX-License-Identifier: Apache-2.0
// The service's certificates while it runs: whom it lets in, what it shows, and renewing its own
// and that of the operator beside it.
#pragma once

#include <memory>

#include "coordinator/service/client_registry.h"
#include "coordinator/service/server_credentials.h"
#include "core/base/log.h"
#include "core/net/tls_context.h"

namespace starling::coordinator {

// Devices, peers and operators of the federation under "starling/1"; joining under
// "starling-enrol/1". References must outlive the context.
[[nodiscard]] Result<std::shared_ptr<const net::TlsContext>> make_service_tls(
    const identity::Credentials& credentials, const std::string& federation, const Clock& clock,
    const ClientRegistry& registry);

// Gives operator/ a new certificate for its key where its own is due, so that a crash at any point
// leaves one that fits; a new key only where its files are damaged. Nothing where the directory is
// not there, or the operator is revoked.
[[nodiscard]] Result<void> renew_local_operator(const StateDirectory& state,
                                                const identity::CertificateAuthority& authority,
                                                const CoordinatorSettings& settings,
                                                store::IdentityStore& store, WallTime now,
                                                Log& log);

}  // namespace starling::coordinator
