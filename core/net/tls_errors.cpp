// SPDX-License-Identifier: Apache-2.0
#include "core/net/tls_errors.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <array>

namespace starling::net {
namespace {

struct AlertMeaning {
  int alert;
  const char* code;
  const char* sentence;
};

constexpr std::array kAlerts = {
    AlertMeaning{SSL_AD_BAD_CERTIFICATE, "refused-bad-certificate",
                 "the other side did not accept our certificate: it is not valid yet by its clock, "
                 "or not well formed"},
    AlertMeaning{SSL_AD_UNSUPPORTED_CERTIFICATE, "refused-wrong-role",
                 "the other side expects a certificate of another role"},
    AlertMeaning{SSL_AD_CERTIFICATE_REVOKED, "refused-certificate-revoked",
                 "the other side says that our certificate has been revoked"},
    AlertMeaning{SSL_AD_CERTIFICATE_EXPIRED, "refused-certificate-expired",
                 "the other side says that our certificate has expired"},
    AlertMeaning{
        SSL_AD_CERTIFICATE_UNKNOWN, "refused-wrong-federation",
        "the other side says that our certificate is of another federation or another name"},
    AlertMeaning{SSL_AD_UNKNOWN_CA, "refused-unknown-authority",
                 "the other side does not know the authority of our certificate"},
    AlertMeaning{SSL_AD_CERTIFICATE_REQUIRED, "refused-no-certificate",
                 "the other side asks for a certificate, and we showed none"},
    AlertMeaning{SSL_AD_PROTOCOL_VERSION, "refused-tls-version",
                 "the other side does not speak TLS 1.3"},
    AlertMeaning{SSL_AD_NO_APPLICATION_PROTOCOL, "refused-wrong-alpn",
                 "the other side does not speak this protocol of Starling"},
};

// Something else listens there.
Error other_protocol(std::string code, std::string message) {
  return rejected(std::move(code), std::move(message)).as(ErrorCategory::kNotConnected);
}

Error from_reason(int reason, const char* text) {
  if (reason > SSL_AD_REASON_OFFSET) return alert_error(reason - SSL_AD_REASON_OFFSET);
  switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return not_authorised("no-certificate", "the other side showed no certificate");
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_UNKNOWN_SSL_VERSION:
      return other_protocol("tls-version", "the other side does not speak TLS 1.3");
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_UNKNOWN_PROTOCOL:
      return not_tls();
    case SSL_R_NO_APPLICATION_PROTOCOL:
      return other_protocol("wrong-alpn",
                            "the other side does not speak this protocol of Starling");
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return not_connected("connection-lost", "the connection broke off");
    default:
      return other_protocol("tls-failed", std::string("TLS failed: ") + text);
  }
}

}  // namespace

Error not_tls() { return other_protocol("not-tls", "the other side does not speak TLS"); }

Error alert_error(int alert) {
  for (const AlertMeaning& meaning : kAlerts) {
    if (meaning.alert == alert) return not_authorised(meaning.code, meaning.sentence);
  }
  return not_authorised("refused-tls", std::string("the other side refused with the TLS alert ") +
                                           SSL_alert_desc_string_long(alert));
}

Error take_tls_error() {
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  if (code == 0) return not_connected("connection-lost", "the connection broke off");
  const char* text = ERR_reason_error_string(code);
  if (text == nullptr) text = "no reason given";
  if (ERR_GET_LIB(code) == ERR_LIB_SSL) return from_reason(ERR_GET_REASON(code), text);
  return other_protocol("tls-failed", std::string("TLS failed: ") + text);
}

int verify_error_for(const Error& refusal) {
  const std::string& code = refusal.code();
  if (code == "certificate-expired") return X509_V_ERR_CERT_HAS_EXPIRED;
  if (code == "certificate-not-yet-valid") return X509_V_ERR_CERT_NOT_YET_VALID;
  if (code == "certificate-revoked") return X509_V_ERR_CERT_REVOKED;
  if (code == "self-signed") return X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT;
  if (code == "unknown-authority") return X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN;
  if (code == "wrong-role") return X509_V_ERR_INVALID_PURPOSE;
  if (code == "wrong-address") return X509_V_ERR_HOSTNAME_MISMATCH;
  // One without an alert of its own becomes certificate_unknown.
  const bool is_other_name =
      code == "wrong-federation" || code == "wrong-name" || code == "not-a-member";
  if (is_other_name) return X509_V_ERR_SUBJECT_ISSUER_MISMATCH;
  return X509_V_ERR_CERT_REJECTED;
}

}  // namespace starling::net
