// SPDX-License-Identifier: Apache-2.0
// Who may be connected to the service, and for how long: raw connections with real certificates.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <list>

#include "core/base/durable_file.h"
#include "core/enrol/join.h"
#include "core/net/deadline.h"
#include "core/store/sqlite_store.h"
#include "edge_client/coordinator_link.h"
#include "tests/coordinator/test_federation.h"
#include "tests/support/machine_stopwatch.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using testing::TestFederation;

// A connection with an identity, that says and hears what a test wants.
class RawConnection {
 public:
  RawConnection(const std::filesystem::path& identity, std::uint16_t port, const Clock& clock)
      : identity_(identity::IdentityDirectory::load(identity).value()) {
    auto tls = edge_client::make_coordinator_tls(identity_, clock).value();
    auto made = net::run_task(loop_, net::connect(loop_, "127.0.0.1", port, std::move(tls), {}));
    if (made) {
      connection_ = std::move(*made);
    } else {
      refusal_ = made.error().code();
    }
  }
  // Empty: connected.
  const std::string& refusal() const { return refusal_; }

  void send(protocol::Message message) {
    ASSERT_TRUE(link::send(*connection_, {std::move(message), {}}));
  }
  // The next message, or how the connection ended: "Welcome", "Bye certificate-revoked", ...
  std::string next() {
    std::string heard;
    loop_.run_task(read(heard));
    return heard;
  }
  // Of the last plan.
  TaskId task() const { return task_; }
  // With rows of this shape, if any.
  std::string greet(const std::vector<std::uint32_t>& input = {}) {
    const std::uint32_t classes = input.empty() ? 0 : 3;
    send(protocol::Hello{.software = "test", .input = input, .classes = classes});
    return next();
  }

 private:
  net::Async<void> read(std::string& heard) {
    const TimePoint deadline = loop_.now() + 60s;
    auto reading = connection_->read_frame(limits_);
    auto frame = co_await net::with_deadline(loop_, deadline, "reading", std::move(reading));
    if (!frame) {
      heard = frame.error().code();
      co_return;
    }
    const auto envelope = link::decode(*frame);
    heard = wire::to_string(wire::frame_type(envelope->message));
    if (const auto* bye = std::get_if<protocol::Bye>(&envelope->message)) heard += " " + bye->code;
    if (heard == "Welcome") limits_.expect(wire::from_coordinator(true));
    if (const auto* plan = std::get_if<protocol::RoundPlan>(&envelope->message)) task_ = plan->task;
  }

  identity::IdentityDirectory identity_;
  net::EventLoop loop_;
  std::unique_ptr<net::Connection> connection_;
  std::string refusal_;
  TaskId task_;
  link::MessageLimits limits_{wire::from_coordinator(false)};
};

class ServiceSessionsTest : public ::testing::Test {
 protected:
  RawConnection connect(const std::filesystem::path& device) {
    return {device / "identity", federation.port(), federation.clock};
  }
  bool is_connected(const std::string& name) {
    return federation.ask("client-show", {{"name", name}}).value().at("connected").as_bool();
  }

  std::string last_seen(const std::string& name) {
    const auto client = federation.ask("client-show", {{"name", name}}).value();
    return client.at("last_seen").as_string().c_str();
  }
  // What a process that is killed now leaves behind.
  std::optional<WallTime> seen_after_a_crash(const std::string& name) {
    const testing::TemporaryDirectory left;
    const auto database = federation.state().database();
    const StateDirectory copy(left.path());
    std::filesystem::copy_file(database, copy.database());
    std::filesystem::copy_file(database.string() + "-wal", copy.database().string() + "-wal");
    auto store = store::open_sqlite_store(copy.database(), {});
    return store.value()->find_client(name).value()->last_seen;
  }
  std::string state(const std::string& name) {
    const auto client = federation.ask("client-show", {{"name", name}}).value();
    return client.at("state").as_string().c_str();
  }

  TestFederation federation;
};

TEST_F(ServiceSessionsTest, ADeviceIsConnectedOnceItHasGreeted) {
  federation.start_service();
  const auto device = federation.join("cam-7");
  EXPECT_FALSE(is_connected("cam-7"));
  RawConnection connection = connect(device);
  EXPECT_EQ(connection.greet(), "Welcome");
  EXPECT_TRUE(is_connected("cam-7"));
  const std::string greeted = last_seen("cam-7");
  federation.clock.put_forward(std::chrono::hours(2));
  connection.send(protocol::Ping{});
  EXPECT_EQ(connection.next(), "Pong");
  const std::string pinged = last_seen("cam-7");
  EXPECT_GE(*parse_rfc3339(pinged), *parse_rfc3339(greeted) + std::chrono::hours(2));
  connection.send(protocol::Bye{"stopped", ""});
  EXPECT_EQ(connection.next(), "closed");
  EXPECT_FALSE(is_connected("cam-7"));
}

TEST_F(ServiceSessionsTest, WhenADeviceWasHeardOutlivesACrash) {
  federation.start_service();
  const auto device = federation.join("cam-7");
  RawConnection connection = connect(device);
  EXPECT_EQ(connection.greet(), "Welcome");
  ASSERT_TRUE(is_connected("cam-7"));
  const auto greeted = seen_after_a_crash("cam-7");
  ASSERT_TRUE(greeted);
  federation.clock.put_forward(std::chrono::hours(2));
  connection.send(protocol::Ping{});
  EXPECT_EQ(connection.next(), "Pong");
  ASSERT_TRUE(is_connected("cam-7"));
  EXPECT_GE(*seen_after_a_crash("cam-7"), *greeted + std::chrono::hours(2));
}

TEST_F(ServiceSessionsTest, AnOperatorIsSeenAndConnectedWhileItAsks) {
  federation.start_service();
  const auto list = federation.ask("client-list", {{"role", "operator"}}).value();
  ASSERT_EQ(list.as_array().size(), 1U);
  EXPECT_EQ(list.at(0).at("connected"), true);
  EXPECT_TRUE(list.at(0).at("last_seen").is_string());
  EXPECT_TRUE(seen_after_a_crash(list.at(0).at("name").as_string().c_str()));
}

TEST_F(ServiceSessionsTest, MembersOfAGossipNetworkAreSentItsRosterAndReport) {
  federation.start_service();
  const auto first = federation.join("cam-1", "peer");
  const auto second = federation.join("cam-2", "peer");
  RawConnection early = connect(first);
  EXPECT_EQ(early.greet(), "Welcome");
  ASSERT_TRUE(federation.ask("gossip-start", {{"run", "faces"}}, "[topology]\nspec = \"ring\"\n"));
  EXPECT_EQ(early.next(), "RosterPart");
  RawConnection late = connect(second);
  EXPECT_EQ(late.greet(), "Welcome");
  EXPECT_EQ(late.next(), "RosterPart");
  late.send(protocol::PeerReport{.epoch = 1, .step = 9, .state = "training", .linked = 2});
  late.send(protocol::Relay{.peer = "cam-1", .type = 18, .header = Bytes(8)});  // a greeting
  late.send(protocol::Ping{});
  EXPECT_EQ(late.next(), "Pong");
  EXPECT_EQ(early.next(), "Relay");
  const auto shown = federation.ask("gossip-show").value();
  EXPECT_EQ(shown.at("members").at(1).at("report").at("step"), 9);
  EXPECT_EQ(shown.at("members").at(1).at("report").at("links"), 1) << "with others";
  EXPECT_EQ(shown.at("members").at(1).at("connected"), true);
  for (RawConnection* member : {&early, &late}) {
    member->send(protocol::PeerReport{.epoch = 1, .state = "refused"});
    member->send(protocol::Ping{});
    EXPECT_EQ(member->next(), "Pong");
  }
  EXPECT_EQ(federation.ask("gossip-show").value().at("state"), "refused") << "by all";
  ASSERT_TRUE(federation.ask("client-revoke", {{"name", "cam-2"}}));
  EXPECT_EQ(early.next(), "Relay") << "that the other end is away";
  EXPECT_EQ(early.next(), "RosterPart");
  EXPECT_EQ(federation.ask("gossip-show").value().at("state"), "running") << "of a later epoch";
  early.send(
      protocol::VectorTransfer{.id = TaskId(5), .content = protocol::MixMessage{.first = 1}});
  EXPECT_EQ(early.next(), "Bye bad-message");
}

TEST_F(ServiceSessionsTest, RevocationCutsWithinASecondAndForGood) {
  federation.start_service();
  const auto device = federation.join("cam-7");
  RawConnection greeted = connect(device);
  EXPECT_EQ(greeted.greet(), "Welcome");
  RawConnection silent = connect(device);
  const testing::MachineStopwatch since_revocation;
  EXPECT_EQ(federation.ask("client-revoke", {{"name", "cam-7"}}).value().at("state"), "revoked");
  EXPECT_EQ(greeted.next(), "Bye certificate-revoked");
  EXPECT_EQ(greeted.next(), "closed");
  EXPECT_EQ(silent.next(), "Bye certificate-revoked");
  EXPECT_LT(since_revocation.seconds(), 1);
  EXPECT_EQ(connect(device).refusal(), "refused-certificate-revoked");
  federation.log.wait_for("certificate-revoked");

  // After a restart too; and the name may join again with another key.
  federation.stop_service();
  federation.start_service();
  EXPECT_EQ(connect(device).refusal(), "refused-certificate-revoked");
  std::filesystem::rename(device, device.string() + "-old");
  EXPECT_EQ(connect(federation.join("cam-7")).greet(), "Welcome");
  EXPECT_EQ(connect(device.string() + "-old").refusal(), "refused-certificate-revoked");
}

TEST_F(ServiceSessionsTest, AfterARevocationTheOthersMayAgreeOnTheShapeOfTheirData) {
  federation.start_service();
  const std::string job = "[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 2\n";
  ASSERT_TRUE(federation.ask("run-submit", {}, job));
  std::list<RawConnection> connections;
  for (const std::uint32_t features : {20, 7, 9, 20}) {
    const auto device = federation.join("cam-" + std::to_string(connections.size()));
    connections.emplace_back(device / "identity", federation.port(), federation.clock);
    EXPECT_EQ(connections.back().greet({features}), "Welcome");
  }
  EXPECT_EQ(federation.ask("run-state", {{"id", "1"}}).value().at("state"), "pending");
  ASSERT_TRUE(federation.ask("client-revoke", {{"name", "cam-2"}}));
  federation.log.wait_for("run 1: data: 20 features, 3 classes, as 2 of 3 clients announced");
}

TEST_F(ServiceSessionsTest, ACertificateThatExpiresEndsItsConnection) {
  federation.settings().enrol.certificate_lifetime = std::chrono::hours(24 * 30);
  federation.start_service();
  const auto device = federation.join("cam-7");
  RawConnection connection = connect(device);
  EXPECT_EQ(connection.greet(), "Welcome");
  EXPECT_EQ(state("cam-7"), "active");
  federation.clock.put_forward(std::chrono::hours(24 * 31));
  connection.send(protocol::Ping{});
  EXPECT_EQ(connection.next(), "Bye certificate-expired");
  EXPECT_EQ(state("cam-7"), "expired");
  EXPECT_EQ(connect(device).refusal(), "refused-certificate-expired");
  std::filesystem::rename(device, device.string() + "-old");
  EXPECT_EQ(connect(federation.join("cam-7")).greet(), "Welcome") << "it joins again";
}

TEST_F(ServiceSessionsTest, WhoJoinedWhileTheClockRanAheadConnectsOnceItIsRight) {
  const auto ahead = std::chrono::hours(24 * 400);
  federation.settings().enrol.certificate_lifetime = std::chrono::hours(24 * 30);
  federation.start_service();
  federation.stop_service();
  federation.clock.put_forward(ahead);
  federation.start_service();
  const auto device = federation.join("cam-7");
  const auto peer = federation.join("cam-8", "peer", "127.0.0.1:7000");
  EXPECT_EQ(connect(device).greet(), "Welcome");
  federation.stop_service();
  federation.clock.put_forward(-ahead);
  federation.start_service();
  for (const auto& one : {device, peer}) {
    RawConnection connection = connect(one);
    ASSERT_EQ(connection.refusal(), "");
    EXPECT_EQ(connection.greet(), "Welcome");
  }
  EXPECT_TRUE(federation.ask("client-list")) << "the operator's certificate was renewed meanwhile";
  federation.stop_service();
  federation.clock.put_forward(ahead + std::chrono::hours(24 * 31));
  federation.start_service();
  EXPECT_EQ(connect(device).refusal(), "refused-certificate-expired");
}

TEST_F(ServiceSessionsTest, TheServicesOwnCertificatesAreRenewedInTime) {
  federation.start_service();
  federation.stop_service();
  const auto file = federation.state().authority() / "issuer-certificate.pem";
  const auto issuer = [&] { return identity::Certificate::load(file).value(); };
  const std::string before = issuer().serial();
  federation.clock.put_forward(std::chrono::hours(24 * 300));  // of 90 and 365 days
  federation.start_service();
  EXPECT_TRUE(federation.ask("client-list"));
  EXPECT_NE(issuer().serial(), before);
  EXPECT_TRUE(issuer().validity().contains(federation.clock.wall_now()));
  federation.stop_service();
  federation.clock.put_forward(std::chrono::hours(24 * 80));
  federation.start_service();
  EXPECT_TRUE(federation.ask("client-list"));
}

// Rosters are all that it is good for.
TEST_F(ServiceSessionsTest, TheKeyThatSignsRostersOpensNoConnection) {
  federation.start_service();
  const auto ca = federation.state().authority();
  const auto load = [&](const char* name) {
    return identity::Certificate::load(ca / name).value();
  };
  const identity::Credentials issuer{identity::PrivateKey::load(ca / "issuer-key.pem").value(),
                                     load("issuer-certificate.pem"),
                                     {load("certificate.pem")}};
  const testing::TemporaryDirectory stolen;
  ASSERT_TRUE(identity::IdentityDirectory::save(stolen.path() / "identity", issuer,
                                                {"127.0.0.1", federation.port()}));
  EXPECT_EQ(connect(stolen.path()).refusal(), "refused-wrong-role");
}

TEST_F(ServiceSessionsTest, TheOperatorKeepsItsKeyAndGetsAnotherForADamagedOne) {
  federation.start_service();
  federation.stop_service();
  const auto key = federation.state().operator_identity() / "key.pem";
  const std::string before = read_text_file(key, 4096).value();
  federation.clock.put_forward(std::chrono::hours(24 * 300));  // of 365
  federation.start_service();
  EXPECT_EQ(read_text_file(key, 4096).value(), before);
  federation.stop_service();
  ASSERT_TRUE(identity::PrivateKey::generate().save(key));
  federation.start_service();
  EXPECT_TRUE(federation.ask("client-list"));
  federation.log.wait_for("the operator gets a new identity");
}

TEST_F(ServiceSessionsTest, ADeviceThatSpeaksLikeAnOperatorIsCutOff) {
  federation.start_service();
  const auto device = federation.join("cam-7");
  RawConnection connection = connect(device);
  EXPECT_EQ(connection.greet(), "Welcome");
  connection.send(protocol::OperatorRequest{.id = 1, .command = "client-list"});
  EXPECT_EQ(connection.next(), "Bye unexpected-frame");
  EXPECT_EQ(connection.next(), "closed");
  federation.log.wait_for("cam-7 disconnected (unexpected-frame)");
}

TEST_F(ServiceSessionsTest, ADeviceThatConnectsAgainAndAgainGetsAFewLines) {
  federation.start_service();
  const auto device = federation.join("cam-7");
  for (int i = 0; i < 20; ++i) {
    RawConnection connection = connect(device);
    EXPECT_EQ(connection.greet(), "Welcome");
  }
  const auto said = federation.log.count("cam-7 connected from");
  EXPECT_GE(said, 5U);
  EXPECT_LT(said, 20U) << "within less than three minutes";
}

TEST_F(ServiceSessionsTest, ANewConnectionReplacesAnOlderOne) {
  federation.start_service();
  const auto device = federation.join("cam-7");
  RawConnection older = connect(device);
  EXPECT_EQ(older.greet(), "Welcome");
  RawConnection newer = connect(device);
  EXPECT_EQ(newer.greet(), "Welcome");
  EXPECT_EQ(older.next(), "Bye replaced");
  EXPECT_TRUE(is_connected("cam-7"));
}

TEST_F(ServiceSessionsTest, AClientHoldsSoManyConnectionsAtATime) {
  federation.settings().session.per_client = 2;
  federation.start_service();
  const auto device = federation.join("cam-7");
  RawConnection first = connect(device);
  RawConnection second = connect(device);
  EXPECT_EQ(connect(device).next(), "Bye too-many-sessions");
  EXPECT_EQ(connect(federation.join("cam-8")).greet(), "Welcome");
}

TEST_F(ServiceSessionsTest, SoManyFramesASecondAreReadOfAClient) {
  federation.settings().session.frames_per_second = 20;
  federation.start_service();
  RawConnection connection = connect(federation.join("cam-7"));
  EXPECT_EQ(connection.greet(), "Welcome");
  const TimePoint begin = SystemClock().now();
  for (std::uint64_t i = 0; i < 40; ++i) connection.send(protocol::Ping{i});
  for (int i = 0; i < 40; ++i) EXPECT_EQ(connection.next(), "Pong");
  EXPECT_GE(to_seconds(SystemClock().now() - begin), 0.8);
  federation.log.wait_for("cam-7 sends more than 20 frames a second");
}

TEST_F(ServiceSessionsTest, WhoAsksForMoreThanItTakesIsCutOffAndNobodyElse) {
  federation.settings().connection.queue_bytes = 256 * 1024;
  federation.start_service();
  RawConnection greedy = connect(federation.join("cam-7"));
  RawConnection other = connect(federation.join("cam-8"));
  EXPECT_EQ(greedy.greet(), "Welcome");
  EXPECT_EQ(other.greet(), "Welcome");
  const std::string job =
      "model.hidden = [1000, 1000]\ndata.input = [2]\ndata.classes = 2\nround.cohort = 2\n";
  EXPECT_TRUE(federation.ask("run-submit", {}, job));
  EXPECT_EQ(greedy.next(), "RoundPlan");
  greedy.send(protocol::ModelRequest{.task = greedy.task(), .limit = std::uint64_t{1} << 40});
  EXPECT_EQ(greedy.next(), "Chunk");
  federation.log.wait_for("cam-7 disconnected (queue-full)");
  EXPECT_EQ(other.next(), "RoundPlan");
  other.send(protocol::ModelRequest{.task = other.task(), .limit = 64 * 1024});
  EXPECT_EQ(other.next(), "Chunk");
}

TEST_F(ServiceSessionsTest, WhoDoesNotGreetIsNotWaitedFor) {
  federation.settings().session.greeting = 50ms;
  federation.start_service();
  RawConnection connection = connect(federation.join("cam-7"));
  EXPECT_EQ(connection.next(), "Bye deadline");
}

TEST_F(ServiceSessionsTest, NewConnectionsAreLimitedByAddress) {
  federation.start_service();
  const auto device = federation.join("cam-7");
  federation.stop_service();
  federation.settings().connection.per_second = 0.001;
  federation.settings().connection.burst = 1;
  federation.start_service();
  EXPECT_EQ(connect(device).refusal(), "");
  EXPECT_NE(connect(device).refusal(), "");
  federation.log.wait_for("refused 127.0.0.1: rate-limited");
}

TEST_F(ServiceSessionsTest, StoppingSaysGoodbye) {
  federation.start_service();
  RawConnection connection = connect(federation.join("cam-7"));
  EXPECT_EQ(connection.greet(), "Welcome");
  federation.stop_service();
  EXPECT_EQ(connection.next(), "Bye draining");
}

// --- operators ----------------------------------------------------------------------------------

TEST_F(ServiceSessionsTest, AnOperatorOfAnotherMachineJoinsByToken) {
  federation.start_service();
  const auto state = federation.join("ops-2", "operator");
  const auto other = OperatorClient::connect(state / "identity", federation.clock);
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_TRUE((*other)->ask("client-list", {}));
  EXPECT_EQ(federation.ask("client-list", {{"role", "operator"}}).value().as_array().size(), 2U);
  EXPECT_EQ(federation.ask("client-list").value().as_array().size(), 0U);

  EXPECT_TRUE(federation.ask("client-revoke", {{"name", "ops-2"}}));
  const auto cut = (*other)->ask("client-list", {});
  ASSERT_FALSE(cut);
  EXPECT_TRUE(cut.error().code().starts_with("connection-")) << cut.error().code();
  EXPECT_EQ(OperatorClient::connect(state / "identity", federation.clock).error().code(),
            "connection-refused-certificate-revoked");
}

// As with `serve --listen OTHER`: coordinator.toml names another port all the while.
TEST_F(ServiceSessionsTest, TokensAndCommandsTakeThePortThatIsServed) {
  ASSERT_TRUE(write_durably(federation.state().address(), as_bytes("127.0.0.1:1\n")));
  federation.start_service();
  const std::string port = std::to_string(federation.port());
  federation.log.wait_for("the port was 1 and is " + port + " now");
  const auto answer = federation.ask("token-new", {{"client", "cam-7"}}).value();
  const auto token = identity::JoinToken::parse(answer.at("token").as_string().c_str()).value();
  EXPECT_EQ(token.port, federation.port());
  federation.stop_service();
  federation.start_service();
  EXPECT_EQ(federation.log.count("the port was"), 1U);
  // An address that nobody has named before is in the service's certificate.
  federation.stop_service();
  federation.settings().service.listen = "127.0.0.2:0";
  federation.start_service();
  EXPECT_TRUE(federation.ask("client-list"));
}

TEST_F(ServiceSessionsTest, AWarningSaysThatTokensDoNotWork) {
  federation.settings().service.names = "192.0.2.1, 127.0.0.1";
  federation.start_service();
  federation.log.wait_for("devices dial 192.0.2.1");
}

TEST_F(ServiceSessionsTest, ARevokedOperatorThatStaysSilentIsCutWithinASecond) {
  federation.settings().service.goodbye = std::chrono::seconds(5);
  federation.start_service();
  RawConnection silent = connect(federation.join("ops-2", "operator"));
  silent.send(protocol::Ping{});
  EXPECT_NE(silent.next(), "closed");
  const testing::MachineStopwatch since_revocation;
  ASSERT_TRUE(federation.ask("client-revoke", {{"name", "ops-2"}}));
  federation.stop_service();  // waits for the connections' ends
  EXPECT_LT(since_revocation.seconds(), 1);
}

TEST_F(ServiceSessionsTest, ACopiedOperatorsDirectoryWorksElsewhere) {
  federation.start_service();
  const testing::TemporaryDirectory elsewhere;
  const auto copy = elsewhere.path() / "operator";
  std::filesystem::copy(federation.state().operator_identity(), copy);
  std::ofstream(copy / "coordinator") << "127.0.0.1:" << federation.port() << "\n";
  for (const auto& state : {copy, elsewhere.path()}) {
    const auto client = OperatorClient::connect(state, federation.clock);
    ASSERT_TRUE(client) << client.error().message();
    EXPECT_TRUE((*client)->ask("run-list", {}));
  }
}

TEST_F(ServiceSessionsTest, CommandsWithoutAServiceOrAnIdentitySayWhatToDo) {
  federation.start_service();
  const auto device = federation.join("cam-7");
  EXPECT_EQ(OperatorClient::connect(device / "identity", federation.clock).error().code(),
            "connection-role");
  const testing::TemporaryDirectory empty;
  EXPECT_EQ(OperatorClient::connect(empty.path(), federation.clock).error().code(),
            "connection-identity");
  federation.stop_service();
  const auto nobody = OperatorClient::connect(federation.state().root(), federation.clock);
  ASSERT_FALSE(nobody);
  EXPECT_NE(nobody.error().message().find("starling-coordinator serve"), std::string::npos);
}

}  // namespace
}  // namespace starling::coordinator
