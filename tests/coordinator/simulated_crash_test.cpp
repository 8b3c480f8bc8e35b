// SPDX-License-Identifier: Apache-2.0
// Processes of a simulated federation that are killed at every message, in every change of their
// disks and after every transaction: the models are those of an undisturbed run. And what a process
// did not write is really lost.
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
    for (std::size_t k = 0; k < kClients; ++k) {
      simulator.add_client("client-" + std::to_string(k + 1), {.training = parts[k]});
    }
    const auto id = simulator.run(prepare_run(job, dataset).value(), {});
    EXPECT_TRUE(id) << (id ? "" : id.error().message());
    crashes = simulator.crashes();
    messages = simulator.messages();
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
  std::atomic<int> trainings = 0;
  std::uint64_t crashes = 0;
  std::uint64_t messages = 0;
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
  const std::uint64_t disturbances =
      disturb_each([](Federation& run, std::uint64_t n, const auto& disturbed) {
        run.options.faults.disk = [n, disturbed, count = std::uint64_t{0}](const std::string&,
                                                                           const auto&) mutable {
          if (++count != n) return Fault::kNone;
          *disturbed = true;
          return GetParam();
        };
      });
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

}  // namespace
}  // namespace starling::coordinator
