// SPDX-License-Identifier: Apache-2.0
#include "core/identity/roster.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/identity/certificate_authority.h"
#include "core/identity/signature.h"
#include "tests/identity/earlier_roster.h"
#include "tests/identity/forged_certificate.h"
#include "tests/support/temporary_directory.h"

namespace starling::identity {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::body_of;
using testing::signed_again;
using testing::signed_text;

const WallTime kRosterNow = *parse_rfc3339("2026-11-20T09:00:00Z");

Sha256Digest key_of(const std::string& name) { return sha256(as_bytes(name)); }

Roster small_roster() {
  return {.federation = "kitchen",
          .run = "faces",
          .epoch = 3,
          .issued = kRosterNow,
          .expires = kRosterNow + minutes(10),
          .settings = {{"algorithm.name", "dpsgd"}, {"dataset", "idx:/a b=c"}, {"notes", ""}},
          .members = {{"cam-1", key_of("cam-1"), "10.0.0.1:7000"},
                      {"cam-2", key_of("cam-2"), ""},
                      {"cam-3", key_of("cam-3"), "[::1]:7000"}}};
}

class RosterTest : public ::testing::Test {
 public:
  Credentials credentials(Role role, const std::string& name = "hub") const {
    CertificateProfile profile{.role = role, .name = name};
    if (role == Role::kCoordinator) profile.addresses = {"10.0.0.9"};
    return *authority.issue_credentials(profile, kRosterNow);
  }
  Result<SignedRoster> verify(ByteView bytes, const std::string& federation = "kitchen",
                              RosterOrigin origin = RosterOrigin::kReceived) const {
    return SignedRoster::verify(bytes, std::span(&authority.certificate(), 1), federation, origin);
  }
  // As a device reads what it put on its disk when it ran an earlier version.
  SignedRoster kept_from_earlier(const Roster& roster) const {
    const std::string text =
        signed_again(*SignedRoster::sign(roster, hub), credentials(Role::kCoordinator));
    const auto kept = verify(as_bytes(text), "kitchen", RosterOrigin::kOwnDisk);
    EXPECT_TRUE(kept) << kept.error().message();
    return *kept;
  }
  std::string verdict(ByteView bytes, const std::string& federation = "kitchen") const {
    const auto roster = verify(bytes, federation);
    return roster ? "good" : roster.error().code();
  }
  std::string verdict(const std::string& text) const { return verdict(as_bytes(text)); }
  std::string text_of(const SignedRoster& roster) const {
    return std::string(as_text(roster.bytes().view()));
  }

  CertificateAuthority authority =
      *CertificateAuthority::make({.federation = "kitchen"}, kRosterNow);
  Credentials hub = credentials(Role::kIssuer);
};

TEST_F(RosterTest, ComesBackAsItWasSigned) {
  const auto made = SignedRoster::sign(small_roster(), hub);
  ASSERT_TRUE(made) << made.error().message();
  const auto read = verify(made->bytes().view());
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->roster(), small_roster());
  EXPECT_EQ(read->signer(), (Identity{"kitchen", Role::kIssuer, "hub"}));
  EXPECT_TRUE(std::ranges::equal(read->bytes().view(), made->bytes().view()));
}

TEST_F(RosterTest, IsKeptInAFile) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "roster";
  const auto made = SignedRoster::sign(small_roster(), hub);
  ASSERT_TRUE(made->save(path));
  const std::span authorities(&authority.certificate(), 1);
  const auto read = SignedRoster::load(path, authorities, "kitchen");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->roster(), small_roster());
  EXPECT_EQ(SignedRoster::load(directory.path() / "none", authorities, "kitchen").error().code(),
            "file-missing");
}

TEST_F(RosterTest, AnyChangedBitIsNoticed) {
  const std::string good = text_of(*SignedRoster::sign(small_roster(), hub));
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {1, 0x20, 0x80}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      ASSERT_NE(verdict(bad), "good") << "byte " << at << " of " << good.size();
    }
  }
}

TEST_F(RosterTest, CutAndExtendedTextsAreNoticed) {
  const std::string good = text_of(*SignedRoster::sign(small_roster(), hub));
  for (std::size_t size = 0; size < good.size(); ++size) {
    ASSERT_NE(verdict(good.substr(0, size)), "good") << size;
  }
  for (const std::string& more : std::vector<std::string>{"\n", " ", "signature 00\n", good}) {
    EXPECT_NE(verdict(good + more), "good") << more;
    EXPECT_NE(verdict(more + good), "good") << more;
  }
}

TEST_F(RosterTest, OnlyOneFormIsTakenEvenFromAGoodSigner) {
  const auto made = SignedRoster::sign(small_roster(), hub);
  const std::string body = body_of(*made);
  EXPECT_EQ(verdict(signed_text(body, hub)), "good");
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string other = body;
    other.replace(other.find(from), from.size(), to);
    return verdict(signed_text(other, hub));
  };
  EXPECT_EQ(changed("epoch 3", "epoch 03"), "bad-roster");
  EXPECT_EQ(changed("epoch 3", "epoch 18446744073709551616"), "bad-roster");
  EXPECT_EQ(changed("epoch 3", "epoch 0"), "bad-roster");
  EXPECT_EQ(changed("09:00:00.000Z", "10:00:00.000+01:00"), "bad-roster");
  EXPECT_EQ(changed("member cam-1", "member  cam-1"), "bad-roster");
  EXPECT_EQ(changed("10.0.0.1:7000", "10.0.0.1:07000"), "bad-roster");
  EXPECT_EQ(changed("10.0.0.1:7000", ""), "bad-roster");
  EXPECT_EQ(changed("setting notes=\n", "setting notes\n"), "bad-roster");
  EXPECT_EQ(changed("setting notes=\n", "note\n"), "bad-roster");
  EXPECT_EQ(changed("run faces\n", ""), "bad-roster");
  EXPECT_EQ(changed("roster/1", "roster/2"), "bad-roster");
  EXPECT_EQ(verdict(signed_text(body + "\n", hub)), "bad-roster");
  EXPECT_EQ(verdict(signed_text(body + hub.certificate.pem(), hub)), "bad-roster");
}

TEST_F(RosterTest, AnUppercaseKeyIsAnotherForm) {
  std::string body = body_of(*SignedRoster::sign(small_roster(), hub));
  const std::string hex = key_of("cam-2").hex();
  std::string upper = hex;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  body.replace(body.find(hex), hex.size(), upper);
  EXPECT_EQ(verdict(signed_text(body, hub)), "bad-roster");
}

TEST_F(RosterTest, OnlyIssuersSign) {
  for (const Role role : {Role::kDevice, Role::kPeer, Role::kOperator, Role::kCoordinator}) {
    EXPECT_EQ(SignedRoster::sign(small_roster(), credentials(role)).error().code(),
              "roster-signer");
  }
  // A roster of a time when operators signed: one sentence says what to do.
  const std::string body = body_of(*SignedRoster::sign(small_roster(), hub));
  const auto refused = verify(as_bytes(signed_text(body, credentials(Role::kOperator))));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("sign it again with 'starling-coordinator gossip sign'"),
            std::string::npos);
  // The authority does not sign rosters itself, and a certificate needs its own key.
  Credentials stolen = hub;
  stolen.key = PrivateKey::generate();
  EXPECT_EQ(SignedRoster::sign(small_roster(), stolen).error().code(), "roster-signature");
}

TEST_F(RosterTest, ForeignAuthoritiesAndFederationsAreRefused) {
  const auto other = CertificateAuthority::make({.federation = "kitchen"}, kRosterNow);
  const auto garden = CertificateAuthority::make({.federation = "garden"}, kRosterNow);
  const CertificateProfile profile{.role = Role::kIssuer, .name = "hub"};
  const auto foreign =
      SignedRoster::sign(small_roster(), *other->issue_credentials(profile, kRosterNow));
  EXPECT_EQ(verdict(foreign->bytes().view()), "roster-signer");
  EXPECT_EQ(SignedRoster::sign(small_roster(), *garden->issue_credentials(profile, kRosterNow))
                .error()
                .code(),
            "roster-federation");
  const auto good = SignedRoster::sign(small_roster(), hub);
  EXPECT_EQ(verdict(good->bytes().view(), "garden"), "roster-federation");
}

TEST_F(RosterTest, TheSignerIsJudgedAtTheTimeOfIssue) {
  Roster roster = small_roster();
  const Validity validity = hub.certificate.validity();
  const auto sign_at = [&](WallTime time) {
    roster.issued = time;
    roster.expires = time + hours(1);
    const auto made = SignedRoster::sign(roster, hub);
    return made ? "good" : made.error().code();
  };
  EXPECT_EQ(sign_at(validity.not_before), "good");
  EXPECT_EQ(sign_at(validity.not_after - std::chrono::seconds(1)), "good");
  EXPECT_EQ(sign_at(validity.not_before - std::chrono::seconds(1)), "roster-signer");
  EXPECT_EQ(sign_at(validity.not_after), "roster-signer");
}

TEST_F(RosterTest, SaysThatTheRunIsStopped) {
  Roster roster = small_roster();
  EXPECT_FALSE(roster.stopped());
  roster.settings = stopped_settings();
  const auto made = SignedRoster::sign(roster, hub);
  ASSERT_TRUE(made);
  EXPECT_TRUE(verify(made->bytes().view())->roster().stopped());
}

// Services of earlier versions signed with their servers' keys.
TEST_F(RosterTest, WhatACoordinatorSignedCountsOnTheReadersOwnDiskAlone) {
  const std::string text =
      signed_again(*SignedRoster::sign(small_roster(), hub), credentials(Role::kCoordinator));
  const auto received = verify(as_bytes(text));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), "roster-signer");
  EXPECT_NE(received.error().message().find("update its service first"), std::string::npos)
      << received.error().message();
  const SignedRoster kept = kept_from_earlier(small_roster());
  EXPECT_EQ(kept.roster(), small_roster());
  EXPECT_EQ(kept.signer().role, Role::kCoordinator);
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "roster";
  ASSERT_TRUE(kept.save(path));
  const std::span authorities(&authority.certificate(), 1);
  EXPECT_TRUE(SignedRoster::load(path, authorities, "kitchen", RosterOrigin::kOwnDisk));
  EXPECT_EQ(SignedRoster::load(path, authorities, "kitchen").error().code(), "roster-signer");
  for (const Role role : {Role::kDevice, Role::kPeer, Role::kOperator}) {
    const std::string other = signed_text(body_of(kept), credentials(role));
    EXPECT_EQ(verify(as_bytes(other), "kitchen", RosterOrigin::kOwnDisk).error().code(),
              "roster-signer");
  }
}

TEST_F(RosterTest, AnIssuerGoesOnFromWhatACoordinatorSigned) {
  Roster roster = small_roster();
  const SignedRoster held = kept_from_earlier(roster);
  roster.issued += minutes(1);
  EXPECT_TRUE(SignedRoster::sign(roster, hub)->may_follow(held)) << "renewed within the epoch";
  ++roster.epoch;
  EXPECT_TRUE(SignedRoster::sign(roster, hub)->may_follow(held));
  roster.epoch -= 2;
  EXPECT_EQ(SignedRoster::sign(roster, hub)->may_follow(held).error().code(), "roster-old");
}

// --- what may take the place of a roster that is held -------------------------------------------

TEST_F(RosterTest, AnEpochDoesNotJump) {
  const auto of = [&](std::uint64_t epoch) {
    Roster roster = small_roster();
    roster.epoch = epoch;
    return *SignedRoster::sign(roster, hub);
  };
  const auto held = of(3);
  EXPECT_TRUE(of(4).may_follow(held));
  EXPECT_TRUE(of(3 + kRosterEpochStepMax).may_follow(held));
  EXPECT_EQ(of(4 + kRosterEpochStepMax).may_follow(held).error().code(), "roster-jump");
  EXPECT_EQ(of(kRosterEpochMax).may_follow(held).error().code(), "roster-jump");
  EXPECT_EQ(of(3).may_follow(held).error().code(), "roster-old");
  EXPECT_EQ(of(2).may_follow(held).error().code(), "roster-old");
  Roster changed = small_roster();
  changed.issued += std::chrono::minutes(1);
  changed.run = "hands";
  EXPECT_EQ(SignedRoster::sign(changed, hub)->may_follow(held).error().code(), "roster-changed");
}

// The key of a service was stolen: the next roster says so, and from then on the thief's do not
// count, whatever they say; nor does the thief revoke the service for good.
TEST_F(RosterTest, WhoseKeyIsRevokedSignsNoLaterRoster) {
  const Credentials stolen = credentials(Role::kIssuer);
  const Sha256Digest stolen_key = stolen.certificate.public_key_digest();
  const Sha256Digest good_key = hub.certificate.public_key_digest();
  const auto of = [&](std::uint64_t epoch, std::vector<Sha256Digest> revoked,
                      const Credentials& signer) {
    Roster roster = small_roster();
    roster.epoch = epoch;
    roster.revoked = std::move(revoked);
    const auto made = SignedRoster::sign(roster, signer);
    EXPECT_TRUE(made) << made.error().message();
    return *made;
  };
  const auto held = of(4, {stolen_key}, hub);
  EXPECT_EQ(verify(held.bytes().view())->roster().revoked, std::vector{stolen_key});
  EXPECT_EQ(of(5, {}, stolen).may_follow(held).error().code(), "roster-revoked");
  EXPECT_EQ(of(5, {}, hub).may_follow(held).error().code(), "roster-revocations");
  EXPECT_TRUE(of(5, {key_of("another"), stolen_key}, hub).may_follow(held));
  Roster itself = small_roster();
  itself.revoked = {good_key};
  EXPECT_EQ(SignedRoster::sign(itself, hub).error().code(), "roster-revoked");
  // The thief was first.
  const auto hijacked = of(4, {good_key}, stolen);
  EXPECT_EQ(of(5, {stolen_key}, hub).may_follow(hijacked).error().code(), "roster-revoked");
  const Credentials other = credentials(Role::kIssuer, "coordinator");
  EXPECT_EQ(of(5, {stolen_key}, other).may_follow(hijacked).error().code(), "roster-revocations");
  const Credentials owner = credentials(Role::kIssuer, std::string(kOwnerName));
  EXPECT_TRUE(of(5, {stolen_key}, owner).may_follow(hijacked));
}

TEST_F(RosterTest, RevokesEachKeyOnce) {
  Roster roster = small_roster();
  roster.revoked = {key_of("a"), key_of("a")};
  EXPECT_EQ(SignedRoster::sign(roster, hub).error().code(), "bad-roster");
  roster.revoked.clear();
  for (std::size_t i = 0; i <= kRosterRevokedMax; ++i) {
    roster.revoked.push_back(key_of(std::to_string(i)));
  }
  EXPECT_EQ(SignedRoster::sign(roster, hub).error().code(), "bad-roster");
  roster.revoked.pop_back();
  EXPECT_TRUE(SignedRoster::sign(roster, hub));
}

TEST_F(RosterTest, SaysHowLongItsRunHasBeenGoingOn) {
  Roster roster = small_roster();
  EXPECT_FALSE(roster.run_age());
  roster.begin_run(roster.issued);
  EXPECT_EQ(roster.run_age(), std::chrono::milliseconds(0));
  const std::string run = roster.run_identity();
  roster.issued += hours(3);
  EXPECT_EQ(roster.run_age(), hours(3));
  roster.issued -= hours(4);
  EXPECT_EQ(roster.run_age(), std::chrono::milliseconds(0)) << "an issuer whose clock went back";
  EXPECT_EQ(roster.run_identity(), run);
  for (const char* id : {"0123456789abcdef", "0123456789abcdef@", "0123456789abcdef@yesterday"}) {
    roster.settings = {{std::string(kRunIdKey), id}};
    EXPECT_FALSE(roster.run_age()) << id;
  }
}

TEST_F(RosterTest, ExpiresAtItsTime) {
  const Roster roster = small_roster();
  EXPECT_TRUE(roster.check_current(roster.expires - std::chrono::milliseconds(1)));
  EXPECT_EQ(roster.check_current(roster.expires).error().code(), "roster-expired");
}

TEST_F(RosterTest, LaterEpochsAndRenewalsReplaceEarlierOnes) {
  const Roster old = small_roster();
  Roster renewed = old;
  renewed.issued += minutes(5);
  Roster next = old;
  next.epoch = 4;
  next.issued -= minutes(5);
  EXPECT_FALSE(old.newer_than(old));
  EXPECT_TRUE(renewed.newer_than(old));
  EXPECT_FALSE(old.newer_than(renewed));
  EXPECT_TRUE(next.newer_than(renewed));
  EXPECT_FALSE(renewed.newer_than(next));
  EXPECT_TRUE(renewed.replaces(old));
  EXPECT_FALSE(old.replaces(renewed));
  EXPECT_TRUE(next.replaces(renewed));
  Roster other = renewed;  // of the same epoch, with other members
  other.members.pop_back();
  EXPECT_TRUE(other.newer_than(old));
  EXPECT_FALSE(other.replaces(old));
  next.members.pop_back();
  EXPECT_TRUE(next.replaces(old));
}

TEST_F(RosterTest, MembersAreThoseOfThatNameAndKey) {
  const Roster roster = small_roster();
  EXPECT_EQ(roster.find("cam-2"), 1U);
  EXPECT_EQ(roster.find("cam-4"), std::nullopt);
  EXPECT_TRUE(roster.is_member("cam-2", key_of("cam-2")));
  EXPECT_FALSE(roster.is_member("cam-2", key_of("cam-3")));
  EXPECT_FALSE(roster.is_member("cam-4", key_of("cam-4")));
}

TEST_F(RosterTest, WhatIsNoSoundRosterIsNotSigned) {
  const auto refused = [&](const std::function<void(Roster&)>& change) {
    Roster roster = small_roster();
    change(roster);
    const auto made = SignedRoster::sign(roster, hub);
    return made ? "good" : made.error().code();
  };
  EXPECT_EQ(refused([](Roster& r) { r.members[1].name = "cam-1"; }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.members[1].key = key_of("cam-1"); }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.members[1].name = "cam 2"; }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.members[1].address = "10.0.0.1"; }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.members[1].address = "-"; }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.members.clear(); }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.epoch = 0; }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.epoch = kRosterEpochMax; }), "good");
  EXPECT_EQ(refused([](Roster& r) { r.epoch = kRosterEpochMax + 1; }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.expires = r.issued; }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.expires = r.issued + kRosterLifetimeMax; }), "good");
  EXPECT_EQ(refused([](Roster& r) {
              r.expires = r.issued + kRosterLifetimeMax + std::chrono::milliseconds(1);
            }),
            "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.run = ""; }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.federation = "a/b"; }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.settings.emplace_back("notes", "again"); }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.settings.emplace_back("", "x"); }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.settings.emplace_back("a=b", "x"); }), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) { r.settings.emplace_back("a", "x\nepoch 9"); }), "bad-roster");
  const auto with_value = [&](std::size_t bytes) {
    return refused([=](Roster& r) { r.settings.emplace_back("a", std::string(bytes, 'x')); });
  };
  EXPECT_EQ(with_value(kRosterSettingValueBytesMax), "good");
  EXPECT_EQ(with_value(kRosterSettingValueBytesMax + 1), "bad-roster");
  EXPECT_EQ(refused([](Roster& r) {
              for (int i = 0; i < 256; ++i) r.settings.emplace_back("k" + std::to_string(i), "");
            }),
            "bad-roster");
}

Roster large_roster(std::size_t count, std::size_t host_bytes) {
  Roster roster = small_roster();
  roster.members.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "client-" + std::to_string(i);
    std::string host = std::string(host_bytes, 'a');
    for (std::size_t dot = 60; dot < host_bytes; dot += 61) host[dot] = '.';
    roster.members.push_back({name, key_of(name), host + ":7000"});
  }
  return roster;
}

TEST_F(RosterTest, TenThousandMembersFitAndNoMore) {
  const Roster full = large_roster(kRosterMembersMax, 64);
  const auto made = SignedRoster::sign(full, hub);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->roster(), full);
  EXPECT_EQ(SignedRoster::sign(large_roster(kRosterMembersMax + 1, 8), hub).error().code(),
            "bad-roster");
}

TEST_F(RosterTest, FourMebibytesAreTheLimit) {
  const auto made = SignedRoster::sign(large_roster(kRosterMembersMax, 250), hub);
  EXPECT_EQ(made ? "good" : made.error().code(), "good") << made->bytes().size();
  const std::string long_text = signed_text(std::string(kRosterBytesMax, 'a'), hub);
  EXPECT_EQ(verdict(long_text), "bad-roster");
}

TEST(SignatureTest, BelongsToKeyAndMessage) {
  const auto authority = CertificateAuthority::make({.federation = "kitchen"}, kRosterNow);
  const auto mine = authority->issue_credentials({.name = "cam-1"}, kRosterNow);
  const auto other = authority->issue_credentials({.name = "cam-2"}, kRosterNow);
  for (int i = 0; i < 50; ++i) {  // r and s of every length
    const std::string message = "message " + std::to_string(i);
    const Signature signature = sign(mine->key, as_bytes(message));
    EXPECT_TRUE(is_signed_by(mine->certificate, as_bytes(message), signature));
    EXPECT_FALSE(is_signed_by(mine->certificate, as_bytes("else"), signature));
    EXPECT_FALSE(is_signed_by(other->certificate, as_bytes(message), signature));
  }
  EXPECT_FALSE(is_signed_by(mine->certificate, as_bytes("zero"), Signature{}));
}

}  // namespace
}  // namespace starling::identity
