// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/state_directory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "coordinator/service/coordinator_options.h"
#include "coordinator/service/server_credentials.h"
#include "core/identity/identity_directory.h"
#include "core/identity/peer_policy.h"
#include "core/identity/roster.h"
#include "core/store/sqlite_store.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

class StateDirectoryTest : public ::testing::Test {
 protected:
  std::string init_code(const std::filesystem::path& root, const InitOptions& options = {}) {
    const auto made = init_state_directory(root, options, clock);
    return made ? "made" : made.error().code();
  }

  SystemClock clock;
  testing::TemporaryDirectory directory;
};

TEST_F(StateDirectoryTest, InitMakesWhatServeNeeds) {
  const StateDirectory state(directory.path() / "My lab!");
  const auto made = init_state_directory(
      state.root(), {.listen = "127.0.0.1:17443", .names = {"lab.test"}}, clock);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->federation, "My-lab");
  const auto authority = identity::CertificateAuthority::load(state.authority()).value();
  EXPECT_EQ(authority.federation(), "My-lab");
  EXPECT_EQ(made->authority, authority.certificate().public_key_digest().hex());
  const auto operators = identity::IdentityDirectory::load(state.operator_identity()).value();
  EXPECT_EQ(operators.identity().uri(), "starling://My-lab/operator/operator");
  EXPECT_EQ(operators.coordinator().text(), "lab.test:17443");
  CoordinatorSettings settings;
  config::Binder binder;
  settings.bind(binder);
  ASSERT_TRUE(binder.read_file(state.options_file()));
  EXPECT_EQ(settings.names(), std::vector<std::string>{"lab.test"});
  EXPECT_EQ(settings.listen_address().value().port, 17443);
  const auto store = store::open_sqlite_store(state.database(), {}).value();
  EXPECT_EQ(store->federation().value().name, "My-lab");
  EXPECT_EQ(store->find_client("operator").value()->role, store::Role::kOperator);
  const auto mode = std::filesystem::status(state.root()).permissions();
  EXPECT_EQ(mode & std::filesystem::perms::others_all, std::filesystem::perms::none);
}

TEST_F(StateDirectoryTest, InitRefusesWhatItWouldSpoil) {
  std::ofstream(directory.path() / "thesis.txt") << "nearly done";
  EXPECT_EQ(init_code(directory.path()), "directory-not-empty");
  EXPECT_EQ(init_code(directory.path() / "thesis.txt"), "directory-not-empty");
  EXPECT_EQ(init_code(directory.path() / "a", {.federation = "no spaces"}), "bad-name");
  EXPECT_EQ(init_code(directory.path() / "a", {.listen = "7443"}), "setting-invalid");
  EXPECT_EQ(init_code(directory.path() / "a", {.listen = "127.0.0.1:0"}), "setting-invalid");
  EXPECT_EQ(init_code(directory.path() / "a", {.listen = "localhost:7443"}), "setting-invalid")
      << "no service could listen there";
  EXPECT_EQ(init_code(directory.path() / "a", {.names = {"no spaces"}}), "setting-invalid");
  EXPECT_EQ(init_code(directory.path() / "a", {.names = {std::string(64, 'a') + ".test"}}),
            "setting-invalid")
      << "no resolver takes a label of 64 letters";
  for (const char* name : {"0.0.0.0", "::", "10.1"}) {
    EXPECT_EQ(init_code(directory.path() / "a", {.names = {"lab.test", name}}), "setting-invalid")
        << "nobody can dial " << name;
  }
  for (const char* nothing : {"", " ", ","}) {
    EXPECT_EQ(init_code(directory.path() / "a", {.names = {nothing}}), "setting-invalid");
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "a")) << "a refusal leaves nothing";
}

TEST_F(StateDirectoryTest, AnInterruptedInitIsSaidToBeOne) {
  const auto root = directory.path() / "lab";
  ASSERT_EQ(init_code(root, {.names = {"lab.test"}}), "made");
  EXPECT_EQ(init_code(root, {.names = {"lab.test"}}), "directory-not-empty");
  std::filesystem::remove(StateDirectory(root).options_file());
  EXPECT_EQ(init_code(root, {.names = {"lab.test"}}), "init-interrupted");
  EXPECT_EQ(expect_not_interrupted(StateDirectory(root)).error().code(), "init-interrupted");
  for (const char* later : {"operator", "starling.db", "ca"}) {
    std::filesystem::remove_all(root / later);
    EXPECT_EQ(init_code(root, {.names = {"lab.test"}}), "init-interrupted") << later;
  }
  std::ofstream(root / "models" / "thesis.pt") << "trained for weeks";
  EXPECT_EQ(init_code(root, {.names = {"lab.test"}}), "directory-not-empty");
  std::filesystem::remove(root / "models" / "thesis.pt");
  std::ofstream(root / "thesis.txt") << "nearly done";
  EXPECT_EQ(init_code(root, {.names = {"lab.test"}}), "directory-not-empty");
  EXPECT_TRUE(expect_not_interrupted(StateDirectory(root)));
  EXPECT_TRUE(expect_not_interrupted(StateDirectory(directory.path() / "nowhere")));
}

TEST_F(StateDirectoryTest, ADirectoryThatHasServedIsNotToBeRemoved) {
  const StateDirectory state(directory.path() / "lab");
  ASSERT_EQ(init_code(state.root(), {.names = {"lab.test"}}), "made");
  std::ofstream(state.address()) << "127.0.0.1:7000\n";
  std::filesystem::remove(state.options_file());
  const Error error = expect_not_interrupted(state).error();
  EXPECT_EQ(error.code(), "file-missing");
  EXPECT_NE(error.message().find("put the file back"), std::string::npos) << error.message();
  EXPECT_EQ(init_code(state.root(), {.names = {"lab.test"}}), "file-missing");
}

TEST_F(StateDirectoryTest, TheServersCertificateIsKeptUntilItsNamesOrItsTimeAreUp) {
  const StateDirectory state(directory.path() / "lab");
  ASSERT_EQ(init_code(state.root(), {.names = {"lab.test", "10.0.0.1"}}), "made");
  const auto authority = identity::CertificateAuthority::load(state.authority()).value();
  const WallTime now = clock.wall_now();
  CoordinatorSettings settings;
  settings.service.names = "lab.test, 10.0.0.1";
  const auto serial = [&](WallTime when) {
    return server_credentials(state, authority, settings, when).value().certificate.serial();
  };
  const std::string first = serial(now);
  EXPECT_EQ(serial(now), first);
  settings.service.names = "lab.test";
  EXPECT_EQ(serial(now), first) << "a certificate may name more than is asked";
  settings.service.names = "lab.test, 10.0.0.2";
  const std::string second = serial(now);
  EXPECT_NE(second, first);
  EXPECT_EQ(serial(now + std::chrono::hours(24 * 59)), second);
  EXPECT_NE(serial(now + std::chrono::hours(24 * 61)), second) << "a third of 90 days is left";
}

// Of a state directory that init has made.
class CertificatesOfAServiceTest : public StateDirectoryTest {
 protected:
  CertificatesOfAServiceTest() { settings.service.names = "lab.test"; }

  const StateDirectory state{directory.path() / "lab"};
  const std::string made = init_code(state.root(), {.names = {"lab.test"}});
  const identity::CertificateAuthority authority =
      identity::CertificateAuthority::load(state.authority()).value();
  const WallTime now = clock.wall_now();
  CoordinatorSettings settings;
};

TEST_F(CertificatesOfAServiceTest, TheIssuersKeyIsItsOwnAndKeptUntilItsTimeIsUp) {
  ASSERT_EQ(made, "made");
  const auto issuer = [&](WallTime when) {
    return issuer_credentials(state, authority, settings, when).value().certificate;
  };
  EXPECT_TRUE(std::filesystem::exists(state.authority() / "issuer-key.pem")) << "made by init";
  const identity::Certificate first = issuer(now);
  EXPECT_EQ(first.identity().value(),
            (identity::Identity{"lab", identity::Role::kIssuer, "coordinator"}));
  const auto server = server_credentials(state, authority, settings, now).value().certificate;
  EXPECT_NE(first.public_key_digest(), server.public_key_digest());
  EXPECT_EQ(issuer(now).serial(), first.serial());
  settings.service.names = "other.test";
  EXPECT_EQ(issuer(now + std::chrono::hours(24 * 59)).serial(), first.serial());
  const identity::Certificate second = issuer(now + std::chrono::hours(24 * 61));
  EXPECT_NE(second.serial(), first.serial()) << "a third of 90 days is left";
  for (const char* removed : {"issuer-key.pem", "issuer-certificate.pem"}) {
    const Sha256Digest before = issuer(now).public_key_digest();
    std::filesystem::remove(state.authority() / removed);
    EXPECT_NE(issuer(now).public_key_digest(), before) << removed;
  }
  // Not one that may take revocations back.
  const auto owner = *authority.issue_credentials(
      {.role = identity::Role::kIssuer, .name = std::string(identity::kOwnerName)}, now);
  ASSERT_TRUE(owner.key.save(state.authority() / "issuer-key.pem"));
  std::ofstream(state.authority() / "issuer-certificate.pem") << owner.certificate.pem();
  EXPECT_EQ(issuer(now).identity()->name, "coordinator");
}

TEST_F(CertificatesOfAServiceTest, AfterItsClockRanAheadDevicesWithoutOneAreStillServed) {
  ASSERT_EQ(made, "made");
  for (const int days : {20, 80, 200, 364}) {
    const WallTime ahead = now + std::chrono::hours(24 * days);
    const auto then = server_credentials(state, authority, settings, ahead).value().certificate;
    const auto corrected = server_credentials(state, authority, settings, now).value().certificate;
    EXPECT_TRUE(corrected.validity().contains(now));
    for (const WallTime told : {ahead, then.validity().not_after - std::chrono::hours(1)}) {
      const WallTime judged = identity::verification_time(
          corrected.validity(), {.now = WallTime(), .last_authenticated = told});
      EXPECT_TRUE(corrected.validity().contains(judged)) << days << " days ahead";
    }
  }
  const WallTime far = now + std::chrono::hours(24 * 365 * 8);
  ASSERT_TRUE(server_credentials(state, authority, settings, far));
  const auto corrected = server_credentials(state, authority, settings, now).value().certificate;
  EXPECT_LT(corrected.validity().not_after, now + std::chrono::hours(24 * (365 + 91)))
      << "no device was served so far ahead";
}

TEST_F(StateDirectoryTest, SettingsThatDoNotGoTogetherAreRefused) {
  CoordinatorSettings settings;
  EXPECT_TRUE(settings.validate());
  settings.session.heartbeat = settings.session.silence;
  EXPECT_EQ(settings.validate().error().code(), "setting-invalid");
  settings = {};
  settings.service.listen = "nowhere";
  EXPECT_EQ(settings.validate().error().code(), "setting-invalid");
  settings = {};
  settings.service.names = " a.test ,, [::1], a.test";
  EXPECT_FALSE(settings.validate());
  settings.service.names = " a.test ,, ::1, a.test";
  EXPECT_TRUE(settings.validate());
  EXPECT_EQ(settings.names(), (std::vector<std::string>{"a.test", "::1"}));
  settings.service.names = "bad name";
  EXPECT_EQ(settings.validate().error().message(),
            "service.names: \"bad name\" is neither a DNS name nor an address; write it without a "
            "port, such as fl.example.org or 10.0.0.1");
  settings = {};
  settings.service.listen = ":7443";
  EXPECT_EQ(settings.validate().error().message().find("fl.example.org"), std::string::npos)
      << "a name would be refused as well";
}

}  // namespace
}  // namespace starling::coordinator
