// SPDX-License-Identifier: Apache-2.0
// A roster that the owner brings as a file: what is taken, what is refused and how, and that a
// refusal leaves the one that is held.
#include "edge_client/roster_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "core/base/durable_file.h"
#include "core/identity/certificate_authority.h"
#include "tests/identity/earlier_roster.h"
#include "tests/support/temporary_directory.h"

namespace starling::edge_client {
namespace {

using identity::CertificateAuthority;
using identity::Credentials;
using identity::Role;
using identity::Roster;
using identity::SignedRoster;
using std::chrono::hours;
using std::chrono::minutes;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const WallTime kRosterNow = *parse_rfc3339("2026-11-20T09:00:00Z");

CertificateAuthority make_authority(const std::string& federation) {
  return *CertificateAuthority::make({.federation = federation}, kRosterNow);
}

class RosterCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(identity::IdentityDirectory::save(state_.identity(), device_, {"hub", 7443}));
  }

  Roster roster_of(std::uint64_t epoch, WallTime issued = kRosterNow) const {
    return {.federation = "kitchen",
            .run = "faces",
            .epoch = epoch,
            .issued = issued,
            .expires = issued + minutes(10),
            .settings = {{"algorithm.name", "dpsgd"}},
            .members = {{"cam-7", device_.certificate.public_key_digest(), "10.0.0.7:7000"},
                        {"cam-8", sha256(as_bytes("cam-8")), ""}}};
  }
  std::filesystem::path file_of(const Roster& roster, const Credentials& signer) const {
    EXPECT_TRUE(SignedRoster::sign(roster, signer)->save(file_));
    return file_;
  }
  std::filesystem::path file_of(const Roster& roster) const { return file_of(roster, owner_); }
  std::filesystem::path file_of_text(const std::string& text) const {
    std::ofstream(file_) << text;
    return file_;
  }

  struct Printed {
    int exit_code = -1;
    std::string out;
    std::string err;
  };
  Printed type(const std::filesystem::path& file = {}, WallTime now = kRosterNow,
               config::OutputFormat format = config::OutputFormat::kText) const {
    std::ostringstream out;
    std::ostringstream err;
    const int code = roster(file, state_, now, format, out, err);
    return {code, out.str(), err.str()};
  }
  // The epoch that is held; 0: none.
  std::uint64_t held() const {
    const auto self = identity::IdentityDirectory::load(state_.identity());
    SystemDisk disk;
    const auto roster = gossip::load_held_roster(disk, state_.gossip(), *self);
    return roster && *roster ? (*roster)->roster().epoch : 0;
  }
  // Refused in one line with `part` in it, and all is as it was.
  void expect_refused(const std::filesystem::path& file, const std::string& part,
                      WallTime now = kRosterNow) const {
    const std::uint64_t before = held();
    const Printed printed = type(file, now);
    EXPECT_NE(printed.exit_code, 0) << part;
    EXPECT_EQ(printed.out, "");
    EXPECT_THAT(printed.err, StartsWith("error: "));
    EXPECT_THAT(printed.err, HasSubstr(part));
    EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1) << printed.err;
    EXPECT_EQ(held(), before);
  }

  const testing::TemporaryDirectory directory_;
  const StateDirectory state_{directory_.path() / "state"};
  const std::filesystem::path file_ = directory_.path() / "net.roster";
  CertificateAuthority authority_ = make_authority("kitchen");
  Credentials owner_ =
      *authority_.issue_credentials({.role = Role::kIssuer, .name = "owner"}, kRosterNow);
  Credentials device_ =
      *authority_.issue_credentials({.role = Role::kPeer, .name = "cam-7"}, kRosterNow);
};

TEST_F(RosterCommandTest, TakesARosterAndSaysWhatItIs) {
  const Printed printed = type(file_of(roster_of(3)));
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_EQ(
      printed.out,
      "epoch 3 of faces with 2 members, valid until 2026-11-20T09:10:00.000Z, signed by issuer "
      "owner; cam-7 is a member that others dial at 10.0.0.7:7000\n"
      "installed; run: " +
          state_.command("start") + "\n");
  EXPECT_EQ(std::filesystem::status(state_.gossip()).permissions(),
            std::filesystem::perms::owner_all);
  EXPECT_EQ(*read_file(state_.gossip() / "roster", 1 << 20), *read_file(file_, 1 << 20))
      << "as it was signed";
}

TEST_F(RosterCommandTest, ShowsTheOneThatIsHeld) {
  expect_refused("", "or from a file that the owner signed: " + state_.command("roster FILE"));
  ASSERT_EQ(type(file_of(roster_of(3))).exit_code, 0);
  EXPECT_THAT(type().out, StartsWith("epoch 3 of faces with 2 members, valid until "));
  EXPECT_THAT(type().out, Not(HasSubstr("installed")));
  EXPECT_THAT(type("", kRosterNow + hours(1)).out,
              HasSubstr("expired at 2026-11-20T09:10:00.000Z"));
  const auto json = boost::json::parse(type("", kRosterNow, config::OutputFormat::kJson).out);
  EXPECT_EQ(json.at("epoch"), 3);
  EXPECT_EQ(json.at("state"), "running");
  EXPECT_EQ(json.at("member"), true);
  EXPECT_EQ(json.at("installed"), false);
  EXPECT_EQ(json.at("members").at(0).at("address"), "10.0.0.7:7000");
  EXPECT_TRUE(json.at("members").at(1).at("address").is_null());
  EXPECT_TRUE(json.at("revoked").as_array().empty());
}

TEST_F(RosterCommandTest, ListsTheKeysThatARosterRevokes) {
  Roster roster = roster_of(3);
  roster.revoked = {sha256(as_bytes(std::string_view("stolen")))};
  ASSERT_EQ(type(file_of(roster)).exit_code, 0);
  const auto json = boost::json::parse(type("", kRosterNow, config::OutputFormat::kJson).out);
  ASSERT_EQ(json.at("revoked").as_array().size(), 1U);
  EXPECT_EQ(json.at("revoked").at(0).as_string(), roster.revoked.front().hex());
}

TEST_F(RosterCommandTest, OnlyANewerOneTakesItsPlace) {
  ASSERT_EQ(type(file_of(roster_of(3))).exit_code, 0);
  EXPECT_EQ(type(file_).exit_code, 0) << "the very same again";
  expect_refused(file_of(roster_of(2, kRosterNow + minutes(1))), "holds epoch 3 of faces");
  expect_refused(file_of(roster_of(3, kRosterNow - minutes(1))), "--epoch 4");
  Roster other = roster_of(3);  // of the same moment
  other.members.pop_back();
  expect_refused(file_of(other), "this device holds epoch 3");
  other = roster_of(3, kRosterNow + minutes(1));  // later, but no renewal
  other.run = "hands";
  expect_refused(file_of(other), "epoch 3 of hands, issued ");
  EXPECT_EQ(type(file_of(roster_of(3, kRosterNow + minutes(1)))).exit_code, 0) << "renewed";
  EXPECT_EQ(type(file_of(roster_of(4))).exit_code, 0) << "a later epoch";
  EXPECT_EQ(held(), 4U);
}

TEST_F(RosterCommandTest, RefusesWhatWasNotSignedByWhoMay) {
  const SignedRoster good = *SignedRoster::sign(roster_of(3), owner_);
  const std::string text(as_text(good.bytes().view()));
  std::string changed = text;
  changed.replace(changed.find("cam-8"), 5, "cam-9");
  expect_refused(file_of_text(changed), "changed after it was signed; copy it once more");
  expect_refused(file_of_text(text.substr(0, text.size() / 2)), "copy it once more");
  expect_refused(file_of_text(""), "malformed");
  CertificateAuthority strangers = make_authority("kitchen");
  expect_refused(file_of(roster_of(3), *strangers.issue_credentials(
                                           {.role = Role::kIssuer, .name = "owner"}, kRosterNow)),
                 "with the authority's key of this federation");
  CertificateAuthority garage = make_authority("garage");
  Roster foreign = roster_of(3);
  foreign.federation = "garage";
  expect_refused(file_of(foreign, *garage.issue_credentials(
                                      {.role = Role::kIssuer, .name = "owner"}, kRosterNow)),
                 "of the federation garage, not of kitchen");
  expect_refused(directory_.path() / "none", "starling-coordinator gossip sign");
}

// Its server's key signed it: what this device held before its update counts, no other does.
TEST_F(RosterCommandTest, GoesOnFromWhatACoordinatorOfAnEarlierVersionSigned) {
  const auto coordinator = *authority_.issue_credentials(
      {.role = Role::kCoordinator, .name = "coordinator", .addresses = {"h"}}, kRosterNow);
  const std::string text =
      testing::signed_again(*SignedRoster::sign(roster_of(3), owner_), coordinator);
  expect_refused(file_of_text(text), "of an earlier version: update its service first");
  std::filesystem::create_directories(state_.gossip());
  std::ofstream(state_.gossip() / "roster") << text;
  EXPECT_EQ(held(), 3U);
  expect_refused(file_of(roster_of(2, kRosterNow + minutes(1))), "holds epoch 3 of faces");
  const auto issuer =
      *authority_.issue_credentials({.role = Role::kIssuer, .name = "coordinator"}, kRosterNow);
  const Printed renewed = type(file_of(roster_of(3, kRosterNow + minutes(1)), issuer));
  EXPECT_THAT(renewed.out, HasSubstr("signed by issuer coordinator")) << renewed.err;
}

TEST_F(RosterCommandTest, RefusesWhatHasExpired) {
  const auto file = file_of(roster_of(3));
  expect_refused(file,
                 "expired at 2026-11-20T09:10:00.000Z, and it is 2026-11-20T10:00:00.000Z now",
                 kRosterNow + hours(1));
  auto self = *identity::IdentityDirectory::load(state_.identity());
  ASSERT_TRUE(self.record_authenticated(kRosterNow + hours(2)));
  expect_refused(file, "2026-11-20T11:00:00.000Z now", kRosterNow);  // the clock was set back
}

TEST_F(RosterCommandTest, SaysWhatTheOwnerMustWriteForADeviceThatIsNoMember) {
  const std::string line =
      "--members' is: cam-7 " + device_.certificate.public_key_digest().hex() + " [HOST:PORT]";
  Roster without = roster_of(3);
  without.members.erase(without.members.begin());
  expect_refused(file_of(without), "cam-7 is not in the roster; ");
  expect_refused(file_of(without), line);
  Roster other_key = roster_of(3);
  other_key.members[0].key = sha256(as_bytes("an older key"));
  expect_refused(file_of(other_key), "in the roster with another key; its line");
}

TEST_F(RosterCommandTest, SaysWhatElseARosterIsFor) {
  Roster ended = roster_of(3);
  ended.settings = identity::stopped_settings();
  EXPECT_THAT(type(file_of(ended)).out, HasSubstr("; it tells the members to end"));
  Roster fallback = roster_of(4);
  fallback.settings = {{"fallback.run", "1"}};
  fallback.members[0].address.clear();
  EXPECT_THAT(type(file_of(fallback)).out,
              HasSubstr("a member that no other dials; it is for when the coordinator is gone"));
}

TEST_F(RosterCommandTest, ARunningProcessIsStoppedFirst) {
  const auto lock = StateLock::acquire(state_);
  expect_refused(file_of(roster_of(3)), "stop it, install the roster, start it again");
}

TEST_F(RosterCommandTest, ADamagedOneIsSaidAndReplaced) {
  ASSERT_TRUE(make_directory(state_.gossip()));
  std::ofstream(state_.gossip() / "roster") << "starling-roster/1\n";
  expect_refused("", "the device does not use it; bring another");
  EXPECT_EQ(type(file_of(roster_of(1))).exit_code, 0);
  EXPECT_EQ(held(), 1U);
}

TEST_F(RosterCommandTest, ACoordinatorsDirectoryTakesNone) {
  std::ofstream(state_.path / "coordinator.toml") << "[service]\n";
  expect_refused(file_of(roster_of(3)), "holds a coordinator");
}

TEST_F(RosterCommandTest, ADeviceThatNeverJoinedTakesNone) {
  std::filesystem::remove_all(state_.identity());
  EXPECT_THAT(type(file_of(roster_of(3))).err, HasSubstr("join a federation first"));
  EXPECT_FALSE(std::filesystem::exists(state_.gossip()));
}

}  // namespace
}  // namespace starling::edge_client
