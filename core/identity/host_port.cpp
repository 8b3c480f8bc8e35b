// SPDX-License-Identifier: Apache-2.0
#include "core/identity/host_port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace starling::identity {
namespace {

constexpr std::size_t kHostBytesMax = 253;
constexpr std::size_t kLabelBytesMax = 63;  // between two dots: RFC 1035

bool is_family(int family, const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return ::inet_pton(family, host.c_str(), address.data()) == 1;
}

bool is_dns_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// 0.0.0.0, or [::] in any of its forms.
bool is_every_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  const int family = host.find(':') == std::string::npos ? AF_INET : AF_INET6;
  return ::inet_pton(family, host.c_str(), address.data()) == 1 &&
         std::ranges::all_of(address, [](unsigned char byte) { return byte == 0; });
}

Error bad_address(std::string_view text) {
  return wrong_setting("bad-address", "\"" + std::string(text.substr(0, kHostBytesMax)) +
                                          "\" is no address; write HOST:PORT, for example "
                                          "10.0.0.1:7443, [::1]:7443 or fl.example.org:7443");
}

}  // namespace

bool is_numeric_address(std::string_view host) {
  if (host.find('\0') != std::string_view::npos) return false;
  const std::string text(host);
  return is_family(AF_INET, text) || is_family(AF_INET6, text);
}

bool is_dns_name(std::string_view host) {
  std::size_t label = 0;
  for (const char c : host) {
    label = c == '.' ? 0 : label + 1;
    if (label > kLabelBytesMax) return false;
  }
  return !host.empty() && host.size() <= kHostBytesMax && host.front() != '.' &&
         host.front() != '-' && std::ranges::all_of(host, is_dns_character) &&
         host.find("..") == std::string_view::npos;
}

std::string HostPort::text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad_address(text);
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (code != std::errc() || end != digits.data() + digits.size() || port == 0) {
    return bad_address(text);
  }
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (!is_numeric_address(host) || host.find(':') == std::string_view::npos) {
      return bad_address(text);
    }
  } else if (!is_dns_name(host)) {  // as an IPv4 address is by its form
    return bad_address(text);
  }
  return HostPort{.host = std::string(host), .port = port};
}

Result<HostPort> parse_dialled_address(std::string_view text) {
  STARLING_ASSIGN(HostPort address, parse_host_port(text));
  // Resolvers take "0" and "10.1" for addresses too, of which nobody thinks.
  const bool is_short = address.host.find_first_not_of("0123456789.") == std::string::npos;
  if (is_short && !is_numeric_address(address.host)) return bad_address(text);
  if (!is_every_address(address.host)) return address;
  return wrong_setting("bad-address", address.host +
                                          " is where one listens, not where others dial; write the "
                                          "device's own name or address");
}

}  // namespace starling::identity
