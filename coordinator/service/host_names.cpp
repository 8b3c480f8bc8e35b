// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/host_names.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "core/identity/host_port.h"

namespace starling::coordinator {
namespace {

// Numeric IPv4 addresses of the interfaces that are up, loopback left out; IPv6 ones change too
// often to stand in a certificate unasked.
std::vector<std::string> interface_addresses() {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(head, &::freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    addresses.emplace_back(text.data());
  }
  return addresses;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  const std::string text = name.data();
  return identity::parse_host_port(text + ":1") ? text : std::string();
}

void add(std::vector<std::string>& names, std::string name) {
  if (!name.empty() && std::ranges::find(names, name) == names.end()) {
    names.push_back(std::move(name));
  }
}

}  // namespace

bool is_wildcard(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

std::vector<std::string> default_names(const std::string& host) {
  std::vector<std::string> names;
  if (!is_wildcard(host)) {
    add(names, host);
  } else {
    for (std::string& address : interface_addresses()) add(names, std::move(address));
  }
  add(names, host_name());
  if (names.empty()) add(names, "127.0.0.1");
  return names;
}

std::vector<std::string> local_names() { return {"localhost", "127.0.0.1", "::1"}; }

}  // namespace starling::coordinator
