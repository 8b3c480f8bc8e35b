// SPDX-License-Identifier: Apache-2.0
// From OpenSSL's errors and TLS alerts to reason codes, and back. For sources of this folder only.
#pragma once

#include "core/base/error.h"

namespace starling::net {

// The first error that OpenSSL left on its queue, which is then empty.
Error take_tls_error();

// The other side speaks something else: "not-tls".
Error not_tls();

// What the alert of a refusing peer says about us: "refused-" and a reason.
Error alert_error(int alert);

// The X509_V_ERR_* that makes OpenSSL send the alert which tells the other side about `refusal`.
int verify_error_for(const Error& refusal);

}  // namespace starling::net
