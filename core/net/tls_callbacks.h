// SPDX-License-Identifier: Apache-2.0
// Where OpenSSL asks during a handshake: is this certificate good, which protocol is it to be. The
// answers come from the TlsEngine that the SSL object belongs to. For sources of this folder only.
#pragma once

struct ssl_ctx_st;

namespace starling::net {

void set_verify_callback(ssl_ctx_st* context);
void set_server_callbacks(ssl_ctx_st* context);

}  // namespace starling::net
