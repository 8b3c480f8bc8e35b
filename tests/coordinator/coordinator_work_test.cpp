// SPDX-License-Identifier: Apache-2.0
// What events cost the machine, counted in tasks, clients and sessions that it looks at: a few an
// event, whatever the size of the cohort, so that a round is linear in it.
#include <gtest/gtest.h>

#include <deque>

#include "coordinator/machine/coordinator_machine.h"
#include "coordinator/rounds/run_context.h"
#include "coordinator/rounds/run_records.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kLooksMax = 12;  // of an event that begins or ends nothing

// A run of `cohort` clients, all of which every round needs, and the shell around the machine.
class CountedFederation {
 public:
  enum class Submitted { kToConnected, kToNone };
  explicit CountedFederation(std::size_t cohort, Submitted submitted = Submitted::kToConnected,
                             std::size_t runs_max = 4, int federated_every = 0)
      : cohort_(cohort), context_(make_context(cohort)), machine_({.runs_max = runs_max}) {
    context_.job.evaluate.federated_every = federated_every;
    model_ = std::make_shared<model::Parameters>(model::initial_parameters(*context_.model, 1));
    for (std::size_t i = 1; i <= cohort_; ++i) feed(ClientAdmitted{name(i)});
    if (submitted == Submitted::kToNone) submit(RunId(1));
    dearest_event();
    for (std::size_t i = 1; i <= cohort_; ++i) connect(i);
    if (submitted == Submitted::kToConnected) submit(RunId(1));
  }

  void submit(RunId run) {
    feed(RunSubmitted{
        to_run_start(run, context_, at({run, 0, model_->sha256()}), {}, std::nullopt)});
  }

  RunPosition at(const update::ModelVersion& version) const { return {version, model_, {}, {}}; }
  static std::string name(std::size_t i) { return "client-" + std::to_string(i); }
  void connect(std::size_t i) {
    const SessionId session(++sessions_);
    session_of_[name(i)] = session;
    feed(SessionOpened{session, name(i)});
    hear(session, protocol::Hello{.abilities = {"evaluate"}});
  }
  void disconnect(std::size_t i) { feed(SessionClosed{session_of_.at(name(i))}); }
  // Every client answers its plan by an update, of which nobody sees the bytes.
  void report_all() {
    const auto plans = std::exchange(plans_, {});
    for (const auto& [session, plan] : plans) {
      hear(session, protocol::ModelRequest{plan.task, 0, 1'000'000});
      const bool trains = plan.kind == protocol::TaskKind::kTrain;
      const std::uint64_t bytes = update::payload_bytes(plan.schema.vectors);
      update::ContributionHead head{.task = plan.task,
                                    .base = plan.base,
                                    .weight = 1,
                                    .vectors = plan.schema.vectors,
                                    .scalars = {{"train_loss", 1}},
                                    .payload_bytes = bytes};
      if (!trains) head.scalars = {{"loss", 1}, {"accuracy", 1}};
      hear(session, protocol::UpdateOffer{head});
      if (trains) hear(session, protocol::Chunk{plan.task, 0}, SharedBytes::own(Bytes(bytes)));
    }
  }
  void pong(std::size_t i) { hear(session_of_.at(name(i)), protocol::Pong{}); }
  void tick() { feed(Tick{}); }

  std::size_t plans() const { return plans_.size(); }
  std::uint64_t work() const { return machine_.work(); }
  // Of the events since the last call, the most that one of them cost.
  std::uint64_t dearest_event() { return std::exchange(dearest_, 0); }
  CoordinatorMachine& machine() { return machine_; }
  const RoundMachine* phase() const {
    const RunMachine* run = machine_.find_run(RunId(1));
    return run ? run->phase() : nullptr;
  }

  TimePoint now{};

 private:
  static RunContext make_context(std::size_t cohort) {
    Job job;
    job.job.rounds = 3;
    job.training.model.kind = "softmax-regression";
    job.training.data = {{4}, 2};
    job.evaluate.every = 0;
    job.round.cohort = static_cast<int>(cohort);
    job.round.min_updates = static_cast<int>(cohort);
    job.round.deadline = 1h;
    return prepare_run(job, nullptr).value();
  }

  void hear(SessionId session, protocol::Message message, SharedBytes payload = {}) {
    feed(MessageReceived{session, {std::move(message), std::move(payload)}});
  }
  void feed(Event event) {
    std::deque<Event> events;
    events.push_back(std::move(event));
    while (!events.empty()) {
      const std::uint64_t before = machine_.work();
      bool boundary = std::holds_alternative<RoundDurable>(events.front());
      auto actions = machine_.on(std::move(events.front()), now);
      machine_.next_deadline();
      events.pop_front();
      for (Action& action : actions) boundary |= perform(action, events);
      if (!boundary) dearest_ = std::max(dearest_, machine_.work() - before);
    }
  }
  // True of what begins or ends a round.
  bool perform(Action& action, std::deque<Event>& events) {
    if (const auto* send = std::get_if<Send>(&action)) {
      const auto* plan = std::get_if<protocol::RoundPlan>(&send->envelope.message);
      if (plan != nullptr) plans_.emplace_back(send->session, *plan);
    } else if (const auto* open = std::get_if<OpenUpload>(&action)) {
      events.push_back(UploadOpened{open->task, 0});
    } else if (const auto* sum = std::get_if<SumUpload>(&action)) {
      events.push_back(UploadSummed{sum->head.task, {}});
    } else if (const auto* commit = std::get_if<CommitRound>(&action)) {
      const RunId run = commit->summary.run;
      const Sha256Digest next = sha256(as_bytes(std::to_string(commit->summary.round)));
      Durable durable{at({run, commit->summary.round, next}), {}};
      if (commit->summary.kind == protocol::TaskKind::kEvaluate) {
        durable = {{}, Measured{true, 1, 1}};
      }
      events.push_back(RoundDurable{run, std::move(durable)});
      return true;
    }
    return std::holds_alternative<BeginRound>(action) ||
           std::holds_alternative<AbandonRound>(action) ||
           std::holds_alternative<FinishRun>(action);
  }

  std::size_t cohort_;
  RunContext context_;
  model::Snapshot model_;
  CoordinatorMachine machine_;
  std::uint64_t sessions_ = 0;
  std::map<std::string, SessionId> session_of_;
  std::vector<std::pair<SessionId, protocol::RoundPlan>> plans_;
  std::uint64_t dearest_ = 0;
};

TEST(CoordinatorWork, AnEventOfARoundLooksAtAFewTasksWhateverTheCohort) {
  CountedFederation federation(2000);
  ASSERT_EQ(federation.plans(), 2000U);
  federation.dearest_event();
  federation.report_all();
  EXPECT_EQ(federation.phase()->options().round, 2U);
  EXPECT_LE(federation.dearest_event(), kLooksMax);
}

TEST(CoordinatorWork, ClientsThatJoinARunThatWaitsForAllOfThemCostNoWalk) {
  CountedFederation federation(1000, CountedFederation::Submitted::kToNone);
  ASSERT_EQ(federation.plans(), 1000U);
  EXPECT_LE(federation.dearest_event(), kLooksMax);
}

TEST(CoordinatorWork, ARunThatWaitsForTheClientsOfAnotherLooksAtThemOnceAPhase) {
  CountedFederation federation(1000);
  federation.submit(RunId(2));
  federation.dearest_event();
  federation.report_all();
  EXPECT_LE(federation.dearest_event(), kLooksMax) << "each update frees a client";
  ASSERT_TRUE(federation.machine().find_run(RunId(2))->phase()) << "its turn";
}

TEST(CoordinatorWork, ARunThatWaitsToEvaluateLooksAtTheClientsOfAnotherOnceAPhase) {
  CountedFederation federation(1000, CountedFederation::Submitted::kToConnected, 4, 1);
  federation.submit(RunId(2));
  federation.report_all();
  ASSERT_FALSE(federation.phase()) << "the clients train for run 2";
  ASSERT_TRUE(federation.machine().find_run(RunId(2))->phase());
  federation.dearest_event();
  federation.report_all();
  EXPECT_LE(federation.dearest_event(), kLooksMax) << "each update frees a client";
  ASSERT_TRUE(federation.phase()) << "its turn";
  EXPECT_EQ(federation.phase()->options().kind, protocol::TaskKind::kEvaluate);
}

TEST(CoordinatorWork, ARunThatWaitsForThePlaceOfAnotherLooksAtNobody) {
  CountedFederation federation(1000, CountedFederation::Submitted::kToConnected, 1);
  federation.submit(RunId(2));
  federation.dearest_event();
  for (int round = 1; round <= 2; ++round) federation.report_all();
  EXPECT_LE(federation.dearest_event(), kLooksMax) << "each update frees a client";
  ASSERT_TRUE(federation.machine().find_run(RunId(2))->phase()) << "its turn";
}

TEST(CoordinatorWork, ARunIsLinearInTheCohort) {
  const auto work_of_run = [](std::size_t cohort) {
    CountedFederation federation(cohort);
    for (int round = 1; round <= 3; ++round) federation.report_all();
    EXPECT_EQ(federation.machine().runs_held(), 0U) << "three rounds are the run";
    return federation.work();
  };
  const std::uint64_t small = work_of_run(100);
  EXPECT_GT(small, 3U * 100U);
  EXPECT_LE(work_of_run(3000), 30 * small);
}

TEST(CoordinatorWork, APongCostsNoWalkInARoundOrWhileOneWaits) {
  CountedFederation federation(1000);
  federation.dearest_event();
  for (std::size_t i = 1; i <= 1000; ++i) federation.pong(i);
  EXPECT_LE(federation.dearest_event(), 1U) << "in a round";
  federation.report_all();
  ASSERT_EQ(federation.phase()->options().round, 2U);
  // One is given up: the attempt is abandoned, and the next waits until it is back.
  federation.disconnect(1);
  federation.now += 30s;
  for (std::size_t i = 2; i <= 1000; ++i) federation.pong(i);
  federation.report_all();
  ASSERT_FALSE(federation.phase());
  federation.now += 1s;
  federation.tick();
  ASSERT_FALSE(federation.phase());
  federation.dearest_event();
  for (std::size_t i = 2; i <= 1000; ++i) federation.pong(i);
  EXPECT_LE(federation.dearest_event(), 1U) << "waiting";
  federation.connect(1);
  EXPECT_TRUE(federation.phase());
}

TEST(CoordinatorWork, ClientsThatLeaveAndComeBackCostNoWalk) {
  CountedFederation federation(1000);
  federation.dearest_event();
  for (std::size_t i = 1; i <= 1000; ++i) federation.disconnect(i);
  federation.now += 10s;
  federation.tick();
  for (std::size_t i = 1; i <= 1000; ++i) federation.connect(i);
  EXPECT_LE(federation.dearest_event(), kLooksMax);
  EXPECT_EQ(federation.plans(), 2000U) << "each is told its task again";
}

TEST(CoordinatorWork, SessionsThatSpeakAreLookedAtOnceInTheirSilence) {
  CountedFederation federation(1000);
  const std::uint64_t before = federation.work();
  for (int second = 0; second < 300; ++second) {
    federation.now += 1s;
    for (std::size_t i = 1; i <= 1000; ++i) {
      if (i % 10 == static_cast<std::size_t>(second) % 10) federation.pong(i);
    }
    federation.tick();
  }
  // 1000 sessions, each due again 60 s after it was last heard: some six times in 300 s.
  EXPECT_LE(federation.work() - before, 7000U);
  EXPECT_EQ(federation.machine().clients().count_connected(), 1000U);
}

}  // namespace
}  // namespace starling::coordinator
