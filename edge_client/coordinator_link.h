// SPDX-License-Identifier: Apache-2.0
// How every connection to the coordinator is made and authenticated.
#pragma once

#include <memory>

#include "core/base/clock.h"
#include "core/identity/identity_directory.h"
#include "core/net/connect.h"
#include "core/net/tls_context.h"

namespace starling::edge_client {

// Trusts the coordinator of the identity's federation, judged by the device's clock and, where that
// lies outside a certificate's validity, by the last time that a coordinator authenticated. Both
// references must outlive the context.
[[nodiscard]] Result<std::shared_ptr<const net::TlsContext>> make_coordinator_tls(
    const identity::IdentityDirectory& identity, const Clock& clock);

// Dials the identity's coordinator; errors as of net::connect. All references must outlive the
// call.
net::Async<Result<std::unique_ptr<net::Connection>>> connect_to_coordinator(
    net::EventLoop& loop, const identity::IdentityDirectory& identity, const Clock& clock,
    net::ConnectOptions options);

}  // namespace starling::edge_client
