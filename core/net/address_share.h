// SPDX-License-Identifier: Apache-2.0
// Which addresses count as one where limits are shared by address. For sources of
// this folder only.
#pragma once

#include <string>

namespace starling::net {

// `address`: numeric. An IPv4 address counts by itself, an IPv6 address by its /64, because one
// household or server is given a whole /64. Not for display.
std::string address_share(const std::string& address);

}  // namespace starling::net
