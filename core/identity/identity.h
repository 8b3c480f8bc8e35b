// SPDX-License-Identifier: Apache-2.0
// Who somebody is: the URI `starling://FEDERATION/ROLE/NAME` in a certificate's subject
// alternative names. It never comes from a message.
#pragma once

#include <compare>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace starling::identity {

inline constexpr std::string_view kScheme = "starling://";

// kIssuer: signs a gossip network's rosters, and does nothing else: it neither connects nor is
// connected to. The coordinator's service has such a key beside its server's, and `gossip sign`
// makes one for each signature.
enum class Role { kCoordinator, kOperator, kDevice, kPeer, kIssuer };

std::string_view to_string(Role role);
[[nodiscard]] Result<Role> parse_role(std::string_view text);

class RoleSet {
 public:
  RoleSet() = default;
  constexpr RoleSet(std::initializer_list<Role> roles) {
    for (Role role : roles) add(role);
  }
  constexpr void add(Role role) { bits_ |= bit(role); }
  bool contains(Role role) const { return (bits_ & bit(role)) != 0; }
  friend bool operator==(const RoleSet&, const RoleSet&) = default;

 private:
  static constexpr unsigned bit(Role role) { return 1U << static_cast<unsigned>(role); }
  unsigned bits_ = 0;
};

std::string to_string(const RoleSet& roles);  // "device or operator"

// A federation or a node is named [A-Za-z0-9._-]{1,64}, but not "." or ".."; "bad-name" otherwise.
// `what` begins the sentence ("the federation", "the client").
[[nodiscard]] Result<void> check_name(std::string_view name, std::string_view what);

struct Identity {
  std::string federation;
  Role role = Role::kDevice;
  std::string name;

  std::string uri() const;
  // Refuses anything but the one form that uri() writes ("bad-identity").
  [[nodiscard]] static Result<Identity> parse(std::string_view uri);
  friend bool operator==(const Identity&, const Identity&) = default;
};

}  // namespace starling::identity
