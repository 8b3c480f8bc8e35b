// SPDX-License-Identifier: Apache-2.0
#include "core/identity/peer_policy.h"

#include <gtest/gtest.h>

#include "core/identity/certificate_authority.h"
#include "tests/identity/forged_certificate.h"

namespace starling::identity {
namespace {

using std::chrono::hours;
using testing::device_forgery;
using testing::ForgedAuthority;
using testing::Forgery;

const WallTime kPolicyNow = *parse_rfc3339("2026-11-20T09:00:00Z");
constexpr const char* kDeviceUri = "URI:starling://kitchen/device/cam-7";

PeerPolicy policy_at(WallTime now, std::optional<WallTime> last = {}) {
  return {.federation = "kitchen",
          .roles = {Role::kDevice, Role::kOperator},
          .name = {},
          .address = {},
          .time = [=] { return VerificationTime{.now = now, .last_authenticated = last}; },
          .is_revoked = nullptr};
}

std::string verdict(std::span<const Certificate> presented, const Certificate& authority,
                    const PeerPolicy& policy, Side side = Side::kClient) {
  const auto peer = verify_peer(presented, std::span(&authority, 1), side, policy);
  return peer ? peer->identity.uri() : peer.error().code();
}

std::string verdict(const Certificate& presented, const Certificate& authority,
                    const PeerPolicy& policy, Side side = Side::kClient) {
  return verdict(std::span(&presented, 1), authority, policy, side);
}

class PeerPolicyTest : public ::testing::Test {
 public:
  Certificate issue(const CertificateProfile& profile, WallTime at = kPolicyNow) const {
    return authority.issue_credentials(profile, at)->certificate;
  }
  CertificateAuthority authority =
      *CertificateAuthority::make({.federation = "kitchen"}, kPolicyNow);
  const Certificate& root = authority.certificate();
};

TEST_F(PeerPolicyTest, TakesAGoodCertificateWithOrWithoutItsAuthorityBehindIt) {
  const Certificate device = issue({.name = "cam-7"});
  const std::vector<Certificate> chain = {device, root};
  EXPECT_EQ(verdict(device, root, policy_at(kPolicyNow)), "starling://kitchen/device/cam-7");
  EXPECT_EQ(verdict(chain, root, policy_at(kPolicyNow)), "starling://kitchen/device/cam-7");
}

TEST_F(PeerPolicyTest, TakesEitherAuthorityWhileTheyAreChanged) {
  const auto other = CertificateAuthority::make({.federation = "kitchen"}, kPolicyNow);
  const std::vector<Certificate> roots = {root, other->certificate()};
  for (const CertificateAuthority& ca : {authority, *other}) {
    const Certificate device = ca.issue_credentials({.name = "cam-7"}, kPolicyNow)->certificate;
    const auto peer =
        verify_peer(std::span(&device, 1), roots, Side::kClient, policy_at(kPolicyNow));
    ASSERT_TRUE(peer);
    EXPECT_EQ(peer->authority.fingerprint(), ca.certificate().fingerprint());
  }
}

TEST_F(PeerPolicyTest, RefusesOtherAuthoritiesEvenOfTheSameName) {
  const auto other = CertificateAuthority::make({.federation = "kitchen"}, kPolicyNow);
  const Certificate stranger = other->issue_credentials({.name = "cam-7"}, kPolicyNow)->certificate;
  const std::vector<Certificate> with_its_root = {stranger, other->certificate()};
  const std::vector<Certificate> with_our_root = {stranger, root};
  EXPECT_EQ(verdict(stranger, root, policy_at(kPolicyNow)), "unknown-authority");
  EXPECT_EQ(verdict(with_its_root, root, policy_at(kPolicyNow)), "unknown-authority");
  EXPECT_EQ(verdict(with_our_root, root, policy_at(kPolicyNow)), "unknown-authority");
  // Also when it copies our root's name and key identifier and only the signature differs.
  const PrivateKey forger = PrivateKey::generate();
  const Certificate forged =
      testing::forge(device_forgery(kDeviceUri, kPolicyNow), forger, &root, forger);
  EXPECT_EQ(verdict(forged, root, policy_at(kPolicyNow)), "unknown-authority");
}

TEST_F(PeerPolicyTest, RefusesWhatSignsItself) {
  const PrivateKey key = PrivateKey::generate();
  const Certificate own = testing::forge(device_forgery(kDeviceUri, kPolicyNow), key, nullptr, key);
  EXPECT_EQ(verdict(own, root, policy_at(kPolicyNow)), "self-signed");
}

TEST_F(PeerPolicyTest, RefusesTheAuthorityItselfAsAPeer) {
  EXPECT_EQ(verdict(root, root, policy_at(kPolicyNow)), "wrong-role");
}

TEST_F(PeerPolicyTest, JudgesByTheGivenTime) {
  const Certificate device = issue({.name = "cam-7"});
  const Validity validity = device.validity();
  const std::string good = "starling://kitchen/device/cam-7";
  EXPECT_EQ(verdict(device, root, policy_at(validity.not_before)), good);
  EXPECT_EQ(verdict(device, root, policy_at(validity.not_after - std::chrono::seconds(1))), good);
  EXPECT_EQ(verdict(device, root, policy_at(validity.not_before - std::chrono::seconds(1))),
            "certificate-not-yet-valid");
  EXPECT_EQ(verdict(device, root, policy_at(validity.not_after)), "certificate-expired");
}

TEST_F(PeerPolicyTest, ADeviceWithAWrongClockGoesByTheLastCoordinator) {
  const Certificate hub =
      issue({.role = Role::kCoordinator, .name = "hub", .addresses = {"10.0.0.1"}});
  const auto verify = [&](WallTime now, std::optional<WallTime> last) {
    PeerPolicy policy = policy_at(now, last);
    policy.roles = {Role::kCoordinator};
    return verdict(hub, root, policy, Side::kServer);
  };
  const std::string good = "starling://kitchen/coordinator/hub";
  const WallTime end = hub.validity().not_after;
  for (int years : {-60, -10, 10, 14}) {
    const WallTime wrong = kPolicyNow + hours(24 * 365 * years);
    EXPECT_EQ(verify(wrong, kPolicyNow), good) << years;
    EXPECT_EQ(verify(wrong, kPolicyNow - hours(24 * 90)), good) << "renewed while the device slept";
    EXPECT_EQ(verify(wrong, end + hours(1)), "certificate-expired") << years;
  }
  // A right clock is believed before an old memory.
  EXPECT_EQ(verify(kPolicyNow, end + hours(1)), good);
  EXPECT_EQ(verify(end + hours(1), {}), "certificate-expired");
}

// Its key signs rosters: it neither serves nor connects.
TEST_F(PeerPolicyTest, RefusesAnIssuerOnEitherSide) {
  const Certificate issuer = issue({.role = Role::kIssuer, .name = "hub"});
  PeerPolicy policy = policy_at(kPolicyNow);
  policy.roles = {Role::kCoordinator, Role::kOperator, Role::kDevice, Role::kPeer};
  EXPECT_EQ(verdict(issuer, root, policy, Side::kClient), "wrong-role");
  EXPECT_EQ(verdict(issuer, root, policy, Side::kServer), "wrong-role");
  policy.roles.add(Role::kIssuer);
  EXPECT_EQ(verdict(issuer, root, policy, Side::kServer), "wrong-role") << "by its key usage";
}

TEST_F(PeerPolicyTest, RefusesTheRevoked) {
  const Certificate device = issue({.name = "cam-7"});
  PeerPolicy policy = policy_at(kPolicyNow);
  policy.is_revoked = [&](const std::string& serial, const Sha256Digest& public_key) {
    return serial == device.serial() && public_key == device.public_key_digest();
  };
  EXPECT_EQ(verdict(device, root, policy), "certificate-revoked");
  EXPECT_EQ(verdict(issue({.name = "cam-7"}), root, policy), "starling://kitchen/device/cam-7");
}

TEST_F(PeerPolicyTest, RefusesWrongRolesNamesAndFederations) {
  const Certificate device = issue({.name = "cam-7"});
  const Certificate peer = issue({.role = Role::kPeer, .name = "cam-8"});
  EXPECT_EQ(verdict(peer, root, policy_at(kPolicyNow)), "wrong-role");
  EXPECT_EQ(verdict(device, root, policy_at(kPolicyNow), Side::kServer), "wrong-role");
  PeerPolicy policy = policy_at(kPolicyNow);
  policy.name = "cam-8";
  EXPECT_EQ(verdict(device, root, policy), "wrong-name");
  policy = policy_at(kPolicyNow);
  policy.federation = "garden";
  EXPECT_EQ(verdict(device, root, policy), "wrong-federation");
  policy.federation = {};
  EXPECT_EQ(verdict(device, root, policy), "starling://kitchen/device/cam-7");
}

TEST_F(PeerPolicyTest, HoldsAServerToTheDialledAddress) {
  const Certificate hub = issue({.role = Role::kCoordinator,
                                 .name = "hub",
                                 .addresses = {"fl.example.org", "10.0.0.1", "::1"}});
  PeerPolicy policy = policy_at(kPolicyNow);
  policy.roles = {Role::kCoordinator};
  for (const char* address : {"fl.example.org", "FL.example.org", "10.0.0.1", "::1"}) {
    policy.address = address;
    EXPECT_EQ(verdict(hub, root, policy, Side::kServer), "starling://kitchen/coordinator/hub");
  }
  for (const char* address : {"example.org", "a.fl.example.org", "hub", "10.0.0.2", "::2"}) {
    policy.address = address;
    EXPECT_EQ(verdict(hub, root, policy, Side::kServer), "wrong-address") << address;
  }
}

TEST_F(PeerPolicyTest, ShowingNothingIsNoCertificate) {
  EXPECT_EQ(verdict(std::span<const Certificate>(), root, policy_at(kPolicyNow)), "no-certificate");
}

// From here on the authority's own key signs what the authority would never write.
TEST(PeerPolicyForged, TakesExactlyOneUriInOneExtension) {
  const ForgedAuthority authority("kitchen", kPolicyNow);
  const auto verify = [&](const Forgery& forgery) {
    return verdict(authority.issue(forgery).certificate, authority.certificate,
                   policy_at(kPolicyNow));
  };
  EXPECT_EQ(verify(device_forgery(kDeviceUri, kPolicyNow)), "starling://kitchen/device/cam-7");
  for (const char* names :
       {"URI:starling://kitchen/device/cam-7,URI:starling://kitchen/device/cam-8",
        "URI:starling://kitchen/device/cam-7,URI:https://example.org/", "DNS:cam-7",
        "URI:starling://kitchen/device", "URI:starling://kitchen/root/cam-7",
        "URI:starling://kitchen/device/cam/7"}) {
    EXPECT_EQ(verify(device_forgery(names, kPolicyNow)), "bad-certificate") << names;
  }
  Forgery twice = device_forgery(kDeviceUri, kPolicyNow);
  twice.extensions.emplace_back(NID_subject_alt_name, kDeviceUri);
  EXPECT_EQ(verify(twice), "unknown-authority");  // no chain is built over a malformed leaf
  Forgery none = device_forgery(kDeviceUri, kPolicyNow);
  none.extensions.pop_back();
  EXPECT_EQ(verify(none), "bad-certificate");
}

TEST(PeerPolicyForged, RefusesIntermediateAuthorities) {
  const ForgedAuthority root("kitchen", kPolicyNow);
  const PrivateKey middle_key = PrivateKey::generate();
  const Certificate middle = testing::forge(testing::authority_forgery("middle", kPolicyNow),
                                            middle_key, &root.certificate, root.key);
  const Certificate leaf = testing::forge(device_forgery(kDeviceUri, kPolicyNow),
                                          PrivateKey::generate(), &middle, middle_key);
  const std::vector<Certificate> chain = {leaf, middle};
  EXPECT_EQ(verdict(chain, root.certificate, policy_at(kPolicyNow)), "unknown-authority");
}

TEST(PeerPolicyForged, RefusesOddExtensions) {
  const ForgedAuthority authority("kitchen", kPolicyNow);
  const auto verify = [&](int nid, const std::string& value) {
    Forgery forgery = device_forgery(kDeviceUri, kPolicyNow);
    for (auto& [known, content] : forgery.extensions) {
      if (known == nid) content = value;
    }
    return verdict(authority.issue(forgery).certificate, authority.certificate,
                   policy_at(kPolicyNow));
  };
  EXPECT_EQ(verify(NID_ext_key_usage, "serverAuth"), "wrong-role");
  EXPECT_EQ(verify(NID_ext_key_usage, "emailProtection"), "wrong-role");
  EXPECT_EQ(verify(NID_key_usage, "critical,keyEncipherment"), "wrong-role");
}

}  // namespace
}  // namespace starling::identity
