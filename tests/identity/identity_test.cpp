// SPDX-License-Identifier: Apache-2.0
#include "core/identity/identity.h"

#include <gtest/gtest.h>

#include "core/identity/host_port.h"

namespace starling::identity {
namespace {

TEST(Identity, ReadsWhatItWrites) {
  for (Role role :
       {Role::kCoordinator, Role::kOperator, Role::kDevice, Role::kPeer, Role::kIssuer}) {
    const Identity identity{.federation = "kitchen.example", .role = role, .name = "cam-7_b"};
    const auto parsed = Identity::parse(identity.uri());
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, identity);
  }
  const Identity device{.federation = "kitchen", .role = Role::kDevice, .name = "cam-7"};
  EXPECT_EQ(device.uri(), "starling://kitchen/device/cam-7");
}

TEST(Identity, RefusesEveryOtherForm) {
  const std::string longest(64, 'x');
  EXPECT_TRUE(Identity::parse("starling://" + longest + "/device/" + longest));
  for (const std::string& uri :
       {std::string(), std::string("starling://"), std::string("starling://kitchen"),
        std::string("starling://kitchen/device"), std::string("starling://kitchen/device/"),
        std::string("starling:///device/cam"), std::string("starling://kitchen/admin/cam"),
        std::string("starling://kitchen/Device/cam"), std::string("http://kitchen/device/cam"),
        std::string("STARLING://kitchen/device/cam"), std::string("starling://kitchen/device/a/b"),
        std::string("starling://kitchen/device/a b"), std::string("starling://kitchen/device/a%20"),
        std::string("starling://kitchen/device/cam\0x", 31),
        "starling://" + longest + "x/device/cam", "starling://kitchen/device/" + longest + "x"}) {
    const auto parsed = Identity::parse(uri);
    ASSERT_FALSE(parsed) << uri;
    EXPECT_EQ(parsed.error().code(), "bad-identity");
  }
}

TEST(Identity, RoleSetsKnowTheirMembers) {
  const RoleSet roles = {Role::kDevice, Role::kOperator};
  EXPECT_TRUE(roles.contains(Role::kDevice));
  EXPECT_FALSE(roles.contains(Role::kPeer));
  EXPECT_EQ(to_string(roles), "operator or device");
  EXPECT_FALSE(RoleSet().contains(Role::kCoordinator));
}

TEST(HostPort, ReadsNamesAndBothKindsOfAddresses) {
  for (const char* text : {"example.org:7443", "10.0.0.1:1", "[::1]:65535", "localhost:80"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->text(), text);
  }
  EXPECT_EQ(parse_host_port("[fe80::2]:7443")->host, "fe80::2");
}

TEST(HostPort, RefusesWhatNobodyCanDial) {
  for (const char* text : {"", ":", "host", "host:", "host:0", "host:65536", "host:7x", "host:-1",
                           ":7443", "::1:7443", "[::1:7443", "[host]:7443", "[10.0.0.1]:7443",
                           "a b:7443", "a,DNS:b:7443", "..:1", "-x:1", "host:+1"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), "bad-address");
  }
}

TEST(HostPort, WhereOneListensIsNotWhereOthersDial) {
  for (const char* text :
       {"0.0.0.0:7443", "[::]:7443", "[0:0::0]:7443", "0:7443", "10.1:7443", "000.0.0.0:7443"}) {
    EXPECT_TRUE(parse_host_port(text)) << text;
    const auto parsed = parse_dialled_address(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), "bad-address");
  }
  for (const char* text : {"example.org:7443", "10.0.0.1:1", "[::1]:65535"}) {
    EXPECT_TRUE(parse_dialled_address(text)) << text;
  }
}

}  // namespace
}  // namespace starling::identity
