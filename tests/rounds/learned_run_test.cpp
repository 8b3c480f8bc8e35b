// SPDX-License-Identifier: Apache-2.0
// The process of a coordinator, restarted over one store and disk in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/job/job_text.h"
#include "coordinator/rounds/coordinator_core.h"
#include "core/base/check.h"
#include "core/model/safetensors.h"
#include "core/sim/simulated_disk.h"
#include "core/sim/virtual_computation.h"
#include "core/store/sqlite_store.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

// Notes the last task of each session.
class TaskSessions final : public protocol::SessionLinks {
 public:
  void send(SessionId session, const protocol::Envelope& envelope) override {
    const auto* plan = std::get_if<protocol::RoundPlan>(&envelope.message);
    if (plan != nullptr) tasks[session] = plan->task;
  }
  void close(SessionId, const std::string&, const std::string&) override {}
  bool is_open(SessionId) const override { return true; }

  std::map<SessionId, TaskId> tasks;
};

constexpr const char* kJob = R"(
rounds = 2
[model]
kind = "softmax-regression"
[round]
cohort = 2
wait-for = 2
)";
constexpr const char* kJobForOne = R"(
[model]
kind = "softmax-regression"
[round]
min-updates = 1
)";
constexpr const char* kSixFeatures = "[data]\ninput = [6]\nclasses = 3\n";

class LearnedRunTest : public ::testing::Test {
 protected:
  LearnedRunTest() {
    for (const char* name : {"a", "b", "c"}) {
      const store::Certificate certificate{
          .serial = name, .client = name, .fingerprint = sha256(as_bytes(std::string_view(name)))};
      STARLING_CHECK(store->add_client(name, store::Role::kDevice, certificate, {}).has_value());
    }
    start();
  }
  void start() {
    core.reset();
    lines.clear();
    core = std::make_unique<CoordinatorCore>(
        CoordinatorCore::World{
            scheduler, clock, *store, sessions, disk,
            [this](RunId run) {
              return store::Checkpoints(disk, "models/" + std::to_string(run.value()));
            },
            prepare_context, strategy::builtin_strategies(), computation, computation, pool, log},
        CoordinatorCore::Options{
            .shell = {.machine = {.runs_max = runs_max}},
            .spool = {.directory = {}, .memory_bytes_max = 1 << 20, .disk_bytes_max = 0}},
        CoordinatorCore::Handlers{
            .on_line = [this](const std::string& line) { lines.push_back(line); },
            .on_run_loaded = [this](const RunStart& start) { loaded = start; },
            .on_broken =
                [this](const Error& error) {
                  EXPECT_TRUE(may_break) << error.message();
                  broke = true;
                }});
    ASSERT_TRUE(core->start());
    core->runs().load_next();
    settle();
  }
  // Until nothing happens at this time.
  void settle() { wait(Duration(1)); }
  void wait(Duration time) {
    bool over = false;
    scheduler.schedule(scheduler.now() + time, [&over] { over = true; });
    while (!over) ASSERT_TRUE(scheduler.run_one());
  }
  void connect(const std::string& client, std::vector<std::uint32_t> input,
               std::uint32_t classes = 3) {
    const SessionId session(++last_session);
    core->handle(SessionOpened{session, client});
    core->handle(MessageReceived{session,
                                 {protocol::Hello{.rows = 10,
                                                  .abilities = {"scaffold", "fedavg"},
                                                  .input = std::move(input),
                                                  .classes = classes},
                                  {}}});
    settle();
  }
  RunId submit(const std::string& job = kJob) {
    const RunId run = store->submit_run({.name = "run", .seed = 1, .job = job}, {}).value();
    core->runs().load_next();
    settle();
    return run;
  }
  void fail_task(std::uint64_t session, bool permanent) {
    const TaskId task = sessions.tasks.at(SessionId(session));
    core->handle(MessageReceived{SessionId(session),
                                 {protocol::TaskFailed{task, "busy", "x", permanent}, {}}});
  }
  store::Run record(RunId run) { return store->find_run(run).value().value(); }
  std::string waits_for(RunId run) { return core->runs().waits_for(record(run)); }
  Result<Job> try_job(const std::string& text) {
    std::optional<Result<TriedJob>> answer;
    core->runs().try_job(parse_job(text, "job").value(),
                         [&](const Result<TriedJob>& result) { answer.emplace(result); });
    EXPECT_FALSE(answer) << "never within the call";
    settle();
    if (!*answer) return answer->error();
    return (*answer)->job;
  }

  sim::VirtualScheduler scheduler;
  SystemClock clock;
  NullLog log;
  TaskSessions sessions;
  sim::SimulatedDisk disk{1};
  sim::ImmediateComputation computation{scheduler};
  ComputePool pool{1};
  std::unique_ptr<store::Store> store = store::open_store_in_memory();
  std::vector<std::string> lines;
  std::optional<RunStart> loaded;
  std::uint64_t last_session = 0;
  std::size_t runs_max = 4;
  bool may_break = false;
  bool broke = false;
  std::unique_ptr<CoordinatorCore> core;
};

TEST_F(LearnedRunTest, WaitsForAShapeThenForItsClientsAndTakesWhatTheySay) {
  const RunId run = submit();
  EXPECT_EQ(waits_for(run), "a client that says the shape of its data");
  connect("a", {});
  EXPECT_EQ(waits_for(run), "a client that says the shape of its data") << "an earlier version";
  core->handle(SessionClosed{SessionId(1)});
  connect("b", {6}, 3);
  EXPECT_EQ(waits_for(run), "2 clients (1 connected)") << "one alone does not decide";
  connect("c", {6}, 3);
  ASSERT_EQ(record(run).state, store::RunState::kRunning);
  EXPECT_EQ(waits_for(run), "");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0], "data: 6 features, 3 classes, as 2 of 3 clients announced");
  EXPECT_EQ(loaded->job.training.data.input, std::vector<int>({6}));
  EXPECT_EQ(loaded->job.training.data.classes, 3);
}

TEST_F(LearnedRunTest, WaitsWhereClientsDisagreeAndIsRefusedWhereItIsSubmittedThen) {
  const RunId run = submit();
  connect("a", {6}, 3);
  connect("b", {7}, 4);
  EXPECT_EQ(record(run).state, store::RunState::kPending);
  EXPECT_THAT(waits_for(run), HasSubstr("6 features (a); 7 features (b)"));
  EXPECT_THAT(waits_for(run), StartsWith("clients that agree on the shape of their data: no "));
  const auto tried = try_job(kJob);
  ASSERT_FALSE(tried);
  EXPECT_EQ(tried.error().code(), "shapes-differ");
  EXPECT_EQ(tried.error().category(), ErrorCategory::kUsage);
  connect("c", {7}, 4);
  EXPECT_EQ(record(run).state, store::RunState::kRunning);
  EXPECT_EQ(loaded->job.training.data.classes, 4);
}

TEST_F(LearnedRunTest, AHugeModelIsRefusedBeforeItIsMade) {
  const RunId run = submit(std::string(kJob) + "[data]\ninput = [1000]\n");
  for (const char* name : {"a", "b"}) connect(name, {1000}, 1 << 17);
  EXPECT_EQ(record(run).state, store::RunState::kFailed);
  EXPECT_EQ(record(run).error_code, "model-too-large");
  EXPECT_EQ(try_job(kJob).error().code(), "model-too-large");
}

TEST_F(LearnedRunTest, DoesNotHoldUpARunThatKnowsItsShape) {
  const RunId waiting = submit();
  const RunId other = submit(std::string(kJob) + "[data]\ninput = [6]\nclasses = 3\n");
  EXPECT_EQ(record(other).state, store::RunState::kRunning);
  EXPECT_EQ(record(waiting).state, store::RunState::kPending);
}

// More of them than may be begun beside the active ones.
TEST_F(LearnedRunTest, RunsThatTooFewClientsCanDoHoldNoOtherUp) {
  connect("a", {6});
  connect("b", {6});
  const std::vector<std::string> impossible = {
      "[data]\ninput = [7]\nclasses = 3\n", "[evaluate]\ndataset = \"synthetic:features=7\"\n",
      "[data]\ninput = [6]\nclasses = 3\n[strategy]\nname = \"feddyn\"\n",
      "[strategy]\nname = \"feddyn\"\n"};
  std::vector<RunId> waiting;
  for (int i = 0; i < 10; ++i) {
    for (const std::string& end : impossible) waiting.push_back(submit(kJob + end));
  }
  EXPECT_EQ(record(waiting[0]).state, store::RunState::kRunning) << "alone it holds nobody up";
  for (const RunId run : std::span(waiting).subspan(1)) {
    EXPECT_EQ(record(run).state, store::RunState::kPending);
    EXPECT_EQ(waits_for(run), "2 clients (2 connected, none of them can do this run)");
  }
  const RunId possible = submit(std::string(kJob) + "[data]\ninput = [6]\nclasses = 3\n");
  EXPECT_EQ(record(possible).state, store::RunState::kRunning);
  EXPECT_NE(core->machine().find_run(possible)->phase(), nullptr);
  connect("c", {7});
  EXPECT_EQ(waits_for(waiting[1]), "2 clients (3 connected, 1 of them can do this run)");
  core->handle(SessionClosed{SessionId(2)});
  connect("b", {7});
  EXPECT_EQ(record(waiting[1]).state, store::RunState::kRunning);
  EXPECT_EQ(record(waiting[2]).state, store::RunState::kPending);
}

TEST_F(LearnedRunTest, AJobWhoseEvaluationDataSayTheClassesBeginsBesideAnother) {
  connect("a", {6});
  connect("b", {6});
  submit();
  const std::string input = std::string(kJob) + "[data]\ninput = [6]\n";
  const RunId run = submit(input + "[evaluate]\ndataset = \"synthetic:features=6,classes=3\"\n");
  EXPECT_EQ(record(run).state, store::RunState::kRunning);
  const RunId few = submit(input + "[evaluate]\ndataset = \"synthetic:features=6,classes=2\"\n");
  EXPECT_EQ(record(few).state, store::RunState::kPending) << "as its data say";
  EXPECT_EQ(waits_for(few), "2 clients (2 connected, none of them can do this run)");
}

// What its data say is known when they are loaded.
TEST_F(LearnedRunTest, ARunThatIsPutBackWritesNoModel) {
  connect("a", {6});
  connect("b", {6});
  submit();
  std::size_t writes = 0;
  disk.set_fault_injector([&](const std::filesystem::path&) {
    ++writes;
    return sim::SimulatedDisk::Fault::kFailedSync;
  });
  const RunId run =
      submit(std::string(kJob) + "[evaluate]\ndataset = \"synthetic:features=7,classes=3\"\n");
  EXPECT_EQ(waits_for(run), "2 clients (2 connected, none of them can do this run)");
  EXPECT_EQ(writes, 0U);
  may_break = true;
  connect("c", {7});
  connect("b", {7});
  EXPECT_GT(writes, 0U);
  EXPECT_TRUE(broke) << "a failed sync ends the process";
  EXPECT_EQ(record(run).state, store::RunState::kPending);
}

TEST_F(LearnedRunTest, RunsOfBusyClientsLeaveAPlaceToOneWhoseClientsAreIdle) {
  connect("a", {6});
  connect("b", {6});
  connect("c", {7});
  std::vector<RunId> runs;
  for (int i = 0; i < 10; ++i) runs.push_back(submit(std::string(kJob) + kSixFeatures));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(record(runs[i]).state,
              i < runs_max ? store::RunState::kRunning : store::RunState::kPending);
  }
  EXPECT_EQ(waits_for(runs[4]),
            "2 clients (3 connected, 2 of them can do this run, 2 at work for other runs)");
  const RunId idle = submit(std::string(kJobForOne) + "[data]\ninput = [7]\nclasses = 3\n");
  ASSERT_EQ(record(idle).state, store::RunState::kRunning);
  EXPECT_NE(core->machine().find_run(idle)->phase(), nullptr);
  for (std::size_t i = 0; i < 2; ++i) core->handle(StopRun{runs[i]});
  settle();
  EXPECT_EQ(record(runs[4]).state, store::RunState::kRunning) << "it takes turns with the others";
  EXPECT_EQ(record(runs[5]).state, store::RunState::kPending);
}

TEST_F(LearnedRunTest, ARunWhoseClientsAreAwayTakesNoTurnOfOthers) {
  runs_max = 2;
  start();
  submit(std::string(kJobForOne) + "[data]\ninput = [9]\nclasses = 3\n");  // which nobody can do
  connect("a", {6});
  connect("b", {6});
  submit(std::string(kJobForOne) + kSixFeatures);
  const RunId run = submit(std::string(kJobForOne) + kSixFeatures);
  ASSERT_EQ(record(run).state, store::RunState::kRunning);
  fail_task(1, false);
  fail_task(2, true);
  wait(2s);
  EXPECT_NE(core->machine().find_run(run)->phase(), nullptr);
}

TEST_F(LearnedRunTest, ARunThatWaitsForBusyClientsTakesNoTurnOfOneThatHasOthers) {
  connect("a", {6});
  connect("b", {6});
  connect("c", {7});
  const RunId other = submit(std::string(kJobForOne) + "[data]\ninput = [7]\nclasses = 3\n");
  submit(std::string(kJobForOne) + kSixFeatures);  // and its only client does not answer
  const RunId waits = submit(std::string(kJob) + kSixFeatures);
  ASSERT_EQ(core->machine().find_run(waits)->phase(), nullptr);
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(core->machine().find_run(other)->phase(), nullptr) << i;
    fail_task(3, false);
    EXPECT_EQ(core->machine().find_run(other)->phase(), nullptr);
    wait(2s);
  }
  EXPECT_NE(core->machine().find_run(other)->phase(), nullptr);
  EXPECT_EQ(core->machine().find_run(waits)->phase(), nullptr);
}

TEST_F(LearnedRunTest, KeepsTheShapeWhateverClientsSayLater) {
  connect("a", {6});
  connect("b", {6});
  const RunId run = submit();
  ASSERT_EQ(record(run).state, store::RunState::kRunning);
  core->handle(SessionClosed{SessionId(1)});
  core->handle(SessionClosed{SessionId(2)});
  for (const char* name : {"a", "b", "c"}) connect(name, {9}, 7);
  start();
  EXPECT_EQ(loaded->job.training.data.input, std::vector<int>({6}));
  EXPECT_EQ(loaded->job.training.data.classes, 3);
  const RunMachine* machine = core->machine().find_run(run);
  ASSERT_NE(machine, nullptr);
  const Candidates::Reach reach = machine->candidates().reach();
  EXPECT_EQ(reach.able, 0U);
  ASSERT_EQ(reach.left_out.size(), 3U);
  EXPECT_EQ(reach.left_out[0].client, "a");
  EXPECT_EQ(reach.left_out[0].reason, "its rows have another shape");
}

TEST_F(LearnedRunTest, ARestartedCoordinatorKnowsWhatItsClientsCanDo) {
  connect("a", {6});
  connect("b", {6});
  start();
  const Greeting expected{
      .rows = 10, .abilities = {"fedavg", "scaffold"}, .input = {6}, .classes = 3};
  EXPECT_EQ(core->machine().clients().find("a")->greeting, expected);
  const RunId run = submit();
  EXPECT_EQ(record(run).state, store::RunState::kRunning)
      << "as many clients as it needs have said it, though none is back yet";
}

TEST_F(LearnedRunTest, ARunThatIsStoppedWhileItLoadsIsNotFailedAfterwards) {
  const std::string job = std::string(kJob) + "[evaluate]\ndataset = \"idx:/nowhere\"\n";
  const RunId run = store->submit_run({.name = "run", .seed = 1, .job = job}, {}).value();
  core->runs().load_next();
  EXPECT_EQ(store->request_stop(run, {}).value(), store::RunState::kStopped);
  settle();
  EXPECT_EQ(record(run).state, store::RunState::kStopped);
  EXPECT_THAT(lines, ::testing::Not(Contains(HasSubstr("failed"))));
}

TEST_F(LearnedRunTest, ItsSettingsStandInTheStoreAndInItsModels) {
  connect("a", {6});
  connect("b", {6});
  const RunId run = submit();
  const Settings settings = parse_settings(record(run).settings).value();
  EXPECT_THAT(settings, Contains(Pair("data.input", "6")));
  EXPECT_THAT(settings, Contains(Pair("train.learning-rate", "0.1"))) << "a default";
  const store::ModelRecord model = store->models(run).value().at(0);
  const auto file = model::load_safetensors(disk, "models/1/0.safetensors").value();
  EXPECT_EQ(file.parameters.sha256(), model.sha256);
  EXPECT_THAT(file.metadata, Contains(Pair("starling.run", "1")));
  EXPECT_THAT(file.metadata, Contains(Pair("starling.round", "0")));
  EXPECT_THAT(file.metadata, Contains(Pair("starling.settings", record(run).settings)));
  EXPECT_THAT(file.metadata, Contains(Pair("starling.version", HasSubstr("."))));
}

TEST_F(LearnedRunTest, JobsThatCannotWorkAreRefusedAsWrong) {
  const auto refusal = [&](const std::string& job) {
    const auto tried = try_job(job);
    EXPECT_FALSE(tried) << job;
    if (tried) return std::string();
    EXPECT_EQ(tried.error().category(), ErrorCategory::kUsage) << tried.error().message();
    return tried.error().code();
  };
  EXPECT_TRUE(try_job(kJob)) << "a client may still say its shape";
  EXPECT_EQ(refusal("[evaluate]\ndataset = \"idx:/nowhere\"\n"), "dataset-missing");
  EXPECT_EQ(refusal("[evaluate]\ndataset = \"parquet:/nowhere\"\n"), "dataset-spec");
  EXPECT_EQ(refusal("[round]\nvalue-max = 1e30\nweight-max = 1e15\n"), "bounds-too-wide")
      << "before the shape is known";
  connect("a", {6});
  EXPECT_EQ(refusal("[model]\nkind = \"cnn\"\n"), "bad-model-spec") << "rows are no images";
  for (const char* name : {"b", "c"}) connect(name, {6});
  EXPECT_TRUE(try_job(kJob));
  EXPECT_EQ(refusal("[data]\ninput = [5]\n"), "no-data-shape") << "nobody has such data";
  EXPECT_EQ(try_job("[evaluate]\ndataset = \"synthetic:features=7\"\n")->training.data.input,
            std::vector<int>({7}));
}

}  // namespace
}  // namespace starling::coordinator
