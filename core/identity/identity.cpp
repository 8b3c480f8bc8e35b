// SPDX-License-Identifier: Apache-2.0
#include "core/identity/identity.h"

#include <algorithm>
#include <array>

namespace starling::identity {
namespace {

constexpr std::size_t kNameBytesMax = 64;
constexpr std::array kRoles = {Role::kCoordinator, Role::kOperator, Role::kDevice, Role::kPeer,
                               Role::kIssuer};

bool is_name_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

bool is_name(std::string_view name) {
  // The two that mean directories: names become parts of paths.
  if (name == "." || name == "..") return false;
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::ranges::all_of(name, is_name_character);
}

Error bad_identity() {
  return rejected(
      "bad-identity",
      "the certificate names no identity: its URI is not starling://FEDERATION/ROLE/NAME");
}

}  // namespace

std::string_view to_string(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return "coordinator";
    case Role::kOperator:
      return "operator";
    case Role::kDevice:
      return "device";
    case Role::kPeer:
      return "peer";
    case Role::kIssuer:
      return "issuer";
  }
  return "";
}

Result<Role> parse_role(std::string_view text) {
  for (Role role : kRoles) {
    if (to_string(role) == text) return role;
  }
  return wrong_setting("bad-role", "a role is coordinator, operator, device, peer or issuer");
}

std::string to_string(const RoleSet& roles) {
  std::string text;
  for (Role role : kRoles) {
    if (!roles.contains(role)) continue;
    if (!text.empty()) text += " or ";
    text += to_string(role);
  }
  return text;
}

Result<void> check_name(std::string_view name, std::string_view what) {
  if (is_name(name)) return {};
  return wrong_setting("bad-name",
                       std::string(what) +
                           " needs a name of 1 to 64 letters, digits, dots, underscores and "
                           "hyphens, other than \".\" and \"..\"");
}

std::string Identity::uri() const {
  return std::string(kScheme) + federation + "/" + std::string(to_string(role)) + "/" + name;
}

Result<Identity> Identity::parse(std::string_view uri) {
  if (!uri.starts_with(kScheme)) return bad_identity();
  uri.remove_prefix(kScheme.size());
  const std::size_t first = uri.find('/');
  if (first == std::string_view::npos) return bad_identity();
  const std::size_t second = uri.find('/', first + 1);
  if (second == std::string_view::npos) return bad_identity();
  const std::string_view federation = uri.substr(0, first);
  const std::string_view name = uri.substr(second + 1);
  const Result<Role> role = parse_role(uri.substr(first + 1, second - first - 1));
  if (!role || !is_name(federation) || !is_name(name)) return bad_identity();
  return Identity{.federation = std::string(federation), .role = *role, .name = std::string(name)};
}

}  // namespace starling::identity
