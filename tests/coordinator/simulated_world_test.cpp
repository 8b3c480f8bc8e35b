// SPDX-License-Identifier: Apache-2.0
// A federation on modelled links and nodes, against times computed by hand.
#include "coordinator/job/simulated_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "coordinator/simulation/simulate.h"
#include "core/base/durable_file.h"
#include "core/report/file_sums.h"
#include "core/sim/written_values.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = SimulatedWorld::Kind;
using Way = SimulatedWorld::Way;

WorldOptions constant_world() {
  WorldOptions world;
  world.network.latency = "20ms";
  world.network.bandwidth = "1MB/s";
  world.nodes.step_time = 5ms;
  return world;
}

SimulatedWorld make_world(const WorldOptions& options, std::uint32_t clients = 4) {
  return SimulatedWorld::make(options, clients, 1).value();
}

// --- links --------------------------------------------------------------------------------------

TEST(SimulatedWorld, TheCoordinatorsUplinkServesOneClientAfterTheOther) {
  SimulatedWorld world = make_world(constant_world());
  for (std::uint32_t client = 0; client < 4; ++client) {
    const auto message = world.send(client, Way::kToClient, Kind::kBulk, 1'000'000, 5);
    EXPECT_DOUBLE_EQ(message.begins, 5 + client + 0.02);
    EXPECT_DOUBLE_EQ(world.receive(client, message), 5 + client + 1 + 0.02);
  }
}

TEST(SimulatedWorld, TheCoordinatorsDownlinkServesOneUploadAfterTheOther) {
  SimulatedWorld world = make_world(constant_world());
  std::vector<SimulatedWorld::Message> messages;
  for (std::uint32_t client = 0; client < 4; ++client) {
    messages.push_back(world.send(client, Way::kToCoordinator, Kind::kBulk, 1'000'000, 5));
    EXPECT_DOUBLE_EQ(messages.back().begins, 5.02);
  }
  for (std::uint32_t client = 0; client < 4; ++client) {
    EXPECT_DOUBLE_EQ(world.receive(client, messages[client]), 5.02 + client + 1);
  }
}

TEST(SimulatedWorld, TheSlowerLinkDecidesAndTheFasterHasRoomForOthers) {
  WorldOptions options = constant_world();
  options.coordinator_link.coordinator_bandwidth = "10MB/s";
  SimulatedWorld world = make_world(options);
  std::vector<SimulatedWorld::Message> up;
  for (std::uint32_t client = 0; client < 4; ++client) {
    up.push_back(world.send(client, Way::kToCoordinator, Kind::kBulk, 1'000'000, 0));
  }
  for (std::uint32_t client = 0; client < 4; ++client) {
    EXPECT_DOUBLE_EQ(world.receive(client, up[client]), 1.02 + 0.1 * client);
  }
  const auto down = world.send(0, Way::kToClient, Kind::kBulk, 1'000'000, 0);
  EXPECT_DOUBLE_EQ(down.begins, 0.02);
  EXPECT_DOUBLE_EQ(world.receive(0, down), 1.02);
}

TEST(SimulatedWorld, WordsWaitForTheirOwnSessionOnlyAndSignsOfLifeForNobody) {
  SimulatedWorld world = make_world(constant_world());
  const auto arrives = [&](std::uint32_t client, Kind kind) {
    return world.receive(client, world.send(client, Way::kToClient, kind, 1000, 0.5));
  };
  const auto bulk = world.send(0, Way::kToClient, Kind::kBulk, 1'000'000, 0);
  EXPECT_DOUBLE_EQ(world.receive(0, bulk), 1.02);
  EXPECT_DOUBLE_EQ(arrives(1, Kind::kWord), 0.5 + 0.001 + 0.02);
  EXPECT_DOUBLE_EQ(arrives(0, Kind::kPulse), 0.5 + 0.001 + 0.02);
  EXPECT_DOUBLE_EQ(arrives(0, Kind::kWord), 1 + 0.001 + 0.02);
  // All of them took the link's time: the next piece waits for it.
  EXPECT_DOUBLE_EQ(world.send(2, Way::kToClient, Kind::kBulk, 1000, 0.5).begins, 1.003 + 0.02);
}

TEST(SimulatedWorld, WhatIsLostComesLaterAndHoldsUpWhatFollows) {
  WorldOptions options = constant_world();
  options.network.loss = 0.5;
  options.network.retransmit = false;  // TCP does not ask
  options.network.retransmit_after = 300ms;
  SimulatedWorld world = make_world(options);
  double last = 0;
  double late = 0;
  for (int i = 0; i < 200; ++i) {
    const auto message = world.send(0, Way::kToCoordinator, Kind::kWord, 1, i * 0.001);
    const double whole = world.receive(0, message);
    EXPECT_GE(whole, last);
    last = whole;
    late = std::max(late, whole - i * 0.001 - 0.02);
  }
  EXPECT_GT(late, 0.29);
}

TEST(SimulatedWorld, AClientsBacklogGoesWithItsSession) {
  SimulatedWorld world = make_world(constant_world());
  (void)world.send(0, Way::kToCoordinator, Kind::kBulk, 9'000'000, 0);
  world.forget_session(0);
  EXPECT_DOUBLE_EQ(world.send(0, Way::kToCoordinator, Kind::kBulk, 1, 1).begins, 1.02);
}

TEST(SimulatedWorld, NamesWhatItCannotRead) {
  WorldOptions options;
  options.network.latency = "fast";
  EXPECT_EQ(SimulatedWorld::make(options, 2, 1).error().code(), "bad-distribution");
  options = {};
  options.coordinator_link.coordinator_bandwidth = "uniform:1MB/s,2MB/s";
  EXPECT_NE(SimulatedWorld::make(options, 2, 1).error().message().find("coordinator-bandwidth"),
            std::string::npos);
  const testing::TemporaryDirectory directory;
  options = {};
  options.network.links = (directory.path() / "links.csv").string();
  std::ofstream(options.network.links) << "from,to,bandwidth\n0,2,1MB/s\n";
  EXPECT_NE(SimulatedWorld::make(options, 2, 1).error().message().find("in a row without 'to'"),
            std::string::npos);
}

// The coordinator is the node after the last client.
TEST(SimulatedWorld, LinksOfAFileReplaceWhatIsDrawn) {
  const testing::TemporaryDirectory directory;
  WorldOptions options = constant_world();
  options.network.links = (directory.path() / "links.csv").string();
  std::ofstream(options.network.links) << "from,to,latency,bandwidth\n0,4,1s,\n1,,,100kB/s\n";
  SimulatedWorld world = make_world(options);
  EXPECT_DOUBLE_EQ(world.connect_seconds(0, 0), 4);
  EXPECT_DOUBLE_EQ(world.connect_seconds(1, 0), 0.08);
  EXPECT_DOUBLE_EQ(world.network().bandwidth(1), 100'000);
}

// --- federations --------------------------------------------------------------------------------

// 4 clients of 100 rows; 784 x 10 + 10 parameters would do, 40 000 make the link matter.
constexpr int kClients = 4;
constexpr int kFeatures = 9999;
constexpr double kModelBytes = 4.0 * (kFeatures + 1) * 4;

Job small_job() {
  Job job;
  job.job.rounds = 4;
  job.training.model.kind = "softmax-regression";
  job.training.train.local_steps = 3;
  job.training.train.batch_size = 10;
  job.training.train.learning_rate = 1e-5;  // no class is so sure that an update has zeros
  job.round.cohort = kClients;
  job.evaluate.every = 0;
  job.data.dataset = "synthetic:rows=400,classes=4,features=" + std::to_string(kFeatures);
  return job;
}

boost::json::value run(const Job& job, std::optional<WorldOptions> world, unsigned threads = 1,
                       std::size_t clients = kClients) {
  const SystemClock clock;
  const auto result =
      simulate(job, {.clients = clients, .threads = threads, .world = std::move(world)}, clock, {});
  EXPECT_TRUE(result) << (result ? "" : result.error().message());
  EXPECT_EQ(result->state, store::RunState::kCompleted)
      << (result->error ? result->error->message() : "");
  return result->run;
}

std::vector<std::string> models(const boost::json::value& run) {
  std::vector<std::string> hashes;
  for (const auto& round : run.at("rounds").as_array()) {
    if (round.at("model_sha256").is_string()) {
      hashes.emplace_back(round.at("model_sha256").as_string());
    }
  }
  return hashes;
}

std::vector<double> ends(const boost::json::value& run) {
  std::vector<double> seconds;
  for (const auto& round : run.at("rounds").as_array()) {
    seconds.push_back(round.at("virtual_seconds").to_number<double>());
  }
  return seconds;
}

// Plan, request, N downloads one after the other, the last client's training, its offer and the
// accept, its upload, which finds the coordinator's link idle unless training takes no time; four
// ways of latency for words and two for bulk. Words and headers are less than 2 % of the model.
TEST(SimulatedFederation, ARoundTakesWhatAHandComputes) {
  const WorldOptions world = constant_world();
  const auto seconds = ends(run(small_job(), world));
  ASSERT_EQ(seconds.size(), 4U);
  const double transfer = kModelBytes / 1e6;
  const double expected = (kClients + 1) * transfer + 3 * 0.005 + 6 * 0.02;
  for (std::size_t i = 1; i < seconds.size(); ++i) {
    const double round = seconds[i] - seconds[i - 1];
    EXPECT_GT(round, expected);
    EXPECT_LT(round, expected + 0.02 * (kClients + 1) * transfer);
  }
}

TEST(SimulatedFederation, AFastCoordinatorServesAllAtOnce) {
  WorldOptions world = constant_world();
  world.coordinator_link.coordinator_bandwidth = "100GB/s";
  const auto seconds = ends(run(small_job(), world));
  const double expected = 2 * kModelBytes / 1e6 + 3 * 0.005 + 6 * 0.02;
  EXPECT_NEAR(seconds[3] - seconds[2], expected, 0.02 * expected);
}

TEST(SimulatedFederation, TheModelsAreThoseOfAFederationWithoutLinks) {
  const auto reference = run(small_job(), std::nullopt);
  EXPECT_FALSE(reference.at("rounds").at(0).as_object().contains("virtual_seconds"));
  ASSERT_EQ(models(reference).size(), 4U);
  EXPECT_EQ(models(run(small_job(), constant_world())), models(reference));
  WorldOptions rough = constant_world();
  rough.network.latency = "lognormal:20ms,1";
  rough.network.jitter = "exponential:10ms";
  rough.network.bandwidth = "uniform:200kB/s,5MB/s";
  rough.network.loss = 0.1;
  rough.nodes.speed = "lognormal:1,0.5";
  rough.nodes.step_jitter = "exponential:1";
  const auto one = run(small_job(), rough);
  EXPECT_EQ(models(one), models(reference));
  const auto two = run(small_job(), rough, 2);
  EXPECT_EQ(models(two), models(reference));
  EXPECT_EQ(ends(one), ends(two)) << "virtual time depends on threads";
}

TEST(SimulatedFederation, StragglersDelayTheRoundByTheirTraining) {
  WorldOptions world = constant_world();
  world.coordinator_link.coordinator_bandwidth = "100GB/s";
  const auto quick = ends(run(small_job(), world));
  world.nodes.stragglers = 1;
  world.nodes.slowdown = 100;
  const auto slow = ends(run(small_job(), world));
  EXPECT_NEAR(slow[0] - quick[0], 99 * 3 * 0.005, 0.001);
  EXPECT_NEAR(slow[3] - quick[3], 4 * 99 * 3 * 0.005, 0.004);
}

TEST(SimulatedFederation, GoesOnWhereClientsCrashAndReturn) {
  Job job = small_job();
  job.job.rounds = 20;
  job.round.min_updates = 2;
  job.round.deadline = 20s;
  job.round.reconnect_grace = 3s;
  job.round.attempts_max = 1000;
  WorldOptions world = constant_world();
  world.nodes.crash_every = 4s;
  world.nodes.return_after = 1s;
  const auto one = run(job, world);
  const auto two = run(job, world, 2);
  EXPECT_EQ(models(one).size(), 20U);
  EXPECT_EQ(models(one), models(two));
  EXPECT_EQ(ends(one), ends(two));
  std::size_t failures = 0;
  for (const auto& round : one.at("rounds").as_array()) {
    failures += round.at("failures").as_array().size();
  }
  EXPECT_GT(failures, 0U) << "nobody was missed";
}

TEST(SimulatedFederation, WaitsForThoseWhoJoinAndGoesOnWithoutThoseWhoLeave) {
  Job job = small_job();
  job.round.wait_for = 8;
  WorldOptions world = constant_world();
  world.nodes.join_within = 30s;
  const auto joined = run(job, world, 1, 8);
  EXPECT_GT(ends(joined)[0], 15) << "eight clients cannot be there so early";
  EXPECT_LT(ends(joined)[0], 40);
  job.round.wait_for = 0;
  job.round.min_updates = 1;
  job.round.reconnect_grace = 1s;
  job.round.attempts_max = 100;
  job.job.rounds = 5;
  world.nodes.join_within = 0s;
  world.nodes.leave_after = 20s;
  EXPECT_EQ(models(run(job, world, 1, 8)).size(), 5U);
  job.job.rounds = 1000;
  const SystemClock clock;
  const auto result = simulate(job, {.clients = 8, .world = world}, clock, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), "all-left");
}

TEST(SimulatedFederation, ASplitBreaksSessionsUntilItEnds) {
  const auto smooth = ends(run(small_job(), constant_world()));
  WorldOptions world = constant_world();
  world.network.splits = "1s-5s:2";
  const auto split = run(small_job(), world);
  EXPECT_EQ(models(split), models(run(small_job(), std::nullopt)));
  EXPECT_LT(smooth[1], 5);
  EXPECT_GT(ends(split)[1], 5) << "a cohort of all cannot be whole before";
  EXPECT_LT(ends(split)[1], 20);
}

TEST(SimulatedFederation, ADeadlineThatTheLinksCannotMeetIsExplained) {
  Job job = small_job();
  job.round.deadline = 100ms;
  job.round.attempts_max = 2;
  const SystemClock clock;
  const auto result = simulate(job, {.clients = kClients, .world = constant_world()}, clock, {});
  ASSERT_TRUE(result) << result.error().message();
  ASSERT_TRUE(result->error);
  EXPECT_EQ(result->error->code(), "too-few-updates");
  EXPECT_NE(result->error->message().find("takes 0.6 s to send the model to 4 clients: raise "
                                          "round.deadline"),
            std::string::npos)
      << result->error->message();
}

// --- what was drawn -----------------------------------------------------------------------------

class DrawnValues : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& out, const char* name) const {
    return directory_.path() / out / name;
  }
  std::string text(const std::string& out, const char* name) const {
    const auto read = read_text_file(file(out, name), 1 << 20);
    return read ? *read : "";
  }
  std::vector<std::string> written(const std::string& out) const {
    std::vector<std::string> names;
    for (const char* name : {sim::kLinksFile, sim::kSpeedsFile, sim::kPresenceFile}) {
      if (std::filesystem::exists(file(out, name))) names.emplace_back(name);
    }
    return names;
  }

  boost::json::value run_into(const std::string& out, const Job& job,
                              const std::optional<WorldOptions>& world,
                              std::size_t clients = kClients) const {
    const SystemClock clock;
    SimulateOptions options{.clients = clients, .world = world};
    options.out = directory_.path() / out;
    const auto result = simulate(job, options, clock, {});
    EXPECT_TRUE(result) << (result ? "" : result.error().message());
    EXPECT_FALSE(result->error) << result->error->message();
    return result->run;
  }

  // A world whose links and nodes differ by what the run wrote alone. What is drawn for each
  // message and step is as before.
  WorldOptions given_back(const std::string& out, const WorldOptions& drawn_as) const {
    WorldOptions given = constant_world();
    given.network.jitter = drawn_as.network.jitter;
    given.nodes.step_time = drawn_as.nodes.step_time;
    given.nodes.step_jitter = drawn_as.nodes.step_jitter;
    given.coordinator_link = drawn_as.coordinator_link;
    given.network.links = file(out, sim::kLinksFile).string();
    given.nodes.speeds = file(out, sim::kSpeedsFile).string();
    given.nodes.presence = file(out, sim::kPresenceFile).string();
    return given;
  }

  testing::TemporaryDirectory directory_;
};

// Clients may fail to report in time, so that the models depend on links and nodes.
Job patient_job() {
  Job job = small_job();
  job.job.rounds = 12;
  job.data.dataset = "synthetic:rows=400,classes=4,features=20";
  job.round.min_updates = 2;
  job.round.deadline = 3s;
  job.round.reconnect_grace = 500ms;
  job.round.attempts_max = 1000;
  return job;
}

WorldOptions drawn_world() {
  WorldOptions world;
  world.network.latency = "lognormal:50ms,0.5";
  world.network.jitter = "exponential:10ms";
  world.network.bandwidth = "uniform:200kB/s,5MB/s";
  world.network.loss = 0.05;
  world.nodes.step_time = 200ms;
  world.nodes.speed = "uniform:0.5,2";
  world.nodes.step_jitter = "exponential:1";
  world.nodes.stragglers = 0.25;
  world.nodes.crash_every = 4s;
  world.nodes.return_after = 1s;
  return world;
}

TEST_F(DrawnValues, AreWrittenAsTheRunUsedThem) {
  const boost::json::value ran = run_into("run", patient_job(), drawn_world());
  ASSERT_THAT(written("run"), ElementsAre("links.csv", "speeds.csv", "presence.csv"));
  WorldOptions given = given_back("run", drawn_world());
  const SimulatedWorld drawn = SimulatedWorld::make(drawn_world(), kClients, 1).value();
  const SimulatedWorld read = SimulatedWorld::make(given, kClients, 99).value();
  for (std::uint32_t node = 0; node <= kClients; ++node) {
    EXPECT_EQ(read.network().bandwidth(node), drawn.network().bandwidth(node));
  }
  const double end = ends(ran).back();
  for (std::uint32_t client = 0; client < kClients; ++client) {
    for (const auto& [from, to] : {std::pair(client, 4U), std::pair(4U, client)}) {
      EXPECT_EQ(read.network().latency(from, to), drawn.network().latency(from, to));
      EXPECT_EQ(read.network().loss(from, to), 0.05);
    }
    EXPECT_EQ(read.population().speed(client), drawn.population().speed(client));
    EXPECT_EQ(read.population().changes(client, end), drawn.population().changes(client, end));
    EXPECT_GE(drawn.population().changes(client, end).size(), 3U) << "nobody crashes";
  }
  EXPECT_THAT(report::changed_files(directory_.path() / "run"), ElementsAre());
  const std::string sums = text("run", report::kSumsFile);
  for (const std::string& name : written("run")) EXPECT_THAT(sums, HasSubstr("  " + name + "\n"));
  std::ofstream(file("run", sim::kSpeedsFile), std::ios::app) << "\n";
  EXPECT_THAT(report::changed_files(directory_.path() / "run"), ElementsAre("speeds.csv"));
}

TEST_F(DrawnValues, GivenBackMakeTheSameRun) {
  const Job job = patient_job();
  const boost::json::value drawn = run_into("drawn", job, drawn_world());
  const boost::json::value again = run_into("again", job, given_back("drawn", drawn_world()));
  EXPECT_EQ(models(drawn).size(), 12U);
  EXPECT_EQ(models(again), models(drawn));
  EXPECT_EQ(ends(again), ends(drawn));
  for (const char* name : {sim::kLinksFile, sim::kSpeedsFile, sim::kPresenceFile}) {
    EXPECT_EQ(text("again", name), text("drawn", name)) << name;
  }
  WorldOptions without = constant_world();
  without.nodes.step_time = drawn_world().nodes.step_time;
  EXPECT_NE(models(run_into("without", job, without)), models(drawn))
      << "the models do not depend on what was drawn";
}

TEST_F(DrawnValues, AreWrittenWhereLinksOrNodesDiffer) {
  run_into("no-world", small_job(), std::nullopt);
  EXPECT_THAT(written("no-world"), ElementsAre());
  run_into("alike", small_job(), constant_world());
  EXPECT_THAT(written("alike"), ElementsAre());
  WorldOptions world = constant_world();
  world.nodes.stragglers = 0.5;
  run_into("stragglers", small_job(), world);
  EXPECT_THAT(written("stragglers"), ElementsAre("speeds.csv"));
}

// It is a setting: the file has no row that would say another one.
TEST_F(DrawnValues, LeaveOutTheCoordinatorsLinkThatWasSaid) {
  WorldOptions world = constant_world();
  world.network.bandwidth = "uniform:200kB/s,5MB/s";
  run_into("drawn", small_job(), world);
  EXPECT_THAT(text("drawn", sim::kLinksFile), HasSubstr("\n4,,,"));
  world.coordinator_link.coordinator_bandwidth = "1GB/s";
  const boost::json::value said = run_into("said", small_job(), world);
  EXPECT_THAT(text("said", sim::kLinksFile), HasSubstr("\n3,,,"));
  EXPECT_THAT(text("said", sim::kLinksFile), Not(HasSubstr("\n4,,,")));
  WorldOptions given = constant_world();
  given.coordinator_link = world.coordinator_link;
  given.network.links = file("said", sim::kLinksFile).string();
  EXPECT_EQ(ends(run_into("again", small_job(), given)), ends(said));
}

// Clients that gossip while the coordinator is away use the links between them.
TEST_F(DrawnValues, HaveTheLinksBetweenClientsOfAFallbackNetwork) {
  Job job = patient_job();
  job.round.deadline = 60s;
  WorldOptions world = constant_world();
  world.network.latency = "lognormal:50ms,0.5";
  run_into("alone", job, world);
  EXPECT_THAT(text("alone", sim::kLinksFile), HasSubstr("\n2,4,"));
  EXPECT_THAT(text("alone", sim::kLinksFile), Not(HasSubstr("\n2,3,")));
  job.fallback.topology = "ring";
  job.fallback.after = 2s;
  job.fallback.local_steps = 2;
  world.coordinator_link.coordinator_away = "2s+30s";
  const boost::json::value gossiped = run_into("fallback", job, world);
  EXPECT_THAT(text("fallback", sim::kLinksFile), HasSubstr("\n2,3,"));
  WorldOptions given = world;
  given.network.latency = constant_world().network.latency;
  given.network.links = file("fallback", sim::kLinksFile).string();
  const boost::json::value again = run_into("again", job, given);
  EXPECT_EQ(models(again), models(gossiped));
  EXPECT_EQ(ends(again), ends(gossiped));
}

}  // namespace
}  // namespace starling::coordinator
