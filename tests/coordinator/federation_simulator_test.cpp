// SPDX-License-Identifier: Apache-2.0
// The machines together: whole federations under a virtual clock, with and without faults.
#include "coordinator/simulation/federation_simulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "coordinator/rounds/run_records.h"
#include "core/data/load.h"
#include "core/data/partition.h"
#include "core/store/sqlite_store.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;

Job small_job() {
  Job job;
  job.job.rounds = 6;
  job.training.model.kind = "softmax-regression";
  job.training.train.batch_size = 16;
  job.round.cohort = 4;
  job.round.min_updates = 3;
  job.round.wait_for = 7;
  job.evaluate.dataset = "synthetic:rows=300,features=6,classes=3:test";
  job.data.dataset = "synthetic:rows=700,features=6,classes=3";
  job.data.partition = "dirichlet:alpha=1";
  return job;
}

struct Outcome {
  store::Run run;
  std::vector<store::RoundRecord> rounds;
  std::uint64_t crashes = 0;
  std::uint64_t disconnects = 0;

  std::vector<std::string> models() const {
    std::vector<std::string> hashes;
    for (const auto& round : rounds) {
      if (round.model) hashes.push_back(round.model->hex());
    }
    return hashes;
  }
};

Outcome simulate_with(const Job& job, FederationSimulator::Options options, std::size_t clients = 7,
                      Replay replay = {}, bool reversed = false,
                      FederationSimulator::Hooks hooks = {}) {
  const SystemClock clock;
  const auto store = store::open_store_in_memory();
  const auto dataset =
      data::load_dataset(data::DatasetSpec::parse(job.data.dataset).value()).value();
  const auto parts = data::partition_views(
                         dataset, data::PartitionSpec::parse(job.data.partition).value(), clients)
                         .value();
  const RunContext context = prepare_run(job, dataset).value();
  FederationSimulator simulator(*store, clock, std::move(options), std::move(hooks));
  for (std::size_t k = 0; k < clients; ++k) {
    const std::size_t which = reversed ? clients - 1 - k : k;
    simulator.add_client("client-" + std::to_string(which + 1), {.training = parts[which]});
  }
  const auto id = simulator.run(context, std::move(replay));
  EXPECT_TRUE(id) << (id ? "" : id.error().message());
  return {store->find_run(*id).value().value(), store->rounds(*id, 1).value(), simulator.crashes(),
          simulator.disconnects()};
}

TEST(FederationSimulator, LearnsAndRecordsEveryRound) {
  const Outcome outcome = simulate_with(small_job(), {});
  EXPECT_EQ(outcome.run.state, store::RunState::kCompleted);
  ASSERT_EQ(outcome.rounds.size(), 6U);
  for (const auto& round : outcome.rounds) {
    EXPECT_EQ(round.state, store::RoundState::kCommitted);
    EXPECT_EQ(round.result.contributions.size(), 4U);
    EXPECT_GT(round.result.bytes_in, 0U);
  }
  EXPECT_LT(*outcome.rounds.back().result.evaluation.loss,
            *outcome.rounds.front().result.evaluation.loss);
}

TEST(FederationSimulator, TheModelDoesNotDependOnThreadsChunksDelaysOrTheOrderOfJoining) {
  const std::vector<std::string> reference = simulate_with(small_job(), {}).models();
  ASSERT_EQ(reference.size(), 6U);
  EXPECT_EQ(simulate_with(small_job(), {.threads = 2}).models(), reference);
  EXPECT_EQ(simulate_with(small_job(), {.threads = 3}, 7, {}, true).models(), reference);
  FederationSimulator::Options chunks;
  chunks.transfer = {.chunk_bytes_max = 20, .window_bytes = 50};
  EXPECT_EQ(simulate_with(small_job(), std::move(chunks)).models(), reference);
  FederationSimulator::Options slow;
  slow.faults = {.seed = 4, .latency_max = 200ms, .training_max = 5s};
  EXPECT_EQ(simulate_with(small_job(), std::move(slow)).models(), reference);
}

// So that a progress bar does not count a round before what is said of it.
TEST(FederationSimulator, ARoundIsReportedAfterItsLines) {
  Job job = small_job();
  job.job.rounds = 2;
  std::vector<std::string> order;
  FederationSimulator::Hooks hooks;
  hooks.on_line = [&](const std::string& line) {
    for (const char* part : {" updates", "train loss"}) {
      if (line.find(part) != line.npos) order.emplace_back(part);
    }
  };
  hooks.on_round = [&](const RoundSummary& summary, const RoundOutcome& outcome) {
    EXPECT_TRUE(outcome.measured);
    order.push_back("round " + std::to_string(summary.round));
  };
  simulate_with(job, {}, 7, {}, false, std::move(hooks));
  EXPECT_EQ(order, (std::vector<std::string>{" updates", "train loss", "round 1", " updates",
                                             "train loss", "round 2"}));
}

TEST(FederationSimulator, AnotherSeedGivesAnotherModel) {
  Job job = small_job();
  job.job.seed = 2;
  EXPECT_NE(simulate_with(job, {}).models(), simulate_with(small_job(), {}).models());
}

// Crashes of every process and broken sessions, at any message: what was acknowledged is counted
// once, rounds form one chain, and a replay of the recorded contributors gives the same bits.
void check_history(const Outcome& outcome, const Job& job) {
  EXPECT_EQ(outcome.run.state, store::RunState::kCompleted);
  std::set<TaskId> counted;
  Round last = 0;
  Sha256Digest base = outcome.rounds.front().base_model;
  std::map<Round, std::vector<std::string>> contributors;
  for (const auto& round : outcome.rounds) {
    EXPECT_EQ(round.key.round, last + 1);
    EXPECT_EQ(round.base_model, base) << "round " << round.key.round;
    if (round.state != store::RoundState::kCommitted) continue;
    last = round.key.round;
    base = *round.model;
    std::set<std::string> cohort;
    for (const auto& member : round.cohort) cohort.insert(member.client);
    for (const auto& contribution : round.result.contributions) {
      EXPECT_TRUE(counted.insert(contribution.task).second) << "counted twice";
      EXPECT_EQ(cohort.erase(contribution.client), 1U) << "twice in a round, or not asked";
      contributors[round.key.round].push_back(contribution.client);
    }
    for (const auto& failure : round.result.failures) {
      EXPECT_EQ(cohort.erase(failure.client), 1U);
      EXPECT_FALSE(failure.code.empty());
      EXPECT_FALSE(failure.reason.empty());
    }
    EXPECT_TRUE(cohort.empty()) << "somebody has no outcome";
  }
  EXPECT_EQ(last, static_cast<Round>(job.job.rounds));
  const Outcome replay = simulate_with(job, {}, 7, {contributors, {}});
  EXPECT_EQ(replay.models(), outcome.models());
  EXPECT_EQ(replay.rounds.size(), replay.models().size()) << "a replay needs one attempt a round";
}

TEST(FederationSimulator, SurvivesCrashesAndDisconnectsAtAnyMessage) {
  std::uint64_t crashes = 0;
  std::uint64_t disconnects = 0;
  std::size_t abandoned = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Job job = small_job();
    job.round.over_selection = seed % 3 == 0 ? 1.5 : 1.0;
    job.round.deadline = 20s;
    job.round.attempts_max = 1000;
    FederationSimulator::Options options{.threads = 1};
    options.transfer = {.chunk_bytes_max = 40, .window_bytes = 90};
    options.faults = {.seed = seed,
                      .latency_max = 100ms,
                      .training_max = seed % 2 == 0 ? 3s : 30s,
                      .disconnect = seed % 5 == 0 ? 0.0 : 0.02,
                      .client_crash = seed % 7 == 0 ? 0.0 : 0.01,
                      .coordinator_crash = seed % 4 == 0 ? 0.0 : 0.005};
    options.give_up_at = TimePoint(24h);
    const Outcome outcome = simulate_with(job, std::move(options));
    check_history(outcome, job);
    crashes += outcome.crashes;
    disconnects += outcome.disconnects;
    abandoned += outcome.rounds.size() - outcome.models().size();
    if (HasFailure()) break;
  }
  // The faults were really there.
  EXPECT_GT(crashes, 450U);
  EXPECT_GT(disconnects, 500U);
  EXPECT_GT(abandoned, 20U);
}

TEST(FederationSimulator, TheSameFaultSeedGivesTheSameHistory) {
  const auto history = [] {
    FederationSimulator::Options options{.threads = 2};
    options.faults = {.seed = 9,
                      .latency_max = 50ms,
                      .training_max = 2s,
                      .disconnect = 0.05,
                      .client_crash = 0.01,
                      .coordinator_crash = 0.01};
    Job job = small_job();
    job.round.over_selection = 1.5;
    const Outcome outcome = simulate_with(job, std::move(options));
    std::string text;
    for (const auto& round : outcome.rounds) {
      text += std::to_string(round.key.attempt) + store::to_string(round.state).data();
      for (const auto& c : round.result.contributions) text += c.client;
      for (const auto& f : round.result.failures) text += f.client + f.code;
      text += round.model ? round.model->hex() : "";
    }
    return text;
  };
  EXPECT_EQ(history(), history());
}

// Four clients of about as many rows; one of them may be dishonest.
Job job_of_four() {
  Job job = small_job();
  job.round.wait_for = 4;
  job.data.partition = "iid";
  return job;
}

Outcome simulate_forged(const Job& job, decltype(SimulatedFaults::forge) forge,
                        double coordinator_crash = 0, std::uint64_t seed = 1) {
  FederationSimulator::Options options;
  options.faults = {.seed = seed,
                    .latency_max = 10ms,
                    .coordinator_crash = coordinator_crash,
                    .forge = std::move(forge)};
  return simulate_with(job, std::move(options), 4);
}

// Turns the update of client-1 around and makes it large: the largest element becomes `largest`.
void forge_values(update::ContributionHead& head, SharedBytes& payload, float largest) {
  std::vector<float> values(payload.size() / sizeof(float));
  std::memcpy(values.data(), payload.view().data(), payload.size());
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  for (float& value : values) value = -value / most * largest;
  payload = SharedBytes::own(to_bytes(as_bytes(std::span(values))));
  head.payload_checksum = checksum(payload.view());
}

double last_accuracy(const Outcome& outcome) {
  return *outcome.rounds.back().result.evaluation.accuracy;
}

// The models of a federation in which the same clients contributed and nobody was dishonest.
std::vector<std::string> honest_models(const Job& job, const Outcome& outcome) {
  std::map<Round, std::vector<std::string>> contributors;
  for (const auto& round : outcome.rounds) {
    for (const auto& c : round.result.contributions)
      contributors[round.key.round].push_back(c.client);
  }
  return simulate_with(job, {}, 4, {std::move(contributors), {}}).models();
}

TEST(FederationSimulator, AClientThatClaimsMoreRowsThanItAnnouncedDoesNotCount) {
  const Job job = job_of_four();
  const Outcome outcome = simulate_forged(job, [](const std::string& client, auto& update) {
    if (client != "client-1") return;
    update.head.weight = 1 << 24;
    forge_values(update.head, update.payload, 1);
  });
  ASSERT_EQ(outcome.models().size(), 6U);
  for (const auto& round : outcome.rounds) {
    const bool asked = round.key.round <= ClientFailures::kInARowMax;  // then it is left out
    ASSERT_EQ(round.cohort.size(), asked ? 4U : 3U);
    ASSERT_EQ(round.result.failures.size(), asked ? 1U : 0U);
    if (!asked) continue;
    EXPECT_EQ(round.result.failures[0].client, "client-1");
    EXPECT_EQ(round.result.failures[0].code, "weight-above-rows");
  }
  EXPECT_EQ(outcome.models(), honest_models(job, outcome));
  EXPECT_GT(last_accuracy(outcome), 0.8);
}

// One of four announces a million rows, weighs as many and sends what undoes the others' work.
TEST(FederationSimulator, AClientThatLiesOfItsRowsIsOneOfMany) {
  Job job = job_of_four();
  job.round.min_updates = 4;
  const auto worst_share = [&] {
    FederationSimulator::Options options;
    options.faults.announces["client-1"] = 1'000'000;
    options.faults.forge = [](const std::string& client, client::PendingUpdate& update) {
      if (client == "client-1") update.head.weight = 1'000'000;
    };
    double share = 0;
    for (const auto& round : simulate_with(job, std::move(options), 4).rounds) {
      double all = 0, liar = 0;
      for (const auto& c : round.result.contributions) {
        all += c.weight;
        if (c.client == "client-1") liar = c.weight;
      }
      share = std::max(share, liar / all);
    }
    return share;
  };
  EXPECT_LE(worst_share(), 0.8);
  job.aggregation.weight_ratio_max = 0;
  EXPECT_GT(worst_share(), 0.999) << "this is what the bound prevents";
}

TEST(FederationSimulator, AnHonestCohortOfUnequalPartsLosesNobodyAndNoWeight) {
  Job job = small_job();
  job.data.dataset = "synthetic:rows=6000,features=6,classes=3";
  job.data.partition = "dirichlet:alpha=0.3,min=3";
  job.round.cohort = 20;
  job.round.min_updates = 20;
  job.round.wait_for = 20;
  const Outcome outcome = simulate_with(job, {}, 20);
  ASSERT_EQ(outcome.models().size(), 6U);
  double rows = 0;
  for (const auto& c : outcome.rounds[0].result.contributions) rows += c.weight;
  EXPECT_EQ(rows, 6000);
  for (const auto& round : outcome.rounds) EXPECT_TRUE(round.result.failures.empty());
}

// The first round has no earlier norms to compare with, and is honest here. That the coordinator is
// killed and restarted changes nothing: the bound follows from the records.
TEST(FederationSimulator, ValuesFarAboveThoseOfEarlierRoundsDoNotCount) {
  const auto forge = [](const std::string& client, client::PendingUpdate& update) {
    if (client != "client-1" || update.head.base.round == 0) return;
    forge_values(update.head, update.payload, 1 << 24);
  };
  Job job = job_of_four();
  std::uint64_t crashes = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Outcome outcome = simulate_forged(job, forge, 0.02, seed);
    crashes += outcome.crashes;
    ASSERT_EQ(outcome.models().size(), 6U);
    int refused = 0;
    for (const auto& round : outcome.rounds) {
      for (const auto& c : round.result.contributions) {
        EXPECT_TRUE(c.client != "client-1" || round.key.round == 1);
      }
      if (round.key.round == 1 || round.state != store::RoundState::kCommitted) continue;
      // Where it was refused too often, it is left out.
      ASSERT_EQ(round.result.failures.size(), refused < ClientFailures::kInARowMax ? 1U : 0U);
      for (const auto& failure : round.result.failures) {
        EXPECT_EQ(failure.code, "norm-above-bound");
        ++refused;
      }
    }
    EXPECT_EQ(outcome.models(), honest_models(job, outcome));
    EXPECT_GT(last_accuracy(outcome), 0.7);
  }
  EXPECT_GT(crashes, 5U);
  job.aggregation.norm_max = "off";
  EXPECT_LT(last_accuracy(simulate_forged(job, forge)), 0.4) << "this is what the bound prevents";
}

Job diverging_job() {
  Job job = small_job();
  job.training.train.learning_rate = 1e6;
  job.training.train.optimizer = "momentum";
  job.training.train.weight_decay = 1000;
  return job;
}

TEST(FederationSimulator, ARunOfClientsThatDivergeFailsByName) {
  Job job = diverging_job();
  job.round.attempts_max = 2;
  const Outcome outcome = simulate_with(job, {});
  EXPECT_EQ(outcome.run.state, store::RunState::kFailed);
  EXPECT_EQ(outcome.run.error_code, "too-few-updates");
  ASSERT_EQ(outcome.rounds.size(), 2U);
  EXPECT_EQ(outcome.rounds[0].result.failures.size(), 4U);
  EXPECT_EQ(outcome.rounds[0].result.failures[0].code, "diverged");
}

// Three failures each, of four clients an attempt: five of seven are left out by the fifth.
TEST(FederationSimulator, ARunThatTooFewClientsCanStillDoFailsAtOnce) {
  Job job = diverging_job();
  job.round.attempts_max = 100;
  const Outcome outcome = simulate_with(job, {.give_up_at = TimePoint(1h)});
  EXPECT_EQ(outcome.run.state, store::RunState::kFailed);
  EXPECT_EQ(outcome.run.error_code, "too-few-clients");
  EXPECT_NE(outcome.run.error.find("round 1 waits for 7 clients (7 connected, "), std::string::npos)
      << outcome.run.error;
  EXPECT_NE(outcome.run.error.find("its tasks of this run failed: "), std::string::npos)
      << outcome.run.error;
  EXPECT_LT(outcome.rounds.size(), 10U);
}

// --- clients that hold back ---------------------------------------------------------------------

bool is_dishonest(const std::string& client) {
  return client == "client-1" || client == "client-2";
}

bool is_sign_of_life(const protocol::Message& message) {
  return std::holds_alternative<protocol::Hello>(message) ||
         std::holds_alternative<protocol::Ping>(message) ||
         std::holds_alternative<protocol::Pong>(message);
}

// The spool has room for two of four uploads, each of 32 pieces, and two clients get it first.
Outcome simulate_uploads(decltype(SimulatedFaults::hold_back) hold_back) {
  Job job = job_of_four();
  job.job.rounds = 4;
  job.data.dataset = "synthetic:rows=400,features=2000,classes=4";
  job.training.train.learning_rate = 1e-5;  // no class is so sure that an update has zeros
  job.evaluate.dataset = "";
  job.evaluate.every = 0;
  job.round.min_updates = 2;
  FederationSimulator::Options options;
  options.transfer = {.chunk_bytes_max = 1001, .window_bytes = 8008};
  options.spool.memory_bytes_max = 2 * 32'064;
  options.faults.hold_back = std::move(hold_back);
  options.give_up_at = TimePoint(1h);
  return simulate_with(job, std::move(options), 4);
}

void expect_rounds_of_the_honest(const Outcome& outcome) {
  EXPECT_EQ(outcome.run.state, store::RunState::kCompleted);
  ASSERT_EQ(outcome.rounds.size(), 4U) << "one attempt each";
  std::size_t stalled = 0;
  for (const auto& round : outcome.rounds) {
    EXPECT_EQ(round.result.contributions.size(), 2U);
    for (const auto& c : round.result.contributions) EXPECT_FALSE(is_dishonest(c.client));
    const bool asked = round.key.round <= ClientPauses::kTrainingsInARowMax;  // then left out
    ASSERT_EQ(round.result.failures.size(), asked ? 2U : 0U);
    for (const auto& failure : round.result.failures) {
      EXPECT_TRUE(is_miss(failure.code)) << failure.code;
      if (failure.code == kUploadStalled) ++stalled;
    }
  }
  EXPECT_GT(stalled, 0U);
}

TEST(FederationSimulator, UploadsThatSendNothingDoNotKeepTheRoomOfOthers) {
  expect_rounds_of_the_honest(simulate_uploads([](const auto& client, const auto& message) {
    const bool silent = is_dishonest(client) && std::holds_alternative<protocol::Chunk>(message);
    return silent ? std::nullopt : std::optional(Duration::zero());
  }));
}

TEST(FederationSimulator, UploadsThatSendALittleEveryFewSecondsDoNotKeepTheRoomOfOthers) {
  expect_rounds_of_the_honest(simulate_uploads([](const auto& client, const auto& message) {
    const bool slow = is_dishonest(client) && std::holds_alternative<protocol::Chunk>(message);
    return std::optional<Duration>(slow ? 9s : 0s);
  }));
}

TEST(FederationSimulator, ASlowUploadHasTimeWhereNoOtherWaits) {
  Job job = job_of_four();
  job.job.rounds = 1;
  job.round.min_updates = 4;
  job.round.deadline = 10min;
  FederationSimulator::Options options;
  options.transfer = {.chunk_bytes_max = 20, .window_bytes = 50};
  options.spool.memory_bytes_max = 4 * 128;
  options.faults.hold_back = [](const auto& client, const auto& message) {
    const bool slow = is_dishonest(client) && std::holds_alternative<protocol::Chunk>(message);
    return std::optional<Duration>(slow ? 59s : 0s);
  };
  const Outcome outcome = simulate_with(job, std::move(options), 4);
  ASSERT_EQ(outcome.rounds.size(), 1U);
  EXPECT_EQ(outcome.rounds[0].result.contributions.size(), 4U);
}

// It is connected all the time and says nothing of its tasks.
TEST(FederationSimulator, AClientThatNeverAnswersDoesNotHoldUpEachRound) {
  Job job = job_of_four();
  job.job.rounds = 10;
  for (const double crash : {0.0, 0.01}) {
    SCOPED_TRACE(crash);
    FederationSimulator::Options options;
    options.faults.coordinator_crash = crash;
    options.faults.hold_back = [](const auto& client, const auto& message) {
      const bool silent = client == "client-1" && !is_sign_of_life(message);
      return silent ? std::nullopt : std::optional(Duration::zero());
    };
    const Outcome outcome = simulate_with(job, std::move(options), 4);
    EXPECT_EQ(outcome.models().size(), 10U);
    std::size_t asked = 0;
    for (const auto& round : outcome.rounds) {
      EXPECT_LE(round.result.failures.size(), 1U);
      asked += round.result.failures.size();
      EXPECT_EQ(round.cohort.size(), round.result.failures.empty() ? 3U : 4U);
    }
    // A restarted coordinator, to which it connects again, asks it once more.
    EXPECT_EQ(crash > 0, outcome.crashes > 0);
    EXPECT_GE(asked, static_cast<std::size_t>(ClientPauses::kTrainingsInARowMax));
    EXPECT_LE(asked, ClientPauses::kTrainingsInARowMax + outcome.crashes);
  }
}

// Each of them needs longer than the deadline: the updates for the first attempts come in time for
// a later one.
TEST(FederationSimulator, WhereAllAreSlowTheRunGoesOn) {
  Job job = job_of_four();
  job.job.rounds = 2;
  job.round.min_updates = 4;
  job.round.attempts_max = 11;
  FederationSimulator::Options options;
  options.faults = {.seed = 3, .training_max = 10 * job.round.deadline};
  options.give_up_at = TimePoint(10h);
  const Outcome outcome = simulate_with(job, std::move(options), 4);
  EXPECT_EQ(outcome.models().size(), 2U);
  EXPECT_GT(outcome.rounds.size(), 2U + ClientPauses::kTrainingsInARowMax);
}

}  // namespace
}  // namespace starling::coordinator
