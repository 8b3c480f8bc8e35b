// SPDX-License-Identifier: Apache-2.0
// Rules that need all updates of a round at once: what a job may say of them, the way of the
// updates through the spool to the model, and what one dishonest client can do.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "coordinator/job/job_text.h"
#include "coordinator/rounds/coordinator_core.h"
#include "coordinator/rounds/round_aggregate.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/simulation/federation_simulator.h"
#include "coordinator/simulation/simulate.h"
#include "core/data/load.h"
#include "core/data/partition.h"
#include "core/sim/virtual_computation.h"
#include "core/store/sqlite_store.h"
#include "tests/coordinator/dense_vectors.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;

// --- jobs ---------------------------------------------------------------------------------------

std::string refusal(std::string_view toml) {
  const auto job = parse_job(toml, "job.toml");
  return job ? "accepted" : job.error().message();
}

TEST(AggregationRule, TheUpdatesThatARoundNeedsAreThoseOfItsRuleToo) {
  const Job trimmed = parse_job(
                          "[round]\ncohort = 7\nmin-updates = 3\n[aggregation]\n"
                          "rule = \"trimmed-mean\"\ntrim = 2\n",
                          "job.toml")
                          .value();
  EXPECT_EQ(trimmed.updates_needed(), 5);
  EXPECT_EQ(trimmed.clients_awaited(), 5);
  const Job one = parse_job("[aggregation]\nrule = \"trimmed-mean\"\n", "job.toml").value();
  EXPECT_EQ(one.aggregation.trim, 1);
  EXPECT_EQ(one.updates_needed(), 8) << "four fifths of 10";
  EXPECT_THAT(refusal("[round]\ncohort = 4\n[aggregation]\nrule = \"trimmed-mean\"\ntrim = 2\n"),
              HasSubstr("aggregation.trim = 2 needs more than 4 updates"));
  EXPECT_NE(refusal("[aggregation]\nrule = \"trimmed-mean\"\ntrim = 0\n"), "accepted");
}

TEST(AggregationRule, WhatHasNoMeaningIsRefusedByName) {
  for (const std::string rule : {"median", "trimmed-mean"}) {
    const auto with = [&](const std::string& strategy) {
      return refusal("[aggregation]\nrule = \"" + rule + "\"\n[strategy]\nname = \"" + strategy +
                     "\"\n");
    };
    for (const char* name :
         {"fedavg", "fedprox", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "diloco"}) {
      EXPECT_EQ(with(name), "accepted") << name;
    }
    for (const std::string name : {"fednova", "scaffold", "qfedavg", "feddyn"}) {
      EXPECT_THAT(with(name),
                  HasSubstr("strategy.name = '" + name + "' is defined for means only"));
    }
    EXPECT_THAT(refusal("[aggregation]\nrule = \"" + rule + "\"\nweight = \"rows\"\n"),
                HasSubstr("counts every client the same"));
  }
  EXPECT_THAT(refusal("[aggregation]\nrule = \"mode\"\n"), HasSubstr("median"));
}

// A run that an earlier version began with such a job goes on; see EvaluationTest.
TEST(AggregationRule, TooFewEvaluationsForItAreRefusedAtSubmissionOnly) {
  const auto job = parse_job(
      "[aggregation]\nrule = \"trimmed-mean\"\ntrim = 2\n[evaluate]\nfederated-every = 1\n"
      "federated-cohort = 4\n[data]\ninput = [4]\nclasses = 2\n",
      "job.toml");
  ASSERT_TRUE(job) << "as it is stored";
  const auto tried = try_job(*job, prepare_context, std::nullopt);
  ASSERT_FALSE(tried);
  EXPECT_EQ(tried.error().message(),
            "aggregation.trim = 2 applies to evaluations too and needs more than 4 clients, and "
            "evaluate.federated-cohort is 4: lower the one or raise the other");
  EXPECT_EQ(simulate(*job, {}, SystemClock(), {}).error().message(), tried.error().message());
}

// --- from the updates to the model --------------------------------------------------------------

// softmax regression on rows of 4 values in 2 classes: 10 parameters.
Job tiny_job(const std::string& rule, int trim = 1) {
  Job job;
  job.job.rounds = 2;
  job.training.model.kind = "softmax-regression";
  job.training.data = {{4}, 2};
  job.evaluate.every = 0;
  job.aggregation.rule = rule;
  job.aggregation.trim = trim;
  job.aggregation.norm_max = "off";
  job.round.cohort = 7;
  return job;
}

const std::vector<std::vector<float>> kReference = {
    {1, 2, 3},         {1.3F, 1.8F, 3.1F}, {.7F, 2.4F, 2.8F}, {1.1F, 2.2F, 3.3F},
    {.8F, 1.7F, 2.6F}, {-1, -2, -3},       {5, 4, 6}};

// The first values; the others are zero.
Bytes padded(std::vector<float> values, std::size_t size) {
  values.resize(size);
  return to_bytes(as_bytes(std::span<const float>(values)));
}

update::ContributionHead head_for(TaskId task, const update::Schema& schema,
                                  const update::ModelVersion& base, ByteView payload) {
  return {.task = task,
          .base = base,
          .weight = 1 + static_cast<double>(task.value() % 10),
          .vectors = testing::dense_vectors(schema),
          .scalars = {{"train_loss", 1}},
          .payload_bytes = payload.size(),
          .payload_checksum = checksum(payload)};
}

// A round of the seven reference updates, whose uploads lie in a spool.
class ReferenceRound : public ::testing::Test {
 protected:
  // Uploads come in pieces, in memory as far as there is room for `in_memory`, else on disk.
  Result<std::vector<float>> steps(const Job& job, std::vector<std::uint64_t> order,
                                   std::uint64_t in_memory = 1, bool with_bad_ones = false) {
    const auto context = std::make_shared<const RunContext>(prepare_run(job, nullptr).value());
    const auto model =
        std::make_shared<const model::Parameters>(model::initial_parameters(*context->model, 1));
    const update::ModelVersion version{RunId(1), 0, model->sha256()};
    BeginRound phase{.run = RunId(1), .round = 1, .schema = context->schema()};
    phase.schema.bounds.contributions_max = 9;
    phase.base = {version, model, {}, {}};
    for (std::uint64_t k = 1; k <= 9; ++k) {
      phase.participants.push_back({"client-" + std::to_string(k), TaskId(k)});
    }
    auto aggregate = RoundAggregate::begin(context, phase).value();
    UploadDesk desk(disk_, {.directory = directory_.path() / "spool",
                            .memory_bytes_max = in_memory * 64,
                            .disk_bytes_max = 9 * 4096});
    const auto add = [&](std::uint64_t k, const Bytes& bytes) {
      EXPECT_EQ(desk.open({TaskId(k), RunId(1), bytes.size(), k}, {}).value(), 0U);
      for (std::size_t at = 0; at < bytes.size(); at += 12) {
        const std::size_t size = std::min<std::size_t>(12, bytes.size() - at);
        desk.write(TaskId(k), at, SharedBytes(nullptr, ByteView(bytes).subspan(at, size)), {});
      }
      const auto norm = aggregate->add(head_for(TaskId(k), phase.schema, version, bytes),
                                       desk.begin_sum(TaskId(k)).value());
      if (!norm) desk.end_sum(TaskId(k), false);
      return norm ? std::string() : norm.error().code();
    };
    for (const std::uint64_t k : order) {
      EXPECT_EQ(add(k, padded(kReference[k - 1], model->size())), "");
    }
    if (with_bad_ones) {
      EXPECT_EQ(add(8, padded({std::numeric_limits<float>::infinity()}, model->size())),
                "not-finite");
      EXPECT_EQ(add(9, padded({1e9F}, model->size())), "value-out-of-range");
    }
    STARLING_ASSIGN(const RoundOutcome outcome, std::move(*aggregate).finish(nullptr));
    for (const std::uint64_t k : order) desk.end_sum(TaskId(k), true);
    EXPECT_EQ(desk.size(), 0U);
    std::vector<float> steps;
    for (std::size_t j = 0; j < model->size(); ++j) {
      steps.push_back(outcome.next->model->values()[j] - model->values()[j]);
    }
    return steps;
  }

  static void expect_steps(const Result<std::vector<float>>& found,
                           const std::vector<double>& expected) {
    ASSERT_TRUE(found) << found.error().message();
    // The step is found again as the difference of two models.
    constexpr double kTolerance = 8 * std::numeric_limits<float>::epsilon();
    for (std::size_t j = 0; j < found->size(); ++j) {
      EXPECT_NEAR((*found)[j], j < expected.size() ? expected[j] : 0, kTolerance) << j;
    }
  }

  const std::vector<std::uint64_t> all_ = {1, 2, 3, 4, 5, 6, 7};
  testing::TemporaryDirectory directory_;
  SystemDisk disk_;
};

TEST_F(ReferenceRound, GivesTheReferenceVectors) {
  expect_steps(steps(tiny_job("median"), all_), {1, 2, 3});
  expect_steps(steps(tiny_job("trimmed-mean", 2), all_), {.966666667, 2, 2.966666667});
  expect_steps(steps(tiny_job("trimmed-mean", 1), all_), {.98, 2.02, 2.96});
}

TEST_F(ReferenceRound, NeitherTheOrderNorTheSpoolNorRefusedUpdatesShow) {
  for (const char* rule : {"median", "trimmed-mean"}) {
    const auto reference = steps(tiny_job(rule), all_).value();
    EXPECT_EQ(steps(tiny_job(rule), {7, 3, 5, 1, 6, 2, 4}).value(), reference);
    EXPECT_EQ(steps(tiny_job(rule), all_, 100).value(), reference) << "all in memory";
    EXPECT_EQ(steps(tiny_job(rule), all_, 0).value(), reference) << "all on disk";
    EXPECT_EQ(steps(tiny_job(rule), all_, 3, true).value(), reference);
  }
}

// Their server's state is a mean of what all clients count in alike.
TEST(Weighting, RowsAreRefusedWhereTheServerAveragesStates) {
  for (const std::string name : {"scaffold", "feddyn", "qfedavg", "diloco", "fednova"}) {
    const auto job = parse_job("[strategy]\nname = \"" + name +
                                   "\"\n[aggregation]\nweight = \"rows\"\n"
                                   "[data]\ninput = [4]\nclasses = 2\n",
                               "job.toml");
    ASSERT_TRUE(job) << "a run that has begun goes on";
    const auto tried = try_job(*job, prepare_context, std::nullopt);
    const bool refused = name == "scaffold" || name == "feddyn";
    EXPECT_EQ(tried.has_value(), !refused) << name;
    if (!refused) continue;
    EXPECT_THAT(tried.error().message(), HasSubstr("strategy.name = '" + name));
  }
}

TEST(Evaluation, WhatNoModelHasIsRefused) {
  const auto context =
      std::make_shared<const RunContext>(prepare_run(tiny_job("mean"), nullptr).value());
  const auto model =
      std::make_shared<const model::Parameters>(model::initial_parameters(*context->model, 1));
  const update::ModelVersion version{RunId(1), 1, model->sha256()};
  BeginRound phase{.run = RunId(1), .kind = protocol::TaskKind::kEvaluate, .round = 1};
  phase.schema = {.scalars = {"loss"}, .bounds = context->schema().bounds};
  phase.base = {version, model, {}, {}};
  auto aggregate = RoundAggregate::begin(context, phase).value();
  const auto add_scalars = [&](std::map<std::string, double> scalars) {
    update::ContributionHead head{.task = TaskId(1), .base = version, .weight = 2};
    head.scalars = std::move(scalars);
    head.payload_checksum = checksum({});
    const auto added = aggregate->add(head, {});
    return added ? std::string("added") : added.error().code();
  };
  const auto add = [&](double loss, double accuracy) {
    return add_scalars({{"loss", loss}, {"accuracy", accuracy}});
  };
  EXPECT_EQ(add(0.1, 1.5), "bad-scalars");
  EXPECT_EQ(add(0.1, -0.5), "bad-scalars");
  EXPECT_EQ(add_scalars({{"accuracy", 1}}), "missing-scalar");
  EXPECT_EQ(add_scalars({{"loss", 0}, {"metrics.", 1}}), "bad-scalars");
  EXPECT_EQ(add_scalars({{"loss", 0}, {"metrics.a b", 1}}), "bad-scalars");
  EXPECT_EQ(add_scalars({{"loss", 0}, {"metrics.mae", std::nan("")}}), "bad-scalars");
  std::map<std::string, double> many = {{"loss", 0}};
  for (int i = 0; i < 33; ++i) many["metrics.m" + std::to_string(i)] = 1;
  EXPECT_EQ(add_scalars(many), "bad-scalars");
  EXPECT_EQ(add(0, 1), "added");
  EXPECT_EQ(add(3, 0), "added");
  const RoundOutcome outcome = std::move(*aggregate).finish(nullptr).value();
  EXPECT_EQ(outcome.measured->loss, 1.5);
  EXPECT_EQ(outcome.measured->accuracy, 0.5);
}

// What clients of one rule, in this order, measure together.
Measured measured_by(const Job& job, const std::vector<std::map<std::string, double>>& clients,
                     std::span<const std::size_t> order, double weight_step = 0) {
  const auto context = std::make_shared<const RunContext>(prepare_run(job, nullptr).value());
  const auto model =
      std::make_shared<const model::Parameters>(model::initial_parameters(*context->model, 1));
  BeginRound phase{.run = RunId(1), .kind = protocol::TaskKind::kEvaluate, .round = 1};
  phase.schema = {.scalars = {"loss"}, .bounds = context->schema().bounds};
  phase.base = {{RunId(1), 1, model->sha256()}, model, {}, {}};
  for (std::size_t k = 0; k < clients.size(); ++k) {
    phase.participants.push_back({"client-" + std::to_string(k), TaskId(k + 1)});
  }
  auto aggregate = RoundAggregate::begin(context, phase).value();
  for (const std::size_t k : order) {
    update::ContributionHead head{.task = TaskId(k + 1),
                                  .base = phase.base.version,
                                  .weight = 1 + weight_step * static_cast<double>(k)};
    head.scalars = clients[k];
    head.payload_checksum = checksum({});
    EXPECT_TRUE(aggregate->add(head, {}));
  }
  return *std::move(*aggregate).finish(nullptr).value().measured;
}

// Weights 1, 2 and 3.
TEST(Evaluation, AMetricIsAveragedOverTheClientsThatSayIt) {
  const std::vector<std::map<std::string, double>> clients = {
      {{"loss", -1}, {"accuracy", 0.8}, {"metrics.mae", 1}},
      {{"loss", -2}, {"accuracy", 0.5}, {"metrics.mae", 4}},
      {{"loss", -3}, {"metrics.r2", -8}, {"other", 1}}};
  const Measured expected{true, -14.0 / 6, 1.8 / 3, {{"mae", 3}, {"r2", -8}}};
  for (const auto& order : {std::array<std::size_t, 3>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    EXPECT_EQ(measured_by(tiny_job("mean"), clients, order, 1), expected);
  }
  const std::array<std::size_t, 2> without{0, 2};
  EXPECT_EQ(measured_by(tiny_job("mean"), clients, without).accuracy, std::nullopt)
      << "one of two is no majority";
}

TEST(Evaluation, ARuleLeavesOutWhatTooFewClientsSay) {
  std::vector<std::map<std::string, double>> clients(5, {{"loss", 1}, {"metrics.mae", 2}});
  clients[0]["metrics.mae"] = 1e99;
  clients[1]["metrics.rare"] = 1;
  clients[1]["accuracy"] = 1;
  const std::array<std::size_t, 5> order{4, 0, 2, 1, 3};
  EXPECT_EQ(measured_by(tiny_job("trimmed-mean"), clients, order),
            (Measured{true, 1, std::nullopt, {{"mae", 2}}}));
  EXPECT_EQ(measured_by(tiny_job("median"), clients, order),
            (Measured{true, 1, std::nullopt, {{"mae", 2}, {"rare", 1}}}));
  clients[2]["accuracy"] = clients[3]["accuracy"] = 0.5;
  EXPECT_EQ(measured_by(tiny_job("median"), clients, order).accuracy, 0.5);
}

TEST(Evaluation, OfTooManyNamesTheFirstAreKeptWhoeverAnswersFirst) {
  std::vector<std::map<std::string, double>> clients(3, {{"loss", 1}, {"metrics.a0", 1}});
  for (int i = 10; i < 41; ++i) {
    clients[0][fmt::format("metrics.b{}", i)] = 1;
    clients[1][fmt::format("metrics.a{}", i)] = 1;
    clients[2][fmt::format("metrics.c{}", i)] = 1;
  }
  for (const char* rule : {"mean", "median"}) {
    const Measured first =
        measured_by(tiny_job(rule), clients, std::array<std::size_t, 3>{0, 1, 2});
    EXPECT_EQ(first.metrics.size(), 32U);
    EXPECT_TRUE(first.metrics.contains("a40"));
    EXPECT_FALSE(first.metrics.contains("b10"));
    EXPECT_EQ(measured_by(tiny_job(rule), clients, std::array<std::size_t, 3>{2, 1, 0}), first);
    EXPECT_EQ(measured_by(tiny_job(rule), clients, std::array<std::size_t, 3>{1, 0, 2}), first);
  }
}

// Five clients measure; the last lies, with the largest weight that it can claim.
Measured measured_by_five(const Job& job, double lie) {
  const auto context = std::make_shared<const RunContext>(prepare_run(job, nullptr).value());
  const auto model =
      std::make_shared<const model::Parameters>(model::initial_parameters(*context->model, 1));
  BeginRound phase{.run = RunId(1), .kind = protocol::TaskKind::kEvaluate, .round = 1};
  phase.schema = {.scalars = {"accuracy", "loss"}, .bounds = context->schema().bounds};
  phase.base = {{RunId(1), 1, model->sha256()}, model, {}, {}};
  for (std::uint64_t k = 1; k <= 5; ++k) {
    phase.participants.push_back({"client-" + std::to_string(k), TaskId(k)});
  }
  auto aggregate = RoundAggregate::begin(context, phase).value();
  for (const std::uint64_t k : {4, 5, 2, 1, 3}) {
    const bool lies = k == 5;
    update::ContributionHead head{
        .task = TaskId(k), .base = phase.base.version, .weight = lies ? 1000.0 : 1.0};
    head.scalars = {{"loss", lies ? lie : static_cast<double>(k)},
                    {"accuracy", lies ? 0 : 1 / static_cast<double>(k)}};
    head.payload_checksum = checksum({});
    EXPECT_TRUE(aggregate->add(head, {}));
  }
  return *std::move(*aggregate).finish(nullptr).value().measured;
}

TEST(Evaluation, TheRuleBoundsWhatOneClientSays) {
  EXPECT_EQ(measured_by_five(tiny_job("median"), 1e30), (Measured{true, 3, 1.0 / 3}));
  EXPECT_EQ(measured_by_five(tiny_job("trimmed-mean"), 1e30),
            (Measured{true, 3, (0.25 + 1.0 / 3 + 0.5) / 3}));
  EXPECT_GT(measured_by_five(tiny_job("mean"), 1e30).loss, 9e29) << "as means are";
}

TEST_F(ReferenceRound, ARoundOfTooFewUpdatesEndsByName) {
  const auto refused = steps(tiny_job("trimmed-mean", 3), {1, 2, 3, 4, 5, 6});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), "too-few-updates");
}

// --- the coordinator's process ------------------------------------------------------------------

// Clients that answer every plan at once, client k with the value k + 1 in every coordinate.
class PromptClients final : public protocol::SessionLinks {
 public:
  explicit PromptClients(sim::VirtualScheduler& scheduler) : scheduler_(scheduler) {}

  void send(SessionId session, const protocol::Envelope& envelope) override {
    if (const auto* plan = std::get_if<protocol::RoundPlan>(&envelope.message)) {
      const auto elements = static_cast<std::size_t>(plan->schema.vectors[0].elements);
      const Bytes& update = updates_[plan->task] =
          padded(std::vector<float>(elements, static_cast<float>(session.value())), elements);
      answer(session,
             protocol::UpdateOffer{head_for(plan->task, plan->schema, plan->base, update)});
    } else if (const auto* accept = std::get_if<protocol::UpdateAccept>(&envelope.message)) {
      answer(session, protocol::Chunk{.task = accept->task},
             SharedBytes(nullptr, updates_.at(accept->task)));
    }
  }
  void close(SessionId, const std::string& code, const std::string&) override {
    ADD_FAILURE() << code;
  }
  bool is_open(SessionId) const override { return true; }
  void answer(SessionId session, protocol::Message message, SharedBytes payload = {}) {
    scheduler_.schedule(
        scheduler_.now() + delay * (session.value() * 7 % 10),
        [this, session, envelope = protocol::Envelope{std::move(message), payload}] {
          core->handle(MessageReceived{session, envelope});
        });
  }

  CoordinatorCore* core = nullptr;
  Duration delay{};  // of an answer, times up to 9

 private:
  sim::VirtualScheduler& scheduler_;
  std::map<TaskId, Bytes> updates_;  // chunks borrow from them
};

// Shortens the first upload's file that it sees, before it is summed.
class CuttingComputation final : public Computation {
 public:
  CuttingComputation(Computation& inner, std::filesystem::path spool)
      : inner_(inner), spool_(std::move(spool)) {}
  void submit(Work work, std::function<void()> done) override {
    std::error_code none;
    for (const auto& file : std::filesystem::directory_iterator(spool_, none)) {
      if (!std::exchange(cut_, true)) std::filesystem::resize_file(file.path(), 8);
    }
    inner_.submit(std::move(work), std::move(done));
  }
  bool has_cut() const { return cut_; }

 private:
  Computation& inner_;
  const std::filesystem::path spool_;
  bool cut_ = false;
};

class SmallSpool : public ::testing::Test {
 protected:
  static Job job(const std::string& rule) {
    Job job = tiny_job(rule);
    job.round.cohort = 5;
    job.round.min_updates = 3;
    job.round.wait_for = 5;
    job.round.attempts_max = 2;
    job.round.deadline = 60s;
    return job;
  }

  // Runs the job with five clients and room for as many updates, all on disk. Returns its rounds,
  // or those of the last of `runs` at a time, each with clients of its own.
  std::vector<store::RoundRecord> run(const Job& job, std::uint64_t room, std::uint64_t runs = 1) {
    const auto store = store::open_store_in_memory();
    const std::uint64_t count = 5 * runs;
    for (std::uint64_t k = 1; k <= count; ++k) {
      const std::string name = "client-" + std::to_string(k);
      store::Certificate certificate{
          .serial = name, .client = name, .not_before = {}, .not_after = WallTime(24h * 3650)};
      certificate.fingerprint = sha256(as_bytes(name));
      EXPECT_TRUE(store->add_client(name, store::Role::kDevice, certificate, {}));
    }
    const auto context = std::make_shared<const RunContext>(prepare_run(job, nullptr).value());
    sim::VirtualScheduler scheduler;
    PromptClients clients(scheduler);
    sim::ImmediateComputation immediate(scheduler);
    CuttingComputation cutting(immediate, directory_.path() / "spool");
    Computation& rounds = cuts_an_upload_ ? static_cast<Computation&>(cutting) : immediate;
    sim::SimulatedDisk disk{0};
    ComputePool evaluators(1);
    NullLog log;
    const SystemClock clock;
    CoordinatorCore::Options options;
    options.spool = {.directory = directory_.path() / "spool",
                     .memory_bytes_max = 0,
                     .disk_bytes_max = room * 4096};
    if (cuts_an_upload_) options.spool.kept_bytes_min = 1;  // files have names
    CoordinatorCore core(
        CoordinatorCore::World{
            scheduler, clock, *store, clients, disk_,
            [&](RunId) { return store::Checkpoints(disk, "models"); },
            [&](const Job&, const ExternalOrigin&) { return Result<RunContext>(*context); },
            strategy::builtin_strategies(), rounds, immediate, evaluators, log},
        options, {.on_broken = [](const Error& error) { ADD_FAILURE() << error.message(); }});
    clients.core = &core;
    if (runs > 1) clients.delay = 10ms;
    EXPECT_TRUE(core.start());
    for (std::uint64_t k = 1; k <= count; ++k) {
      core.handle(SessionOpened{SessionId(k), "client-" + std::to_string(k)});
      core.handle(MessageReceived{SessionId(k), {protocol::Hello{.rows = 10}, {}}});
    }
    RunId id;
    for (std::uint64_t i = 0; i < runs; ++i) {
      id = store->submit_run({.name = "r", .seed = 1, .job = job_to_toml(job)}, {}).value();
      core.runs().load_next();
    }
    // No retry of an upload, and no end of a round, waits as long as this.
    while (scheduler.now() < TimePoint(30s) && !is_over(*store, id) && scheduler.run_one()) {
    }
    EXPECT_EQ(cutting.has_cut(), cuts_an_upload_);
    run_ = store->find_run(id).value().value();
    return store->rounds(id, 1).value();
  }

  static bool is_over(store::Store& store, RunId id) {
    const auto state = store.find_run(id).value()->state;
    return state != store::RunState::kPending && state != store::RunState::kRunning;
  }
  static std::vector<std::string> codes(const store::RoundRecord& round) {
    std::vector<std::string> codes;
    for (const auto& failure : round.result.failures) codes.push_back(failure.code);
    return codes;
  }

  testing::TemporaryDirectory directory_;
  SystemDisk disk_;
  bool cuts_an_upload_ = false;
  store::Run run_;
};

TEST_F(SmallSpool, AnUploadThatCannotBeReadIsAskedForAgain) {
  for (const char* rule : {"mean", "median"}) {
    cuts_an_upload_ = true;
    const auto rounds = run(job(rule), 5);
    EXPECT_EQ(run_.state, store::RunState::kCompleted) << run_.error;
    ASSERT_EQ(rounds.size(), 2U);
    for (const auto& round : rounds) EXPECT_EQ(round.result.contributions.size(), 5U);
  }
}

TEST_F(SmallSpool, UpdatesAreKeptUntilTheRoundEndsAndGiveUpTheirRoomThen) {
  const auto rounds = run(job("median"), 5);
  EXPECT_EQ(run_.state, store::RunState::kCompleted) << run_.error;
  ASSERT_EQ(rounds.size(), 2U);
  for (const auto& round : rounds) EXPECT_EQ(round.result.contributions.size(), 5U);
}

// Each would hold what the other one waits for, until their deadlines.
TEST_F(SmallSpool, TwoRunsThatNeedTheirUpdatesAtOnceTakeTurns) {
  const auto rounds = run(job("median"), 7, 2);
  EXPECT_EQ(run_.state, store::RunState::kCompleted) << run_.error;
  ASSERT_EQ(rounds.size(), 2U);
  for (const auto& round : rounds) EXPECT_EQ(round.result.contributions.size(), 5U);
}

TEST_F(SmallSpool, ASumNeedsRoomForOneUpdateOnly) {
  const auto rounds = run(job("mean"), 1);
  EXPECT_EQ(run_.state, store::RunState::kCompleted) << run_.error;
  ASSERT_EQ(rounds.size(), 2U);
  for (const auto& round : rounds) EXPECT_EQ(round.result.contributions.size(), 5U);
}

TEST_F(SmallSpool, AJobThatNoSpoolOfTheServiceHoldsIsRefusedByName) {
  const auto check = [&](const std::string& rule, std::uint64_t memory, std::uint64_t disk) {
    const RunContext context = prepare_run(job(rule), nullptr).value();  // updates of 40 bytes
    const auto checked =
        check_spool(context, {.directory = {}, .memory_bytes_max = memory, .disk_bytes_max = disk});
    return checked ? "ok" : checked.error().message();
  };
  EXPECT_EQ(check("median", 2 * 64, 3 * 4096), "ok");
  EXPECT_EQ(check("mean", 64, 0), "ok");
  EXPECT_THAT(
      check("median", 2 * 64 - 1, 3 * 4096),
      HasSubstr("needs the 5 updates of a round at once, 40 B each, and the spool holds 4"));
  EXPECT_THAT(check("median", 0, 0), HasSubstr("raise spool.disk-bytes"));
  EXPECT_THAT(check("mean", 39, 4095), HasSubstr("an update has 40 B, and the spool holds none"));
}

TEST_F(SmallSpool, UpdatesForWhichThereNeverIsRoomAreRefusedByNameAndNotAtTheDeadline) {
  const auto rounds = run(job("median"), 3);
  EXPECT_EQ(run_.state, store::RunState::kCompleted) << run_.error;
  ASSERT_EQ(rounds.size(), 2U);
  for (const auto& round : rounds) {
    EXPECT_EQ(round.result.contributions.size(), 3U);
    ASSERT_EQ(round.result.failures.size(), 2U);
    EXPECT_THAT(codes(round), Each("spool-full"));
    EXPECT_THAT(round.result.failures[0].reason, HasSubstr("raise spool.disk-bytes"));
    EXPECT_THAT(round.result.failures[0].reason, HasSubstr("aggregation.rule = 'median'"));
  }
}

TEST_F(SmallSpool, AnAbandonedAttemptGivesUpItsRoomToo) {
  Job strict = job("median");
  strict.round.min_updates = 5;
  const auto rounds = run(strict, 3);
  EXPECT_EQ(run_.state, store::RunState::kFailed);
  EXPECT_EQ(run_.error_code, "too-few-updates");
  ASSERT_EQ(rounds.size(), 2U);
  for (const auto& attempt : rounds) {
    EXPECT_EQ(attempt.state, store::RoundState::kAbandoned);
    EXPECT_THAT(codes(attempt), ::testing::ElementsAre("spool-full", "spool-full"));
  }
}

TEST_F(SmallSpool, TheTrimmedMeanSaysHowManyUpdatesItNeeds) {
  Job trimmed = job("trimmed-mean");
  trimmed.aggregation.trim = 2;
  const auto rounds = run(trimmed, 4);
  ASSERT_EQ(rounds.size(), 2U);
  for (const auto& attempt : rounds) EXPECT_EQ(attempt.state, store::RoundState::kAbandoned);
  EXPECT_EQ(run_.error_code, "too-few-updates");
  EXPECT_THAT(run_.error,
              HasSubstr("4 of the 5 updates that were needed (aggregation.trim = 2 needs 5)"));
}

// --- whole federations --------------------------------------------------------------------------

Job job_of_five(const std::string& rule) {
  Job job;
  job.job.rounds = 6;
  job.training.model.kind = "softmax-regression";
  job.training.train.batch_size = 16;
  job.round.cohort = 5;
  job.round.min_updates = 4;
  job.round.wait_for = 5;
  job.aggregation.rule = rule;
  job.aggregation.norm_max = "off";  // it is the rule that has to bear what comes
  job.evaluate.dataset = "synthetic:rows=300,features=6,classes=3:test";
  job.data.dataset = "synthetic:rows=700,features=6,classes=3";
  return job;
}

struct Outcome {
  std::vector<store::RoundRecord> rounds;
  std::uint64_t crashes = 0;

  std::vector<std::string> models() const {
    std::vector<std::string> hashes;
    for (const auto& round : rounds) {
      if (round.model) hashes.push_back(round.model->hex());
    }
    return hashes;
  }
  std::map<Round, std::vector<std::string>> contributors() const {
    std::map<Round, std::vector<std::string>> names;
    for (const auto& round : rounds) {
      for (const auto& c : round.result.contributions) names[round.key.round].push_back(c.client);
    }
    return names;
  }
  double last_accuracy() const { return *rounds.back().result.evaluation.accuracy; }
};

Outcome simulate_with(const Job& job, FederationSimulator::Options options, bool reversed = false,
                      Replay replay = {}) {
  constexpr std::size_t kClients = 5;
  const SystemClock clock;
  const auto store = store::open_store_in_memory();
  const auto dataset =
      data::load_dataset(data::DatasetSpec::parse(job.data.dataset).value()).value();
  const auto parts = data::partition_views(
                         dataset, data::PartitionSpec::parse(job.data.partition).value(), kClients)
                         .value();
  FederationSimulator simulator(*store, clock, std::move(options), {});
  for (std::size_t k = 0; k < kClients; ++k) {
    const std::size_t which = reversed ? kClients - 1 - k : k;
    simulator.add_client("client-" + std::to_string(which + 1), {.training = parts[which]});
  }
  const auto id = simulator.run(prepare_run(job, dataset).value(), std::move(replay));
  EXPECT_TRUE(id) << (id ? "" : id.error().message());
  EXPECT_EQ(store->find_run(*id).value()->state, store::RunState::kCompleted);
  return {store->rounds(*id, 1).value(), simulator.crashes()};
}

TEST(AggregationRule, TheModelDoesNotDependOnThreadsChunksDelaysOrTheOrderOfJoining) {
  for (const char* rule : {"median", "trimmed-mean"}) {
    const Job job = job_of_five(rule);
    const auto reference = simulate_with(job, {}).models();
    ASSERT_EQ(reference.size(), 6U);
    EXPECT_EQ(simulate_with(job, {.threads = 3}, true).models(), reference);
    FederationSimulator::Options slow{.threads = 2};
    slow.transfer = {.chunk_bytes_max = 20, .window_bytes = 50};
    slow.faults = {.seed = 4, .latency_max = 200ms, .training_max = 5s};
    EXPECT_EQ(simulate_with(job, std::move(slow)).models(), reference);
    EXPECT_NE(simulate_with(job_of_five("mean"), {}).models(), reference);
  }
}

TEST(AggregationRule, KilledCoordinatorsAndClientsChangeNothing) {
  const Job job = job_of_five("median");
  std::uint64_t crashes = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FederationSimulator::Options options;
    options.transfer = {.chunk_bytes_max = 40, .window_bytes = 90};
    options.faults = {.seed = seed,
                      .latency_max = 100ms,
                      .training_max = 3s,
                      .client_crash = 0.01,
                      .coordinator_crash = 0.01};
    const Outcome outcome = simulate_with(job, std::move(options));
    crashes += outcome.crashes;
    ASSERT_EQ(outcome.models().size(), 6U);
    EXPECT_EQ(simulate_with(job, {}, false, {outcome.contributors(), {}}).models(),
              outcome.models());
  }
  EXPECT_GT(crashes, 10U);
}

// One of five turns its update around and makes it as large as a million.
TEST(AggregationRule, OneLiarOfFiveDoesNotMoveTheMedian) {
  const auto lying = [](const std::string& rule) {
    FederationSimulator::Options options;
    options.faults.forge = [](const std::string& client, client::PendingUpdate& update) {
      if (client != "client-1") return;
      std::vector<float> values(update.payload.size() / sizeof(float));
      std::memcpy(values.data(), update.payload.view().data(), update.payload.size());
      for (float& value : values) value = value > 0 ? -1e6F : 1e6F;
      update.payload = SharedBytes::own(to_bytes(as_bytes(std::span<const float>(values))));
      update.head.payload_checksum = checksum(update.payload.view());
    };
    return simulate_with(job_of_five(rule), std::move(options));
  };
  const double honest = simulate_with(job_of_five("median"), {}).last_accuracy();
  EXPECT_GT(honest, 0.8);
  for (const char* rule : {"median", "trimmed-mean"}) {
    const Outcome outcome = lying(rule);
    EXPECT_GT(outcome.last_accuracy(), honest - 0.05) << rule;
    for (const auto& round : outcome.rounds) {
      EXPECT_EQ(round.result.contributions.size(), 5U) << "nobody is refused";
    }
  }
  EXPECT_LT(lying("mean").last_accuracy(), 0.5) << "this is what the rule prevents";
}

}  // namespace
}  // namespace starling::coordinator
