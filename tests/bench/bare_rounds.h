// SPDX-License-Identifier: Apache-2.0
// The bytes of a round over bare TLS, to measure rounds against in the same run: blocking OpenSSL,
// one connection over loopback between two processes, the cipher that Starling prefers.
#pragma once

#include <cstdint>
#include <vector>

#include "core/identity/certificate.h"

namespace starling::bench {

// Seconds of each repetition: the server sends `down` bytes, then the client sends `up` bytes and
// waits for one byte. Requires: no other thread runs in this process.
std::vector<double> bare_rounds(const identity::Credentials& credentials, std::uint64_t down,
                                std::uint64_t up, int repetitions);

}  // namespace starling::bench
