// SPDX-License-Identifier: Apache-2.0
// `starling-edge join` against the coordinator's own enrolment, over real sockets.
#include "edge_client/join_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/durable_file.h"
#include "core/enrol/enrolment_service.h"
#include "tests/edge_client/edge_fixture.h"
#include "tests/enrol/memory_ledger.h"
#include "tests/net/loopback.h"
#include "tests/support/temporary_directory.h"

namespace starling::edge_client {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kNow;

class JoinCommandTest : public ::testing::Test, protected testing::Loopback {
 protected:
  JoinCommandTest() : tasks_(loop), service_(loop, authority, ledger_, clock_, log_, {}) {
    net::ListenerHandlers handlers;
    handlers.on_connection = [this](std::unique_ptr<net::Connection> connection) {
      tasks_.spawn(service_.serve(std::move(connection)));
    };
    const auto tls =
        net::TlsContext::make_server(coordinator, {{.protocol = net::Protocol::kEnrolment}});
    listener = *net::Listener::open(loop, *tls, {.host = "127.0.0.1"}, handlers);
  }
  ~JoinCommandTest() override {
    loop.run_task(listener->close());
    loop.run_task(tasks_.stop());
    listener = nullptr;
  }

  std::string new_token(const std::string& name = "cam-7") {
    const auto token = identity::JoinToken::make(authority.certificate().public_key_digest(),
                                                 "127.0.0.1", listener->port());
    const testing::MemoryLedger::Token granted{
        .key = token.key(), .grant = {.name = name}, .expires = kNow + hours(1)};
    ledger_.tokens.emplace(token.id.value(), granted);
    return token.text();
  }
  Result<identity::IdentityDirectory> join(const std::string& token, bool replace = false) {
    const JoinRequest request{.state = state_, .token = token, .replace = replace};
    return join_federation(loop, request, clock_);
  }
  std::string code(const std::string& token, bool replace = false) {
    const auto joined = join(token, replace);
    return joined ? joined->identity().name : joined.error().code();
  }

  testing::MemoryLedger ledger_;
  testing::FixedClock clock_{kNow};
  NullLog log_;
  net::TaskGroup tasks_;
  enrol::EnrolmentService service_;
  testing::TemporaryDirectory home_;
  StateDirectory state_{home_.path() / "cam"};
};

TEST_F(JoinCommandTest, MakesAStateDirectoryThatIsReadyToStart) {
  ASSERT_EQ(code(new_token()), "cam-7");
  EXPECT_TRUE(fs::is_directory(state_.pending()));
  EXPECT_THAT(*read_text_file(state_.options_file(), 1 << 16), HasSubstr("# dataset = "));
}

TEST_F(JoinCommandTest, AReplacementDoesNotGoOnFromTheFormerCheckpoint) {
  ASSERT_EQ(code(new_token()), "cam-7");
  fs::create_directories(state_.path / "gossip");
  const std::vector<const char*> former = {"checkpoint.safetensors", "checkpoint.state",
                                           "checkpoint.state.new", "fallback"};
  for (const char* name : former) std::ofstream(state_.path / "gossip" / name) << "floats";
  std::ofstream(state_.path / "gossip" / "model.safetensors") << "floats";
  std::ofstream(state_.pending() / "1.state") << "of the former federation's run 1";
  ASSERT_EQ(code(new_token("cam-8"), true), "cam-8");
  for (const char* name : former) EXPECT_FALSE(fs::exists(state_.path / "gossip" / name)) << name;
  EXPECT_TRUE(fs::is_directory(state_.pending()));
  EXPECT_TRUE(fs::is_empty(state_.pending()));
  EXPECT_TRUE(fs::exists(state_.path / "gossip" / "model.safetensors"));
}

// The server's state builds on it: without it, the next update would be biased for good.
TEST_F(JoinCommandTest, TheSameClientKeepsWhatItsStrategiesRemember) {
  ASSERT_EQ(code(new_token()), "cam-7");
  std::ofstream(state_.pending() / "1.state") << "of run 1";
  ASSERT_EQ(code(new_token(), true), "cam-7");
  EXPECT_TRUE(fs::exists(state_.pending() / "1.state"));
}

// Whoever was there before is compared also where only one of the two renames has been made.
TEST_F(JoinCommandTest, TheSameClientKeepsThemThroughACrash) {
  const auto crash_between_the_renames = [&] {
    fs::rename(state_.identity(), state_.path / "identity.new");
  };
  const auto crash_before_the_renames = [&] {
    crash_between_the_renames();
    fs::rename(state_.path / "identity.old", state_.identity());
  };
  const fs::path kept = state_.pending() / "1.state";
  ASSERT_EQ(code(new_token()), "cam-7");
  const std::string token = new_token();
  ASSERT_EQ(code(token, true), "cam-7");
  std::ofstream(kept) << "of run 1";
  crash_before_the_renames();
  EXPECT_EQ(code(token, true), "cam-7");
  EXPECT_TRUE(fs::exists(kept));
  crash_between_the_renames();
  EXPECT_EQ(code(token, true), "cam-7");
  EXPECT_TRUE(fs::exists(kept));

  const std::string other = new_token("cam-8");
  ASSERT_EQ(code(other, true), "cam-8");
  for (const std::function<void()>& crash :
       {std::function<void()>(crash_before_the_renames), {crash_between_the_renames}}) {
    std::ofstream(kept) << "of run 1";
    crash();
    EXPECT_EQ(code(other, true), "cam-8");
    EXPECT_FALSE(fs::exists(kept));
  }
}

TEST_F(JoinCommandTest, WhatTheOwnerWroteIntoEdgeTomlStays) {
  fs::create_directory(state_.path);
  std::ofstream(state_.options_file()) << "[data]\ndataset = \"csv:mine.csv\"\n";
  ASSERT_EQ(code(new_token()), "cam-7");
  EXPECT_THAT(*read_text_file(state_.options_file(), 1 << 16), HasSubstr("csv:mine.csv"));
}

TEST_F(JoinCommandTest, AfterALostReplyTheSameCommandFinishesTheWork) {
  const std::string token = new_token();
  ledger_.lose_next_reply = true;
  const auto lost = join(token);
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().message(), HasSubstr("the same command may be typed again"));
  EXPECT_EQ(code(token), "cam-7");
  EXPECT_EQ(ledger_.identities, 1);
}

TEST_F(JoinCommandTest, ADeviceThatHasJoinedSaysSo) {
  const std::string token = new_token();
  ASSERT_EQ(code(token), "cam-7");
  for (const std::string& again : {token, new_token("cam-8")}) {
    const auto second = join(again);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), "already-joined");
    EXPECT_THAT(second.error().message(),
                AllOf(HasSubstr("cam-7 of federation kitchen"), HasSubstr("--replace")));
  }
}

TEST_F(JoinCommandTest, AReplacementKeepsTheOldIdentityUntilItIsComplete) {
  ASSERT_EQ(code(new_token()), "cam-7");
  const std::string token = new_token("cam-8");
  ledger_.lose_next_reply = true;
  EXPECT_EQ(code(token, true), "coordinator-failed");
  EXPECT_EQ(identity::IdentityDirectory::load(state_.identity())->identity().name, "cam-7");
  EXPECT_EQ(code(token, true), "cam-8");
  EXPECT_EQ(identity::IdentityDirectory::load(state_.path / "identity.old")->identity().name,
            "cam-7");
  EXPECT_EQ(code(new_token("cam-9"), true), "cam-9");
}

TEST_F(JoinCommandTest, AReplacementThatACrashCutShortIsFinished) {
  ASSERT_EQ(code(new_token()), "cam-7");
  const std::string token = new_token("cam-8");
  ASSERT_EQ(code(token, true), "cam-8");
  // As if the process had died before each of the two renames.
  fs::rename(state_.identity(), state_.path / "identity.new");
  EXPECT_EQ(code(token, true), "cam-8");
  fs::rename(state_.identity(), state_.path / "identity.new");
  fs::rename(state_.path / "identity.old", state_.identity());
  EXPECT_EQ(code(token, true), "cam-8");
  EXPECT_EQ(ledger_.identities, 2);
}

TEST_F(JoinCommandTest, WhatACrashLeftIsNotInstalledForAnotherToken) {
  ASSERT_EQ(code(new_token()), "cam-7");
  const std::string interrupted = new_token("cam-8");
  ASSERT_EQ(code(interrupted, true), "cam-8");
  const auto back_before_the_renames = [&] {
    fs::rename(state_.identity(), state_.path / "identity.new");
    fs::rename(state_.path / "identity.old", state_.identity());
  };
  back_before_the_renames();
  EXPECT_EQ(code(interrupted), "already-joined");
  EXPECT_EQ(code(new_token("cam-9")), "already-joined");
  EXPECT_EQ(code(new_token("cam-9"), true), "cam-9");
  // Between the renames, when no identity is in place.
  fs::rename(state_.identity(), state_.path / "identity.new");
  EXPECT_EQ(code(new_token("cam-10")), "cam-10");
  EXPECT_EQ(code(new_token("cam-11"), true), "cam-11");
}

TEST_F(JoinCommandTest, ACoordinatorsDirectoryIsRefusedAndTheTokenStaysGood) {
  const std::string token = new_token();
  const fs::path mark = state_.path / "coordinator.toml";
  fs::create_directories(state_.path);
  std::ofstream(mark) << "[service]\n";
  EXPECT_EQ(code(token), "is-a-coordinator");
  EXPECT_EQ(std::distance(fs::directory_iterator(state_.path), {}), 1) << "nothing was made";
  fs::remove(mark);
  EXPECT_EQ(code(token), "cam-7");
}

TEST_F(JoinCommandTest, ARunningProcessKeepsItsIdentity) {
  ASSERT_EQ(code(new_token()), "cam-7");
  const auto lock = StateLock::acquire(state_);
  EXPECT_EQ(code(new_token(), true), "already-running");
}

TEST_F(JoinCommandTest, NonsenseMakesNothing) {
  EXPECT_EQ(code("STJ1-NONSENSE"), "bad-token");
  EXPECT_FALSE(fs::exists(state_.path));
}

}  // namespace
}  // namespace starling::edge_client
