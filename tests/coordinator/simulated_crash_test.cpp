// SPDX-License-Identifier: Apache-2.0
// Processes of a simulated federation that are killed at every message, in every change of their
// disks and after every transaction, with uploads in memory and in files: the models are those of
// an undisturbed run. And what a process did not write is really lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "coordinator/simulation/federation_simulator.h"
#include "core/data/load.h"
#include "core/data/partition.h"
#include "tests/coordinator/flaky_store.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using sim::SimulatedDisk;
using Fault = SimulatedDisk::Fault;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kClients = 3;
constexpr std::uint64_t kRounds = 3;

// Everybody contributes to every round, so that the models depend on nothing else.
Job job_of_all() {
  Job job;
  job.job.rounds = kRounds;
  job.training.model.kind = "softmax-regression";
  job.training.train.batch_size = 16;
  job.round.cohort = kClients;
  job.round.min_updates = kClients;
  job.round.attempts_max = 100;
  job.evaluate.every = 0;
  job.data.dataset = "synthetic:rows=120,features=6,classes=3";
  return job;
}

// A federation that is simulated once.
struct Federation {
  Federation() {
    options.faults.latency_max = 10ms;
    options.faults.training_max = 1s;
    options.transfer = {.chunk_bytes_max = 40, .window_bytes = 80};
    options.give_up_at = TimePoint(24h);
    // On any thread: how often a client trained.
    options.faults.forge = [this](const std::string&, client::PendingUpdate&) { ++trainings; };
  }

  // Returns the SHA-256 of each committed model.
  std::vector<std::string> simulate() {
    const auto dataset =
        data::load_dataset(data::DatasetSpec::parse(job.data.dataset).value()).value();
    const auto parts =
        data::partition_views(dataset, data::PartitionSpec::parse(job.data.partition).value(),
                              kClients)
            .value();
    trainings = 0;
    FederationSimulator simulator(store, clock, options, {});
    simulator.disk_of("coordinator").set_capacity(capacity);
    for (std::size_t k = 0; k < kClients; ++k) {
      simulator.add_client("client-" + std::to_string(k + 1), {.training = parts[k]});
    }
    const auto id = simulator.run(prepare_run(job, dataset).value(), {});
    EXPECT_TRUE(id) << (id ? "" : id.error().message());
    crashes = simulator.crashes();
    messages = simulator.messages();
    upload_bytes = simulator.upload_bytes();
    took = simulator.now() - TimePoint{};
    for (const DiskEntry& entry : simulator.disk_of("coordinator").list("spool").value()) {
      left.push_back(entry.name);
    }
    std::vector<std::string> models;
    if (!id) return models;
    EXPECT_EQ(store.find_run(*id).value()->state, store::RunState::kCompleted);
    rounds = store.rounds(*id, 1).value();
    for (const auto& round : rounds) {
      if (round.model) models.push_back(round.model->hex());
    }
    return models;
  }
  // The lines of the run's log.
  std::vector<std::string> said() { return store.calls; }

  Job job = job_of_all();
  const SystemClock clock;
  testing::FlakyStore store;
  FederationSimulator::Options options;
  std::optional<std::uint64_t> capacity;  // of the coordinator's disk
  std::atomic<int> trainings = 0;
  std::uint64_t crashes = 0;
  std::uint64_t messages = 0;
  std::uint64_t upload_bytes = 0;  // sent
  Duration took{};
  std::vector<std::string> left;  // in the spool's directory
  std::vector<store::RoundRecord> rounds;
};

std::vector<std::string> undisturbed() {
  static const std::vector<std::string> kModels = Federation().simulate();
  EXPECT_EQ(kModels.size(), kRounds);
  return kModels;
}

class SimulatedCrash : public ::testing::Test, protected Federation {};

// Simulates a new federation for n = 1, 2, ... until `prepare` had nothing more to disturb, and
// returns how often it had.
using Prepare = std::function<void(Federation&, std::uint64_t n, std::shared_ptr<bool> disturbed)>;
std::uint64_t disturb_each(const Prepare& prepare) {
  for (std::uint64_t n = 1;; ++n) {
    SCOPED_TRACE("disturbance " + std::to_string(n));
    Federation federation;
    const auto disturbed = std::make_shared<bool>(false);
    prepare(federation, n, disturbed);
    const auto models = federation.simulate();
    if (!*disturbed && federation.crashes == 0) return n - 1;
    EXPECT_EQ(models, undisturbed());
    if (::testing::Test::HasFailure()) return n;
  }
}

// Injects the fault into the n-th change of a disk.
Prepare at_change(Fault fault) {
  return [fault](Federation& run, std::uint64_t n, const auto& disturbed) {
    run.options.faults.disk = [n, fault, disturbed, count = std::uint64_t{0}](const std::string&,
                                                                              const auto&) mutable {
      if (++count != n) return Fault::kNone;
      *disturbed = true;
      return fault;
    };
  };
}

TEST_F(SimulatedCrash, TheReceiverOfAnyMessageMayBeKilled) {
  const std::uint64_t disturbances =
      disturb_each([](Federation& run, std::uint64_t n, const auto&) {
        run.options.faults.kill_at_message = n;
      });
  simulate();
  EXPECT_EQ(disturbances, messages);
  EXPECT_GT(disturbances, 100U);
}

class AtEachChange : public ::testing::TestWithParam<Fault> {};

TEST_P(AtEachChange, OfADiskTheModelsStay) {
  const std::uint64_t disturbances = disturb_each(at_change(GetParam()));
  // A model and the pending files of each round, made and removed, and the directories.
  EXPECT_GE(disturbances, kRounds * (1 + 2 * kClients));
}

INSTANTIATE_TEST_SUITE_P(SimulatedDisk, AtEachChange,
                         ::testing::Values(Fault::kCrashBefore, Fault::kTornWrite,
                                           Fault::kCrashAfter, Fault::kFailedSync));

// Published is only what is committed: a kill between the two loses nothing and repeats nothing.
TEST_F(SimulatedCrash, TheCoordinatorMayBeKilledAfterAnyTransaction) {
  const std::uint64_t disturbances =
      disturb_each([](Federation& run, std::uint64_t n, const auto& disturbed) {
        run.store.on_written = [n, disturbed, count = std::uint64_t{0}](const auto&) mutable {
          if (++count != n) return;
          *disturbed = true;
          throw sim::ProcessCrash{FederationSimulator::kCoordinator};
        };
      });
  EXPECT_EQ(disturbances, 2 * kRounds + 1) << "attempts opened and committed, and the run's end";
}

// Its clients lost their connections because of the coordinator.
TEST_F(SimulatedCrash, ARestartIsNoAbsenceOfClients) {
  job.round.reconnect_grace = 0s;
  store.on_written = [&, opened = 0](const std::string& call) mutable {
    if (call == "open" && ++opened == 2) throw sim::ProcessCrash{FederationSimulator::kCoordinator};
  };
  EXPECT_EQ(simulate(), undisturbed());
  EXPECT_EQ(crashes, 1U);
  EXPECT_EQ(rounds.size(), kRounds) << "no attempt was abandoned";
}

TEST_F(SimulatedCrash, ACoordinatorThatFindsItsDiskFullWaits) {
  options.faults.disk = [full = 0](const std::string& process, const auto& path) mutable {
    const bool second = path.filename() == "2.safetensors";
    return process == "coordinator" && second && ++full <= 3 ? Fault::kFull : Fault::kNone;
  };
  EXPECT_EQ(simulate(), undisturbed());
  EXPECT_EQ(crashes, 0U);
  EXPECT_THAT(said(), Contains(HasSubstr("[round 2/3] waiting for the disk")).Times(3));
}

// --- what is lost -------------------------------------------------------------------------------

// Between the model's file and its transaction: the file is not believed, the updates come again.
TEST_F(SimulatedCrash, ARoundThatWasNotCommittedIsComputedAgain) {
  options.faults.disk = [used = false](const std::string&, const auto& path) mutable {
    const bool now = path.filename() == "2.safetensors" && !std::exchange(used, true);
    return now ? Fault::kCrashAfter : Fault::kNone;
  };
  EXPECT_EQ(simulate(), undisturbed());
  EXPECT_EQ(crashes, 1U);
  EXPECT_THAT(said(), Contains(HasSubstr("set aside")));
  EXPECT_THAT(said(), Contains(HasSubstr("resumed after round 1")));
  EXPECT_EQ(trainings, kRounds * kClients) << "nobody retrains";
}

// Where the simulation kept a model in memory, it would not miss the file.
TEST_F(SimulatedCrash, AfterACrashTheModelIsTheOneOnTheDisk) {
  SimulatedDisk disk(FederationSimulator::kCoordinator);
  options.checkpoints.emplace(disk, "models");
  store.on_written = [&, commits = 0](const std::string& call) mutable {
    if (call != "commit" || ++commits != 2) return;
    ASSERT_TRUE(disk.remove("models/2.safetensors"));
    throw sim::ProcessCrash{FederationSimulator::kCoordinator};
  };
  EXPECT_EQ(simulate(), undisturbed());
  EXPECT_EQ(crashes, 1U);
  ASSERT_EQ(rounds.size(), kRounds + 1);
  EXPECT_EQ(rounds[1].state, store::RoundState::kAbandoned);
  EXPECT_EQ(rounds[1].abandonment->code, "model-damaged");
}

// Client 2 is killed while it writes its first update.
decltype(SimulatedFaults::disk) kill_in_first_update(Fault fault) {
  return [fault, used = false](const std::string& process, const auto& path) mutable {
    const bool now =
        process == "client-2" && path.extension() == ".update" && !std::exchange(used, true);
    return now ? fault : Fault::kNone;
  };
}

TEST_F(SimulatedCrash, AnUpdateThatWasStoredIsNotTrainedAgain) {
  options.faults.disk = kill_in_first_update(Fault::kCrashAfter);
  EXPECT_EQ(simulate(), undisturbed());
  EXPECT_EQ(crashes, 1U);
  EXPECT_EQ(trainings, kRounds * kClients);
}

TEST_F(SimulatedCrash, AnUpdateOfWhichHalfIsOnTheDiskIsTrainedAgain) {
  options.faults.disk = kill_in_first_update(Fault::kTornWrite);
  EXPECT_EQ(simulate(), undisturbed());
  EXPECT_EQ(crashes, 1U);
  EXPECT_EQ(trainings, kRounds * kClients + 1);
}

TEST(SimulatedCrashes, InManyChangesOfDisksAreSurvived) {
  std::uint64_t crashes = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Federation federation;
    federation.options.faults.seed = seed;
    federation.options.faults.disk_crash = 0.1;
    federation.options.faults.client_crash = 0.01;
    federation.options.faults.coordinator_crash = 0.005;
    EXPECT_EQ(federation.simulate(), undisturbed());
    crashes += federation.crashes;
  }
  EXPECT_GT(crashes, 60U);
}

// --- uploads in files ---------------------------------------------------------------------------

constexpr std::uint64_t kPieces = 4;  // of an update
constexpr std::uint64_t kWindow = 128;

// Updates of 252 bytes are received at the same time, each in pieces into a file, which outlives
// the coordinator.
void spool_to_disk(Federation& federation) {
  federation.job.data.dataset = "synthetic:rows=120,features=20,classes=3";
  federation.options.transfer = {.chunk_bytes_max = kWindow / 2, .window_bytes = kWindow};
  federation.options.faults.training_max = {};
  federation.options.spool = {
      .directory = "spool", .memory_bytes_max = 0, .disk_bytes_max = 1 << 20, .kept_bytes_min = 1};
}

struct Undisturbed {
  std::vector<std::string> models;
  std::uint64_t upload_bytes = 0;
};

// Of the same federation whose uploads stay in memory.
const Undisturbed& undisturbed_in_memory(const std::string& rule = "mean") {
  static std::map<std::string, Undisturbed> known;
  const auto [found, is_new] = known.try_emplace(rule);
  if (is_new) {
    Federation federation;
    spool_to_disk(federation);
    federation.job.aggregation.rule = rule;
    federation.options.spool = FederationSimulator::Options().spool;
    found->second = {federation.simulate(), federation.upload_bytes};
    EXPECT_EQ(found->second.models.size(), kRounds);
    EXPECT_EQ(found->second.upload_bytes, kRounds * kClients * 252);
  }
  return found->second;
}

// What may happen to the uploads of a federation that is disturbed.
struct Tolerated {
  std::uint64_t again_max = UINT64_MAX;  // bytes that are sent again
  bool more_attempts = false;
  bool left_files = false;  // that could not be removed
};

// As disturb_each(), with uploads in files; or until the n-th message was not cut.
std::uint64_t disturb_spooled(
    const Tolerated& tolerated, const Prepare& prepare,
    const std::function<void(Federation&)>& look = [](Federation&) {}) {
  for (std::uint64_t n = 1;; ++n) {
    SCOPED_TRACE("disturbance " + std::to_string(n));
    Federation federation;
    spool_to_disk(federation);
    const auto disturbed = std::make_shared<bool>(false);
    prepare(federation, n, disturbed);
    const auto models = federation.simulate();
    const bool cut = n <= federation.messages && federation.options.faults.cut_at_message == n;
    if (!*disturbed && !cut && federation.crashes == 0) return n - 1;
    const Undisturbed& expected = undisturbed_in_memory(federation.job.aggregation.rule);
    EXPECT_EQ(models, expected.models);
    EXPECT_LE(federation.upload_bytes - expected.upload_bytes, tolerated.again_max);
    if (!tolerated.more_attempts) {
      EXPECT_EQ(federation.rounds.size(), kRounds) << "no attempt was abandoned";
    }
    if (!tolerated.left_files) {
      EXPECT_THAT(federation.left, IsEmpty());
    }
    look(federation);
    if (::testing::Test::HasFailure()) return n;
  }
}

Prepare kill_at_message(std::function<void(Federation&)> besides = [](Federation&) {}) {
  return [besides = std::move(besides)](Federation& run, std::uint64_t n, const auto&) {
    besides(run);
    run.options.faults.kill_at_message = n;
    run.options.faults.seed = n;
  };
}

TEST_F(SimulatedCrash, UploadsInFilesGiveTheSameModels) {
  spool_to_disk(*this);
  EXPECT_EQ(simulate(), undisturbed_in_memory().models);
  EXPECT_EQ(upload_bytes, undisturbed_in_memory().upload_bytes);
  EXPECT_THAT(left, IsEmpty()) << "what is counted goes with its phase";
}

// What a killed coordinator has received, and what it has counted, is in files: again comes only
// what was on its way.
TEST_F(SimulatedCrash, AnUploadGoesOnWhereAKillOfEitherSideEndedIt) {
  for (const char* rule : {"mean", "median"}) {
    SCOPED_TRACE(rule);
    const std::uint64_t disturbances =
        disturb_spooled({.again_max = kClients * kWindow},
                        kill_at_message([&](Federation& run) { run.job.aggregation.rule = rule; }));
    EXPECT_GT(disturbances, kRounds * kClients * kPieces);
  }
}

TEST_F(SimulatedCrash, AnUploadGoesOnWhereItsLinkWasCut) {
  const std::uint64_t disturbances = disturb_spooled(
      {.again_max = kWindow},
      [](Federation& run, std::uint64_t n, const auto&) { run.options.faults.cut_at_message = n; });
  EXPECT_GT(disturbances, kRounds * kClients * kPieces);
}

TEST_F(SimulatedCrash, LinksMayBeCutBeforeAndAfterAKill) {
  disturb_spooled({}, kill_at_message([](Federation& run) {
                    run.options.faults.disconnect = 0.02;
                    run.job.round.reconnect_grace = 1000s;
                  }));
}

// What was received may be gone, cut or damaged then; nobody is blamed for it.
TEST_F(SimulatedCrash, WhatAPowerCutDamagedIsSentAgain) {
  std::ptrdiff_t damaged = 0;
  disturb_spooled({},
                  kill_at_message([](Federation& run) { run.options.faults.power_cuts = true; }),
                  [&](Federation& run) {
                    damaged += std::ranges::count_if(run.said(), [](const std::string& line) {
                      return line.find("it is requested again in full") != line.npos;
                    });
                  });
  EXPECT_GT(damaged, 10);
}

class SpooledAtEachChange : public ::testing::TestWithParam<Fault> {};

TEST_P(SpooledAtEachChange, OfADiskTheModelsStay) {
  const bool kills = GetParam() != Fault::kFull && GetParam() != Fault::kFailedSync;
  const Tolerated tolerated{.again_max = kills ? kClients * kWindow : UINT64_MAX,
                            .more_attempts = GetParam() == Fault::kFailedSync,
                            .left_files = !kills};
  const std::uint64_t disturbances = disturb_spooled(tolerated, at_change(GetParam()));
  // Beside the model and the pending files, a file of each update is made, grows and is removed.
  EXPECT_GE(disturbances, kRounds * (1 + 2 * kClients + (2 + kPieces) * kClients));
}

INSTANTIATE_TEST_SUITE_P(SimulatedDisk, SpooledAtEachChange,
                         ::testing::Values(Fault::kCrashBefore, Fault::kTornWrite,
                                           Fault::kCrashAfter, Fault::kFull, Fault::kFailedSync));

// The disk or the spool has room for one upload beside the models: the others wait for it, and what
// is kept of them after a kill gives way.
TEST_F(SimulatedCrash, RoomForOneUploadIsEnoughForAll) {
  const std::function<void(Federation&)> shortages[] = {
      [](Federation& run) { run.capacity = 10'000; },
      [](Federation& run) { run.options.spool.disk_bytes_max = 4096; }};
  for (const auto& scarce : shortages) {
    Federation federation;
    spool_to_disk(federation);
    scarce(federation);
    federation.simulate();
    EXPECT_GT(federation.took, kRounds * 200ms) << "some had to ask for room again";
    disturb_spooled({}, kill_at_message(scarce));
  }
}

TEST_F(SimulatedCrash, ASpoolThatFailsForAWhileFailsAttemptsAndNotTheRun) {
  spool_to_disk(*this);
  options.faults.disk = [failures = 0](const std::string& process, const auto& path) mutable {
    const bool spools = process == "coordinator" && path.extension() == ".upload";
    return spools && ++failures <= 12 ? Fault::kFailedSync : Fault::kNone;
  };
  EXPECT_EQ(simulate(), undisturbed_in_memory().models);
  ASSERT_GT(rounds.size(), kRounds);
  for (const auto& failure : rounds[0].result.failures) EXPECT_EQ(failure.code, "io-error");
}

TEST(SimulatedCrashes, WithUploadsInFilesAreSurvived) {
  std::uint64_t crashes = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Federation federation;
    spool_to_disk(federation);
    federation.job.aggregation.rule = seed % 2 == 0 ? "mean" : "median";
    federation.options.faults = {.seed = seed,
                                 .latency_max = 10ms,
                                 .training_max = 1s,
                                 .disconnect = 0.01,
                                 .client_crash = 0.005,
                                 .coordinator_crash = 0.005,
                                 .disk_crash = 0.02,
                                 .power_cuts = seed % 3 == 0};
    EXPECT_EQ(federation.simulate(), undisturbed_in_memory(federation.job.aggregation.rule).models);
    crashes += federation.crashes;
  }
  EXPECT_GT(crashes, 60U);
}

}  // namespace
}  // namespace starling::coordinator
