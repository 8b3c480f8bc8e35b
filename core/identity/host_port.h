// SPDX-License-Identifier: Apache-2.0
// Where a coordinator or a peer listens, as people write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace starling::identity {

// Whether `host` is an IPv4 or IPv6 address (without brackets), or else a DNS name of letters,
// digits, hyphens, underscores and dots.
bool is_numeric_address(std::string_view host);
bool is_dns_name(std::string_view host);

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  std::string text() const;  // "host:port", "[::1]:port"
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// "host:port", "1.2.3.4:port", "[::1]:port"; port 1 to 65535; "bad-address" otherwise.
[[nodiscard]] Result<HostPort> parse_host_port(std::string_view text);
// The same for an address that others are told to dial: 0.0.0.0 and [::], where one listens on
// every address, are "bad-address" too.
[[nodiscard]] Result<HostPort> parse_dialled_address(std::string_view text);

}  // namespace starling::identity
