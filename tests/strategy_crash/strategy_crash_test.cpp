// SPDX-License-Identifier: Apache-2.0
// Strategies whose servers and clients remember something, while processes of both sides are killed
// at any message and in any change of their disks: every model, every state of the server and the
// state of each client are, bit for bit, those of an undisturbed run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <ostream>

#include "coordinator/rounds/run_json.h"
#include "coordinator/simulation/federation_simulator.h"
#include "core/data/hold_out.h"
#include "core/data/load.h"
#include "core/data/partition.h"
#include "core/strategy/state_file.h"
#include "core/wire/limits.h"
#include "core/wire/update_head.h"
#include "tests/coordinator/flaky_store.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using Fault = sim::SimulatedDisk::Fault;

struct Scenario {
  std::string name;
  std::function<void(Job&)> set;
  int rounds = 4;
  std::size_t clients = 4;
  int cohort = 4;       // fewer than the clients: everybody's state waits for a round of its own
  bool spools = false;  // uploads are received into files, which outlive the coordinator
};

std::ostream& operator<<(std::ostream& out, const Scenario& scenario) {
  return out << scenario.name;
}

std::function<void(Job&)> strategy(const std::string& name) {
  return [name](Job& job) { job.training.strategy.name = name; };
}

void scaffold_one(Job& job) {
  job.training.strategy.name = "scaffold";
  job.training.strategy.option = "I";
}

void scaffold_and_evaluations(Job& job) {
  job.training.strategy.name = "scaffold";
  job.evaluate.federated_every = 1;
  job.data.hold_out = 0.2;
}

void diloco(Job& job) {
  job.training.strategy.name = "diloco";
  job.training.train.optimizer = "adamw";
  job.training.train.learning_rate = 0.01;
  job.training.train.weight_decay = 0.01;
}

void fednova(Job& job) {
  job.training.strategy.name = "fednova";
  job.training.train.optimizer = "momentum";
}

std::vector<Scenario> scenarios() {
  return {{"FedAdam", strategy("fedadam"), 12},
          {"ScaffoldII", strategy("scaffold"), 12},
          {"ScaffoldI", scaffold_one, 12},
          {"ScaffoldAndEvaluations", scaffold_and_evaluations, 12},
          {"ScaffoldOfHalf", strategy("scaffold"), 12, 4, 2},
          {"DiLoCo", diloco, 12},
          {"FedDyn", strategy("feddyn"), 12},
          {"FedDynOfHalf", strategy("feddyn"), 12, 4, 2},
          {"FedAvg", strategy("fedavg")},
          {"FedProx", strategy("fedprox")},
          {"FedAvgM", strategy("fedavgm")},
          {"FedAdagrad", strategy("fedadagrad")},
          {"FedYogi", strategy("fedyogi")},
          {"FedNova", fednova},
          {"QFedAvg", strategy("qfedavg")}};
}

// Nothing but the strategy decides: whoever is away for a while may still be asked, and every round
// has the updates of all whom it asks.
Job job_of(const Scenario& scenario) {
  Job job;
  job.job.rounds = scenario.rounds;
  job.training.model.kind = "softmax-regression";
  job.training.train.batch_size = 16;
  job.round.cohort = scenario.cohort;
  job.round.min_updates = scenario.cohort;
  job.round.wait_for = static_cast<int>(scenario.clients);
  job.round.attempts_max = 100'000;
  job.round.reconnect_grace = 1000s;
  job.evaluate.every = 0;
  job.data.dataset = "synthetic:rows=120,features=4,classes=3";
  job.data.partition = "dirichlet:alpha=1,min=5";
  scenario.set(job);
  return job;
}

struct ClientEnd {
  Round round = 0;  // the last one that it contributed to
  Bytes state;      // from then on; empty: its strategy has none
};

// What a run leaves.
struct Outcome {
  std::vector<std::string> models;  // SHA-256 of each round's
  std::vector<std::string> states;  // ... of the server's state; empty: none
  Bytes state;                      // the last one's file
  std::map<std::string, ClientEnd> clients;
};

Bytes whole(const std::vector<SharedBytes>& parts) {
  Bytes bytes;
  for (const SharedBytes& part : parts) {
    bytes.insert(bytes.end(), part.view().begin(), part.view().end());
  }
  return bytes;
}

// A federation that is simulated once.
struct Federation {
  explicit Federation(Scenario its_scenario)
      : scenario(std::move(its_scenario)), job(job_of(scenario)) {
    options.faults.latency_max = 10ms;
    options.faults.training_max = 1s;
    options.transfer = {.chunk_bytes_max = 32, .window_bytes = 64};
    options.give_up_at = TimePoint(240h);
    if (scenario.spools) spool();
  }

  void spool() {
    options.spool = {.directory = "spool",
                     .memory_bytes_max = 0,
                     .disk_bytes_max = 1 << 20,
                     .kept_bytes_min = 1};
  }

  // Once the third attempt is open: a coordinator that comes back then takes round 2 back.
  void lose_model_of_round_2() {
    store.on_written = [this, opened = 0](const std::string& call) mutable {
      if (call != "open" || ++opened != 3) return;
      ASSERT_TRUE(coordinator_disk->remove("models/1/2.safetensors"));
    };
  }

  // At these changes of its updates' files, counted from 1, it is killed and its states disappear.
  void lose_states_of(const std::string& client, std::set<int> changes) {
    options.faults.disk = [this, client, changes = std::move(changes), changed = 0, lost = false](
                              const std::string& process, const auto& path) mutable {
      const bool is_update = process == client && path.extension() == ".update" && !lost;
      if (!is_update || !changes.contains(++changed)) return Fault::kNone;
      lost = true;  // removing is a change of the disk as well
      for (const char* file : {"pending/1.state", "pending/1.before"}) {
        EXPECT_TRUE(disk_of(client).remove(file));
      }
      lost = false;
      return Fault::kCrashBefore;
    };
  }

  Outcome simulate() {
    const auto dataset =
        data::load_dataset(data::DatasetSpec::parse(job.data.dataset).value()).value();
    const auto parts =
        data::partition_views(dataset, data::PartitionSpec::parse(job.data.partition).value(),
                              scenario.clients)
            .value();
    FederationSimulator simulator(store, clock, options, {});
    coordinator_disk = &simulator.disk_of("coordinator");
    disk_of = [&simulator](const std::string& process) -> sim::SimulatedDisk& {
      return simulator.disk_of(process);
    };
    for (std::size_t k = 0; k < parts.size(); ++k) {
      data::Divided divided = data::hold_out(parts[k], job.data.hold_out.value_or(0));
      simulator.add_client("client-" + std::to_string(k + 1),
                           {std::move(divided.training), std::move(divided.held_out)});
    }
    const auto id = simulator.run(prepare_run(job, dataset).value(), replay);
    EXPECT_TRUE(id) << (id ? "" : id.error().message());
    crashes = simulator.crashes();
    disconnects = simulator.disconnects();
    messages = simulator.messages();
    Outcome outcome;
    if (!id) return outcome;
    EXPECT_EQ(store.find_run(*id).value()->state, store::RunState::kCompleted);
    for (const auto& round : store.rounds(*id, 1).value()) {
      if (round.state != store::RoundState::kAbandoned) continue;
      ++abandoned;
      too_late += round.abandonment->code == "too-few-updates";
    }
    const auto json = run_to_json(*store.find_run(*id).value(), store.rounds(*id, 1).value());
    recorded = parse_recorded_run(boost::json::serialize(json)).value().replay;
    for (const store::ModelRecord& model : store.models(*id).value()) {
      outcome.models.push_back(model.sha256.hex());
      outcome.states.push_back(model.state ? model.state->sha256.hex() : "");
    }
    read_server_state(simulator, *id, outcome);
    for (std::size_t k = 1; k <= parts.size(); ++k) {
      const std::string name = "client-" + std::to_string(k);
      outcome.clients[name] = read_client(name, simulator.disk_of(name));
    }
    return outcome;
  }

  void read_server_state(FederationSimulator& simulator, RunId id, Outcome& outcome) {
    if (outcome.states.back().empty()) return;
    const store::Checkpoints files(simulator.disk_of("coordinator"),
                                   "models/" + std::to_string(id.value()));
    const auto round = static_cast<Round>(scenario.rounds);
    auto state = read_file(files.disk(), files.state_path(round), 1 << 20);
    ASSERT_TRUE(state) << state.error().message();
    EXPECT_EQ(sha256(*state).hex(), outcome.states.back());
    outcome.state = std::move(*state);
  }

  // Of an update that was counted, the client may not have heard when the run ended: the state that
  // it brought is then still the update's. Nor of one that was not, which is none.
  ClientEnd read_client(const std::string& name, sim::SimulatedDisk& disk) const {
    disk.set_fault_injector({});
    NullLog log;
    const client::PendingStore files(disk, "pending", wire::kUpdateHeads, {});
    const client::Leftovers left = files.load(log).value();
    ClientEnd end;
    const auto take = [&](Round round, const strategy::StateSnapshot& state) {
      const auto counted = recorded.contributors.find(round);
      if (round <= end.round || counted == recorded.contributors.end()) return;
      if (std::ranges::find(counted->second, name) == counted->second.end()) return;
      end = {round, state ? whole(strategy::encode_state(state)) : Bytes()};
    };
    for (const client::CommittedState& state : left.states) take(state.round, state.state);
    for (const client::PendingUpdate& update : left.pending) {
      if (!update.head.vectors.empty()) take(update.head.base.round + 1, update.state);
    }
    return end;
  }

  const Scenario scenario;
  Job job;
  const SystemClock clock;
  testing::FlakyStore store;
  FederationSimulator::Options options;
  Replay replay;    // what is repeated; empty: drawn
  Replay recorded;  // what was
  std::uint64_t crashes = 0;
  std::uint64_t disconnects = 0;
  std::uint64_t messages = 0;
  std::uint64_t abandoned = 0;                     // attempts
  std::uint64_t too_late = 0;                      // ... of them, for want of updates
  sim::SimulatedDisk* coordinator_disk = nullptr;  // while simulate() runs
  std::function<sim::SimulatedDisk&(const std::string& process)> disk_of;  // likewise
};

bool remembers(const Scenario& scenario) {
  return scenario.name.starts_with("Scaffold") || scenario.name.starts_with("FedDyn") ||
         scenario.name.starts_with("DiLoCo");
}

void expect_same(const Outcome& found, const Outcome& undisturbed, const Scenario& scenario) {
  EXPECT_EQ(found.models, undisturbed.models);
  EXPECT_EQ(found.states, undisturbed.states);
  EXPECT_EQ(found.state, undisturbed.state);
  if (!remembers(scenario)) return;  // what is left on the clients' disks does not matter
  for (const auto& [name, end] : undisturbed.clients) {
    EXPECT_EQ(found.clients.at(name).round, end.round) << name;
    EXPECT_EQ(found.clients.at(name).state == end.state, true) << name;
  }
}

const Outcome& undisturbed(const Scenario& scenario) {
  static std::map<std::string, Outcome> known;
  const auto [outcome, is_new] = known.try_emplace(scenario.name);
  if (is_new) outcome->second = Federation(scenario).simulate();
  return outcome->second;
}

class StrategyCrash : public ::testing::TestWithParam<Scenario> {};

TEST_P(StrategyCrash, UndisturbedTheStateChangesInEveryRound) {
  const Outcome& outcome = undisturbed(GetParam());
  const auto models = static_cast<std::size_t>(GetParam().rounds) + 1;
  ASSERT_EQ(outcome.models.size(), models);
  EXPECT_EQ(std::set(outcome.models.begin(), outcome.models.end()).size(), models);
  if (!outcome.state.empty()) {
    EXPECT_EQ(std::set(outcome.states.begin(), outcome.states.end()).size(), models);
  }
  for (const auto& [name, end] : outcome.clients) {
    EXPECT_EQ(end.state.empty(), !remembers(GetParam())) << name;
    EXPECT_GT(end.round, 0U) << name;
  }
}

// Faults of so many kinds.
class FaultsOfDisks {
 public:
  FaultsOfDisks(std::uint64_t seed, std::uint64_t kinds)
      : rng_({.seed = seed, .purpose = Purpose::kNetwork, .node = 1}), kinds_(kinds) {}
  Fault operator()(const std::string&, const std::filesystem::path&) {
    constexpr std::array<Fault, 5> kKinds = {Fault::kCrashBefore, Fault::kTornWrite,
                                             Fault::kCrashAfter, Fault::kFull, Fault::kFailedSync};
    return rng_.uniform() < 0.08 ? kKinds[rng_.below(kinds_)] : Fault::kNone;
  }

 private:
  Rng rng_;
  std::uint64_t kinds_;
};

TEST_P(StrategyCrash, RandomKillsAndFaultsChangeNothing) {
  const bool all = GetParam().cohort == static_cast<int>(GetParam().clients);
  std::uint64_t crashes = 0;
  std::uint64_t disconnects = 0;
  std::uint64_t abandoned = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Federation federation(GetParam());
    // In some, deadlines pass after some of the updates were counted.
    const bool slow = all && seed % 2 == 0;
    federation.job.round.deadline = slow ? 10s : 1000s;
    federation.options.faults = {.seed = seed,
                                 .latency_max = 100ms,
                                 .training_max = slow ? 12s : 3s,
                                 .disconnect = 0.02,
                                 .client_crash = 0.02,
                                 .coordinator_crash = 0.01};
    const bool spools = seed > 4;
    if (spools) federation.spool();
    // A failed fsync fails its task, and with it the attempt, whose next one has another cohort, as
    // does a file of an upload for which there is no room several times: not where the cohort is a
    // part.
    federation.options.faults.disk = FaultsOfDisks(seed, all ? 5 : spools ? 3 : 4);
    federation.options.faults.power_cuts = seed > 6;
    expect_same(federation.simulate(), undisturbed(GetParam()), GetParam());
    crashes += federation.crashes;
    disconnects += federation.disconnects;
    abandoned += federation.abandoned;
    if (HasFailure()) break;
  }
  const auto rounds = static_cast<std::uint64_t>(GetParam().rounds);
  EXPECT_GT(crashes, 8 * rounds);
  EXPECT_GT(disconnects, 4 * rounds);
  if (all) {
    EXPECT_GT(abandoned, rounds / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, StrategyCrash, ::testing::ValuesIn(scenarios()),
                         [](const auto& test) { return test.param.name; });

// --- at each step -------------------------------------------------------------------------------

// Simulates a new federation for n = 1, 2, ... until `prepare` had nothing more to disturb, and
// returns how often it had.
using Prepare = std::function<void(Federation&, std::uint64_t n, std::shared_ptr<bool> disturbed)>;
std::uint64_t disturb_each(const Scenario& scenario, const Prepare& prepare) {
  for (std::uint64_t n = 1;; ++n) {
    SCOPED_TRACE("disturbance " + std::to_string(n));
    Federation federation(scenario);
    const auto disturbed = std::make_shared<bool>(false);
    prepare(federation, n, disturbed);
    const Outcome outcome = federation.simulate();
    if (!*disturbed && federation.crashes == 0) return n - 1;
    expect_same(outcome, undisturbed(scenario), scenario);
    if (::testing::Test::HasFailure()) return n;
  }
}

// Two full rounds of two clients, after which the first one's outcome shows in the states.
std::vector<Scenario> small_scenarios() {
  return {{"SmallFedAdam", strategy("fedadam"), 2, 2, 2},
          {"ScaffoldSmall", strategy("scaffold"), 3, 2, 2},
          {"ScaffoldSmallI", scaffold_one, 3, 2, 2},
          {"FedDynSmall", strategy("feddyn"), 3, 2, 2},
          {"DiLoCoSmall", diloco, 3, 2, 2},
          {"SmallFedAvg", strategy("fedavg"), 2, 2, 2},
          {"SmallFedProx", strategy("fedprox"), 2, 2, 2},
          {"SmallFedAvgM", strategy("fedavgm"), 2, 2, 2},
          {"SmallFedAdagrad", strategy("fedadagrad"), 2, 2, 2},
          {"SmallFedYogi", strategy("fedyogi"), 2, 2, 2},
          {"SmallFedNova", fednova, 2, 2, 2},
          {"SmallQFedAvg", strategy("qfedavg"), 2, 2, 2},
          {"FedAdamSpooled", strategy("fedadam"), 2, 2, 2, true},
          {"ScaffoldSpooled", strategy("scaffold"), 3, 2, 2, true}};
}

class AtEachStep : public ::testing::TestWithParam<Scenario> {};

TEST_P(AtEachStep, TheReceiverOfAMessageMayBeKilled) {
  const std::uint64_t disturbances =
      disturb_each(GetParam(), [](Federation& run, std::uint64_t n, const auto&) {
        run.options.faults.kill_at_message = n;
      });
  Federation federation(GetParam());
  federation.simulate();
  EXPECT_EQ(disturbances, federation.messages);
  EXPECT_GT(disturbances, 20U * GetParam().rounds);
}

TEST_P(AtEachStep, ADiskMayFail) {
  for (const Fault fault : {Fault::kCrashBefore, Fault::kTornWrite, Fault::kCrashAfter,
                            Fault::kFull, Fault::kFailedSync}) {
    SCOPED_TRACE("fault " + std::to_string(static_cast<int>(fault)));
    const std::uint64_t disturbances =
        disturb_each(GetParam(), [fault](Federation& run, std::uint64_t n, const auto& disturbed) {
          run.options.faults.disk = [n, fault, disturbed, count = std::uint64_t{0}](
                                        const std::string&, const auto&) mutable {
            if (++count != n) return Fault::kNone;
            *disturbed = true;
            return fault;
          };
        });
    // Of each round the files of model and state, and each client's update, made and removed.
    EXPECT_GT(disturbances, static_cast<std::uint64_t>(GetParam().rounds * (2 + 2 * 2)));
    if (HasFailure()) break;
  }
}

TEST_P(AtEachStep, TheCoordinatorMayBeKilledAfterATransaction) {
  const std::uint64_t disturbances =
      disturb_each(GetParam(), [](Federation& run, std::uint64_t n, const auto& disturbed) {
        run.store.on_written = [n, disturbed, count = std::uint64_t{0}](const auto&) mutable {
          if (++count != n) return;
          *disturbed = true;
          throw sim::ProcessCrash{FederationSimulator::kCoordinator};
        };
      });
  EXPECT_EQ(disturbances, static_cast<std::uint64_t>(2 * GetParam().rounds + 1));
}

INSTANTIATE_TEST_SUITE_P(Strategies, AtEachStep, ::testing::ValuesIn(small_scenarios()),
                         [](const auto& test) { return test.param.name; });

// A coordinator that comes back without its newest model takes a round back. Clients have pending
// updates and states of what is not any more; nobody waits for these to be settled, and clients go
// back to the states before.
TEST(StrategyCrashes, ARoundThatIsTakenBackHoldsNobodyUp) {
  const Scenario scenario{"ScaffoldTakenBack", strategy("scaffold"), 3, 2, 2};
  std::size_t taken_back = 0;
  for (std::uint64_t n = 1;; ++n) {
    SCOPED_TRACE("message " + std::to_string(n));
    Federation federation(scenario);
    federation.options.faults.kill_at_message = n;
    federation.lose_model_of_round_2();
    const Outcome outcome = federation.simulate();
    if (federation.crashes == 0) break;
    EXPECT_EQ(outcome.models.size(), 4U);
    EXPECT_EQ(federation.too_late, 0U);
    expect_same(outcome, undisturbed(scenario), scenario);
    taken_back += federation.abandoned > 0;
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(taken_back, 5U);
}

// A replay of what is recorded of the federation, without its faults, gives the same.
void expect_replays(const Federation& federation, const Outcome& outcome) {
  Federation again(federation.scenario);
  again.job.job.seed = federation.job.job.seed;
  again.replay = federation.recorded;
  const Outcome expected = again.simulate();
  EXPECT_EQ(outcome.models, expected.models);
  EXPECT_EQ(outcome.states, expected.states);
}

// The next attempt of a round that is taken back asks other clients: those of the lost one go back
// too, when they are asked in a later round.
TEST(StrategyCrashes, NoStateOfALostRoundIsUsed) {
  for (const char* name : {"scaffold", "feddyn"}) {
    const Scenario scenario{std::string("TakenBack") + name, strategy(name), 8, 4, 2};
    std::size_t taken_back = 0;
    for (std::uint64_t n = 1;; ++n) {
      SCOPED_TRACE(std::string(name) + ", message " + std::to_string(n));
      Federation federation(scenario);
      federation.options.faults.kill_at_message = n;
      federation.lose_model_of_round_2();
      const Outcome outcome = federation.simulate();
      if (federation.crashes == 0) break;
      if (federation.abandoned == 0) continue;
      ++taken_back;
      expect_replays(federation, outcome);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(taken_back, 5U);
  }
}

// Of the server's state from the mean of the clients', relative to its largest value. A client that
// was not asked since all began again still has what it will drop then.
double distance_from_mean(const Outcome& outcome, const Replay& recorded) {
  Round last_loss = 0;
  for (const auto& [round, clients] : recorded.lost) {
    if (!clients.empty()) last_loss = round;
  }
  const auto vector_in = [](const Bytes& file) {
    return strategy::parse_state(file).value()->vectors.begin()->second;
  };
  const auto server = vector_in(outcome.state);
  std::vector<double> mean(server.size());
  for (const auto& [name, end] : outcome.clients) {
    if (end.state.empty() || end.round < last_loss) continue;
    const auto own = vector_in(end.state);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += own[i] / static_cast<double>(outcome.clients.size());
    }
  }
  double distance = 0;
  double largest = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    distance = std::max(distance, std::abs(server[i] - mean[i]));
    largest = std::max(largest, std::abs(static_cast<double>(server[i])));
  }
  return distance / largest;
}

// What is remembered fits together after all that happened in a federation, and a replay of what is
// recorded gives the same models and states. Returns how many states were lost.
std::size_t expect_fits(Federation& federation) {
  const Outcome outcome = federation.simulate();
  EXPECT_LT(distance_from_mean(outcome, federation.recorded), 1e-5);
  expect_replays(federation, outcome);
  std::size_t lost = 0;
  for (const auto& [round, clients] : federation.recorded.lost) lost += clients.size();
  return lost;
}

constexpr std::array kMirroring = {"scaffold", "feddyn"};

// Devices whose states disappear while both sides are killed: all begin again. Otherwise the
// server's part would stay wrong for good.
TEST(StrategyCrashes, AStateThatIsLostLeavesNothingThatDoesNotFitTogether) {
  for (const char* name : kMirroring) {
    for (const int cohort : {4, 2}) {
      const Scenario scenario{std::string("Lost") + name, strategy(name), 12, 4, cohort};
      std::size_t lost = 0;
      for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        SCOPED_TRACE(fmt::format("{}, cohort {}, seed {}", name, cohort, seed));
        Federation federation(scenario);
        federation.options.faults = {.seed = seed,
                                     .latency_max = 100ms,
                                     .training_max = 3s,
                                     .client_crash = 0.03,
                                     .coordinator_crash = 0.01};
        federation.lose_states_of("client-2", {3, 6});
        lost += expect_fits(federation);
        if (::testing::Test::HasFailure()) return;
      }
      EXPECT_GT(lost, 4U);
    }
  }
}

// A client may train for the first time in an attempt that a loss abandons: not with that control.
TEST(StrategyCrashes, NoUpdateOfTheAttemptThatALossAbandonedIsUsed) {
  for (const char* name : kMirroring) {
    std::size_t lost = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", name, seed));
      Federation federation({std::string("First") + name, strategy(name), 8, 6, 3});
      federation.job.job.seed = seed;
      federation.lose_states_of("client-2", {3});
      lost += expect_fits(federation);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(lost, 5U);
  }
}

// The coordinator takes a round back after the loss, and is killed now and then from there on.
TEST(StrategyCrashes, ARoundThatIsTakenBackAfterALossRepeatsNoLoss) {
  for (const char* name : kMirroring) {
    std::size_t taken_back = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", name, seed));
      Federation federation({std::string("Back") + name, strategy(name), 10, 6, 3});
      federation.job.job.seed = seed;
      federation.options.faults = {
          .seed = seed, .latency_max = 10ms, .training_max = 1s, .coordinator_crash = 0.03};
      federation.lose_states_of("client-2", {3});
      federation.store.on_written = [&, done = false](const std::string& call) mutable {
        if (call != "abandon" || done) return;
        const store::RoundRecord last = federation.store.rounds(RunId(1), 1).value().back();
        const bool by_loss = std::ranges::any_of(last.result.failures, [](const auto& failure) {
          return failure.code == client::kStateLost;
        });
        if (!by_loss || last.key.round < 3) return;
        done = true;
        ++taken_back;
        const auto model = fmt::format("models/1/{}.safetensors", last.key.round - 1);
        ASSERT_TRUE(federation.coordinator_disk->remove(model));
        throw sim::ProcessCrash{FederationSimulator::kCoordinator};
      };
      expect_fits(federation);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(taken_back, 5U);
  }
}

// --- the client's machine alone -----------------------------------------------------------------

// A client that has an unsettled update of round 1, connected and asked for round 2, whose model
// has arrived.
struct AskedForTheNextRound {
  AskedForTheNextRound() {
    const Bytes model(8);
    const update::ModelVersion next{RunId(1), 1, sha256(model)};
    client::Leftovers left;
    left.pending.push_back({{.task = TaskId(7), .base = {RunId(1), 0, {}}}, {}, state});
    machine.emplace(client::ClientOptions{}, Rng({.seed = 1, .purpose = Purpose::kBackoff}),
                    std::move(left));
    machine->on(client::Tick{}, {});
    machine->on(client::Connected{}, {});
    receive(protocol::Welcome{.version = protocol::kVersion});
    receive(protocol::RoundPlan{
        .task = TaskId(8), .run = RunId(1), .round = 2, .base = next, .model_bytes = 8});
    before = receive(protocol::Chunk{.task = TaskId(8)}, SharedBytes::own(Bytes(model)));
  }
  std::vector<client::Action> receive(protocol::Message message, SharedBytes payload = {}) {
    return machine->on(client::Received{{std::move(message), std::move(payload)}}, {});
  }
  static const client::Train* find_training(const std::vector<client::Action>& actions) {
    for (const client::Action& action : actions) {
      if (const auto* train = std::get_if<client::Train>(&action)) return train;
    }
    return nullptr;
  }

  const strategy::StateSnapshot state = std::make_shared<const strategy::State<float>>();
  std::optional<client::ClientMachine> machine;
  std::vector<client::Action> before;
};

TEST(StatefulClient, TrainsWithTheStateOfAnUpdateOnceItIsKnownToCount) {
  AskedForTheNextRound client;
  EXPECT_EQ(client.find_training(client.before), nullptr);
  EXPECT_EQ(client.machine->activity(), client::ClientMachine::Activity::kSettling);
  const auto actions =
      client.receive(protocol::RoundCommitted{.task = TaskId(7), .run = RunId(1), .round = 1});
  const client::Train* training = client.find_training(actions);
  ASSERT_NE(training, nullptr);
  EXPECT_EQ(training->state, client.state);
}

TEST(StatefulClient, TrainsWithoutTheStateOfAnUpdateThatDidNotCount) {
  AskedForTheNextRound client;
  const auto actions = client.receive(protocol::TaskEnded{.task = TaskId(7)});
  const client::Train* training = client.find_training(actions);
  ASSERT_NE(training, nullptr);
  EXPECT_EQ(training->state, nullptr);
}

}  // namespace
}  // namespace starling::coordinator
