// SPDX-License-Identifier: Apache-2.0
// The device's program against a coordinator that the test plays, over mutual TLS on loopback.
#include "edge_client/edge_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <thread>
#include <tuple>

#include "core/net/deadline.h"
#include "edge_client/pending_files.h"
#include "tests/edge_client/edge_fixture.h"
#include "tests/edge_client/scripted_coordinator.h"
#include "tests/support/sync_probe.h"
#include "tests/support/temporary_directory.h"

namespace starling::edge_client {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::FixedClock;
using testing::kNow;
using testing::RecordingLog;
using testing::ScriptedCoordinator;
using testing::TinyRound;

constexpr TaskId kTask(0xABCDEF0123456789);

// A device's state directory; one process at a time runs on it.
class Device {
 public:
  Device(ScriptedCoordinator& coordinator, const identity::Credentials& credentials)
      : coordinator_(coordinator) {
    const identity::HostPort address{"127.0.0.1", coordinator.listener->port()};
    EXPECT_TRUE(identity::IdentityDirectory::save(state.identity(), credentials, address));
    identity = *identity::IdentityDirectory::load(state.identity());
    options.client.rows = 40;
    options.client.software = "starling-edge test";
    options.client.backoff = {milliseconds(1), milliseconds(5)};
    options.client.transfer.chunk_bytes_max = 32;
    options.stop_deadline = milliseconds(200);
  }
  explicit Device(ScriptedCoordinator& coordinator) : Device(coordinator, coordinator.device()) {}
  ~Device() { stop(); }

  void start(Trainers trainers) {
    auto pending = store.load(log);
    ASSERT_TRUE(pending) << pending.error().message();
    const Rng backoff({.seed = 3, .purpose = Purpose::kBackoff});
    session = std::make_unique<EdgeSession>(
        EdgeSession::World{coordinator_.loop, clock, log, state, *identity, store}, options,
        backoff, std::move(*pending), std::move(trainers));
    tasks_.spawn(run_session());
  }
  void start() { start(train_on_data("cam-7", {testing::tiny_data()}, 1).trainers); }

  // What SIGTERM does; the coordinator's end must be closed or closing.
  void stop() {
    if (!session) return;
    session->request_stop();
    wait();
  }
  // Until the session has ended.
  void wait() {
    coordinator_.loop.run_task(tasks_.wait());
    session.reset();
  }
  // The session ends by itself with this error; the link goes away.
  void expect_end(std::string_view code) {
    coordinator_.hang_up();
    wait();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), code);
  }
  std::size_t pending_files() {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(state.pending())) {
      if (entry.path().extension() == ".update") ++count;
    }
    return count;
  }

  const testing::TemporaryDirectory directory;
  const StateDirectory state{directory.path()};
  FixedClock clock{kNow};
  std::optional<identity::IdentityDirectory> identity;
  SystemDisk disk;
  client::PendingStore store = edge_client::pending_files(disk, state);
  RecordingLog log;
  EdgeSession::Options options;
  std::unique_ptr<EdgeSession> session;
  Result<void> result = retry("running", "the session has not ended");

 private:
  net::Async<void> run_session() { result = co_await session->run(); }

  ScriptedCoordinator& coordinator_;
  net::TaskGroup tasks_{coordinator_.loop};
};

TEST(EdgeSession, TrainsReportsAndForgetsWhatWasCommitted) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  const TinyRound round(kTask);
  const protocol::UpdateOffer offer = coordinator.hand_out(round);
  const client::PendingUpdate expected = round.expected("cam-7");
  EXPECT_EQ(offer.head, expected.head);
  EXPECT_EQ(device.pending_files(), 1U) << "stored before it is offered";

  coordinator.send(protocol::UpdateAccept{kTask, 0, offer.head.payload_bytes});
  const Bytes update = coordinator.collect(kTask, 0, offer.head.payload_bytes);
  EXPECT_EQ(update, to_bytes(expected.payload.view()));

  coordinator.send(protocol::UpdateReceived{kTask});
  coordinator.send(protocol::RoundCommitted{kTask, RunId(1), 1, {}});
  coordinator.send(TinyRound(TaskId(5), 2).plan);  // answered after the lines before it
  coordinator.expect<protocol::ModelRequest>();
  EXPECT_EQ(device.session->machine().updates_counted(), 1U);
  coordinator.hang_up();
  device.stop();
  EXPECT_EQ(device.pending_files(), 0U);
  EXPECT_TRUE(device.result);
  EXPECT_EQ(device.log.count("counted"), 1U);
}

TEST(EdgeSession, AnUploadThatBreaksOffGoesOnWhereTheCoordinatorSays) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  const TinyRound round(kTask);
  const std::uint64_t bytes = coordinator.hand_out(round).head.payload_bytes;
  coordinator.send(protocol::UpdateAccept{kTask, 0, 64});
  Bytes update = coordinator.collect(kTask, 0, 64);
  coordinator.hang_up();

  coordinator.welcome();
  EXPECT_EQ(coordinator.expect<protocol::UpdateOffer>().head.task, kTask);
  coordinator.send(protocol::UpdateAccept{kTask, 64, 64});
  coordinator.send(protocol::Credit{kTask, bytes});
  const Bytes rest = coordinator.collect(kTask, 64, bytes);
  update.insert(update.end(), rest.begin(), rest.end());
  EXPECT_EQ(update, to_bytes(round.expected("cam-7").payload.view()));
  coordinator.hang_up();
}

TEST(EdgeSession, ADownloadThatBreaksOffGoesOnWhereItWas) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  const TinyRound round(kTask);
  coordinator.send(round.plan);
  coordinator.expect<protocol::ModelRequest>();
  coordinator.send_chunk(round, 0, 40);
  coordinator.send(protocol::Bye{"draining", "back soon"});
  EXPECT_EQ(coordinator.end(), "closed");
  coordinator.welcome();
  EXPECT_EQ(coordinator.expect<protocol::ModelRequest>().offset, 40U);
  coordinator.send_chunk(round, 40, round.model.size() - 40);
  EXPECT_EQ(coordinator.expect<protocol::UpdateOffer>().head, round.expected("cam-7").head);
  coordinator.hang_up();
}

TEST(EdgeSession, ANewProcessOffersWhatTheLastOneTrained) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  const TinyRound round(kTask);
  coordinator.hand_out(round);
  coordinator.hang_up();
  device.stop();
  ASSERT_EQ(device.pending_files(), 1U);

  device.start();
  coordinator.welcome();
  const auto offer = coordinator.expect<protocol::UpdateOffer>();
  EXPECT_EQ(offer.head, round.expected("cam-7").head);
  coordinator.send(protocol::UpdateAccept{kTask, 0, offer.head.payload_bytes});
  EXPECT_EQ(coordinator.collect(kTask, 0, offer.head.payload_bytes),
            to_bytes(round.expected("cam-7").payload.view()));
  coordinator.send(protocol::TaskEnded{kTask, "round-closed", "too late"});
  coordinator.send(TinyRound(TaskId(5), 2).plan);
  coordinator.expect<protocol::ModelRequest>();
  coordinator.hang_up();
  device.stop();
  EXPECT_EQ(device.pending_files(), 0U);
}

// SCAFFOLD's control variate.
TEST(EdgeSession, WhatItsStrategyRemembersAdvancesWithTheCommitAndOutlivesTheProcess) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  const auto first = TinyRound::by_scaffold(TaskId(1), 1);
  const client::PendingUpdate counted = first.expected("cam-7");
  ASSERT_NE(counted.state, nullptr);
  EXPECT_EQ(coordinator.hand_out_all(first, false).head, counted.head);
  coordinator.send(protocol::RoundCommitted{TaskId(1), RunId(1), 1, {}});
  const auto second = TinyRound::by_scaffold(TaskId(2), 2);
  const auto of_second = second.expected("cam-7", counted.state).head;
  EXPECT_NE(of_second, second.expected("cam-7").head);
  EXPECT_EQ(coordinator.hand_out_all(second, true).head, of_second);
  coordinator.hang_up();
  device.stop();
  EXPECT_TRUE(std::filesystem::exists(device.store.file_of(RunId(1))));
  EXPECT_EQ(device.pending_files(), 1U);

  device.start();
  coordinator.welcome();
  EXPECT_EQ(coordinator.expect<protocol::UpdateOffer>().head, of_second);
  coordinator.send(protocol::TaskEnded{TaskId(2), "round-closed", "too late"});
  const auto third = TinyRound::by_scaffold(TaskId(3), 3);
  EXPECT_EQ(coordinator.hand_out_all(third, false).head,
            third.expected("cam-7", counted.state).head)
      << "the second round did not count";
  coordinator.hang_up();
}

TEST(EdgeSession, AModelThatIsNotThePlansIsRefusedByName) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  TinyRound round(kTask);
  round.plan.base.sha256 = sha256(as_bytes("another"));
  coordinator.send(round.plan);
  coordinator.expect<protocol::ModelRequest>();
  coordinator.send_chunk(round, 0, round.model.size());
  const auto failed = coordinator.expect<protocol::TaskFailed>();
  EXPECT_EQ(failed.task, kTask);
  EXPECT_EQ(failed.code, "model-damaged");
  coordinator.hang_up();
}

TEST(EdgeSession, HostileFramesEndTheConnectionAndNothingElse) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  const auto raw = [&](std::uint16_t type, std::size_t words, std::size_t payload) {
    const auto noise = std::make_shared<Bytes>(payload, std::byte{0xA5});
    net::OutgoingFrame frame;
    frame.type = type;
    frame.header = Bytes(words * 8, std::byte{0xFF});
    frame.payload = {noise, *noise};
    ASSERT_TRUE(coordinator.connection().send(std::move(frame)));
    EXPECT_THAT(coordinator.end(), ::testing::AnyOf("closed", "connection-lost"));
  };
  coordinator.accept();
  raw(3, 4, 0);  // a plan before the welcome
  coordinator.accept();
  raw(2, 8192, 0);  // a welcome of 64 KiB
  coordinator.accept();
  raw(999, 1, 0);
  coordinator.welcome();
  raw(5, 4, 65536);  // a chunk whose header is noise
  coordinator.welcome();
  raw(1, 4, 0);  // what only clients say
  coordinator.welcome();
  const TinyRound round(kTask);
  coordinator.send(round.plan);
  coordinator.expect<protocol::ModelRequest>();
  coordinator.send_chunk(round, 40, 40);  // a gap
  EXPECT_EQ(coordinator.end(), "closed");
  coordinator.welcome();
  EXPECT_EQ(coordinator.expect<protocol::ModelRequest>().offset, 0U);
  coordinator.send_chunk(round, 0, round.model.size());
  EXPECT_EQ(coordinator.expect<protocol::UpdateOffer>().head, round.expected("cam-7").head);
  coordinator.hang_up();
}

TEST(EdgeSession, ARevokedDeviceKeepsTryingAndSaysOnceWhatToDo) {
  ScriptedCoordinator coordinator;
  coordinator.loop.run_task(coordinator.listener->close());
  auto policy = testing::client_policy();
  policy.is_revoked = [](const std::string&, const Sha256Digest&) { return true; };
  coordinator.listen_for({{.protocol = net::Protocol::kSession, .client = policy}});
  Device device(coordinator);
  device.start();
  for (int attempt = 0; attempt < 4; ++attempt) {
    EXPECT_EQ(net::run_task(coordinator.loop, coordinator.refusals.next()).error.code(),
              "certificate-revoked");
  }
  device.stop();
  EXPECT_EQ(device.log.count("the operator revoked this device"), 1U);
  EXPECT_EQ(device.log.count("not connected"), 1U);
}

TEST(EdgeSession, AGossipPeerThatWasRevokedSaysThatItTrainsAlone) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  EdgeStatus::Gossip gossip{.run_name = "net", .state = "alone", .expected = 2, .links = 1};
  device.session->set_peer({.status = [&gossip] { return std::optional(gossip); }});
  coordinator.welcome();
  coordinator.send(protocol::Bye{"certificate-revoked", "the operator revoked the client cam-7"});
  EXPECT_EQ(coordinator.end(), "closed");
  coordinator.accept();  // so it was noted
  const auto shown = [&] {
    device.session->refresh_status();
    const TimePoint written =
        coordinator.loop.now() + milliseconds(300);  // within a quarter of one
    EXPECT_TRUE(net::run_task(coordinator.loop, net::sleep_until(coordinator.loop, written)));
    return *read_status(device.state.status_file())->gossip;
  };
  EXPECT_EQ(shown().state, "alone") << "a member does not know it";
  gossip.links = 0;
  EXPECT_EQ(shown().state, "revoked");
  EXPECT_THAT(shown().problem, ::testing::StartsWith("the operator revoked this device, and no "
                                                     "member has a link with it: it trains alone"));
  gossip.state = "finished";
  EXPECT_EQ(shown().state, "finished");
  EXPECT_THAT(shown().problem, ::testing::StartsWith("the operator revoked this device"));
  coordinator.hang_up();
  device.stop();
}

TEST(EdgeSession, ADeviceThatIsNotAdmittedIsToldToJoinAgainNotToSetItsClock) {
  for (const char* reason : {"certificate-expired", "client-unknown", "wrong-role"}) {
    ScriptedCoordinator coordinator;
    Device device(coordinator);
    device.start();
    coordinator.accept();
    coordinator.expect<protocol::Hello>();
    coordinator.send(protocol::Bye{reason, "not admitted"});
    EXPECT_EQ(coordinator.end(), "closed");
    EXPECT_EQ(device.log.count("ask its operator for a new token"), 1U) << reason;
    coordinator.hang_up();
  }
}

TEST(EdgeSession, TheCoordinatorsClockIsKeptForJudgingItsCertificate) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome(kNow + hours(3));
  coordinator.send(TinyRound(kTask).plan);
  coordinator.expect<protocol::ModelRequest>();
  coordinator.hang_up();
  device.stop();
  const auto identity = identity::IdentityDirectory::load(device.state.identity());
  EXPECT_EQ(identity->last_authenticated(), kNow + hours(3));
}

TEST(EdgeSession, AClockThatRanAheadIsForgottenOnceItIsRight) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  const auto kept = [&] {
    coordinator.send(TinyRound(kTask).plan);
    coordinator.expect<protocol::ModelRequest>();
    const auto identity = identity::IdentityDirectory::load(device.state.identity());
    coordinator.hang_up();
    return identity->last_authenticated();
  };
  coordinator.welcome(kNow + hours(24 * 25));
  EXPECT_EQ(kept(), kNow + hours(24 * 25));
  coordinator.welcome(kNow + hours(24 * 365 * 5));
  EXPECT_EQ(kept(), kNow + hours(24 * 25)) << "its certificate is not valid then";
  coordinator.welcome(kNow + hours(1));
  EXPECT_EQ(kept(), kNow + hours(1));
}

TEST(EdgeSession, ACertificateThatSoonEndsIsAnnouncedOnce) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome(kNow + hours(24 * 23));
  coordinator.send(TinyRound(kTask).plan);
  coordinator.expect<protocol::ModelRequest>();
  EXPECT_EQ(device.log.count("certificate is good until"), 0U);
  for (int i = 0; i < 2; ++i) {
    coordinator.hang_up();
    coordinator.welcome(kNow + hours(24 * 25));
    coordinator.expect<protocol::ModelRequest>();
  }
  EXPECT_EQ(device.log.count("certificate is good until 2026-12-20"), 1U);
  coordinator.hang_up();
}

TEST(EdgeSession, ADeviceWithoutAClockConnectsAllTheSame) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.clock.set(WallTime());  // 1970, as after a power cut
  device.start();
  coordinator.welcome();
  coordinator.hang_up();
}

// Waits until it is told to stop.
class PatientTrainer final : public client::Trainer {
 public:
  Result<client::TrainingReport> train(const client::TrainingRequest&, std::span<float>,
                                       const train::TrainingHooks<float>&,
                                       const std::atomic<bool>& stop) override {
    while (!stop) std::this_thread::yield();
    return retry("stopped", "told to");
  }
};

Trainers patient() {
  Trainers trainers;
  trainers.push_back(std::make_unique<PatientTrainer>());
  return trainers;
}

TEST(EdgeSession, ATaskThatEndsStopsItsTraining) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start(patient());
  coordinator.welcome();
  for (const std::uint64_t task : {1, 2}) {  // the second finds the one thread free again
    const TinyRound round(TaskId(task), static_cast<Round>(task));
    coordinator.send(round.plan);
    coordinator.expect<protocol::ModelRequest>();
    coordinator.send_chunk(round, 0, round.model.size());
    coordinator.send(protocol::TaskEnded{TaskId(task), "abandoned", "too few updates"});
  }
  coordinator.send(TinyRound(TaskId(3), 3).plan);
  coordinator.expect<protocol::ModelRequest>();
  coordinator.hang_up();
}

TEST(EdgeSession, StoppingWhileTrainingSaysGoodbye) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start(patient());
  coordinator.welcome();
  const TinyRound round(kTask);
  coordinator.send(round.plan);
  coordinator.expect<protocol::ModelRequest>();
  coordinator.send_chunk(round, 0, round.model.size());
  device.session->request_stop();
  EXPECT_EQ(coordinator.expect<protocol::Bye>().code, "stopped");
  EXPECT_EQ(coordinator.end(), "closed");
  coordinator.hang_up();
  device.wait();
  EXPECT_TRUE(device.result);
  const auto status = read_status(device.state.status_file());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->link, "stopped");
  EXPECT_EQ(status->client, "cam-7");
  EXPECT_EQ(status->last_connected, kNow);
}

TEST(EdgeSession, TheNextProcessKnowsWhenTheLinkWasUpAndWhyItWasLost) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  coordinator.send(protocol::Bye{"draining", "back soon"});
  EXPECT_EQ(coordinator.end(), "closed");
  coordinator.accept();  // so the loss was noted
  device.stop();
  const auto lost = read_status(device.state.status_file());
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->last_connected, kNow);
  EXPECT_EQ(lost->last_error, "the coordinator closed the connection: back soon");
  EXPECT_EQ(lost->last_error_at, kNow);

  device.clock.set(kNow + hours(1));
  coordinator.loop.run_task(coordinator.listener->close());
  coordinator.listener.reset();
  device.options.client.backoff = {hours(1), hours(1)};
  device.start();
  device.stop();
  EXPECT_EQ(read_status(device.state.status_file())->last_connected, kNow);
}

TEST(EdgeSession, StoppingWhileNobodyAnswersIsImmediate) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  coordinator.loop.run_task(coordinator.listener->close());
  coordinator.listener.reset();
  device.options.client.backoff = {hours(1), hours(1)};
  device.start();
  device.stop();
  EXPECT_TRUE(device.result);
}

TEST(EdgeSession, AnUpdateThatCannotBeStoredIsNotOffered) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  const TinyRound round(kTask);
  std::filesystem::remove_all(device.state.path);  // as where its disk is no longer mounted
  coordinator.send(round.plan);
  coordinator.expect<protocol::ModelRequest>();
  coordinator.send_chunk(round, 0, round.model.size());
  EXPECT_EQ(coordinator.expect<protocol::TaskFailed>().code, "file-missing");
  coordinator.hang_up();
  std::filesystem::create_directories(device.state.pending());
}

TEST(EdgeSession, GoesOnWhereItsPendingUpdatesWereRemoved) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  std::filesystem::remove_all(device.state.pending());
  coordinator.hand_out(TinyRound(kTask));
  EXPECT_EQ(device.pending_files(), 1U);
  coordinator.hang_up();
}

// From now on no file grows beyond `bytes`: a disk that fails while it is written to.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::ignore = std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(EdgeSession, ADiskThatFailsEndsTheProcessWithASentence) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  const TinyRound round(kTask);
  coordinator.send(round.plan);
  coordinator.expect<protocol::ModelRequest>();
  {
    const FileSizeLimit limit(64);
    coordinator.send_chunk(round, 0, round.model.size());
    EXPECT_EQ(coordinator.expect<protocol::TaskFailed>().code, "io-error");
    coordinator.expect<protocol::Bye>();
  }
  device.expect_end("io-error");
}

TEST(EdgeSession, AnFsyncThatFailsWhileAnUpdateIsForgottenEndsTheProcess) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  coordinator.hand_out(TinyRound(kTask));
  testing::SyncProbe probe;
  probe.fail(device.state.pending());
  coordinator.send(protocol::RoundCommitted{kTask, RunId(1), 1, {}});
  coordinator.expect<protocol::Bye>();
  device.expect_end("fsync-failed");
}

TEST(EdgeSession, AnFsyncThatFailsWhileTheCoordinatorsTimeIsKeptEndsTheProcess) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  testing::SyncProbe probe;
  probe.fail(device.state.identity());
  coordinator.welcome(kNow + std::chrono::hours(1));
  coordinator.expect<protocol::Bye>();
  device.expect_end("fsync-failed");
}

// Of what the device writes beside the session's own files.
TEST(EdgeSession, ABrokenDiskElsewhereEndsTheProcess) {
  ScriptedCoordinator coordinator;
  Device device(coordinator);
  device.start();
  coordinator.welcome();
  device.session->report_disk(internal("fsync-failed", "fallback.bin"));
  coordinator.expect<protocol::Bye>();
  device.expect_end("fsync-failed");
}

}  // namespace
}  // namespace starling::edge_client
