// SPDX-License-Identifier: Apache-2.0
// `preflight` and `status` as their owner sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <future>

#include "core/identity/identity_directory.h"
#include "core/net/deadline.h"
#include "edge_client/preflight_command.h"
#include "edge_client/status_command.h"
#include "edge_client/status_file.h"
#include "gossip/peer/held_roster.h"
#include "tests/client/fake_trainer.h"
#include "tests/edge_client/edge_fixture.h"
#include "tests/edge_client/scripted_coordinator.h"
#include "tests/support/as_nobody.h"
#include "tests/support/free_port.h"
#include "tests/support/temporary_directory.h"

namespace starling::edge_client {
namespace {

using config::OutputFormat;
using std::chrono::hours;
using testing::FixedClock;
using ::testing::HasSubstr;
using testing::kNow;
using ::testing::Not;
using testing::RecordingLog;
using testing::ScriptedCoordinator;

class CommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const identity::HostPort address{"127.0.0.1", coordinator_.listener->port()};
    ASSERT_TRUE(
        identity::IdentityDirectory::save(state_.identity(), coordinator_.device(), address));
    options_.data.dataset = testing::kRows;
  }

  struct Printed {
    int exit_code = -1;
    std::string text;
  };
  // Runs beside the coordinator's loop, which the test goes on playing.
  std::future<Printed> preflight_beside(OutputFormat format = OutputFormat::kText) {
    return std::async(std::launch::async, [this, format] {
      std::ostringstream out;
      const PreflightRequest request{state_, options_, "test"};
      const int code = preflight(request, clock_, format, out);
      return Printed{code, out.str()};
    });
  }
  void play_greeting(WallTime wall = kNow) {
    coordinator_.accept();
    EXPECT_EQ(coordinator_.expect<protocol::Hello>().software, "starling-edge test");
    coordinator_.send(protocol::Welcome{
        .federation = "kitchen",
        .client = "cam-7",
        .heartbeat = std::chrono::seconds(10),
        .wall_time_ms = static_cast<std::uint64_t>(wall.time_since_epoch().count())});
    coordinator_.expect<protocol::Bye>();
    coordinator_.hang_up();
  }
  Printed print_status(OutputFormat format = OutputFormat::kText) {
    std::ostringstream out;
    std::ostringstream err;
    const int code = status(state_, kNow, format, out, err);
    return {code, out.str() + err.str()};
  }

  ScriptedCoordinator coordinator_;
  const testing::TemporaryDirectory directory_;
  const StateDirectory state_{directory_.path()};
  FixedClock clock_{kNow};
  EdgeOptions options_;
};

TEST_F(CommandsTest, AWrongFlagIsNotBlamedOnTheFile) {
  const starling::testing::TemporaryDirectory elsewhere;
  const StateDirectory state{elsewhere.path()};
  const auto remedy = [&](const char* message) {
    const Error error = wrong_setting("setting-invalid", message);
    return preflight_checks({state, error, "test"}, clock_).at(0).remedy;
  };
  EXPECT_EQ(remedy("--data.hold-out = '2' is out of range"), "correct the flag");
  EXPECT_EQ(remedy("edge.toml:1: data.hold-out = '2' is out of range"),
            "correct " + state.options_file().string());
}

TEST_F(CommandsTest, PreflightFindsNothingWrong) {
  auto printed = preflight_beside();
  play_greeting();
  const Printed result = printed.get();
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, Not(HasSubstr("FAILED")));
  EXPECT_THAT(result.text, HasSubstr("40 rows of 6 features, 3 classes; rows by class: 14 13 13"));
  EXPECT_THAT(result.text, HasSubstr("welcomes this device as cam-7"));
  EXPECT_THAT(result.text, HasSubstr("agrees with the coordinator's"));
}

TEST_F(CommandsTest, PreflightSaysHowManyRowsAreHeldOut) {
  const auto finding = [this](double hold_out) {
    options_.data.hold_out = hold_out;
    auto printed = preflight_beside();
    play_greeting();
    const Printed result = printed.get();
    EXPECT_EQ(result.exit_code, 0) << result.text;
    return result.text;
  };
  EXPECT_THAT(finding(0), Not(HasSubstr("held out")));
  EXPECT_THAT(finding(0.25), HasSubstr("data          ok     30 rows of 6 features, 3 classes; "
                                       "rows by class: "));
  EXPECT_THAT(finding(0.25), HasSubstr("; 10 rows held out; models of up to "));
}

TEST_F(CommandsTest, PreflightShowsWhatATrainerKeepsToItself) {
  const client::FakeTrainer fake("private");
  options_.data.dataset.clear();
  options_.trainer.command = fake.options.trainer.command;
  auto printed = preflight_beside();
  play_greeting();
  const Printed result = printed.get();
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("3 tensors, 5 values; 40 rows, 4 held out; private, and never "
                                     "sent: head [2, 3] float16"));
}

TEST_F(CommandsTest, PreflightFailsWhereATrainersModelDoesNotFit) {
  const client::FakeTrainer fake("enormous");
  options_.data.dataset.clear();
  options_.trainer.command = fake.options.trainer.command;
  auto printed = preflight_beside();
  play_greeting();
  const Printed result = printed.get();
  EXPECT_EQ(result.exit_code, 1) << result.text;
  EXPECT_THAT(result.text,
              HasSubstr("trainer       FAILED its model takes 4.0 TB, and limits.memory "
                        "leaves room for models of up to "));
  EXPECT_THAT(result.text, HasSubstr("raise limits.memory in edge.toml"));
}

TEST_F(CommandsTest, PreflightTriesToListenForPeers) {
  const std::string taken = "127.0.0.1:" + std::to_string(coordinator_.listener->port());
  for (const auto& [listen, code, finding] :
       {std::tuple("127.0.0.1:" + std::to_string(testing::free_port()), 0,
                   "listen        ok     peers may dial"),
        std::tuple(taken, 1, "listen        FAILED"),
        std::tuple(std::string("nonsense"), 1, "correct gossip.listen")}) {
    options_.gossip.listen = listen;
    auto printed = preflight_beside();
    play_greeting();
    const Printed result = printed.get();
    EXPECT_EQ(result.exit_code, code) << result.text;
    EXPECT_THAT(result.text, HasSubstr(finding));
  }
}

TEST_F(CommandsTest, PreflightComparesWithTheAddressThatTheRosterSays) {
  const auto self = *identity::IdentityDirectory::load(state_.identity());
  identity::Roster roster{.federation = "kitchen",
                          .run = "faces",
                          .epoch = 1,
                          .issued = kNow,
                          .expires = kNow + hours(1),
                          .members = {{.name = "cam-7",
                                       .key = self.credentials().certificate.public_key_digest(),
                                       .address = "127.0.0.1:29502"}}};
  const auto issuer = *coordinator_.authority.issue_credentials(
      {.role = identity::Role::kIssuer, .name = "coordinator"}, kNow);
  const auto hold = [&] {
    SystemDisk disk;
    const auto made = *identity::SignedRoster::sign(roster, issuer);
    ASSERT_TRUE(gossip::hold_roster(disk, state_.gossip(), made));
  };
  hold();
  const auto checked = [this](const std::string& listen) {
    options_.gossip.listen = listen;
    auto printed = preflight_beside();
    play_greeting();
    return printed.get();
  };
  EXPECT_THAT(checked("127.0.0.1:" + std::to_string(testing::free_port())).text,
              HasSubstr("peers dial 127.0.0.1:29502, as the roster says: unless that port is "
                        "forwarded to this one, say gossip.listen = \"127.0.0.1:29502\""));
  const Printed deaf = checked("");
  EXPECT_EQ(deaf.exit_code, 1);
  EXPECT_THAT(deaf.text, HasSubstr("this device does not listen"));
  EXPECT_THAT(deaf.text, HasSubstr("say listen = \"0.0.0.0:29502\" under [gossip]"));
  roster.members[0].address = "[::1]:29502";
  hold();
  EXPECT_THAT(checked("").text, HasSubstr("say listen = \"[::]:29502\" under [gossip]"));
  EXPECT_THAT(checked("[::1]:" + std::to_string(testing::free_port())).text,
              HasSubstr("say gossip.listen = \"[::1]:29502\""));
  roster.epoch = 2;
  roster.settings = identity::stopped_settings();
  hold();
  const Printed stopped = checked("");
  EXPECT_EQ(stopped.exit_code, 0) << stopped.text;
  EXPECT_THAT(stopped.text, Not(HasSubstr("listen")));
}

// Before there is a roster.
TEST_F(CommandsTest, PreflightComparesWithTheAddressThatTheCertificateHas) {
  coordinator_.loop.run_task(coordinator_.listener->close());  // it is not asked
  coordinator_.listener.reset();
  const auto peer = *coordinator_.authority.issue_credentials(
      {.role = identity::Role::kPeer, .name = "cam-7", .addresses = {"10.0.0.7"}}, kNow);
  std::filesystem::remove_all(state_.identity());
  ASSERT_TRUE(identity::IdentityDirectory::save(state_.identity(), peer, {"127.0.0.1", 1}));
  const auto listening = [this] {
    const auto checks = preflight_checks({state_, options_, "test"}, clock_);
    const auto found = std::ranges::find(checks, "listen", &Check::name);
    return found == checks.end() ? Check{} : *found;
  };
  EXPECT_FALSE(listening().ok);
  EXPECT_EQ(listening().finding,
            "peers dial 10.0.0.7, as its certificate says, and this device does not listen");
  EXPECT_THAT(listening().remedy, HasSubstr("say listen = \"0.0.0.0:PORT\" under [gossip]"));
  options_.gossip.listen = "127.0.0.1:" + std::to_string(testing::free_port());
  EXPECT_TRUE(listening().ok);
}

TEST_F(CommandsTest, PreflightNamesEverythingThatIsWrongAtOnce) {
  options_.data.dataset = "csv:/nonexistent/rows.csv";
  clock_.set(kNow + hours(2));
  auto printed = preflight_beside(OutputFormat::kJson);
  play_greeting();
  const Printed result = printed.get();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.text, HasSubstr("/nonexistent/rows.csv"));
  EXPECT_THAT(result.text, HasSubstr("make " + state_.options_file().string() + " with [data]"))
      << "there is no file yet to look into";
  EXPECT_THAT(result.text, HasSubstr("7200 s ahead of the coordinator's"));
  EXPECT_THAT(result.text, HasSubstr(R"({"ok":false,"checks":[{"name":"configuration","ok":true)"));
}

TEST_F(CommandsTest, PreflightSaysWhichColumnIsTheClass) {
  const auto rows = directory_.path() / "rows.csv";
  std::ofstream(rows) << "x,y,kind\n1,2,0\n3,4,1\n";
  options_.data.dataset = "csv:" + rows.string();
  auto printed = preflight_beside();
  play_greeting();
  EXPECT_THAT(printed.get().text, HasSubstr("2 classes in column 'kind'; rows by class: 1 1"));
}

TEST_F(CommandsTest, PreflightSaysWhenTheCoordinatorCannotBeReached) {
  coordinator_.loop.run_task(coordinator_.listener->close());
  coordinator_.listener.reset();
  const Printed result = preflight_beside().get();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.text, HasSubstr("connection    FAILED"));
  EXPECT_THAT(result.text,
              HasSubstr("(Connection refused)\n                     check that it runs"))
      << "its advice is given once";
  EXPECT_THAT(result.text, Not(HasSubstr("see that the coordinator runs")));
}

TEST_F(CommandsTest, PreflightNamesTheLimitThatTheDataExceed) {
  options_.data.dataset = "synthetic:rows=100000,features=6,classes=3";
  options_.limits.memory = 1;
  auto printed = preflight_beside();
  play_greeting();
  const Printed result = printed.get();
  EXPECT_THAT(result.text, HasSubstr("are allowed here (limits.memory)\n"));
  EXPECT_THAT(result.text, HasSubstr("raise limits.memory in edge.toml"));
}

TEST_F(CommandsTest, PreflightSaysWhenTheCoordinatorRefuses) {
  coordinator_.loop.run_task(coordinator_.listener->close());
  auto policy = testing::client_policy();
  policy.federation = "garage";
  coordinator_.listen_for({{.protocol = net::Protocol::kSession, .client = policy}});
  SetUp();
  auto printed = preflight_beside();
  EXPECT_EQ(net::run_task(coordinator_.loop, coordinator_.refusals.next()).error.code(),
            "wrong-federation");
  while (printed.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    coordinator_.loop.run_task(net::TaskGroup(coordinator_.loop).wait());
  }
  const Printed result = printed.get();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.text, HasSubstr("ask its operator for a new token"));
}

TEST_F(CommandsTest, PreflightSaysWhatToDoAboutAnExpiredCertificate) {
  auto printed = preflight_beside();
  coordinator_.accept();
  coordinator_.expect<protocol::Hello>();
  coordinator_.send(protocol::Bye{"certificate-expired", "it expired"});
  EXPECT_EQ(coordinator_.end(), "closed");
  coordinator_.hang_up();
  EXPECT_THAT(printed.get().text, HasSubstr("this device's certificate has expired"));
}

TEST_F(CommandsTest, PreflightTakesACertificateThatWasIssuedByAClockThatRanAhead) {
  const WallTime now = kNow - hours(24 * 20);
  clock_.set(now);
  auto printed = preflight_beside();
  play_greeting(now);
  const Printed result = printed.get();
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("which is still to come"));
}

TEST_F(CommandsTest, PreflightLeavesARunningProcessItsSession) {
  const auto lock = StateLock::acquire(state_);
  auto printed = preflight_beside();
  coordinator_.accept();
  EXPECT_EQ(coordinator_.end(), "closed") << "nothing was said";
  coordinator_.hang_up();
  const Printed result = printed.get();
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("the running process's"));
}

TEST_F(CommandsTest, PreflightOfADeviceThatNeverJoined) {
  std::filesystem::remove_all(state_.identity());
  const Printed result = preflight_beside().get();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.text, HasSubstr("starling-edge join TOKEN --state " + state_.path.string()));
}

TEST_F(CommandsTest, PreflightOfADirectoryThatMayNotBeSearched) {
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0), 0);
  Printed result;
  {
    const testing::AsNobody nobody;
    std::ostringstream out;
    result.exit_code = preflight({state_, options_, "test"}, clock_, OutputFormat::kText, out);
    result.text = out.str();
  }
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0700), 0);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.text, HasSubstr("configuration FAILED cannot look for "));
  EXPECT_THAT(result.text, HasSubstr("certificate   FAILED "));
  EXPECT_THAT(result.text, HasSubstr("run this as the user who owns " + state_.path.string()));
  EXPECT_THAT(result.text, Not(HasSubstr("defaults")));
  EXPECT_THAT(result.text, Not(HasSubstr("token")));
}

TEST_F(CommandsTest, StatusWithoutAProcessSaysHowToStartOne) {
  const Printed result = print_status();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.text, HasSubstr("cam-7 of federation kitchen"));
  EXPECT_THAT(result.text, HasSubstr("none; run: starling-edge start --state"));
}

TEST_F(CommandsTest, StatusOfARunningProcess) {
  const auto lock = StateLock::acquire(state_);
  const EdgeStatus running{.federation = "kitchen",
                           .client = "cam-7",
                           .coordinator = "hub:7443",
                           .link = "up",
                           .activity = "training",
                           .task = EdgeStatus::Task{3, "fashion \"2nn\"", 4, 20},
                           .pending_updates = 1,
                           .updates_counted = 3,
                           .started = kNow - hours(1),
                           .last_connected = kNow,
                           .last_error = "no route",
                           .last_error_at = kNow - hours(1)};
  std::ofstream(state_.status_file()) << to_json(running);
  EXPECT_THAT(print_status().text, HasSubstr("training, run 3 'fashion \"2nn\"' round 4/20"));
  EXPECT_THAT(print_status().text,
              HasSubstr("last error     " + format_rfc3339(kNow - hours(1)) + ": no route\n"));
  const std::string json = print_status(OutputFormat::kJson).text;
  EXPECT_THAT(json, HasSubstr(R"("running":true)"));
  EXPECT_THAT(json, HasSubstr(R"("run":3)"));
  EXPECT_EQ(*read_status(state_.status_file()), running);
}

TEST_F(CommandsTest, AProblemStaysInItsColumn) {
  const auto lock = StateLock::acquire(state_);
  EdgeStatus::Gossip gossip;
  gossip.problem = "peer-2 cannot be dialled: 127.0.0.1:28392: there is no answer";
  std::ofstream(state_.status_file()) << to_json(EdgeStatus{.client = "cam-7", .gossip = gossip});
  std::ostringstream out;
  std::ostringstream err;
  ASSERT_EQ(status(state_, kNow, OutputFormat::kText, out, err, 60), 0);
  EXPECT_THAT(out.str(), HasSubstr("\n               peer-2 cannot be dialled: 127.0.0.1:28392:\n"
                                   "               there is no answer\n"));
}

// How many members are not known to be away says nothing where nobody was reached yet.
TEST_F(CommandsTest, StatusCountsLinks) {
  const auto lock = StateLock::acquire(state_);
  const EdgeStatus::Gossip gossip{
      .run_name = "net", .state = "training", .step = 7, .expected = 2, .links = 1, .reachable = 4};
  std::ofstream(state_.status_file()) << to_json(EdgeStatus{.client = "cam-7", .gossip = gossip});
  EXPECT_THAT(print_status().text, HasSubstr("training, run 'net' step 7, 0 of 2 neighbours heard, "
                                             "linked with 1 other member\n"));
}

TEST_F(CommandsTest, StatusSaysWhereTheModelOfAFinishedRunIs) {
  const auto lock = StateLock::acquire(state_);
  EdgeStatus::Gossip gossip{.run_name = "net", .state = "training"};
  const auto text = [&] {
    std::ofstream(state_.status_file()) << to_json(EdgeStatus{.client = "cam-7", .gossip = gossip});
    return print_status().text;
  };
  EXPECT_THAT(text(), Not(HasSubstr("model ")));
  gossip.state = "finished";
  gossip.model = "/srv/cam-7/gossip/model.safetensors";
  EXPECT_THAT(text(), HasSubstr("\nmodel          /srv/cam-7/gossip/model.safetensors\n"));
  EXPECT_THAT(text(), Not(HasSubstr("neighbours heard"))) << "as where it ended in an epoch before";
}

// As where the disk is full: the file stays as it was.
TEST_F(CommandsTest, StatusSaysHowOldItsFileIsWhereTheProcessRuns) {
  const auto renewed = [this](WallTime time) {
    std::filesystem::last_write_time(state_.status_file(),
                                     std::filesystem::file_time_type::clock::from_sys(time));
  };
  std::ofstream(state_.status_file()) << to_json(EdgeStatus{.client = "cam-7", .link = "up"});
  renewed(kNow - std::chrono::minutes(2));
  EXPECT_THAT(print_status().text, Not(HasSubstr("ago"))) << "no process runs";
  const auto lock = StateLock::acquire(state_);
  EXPECT_THAT(print_status().text,
              HasSubstr("as of " + format_rfc3339(kNow - std::chrono::minutes(2)) +
                        ", 120 s ago: the process cannot write " + state_.status_file().string()));
  renewed(kNow - std::chrono::seconds(6));
  EXPECT_THAT(print_status().text, Not(HasSubstr("ago")));
  std::filesystem::remove(state_.status_file());
  EXPECT_THAT(print_status().text, HasSubstr("status         not known: there is no "));
}

TEST_F(CommandsTest, AStatusThatStaysTheSameIsRenewed) {
  RecordingLog log;
  StatusWriter writer(coordinator_.loop, state_.status_file(), log);
  const auto pass = [this](std::chrono::milliseconds time) {
    const TimePoint until = coordinator_.loop.now() + time;
    EXPECT_TRUE(net::run_task(coordinator_.loop, net::sleep_until(coordinator_.loop, until)));
  };
  writer.set(EdgeStatus{.client = "cam-7"});
  const auto long_ago = std::filesystem::last_write_time(state_.status_file()) - hours(1);
  std::filesystem::last_write_time(state_.status_file(), long_ago);
  pass(std::chrono::milliseconds(400));
  EXPECT_GT(std::filesystem::last_write_time(state_.status_file()), long_ago);
  // And one that could not be written is written once it can be.
  std::filesystem::remove(state_.status_file());
  std::filesystem::create_directories(state_.status_file() / "in" / "the" / "way");
  writer.set(EdgeStatus{.client = "cam-8"});
  pass(std::chrono::milliseconds(300));
  EXPECT_EQ(log.count("cannot write"), 1U);
  std::filesystem::remove_all(state_.status_file());
  pass(std::chrono::milliseconds(2200));
  EXPECT_EQ(read_status(state_.status_file())->client, "cam-8");
  EXPECT_EQ(log.count("is written again"), 1U);
}

TEST_F(CommandsTest, StatusSurvivesADamagedFile) {
  const std::string whole = to_json(EdgeStatus{.client = "cam-7"});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_status(whole.substr(0, size))) << size;
  }
  EXPECT_FALSE(parse_status(R"({"link":7})"));
  std::ofstream(state_.status_file()) << whole.substr(1);
  EXPECT_EQ(print_status().exit_code, 0);
}

TEST_F(CommandsTest, StatusOfADeviceThatNeverJoinedFails) {
  std::filesystem::remove_all(state_.identity());
  const Printed result = print_status();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.text, HasSubstr("error: "));
}

}  // namespace
}  // namespace starling::edge_client
