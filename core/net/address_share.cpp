// SPDX-License-Identifier: Apache-2.0
#include "core/net/address_share.h"

#include <arpa/inet.h>

#include <array>

namespace starling::net {

std::string address_share(const std::string& address) {
  std::array<char, sizeof(in6_addr)> bytes{};
  if (::inet_pton(AF_INET6, address.c_str(), bytes.data()) != 1) return address;
  return {bytes.data(), bytes.size() / 2};
}

}  // namespace starling::net
