// SPDX-License-Identifier: Apache-2.0
#include "core/identity/peer_policy.h"

#include "core/base/check.h"
#include "core/identity/host_port.h"
#include "core/identity/openssl_handles.h"

namespace starling::identity {
namespace {

constexpr int kIntermediatesMax = 0;  // leaf and authority, nothing between

using ChainPointer =
    std::unique_ptr<STACK_OF(X509), decltype([](STACK_OF(X509) * chain) { sk_X509_free(chain); })>;

struct Verdict {
  int error = X509_V_ERR_UNSPECIFIED;
  std::optional<Certificate> authority;
};

std::time_t to_time_t(WallTime time) {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
}

StorePointer make_store(std::span<const Certificate> authorities) {
  StorePointer store(X509_STORE_new());
  STARLING_CHECK(store != nullptr);
  for (const Certificate& authority : authorities) {
    STARLING_CHECK(X509_STORE_add_cert(store.get(), authority.native()) == 1);
  }
  return store;
}

ChainPointer make_chain(std::span<const Certificate> certificates) {
  ChainPointer chain(sk_X509_new_null());
  STARLING_CHECK(chain != nullptr);
  for (const Certificate& certificate : certificates) {
    STARLING_CHECK(sk_X509_push(chain.get(), certificate.native()) > 0);
  }
  return chain;
}

void set_address(X509_VERIFY_PARAM* parameters, const std::string& address) {
  X509_VERIFY_PARAM_set_hostflags(
      parameters, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_WILDCARDS);
  const int done = is_numeric_address(address)
                       ? X509_VERIFY_PARAM_set1_ip_asc(parameters, address.c_str())
                       : X509_VERIFY_PARAM_set1_host(parameters, address.data(), address.size());
  STARLING_CHECK(done == 1);
}

// OpenSSL's judgement: chain, signatures, times, key usages, address.
Verdict verify_chain(std::span<const Certificate> presented,
                     std::span<const Certificate> authorities, Side side, WallTime at,
                     const std::optional<std::string>& address) {
  const StorePointer store = make_store(authorities);
  const ChainPointer untrusted = make_chain(presented.subspan(1));
  const StoreContextPointer context(X509_STORE_CTX_new());
  STARLING_CHECK(context && X509_STORE_CTX_init(context.get(), store.get(),
                                                presented.front().native(), untrusted.get()) == 1);
  X509_VERIFY_PARAM* parameters = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_depth(parameters, kIntermediatesMax);
  X509_VERIFY_PARAM_set_time(parameters, to_time_t(at));
  X509_VERIFY_PARAM_set_flags(parameters, X509_V_FLAG_X509_STRICT);
  X509_VERIFY_PARAM_set_auth_level(parameters, 2);
  X509_VERIFY_PARAM_set_purpose(
      parameters, side == Side::kServer ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
  if (address) set_address(parameters, *address);

  Verdict verdict;
  const bool good = X509_verify_cert(context.get()) == 1;
  verdict.error = X509_STORE_CTX_get_error(context.get());
  if (good) {
    const STACK_OF(X509)* chain = X509_STORE_CTX_get0_chain(context.get());
    X509* root = sk_X509_value(chain, sk_X509_num(chain) - 1);
    X509_up_ref(root);
    verdict.authority = Certificate::adopt(root);
  } else if (verdict.error == X509_V_OK) {
    verdict.error = X509_V_ERR_UNSPECIFIED;
  }
  clear_openssl_errors();
  return verdict;
}

std::string describe(const Validity& validity) {
  return "it is valid from " + format_rfc3339(validity.not_before) + " to " +
         format_rfc3339(validity.not_after);
}

Error refusal(int error, const Certificate& certificate, const PeerPolicy& policy, WallTime at) {
  const std::string now = ", judged at " + format_rfc3339(at);
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return not_authorised("certificate-expired", "the certificate has expired: " +
                                                       describe(certificate.validity()) + now);
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return not_authorised(
          "certificate-not-yet-valid",
          "the certificate is not valid yet: " + describe(certificate.validity()) + now);
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      return not_authorised("self-signed",
                            "the certificate is signed by itself, not by the authority");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_CHAIN_TOO_LONG:
      return not_authorised("unknown-authority",
                            "the certificate does not come from this federation's authority");
    case X509_V_ERR_INVALID_PURPOSE:
      return not_authorised("wrong-role",
                            "the certificate is not made for this side of a connection");
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return not_authorised("wrong-address",
                            "the certificate is not made for the address " +
                                policy.address.value_or("") +
                                "; add that name to the coordinator's certificate, or "
                                "dial a name that it carries");
    default:
      return not_authorised("bad-certificate", std::string("the certificate is not acceptable: ") +
                                                   X509_verify_cert_error_string(error));
  }
}

Result<void> check_identity(const Identity& identity, const PeerPolicy& policy) {
  if (policy.federation && identity.federation != *policy.federation) {
    return not_authorised("wrong-federation", "the certificate is of the federation " +
                                                  identity.federation + ", not of " +
                                                  *policy.federation);
  }
  if (!policy.roles.contains(identity.role)) {
    return not_authorised("wrong-role", identity.uri() + " has the role " +
                                            std::string(to_string(identity.role)) +
                                            "; here it must be " + to_string(policy.roles));
  }
  if (policy.name && identity.name != *policy.name) {
    return not_authorised("wrong-name",
                          "the certificate is of " + identity.name + ", not of " + *policy.name);
  }
  return {};
}

Result<void> check_revocation(const Certificate& certificate, const Identity& identity,
                              const PeerPolicy& policy) {
  if (!policy.is_revoked) return {};
  const std::string serial = certificate.serial();
  if (!policy.is_revoked(serial, certificate.public_key_digest())) return {};
  return not_authorised("certificate-revoked",
                        "the certificate " + serial + " of " + identity.name + " has been revoked");
}

}  // namespace

WallTime verification_time(const Validity& validity, const VerificationTime& time) {
  if (validity.contains(time.now) || !time.last_authenticated) return time.now;
  return std::max(*time.last_authenticated, validity.not_before);
}

Result<VerifiedPeer> verify_peer(std::span<const Certificate> presented,
                                 std::span<const Certificate> authorities, Side side,
                                 const PeerPolicy& policy) {
  STARLING_CHECK(policy.time != nullptr);
  if (presented.empty()) {
    return not_authorised("no-certificate", "the other side showed no certificate");
  }
  const Certificate& certificate = presented.front();
  const WallTime at = verification_time(certificate.validity(), policy.time());
  const Verdict verdict = verify_chain(presented, authorities, side, at, policy.address);
  if (!verdict.authority) return refusal(verdict.error, certificate, policy, at);
  Result<Identity> identity = certificate.identity();
  if (!identity) return not_authorised("bad-certificate", identity.error().message());
  STARLING_TRY(check_identity(*identity, policy));
  STARLING_TRY(check_revocation(certificate, *identity, policy));
  if (policy.admit) STARLING_TRY(policy.admit(*identity, certificate.public_key_digest()));
  return VerifiedPeer{.identity = std::move(*identity),
                      .certificate = certificate,
                      .authority = *verdict.authority};
}

}  // namespace starling::identity
