// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 and nothing else: no resumption, no early data, no default trust. A context is immutable
// and shared; to change certificates make a new one and give it to the listener.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/identity/certificate.h"
#include "core/identity/peer_policy.h"

namespace starling::net {

enum class Protocol { kSession, kEnrolment, kPeer };

// "starling/1", "starling-enrol/1", "starling-peer/1".
std::string_view alpn_name(Protocol protocol);

// What a listener accepts under one ALPN name. Enrolment asks for no client certificate; every
// other protocol needs a policy for it.
struct AcceptedProtocol {
  Protocol protocol = Protocol::kSession;
  std::optional<identity::PeerPolicy> client = {};
};

class TlsContext {
 public:
  // Callbacks of the policies run on the loop, during handshakes.
  [[nodiscard]] static Result<std::shared_ptr<const TlsContext>> make_server(
      const identity::Credentials& credentials, std::vector<AcceptedProtocol> protocols);
  [[nodiscard]] static Result<std::shared_ptr<const TlsContext>> make_client(
      Protocol protocol, const identity::Credentials& credentials, identity::PeerPolicy server);
  // For joining: shows no certificate and trusts the one authority of the presented chain whose
  // public key has the pinned digest.
  [[nodiscard]] static Result<std::shared_ptr<const TlsContext>> make_enrolment_client(
      const Sha256Digest& authority_pin, identity::PeerPolicy server);

  virtual ~TlsContext() = default;
};

}  // namespace starling::net
