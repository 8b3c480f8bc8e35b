// SPDX-License-Identifier: Apache-2.0
#include "tests/store/store_script.h"

#include "tests/store/store_fixture.h"

namespace starling::store {
namespace {

template <class T>
Result<void> without_value(const Result<T>& result) {
  if (!result) return result.error();
  return {};
}

void add_clients(std::vector<Step>& steps) {
  const auto add = [&](auto call, bool durable = true) { steps.push_back({call, durable}); };
  add([](Store& s) { return s.create_federation({"kitchen", at(0)}); });
  add([](Store& s) { return s.set_fact("epoch", "1"); });
  add([](Store& s) {
    return s.add_client("boss", Role::kOperator, certificate("00", "boss"), at(0));
  });
  for (const std::string name : {"a", "b", "c"}) {
    add([name](Store& s) { return s.create_token(token("t" + name, name)); });
    add([name](Store& s) {
      return without_value(s.redeem_token("t" + name, digest(name), at(1), issuing("0" + name)));
    });
    add([name](Store& s) { return s.record_seen(name, at(2), Greeting{.rows = 600}); }, false);
  }
  add([](Store& s) { return s.create_token(token("td", "d")); });
  add([](Store& s) { return without_value(s.record_bad_try("td", at(3))); });
  add([](Store& s) { return s.create_token(token("te", "d")); });
  add([](Store& s) { return s.revoke_token("te", at(4)); });
  add([](Store& s) { return s.add_certificate(certificate("01", "c")); });
  add([](Store& s) { return without_value(s.revoke_client("c", at(5))); });
}

void add_round(std::vector<Step>& steps, RunId run, Round round, Attempt number, bool committed) {
  const std::uint64_t first_task = run.value() * 16 + round * 4 + number * 2;
  const std::string base = "model " + std::to_string(round - 1);
  const std::string made = "model " + std::to_string(round);
  const AttemptKey key{run, round, number};
  AttemptResult result;
  result.contributions = {{"a", TaskId(first_task), 600}};
  result.failures = {{"b", "deadline", "no update within 60 s", 10, 20}};
  result.train_loss = 1.0 / round;
  steps.push_back({[=](Store& s) {
                     NewAttempt opened = attempt(run, round, number, first_task, {"a", "b"}, base);
                     opened.population = 4;
                     return s.open_attempt(opened);
                   },
                   true});
  steps.push_back({[=](Store& s) {
                     ModelRecord committed_model = model(round, made);
                     committed_model.state = StateFile{digest("state of " + made), 12};
                     if (committed) return s.commit_attempt(key, result, committed_model);
                     return s.abandon_attempt(key, result, {"too-few-updates", "1 of 2"});
                   },
                   true});
  steps.push_back({[=](Store& s) {
                     const std::vector<std::string> lines = {"round over", std::string(5000, 'x')};
                     return s.append_log(run, lines, at(20));
                   },
                   false});
}

void add_evaluation(std::vector<Step>& steps, RunId run, Round round, bool committed) {
  const TaskId task(44 + run.value() * 4 + round * 2);
  const std::string base = "model " + std::to_string(round);
  const AttemptKey key{run, round, 1, PhaseKind::kEvaluate};
  AttemptResult result;
  result.contributions = {{"a", task, 120}};
  result.failures = {{"b", "no-data", "no rows", 10, 20}};
  result.evaluation = {0.25, 0.75};
  steps.push_back(
      {[=](Store& s) {
         return s.open_attempt(evaluation(run, round, 1, task.value(), {"a", "b"}, base));
       },
       true});
  steps.push_back({[=](Store& s) {
                     if (committed) return s.commit_evaluation(key, result);
                     return s.abandon_attempt(key, result, {"too-few-clients", "1 of 2"});
                   },
                   true});
}

void add_run(std::vector<Step>& steps, RunId run) {
  const std::string submit_token = "submit " + std::to_string(run.value());
  steps.push_back({[=](Store& s) {
                     return without_value(s.submit_run({"job", 1, submit_token, "x = 1"}, at(6)));
                   },
                   true});
  steps.push_back(
      {[=](Store& s) { return s.start_run(run, model(0, "model 0"), R"({"rounds":"3"})", at(7)); },
       true});
  add_round(steps, run, 1, 1, false);
  add_round(steps, run, 1, 2, true);
  if (run == RunId(1)) add_evaluation(steps, run, 1, false);
  add_round(steps, run, 2, 1, true);
  if (run == RunId(1)) add_evaluation(steps, run, 2, true);
  steps.push_back({[=](Store& s) {
                     return s.withdraw_round(run, 2, {"model-damaged", "missing"});
                   },
                   true});
  steps.push_back({[=](Store& s) { return without_value(s.request_stop(run, at(8))); }, true});
  steps.push_back({[=](Store& s) {
                     return s.finish_run(run, {RunState::kStopped, "", ""}, at(9));
                   },
                   true});
}

}  // namespace

std::vector<Step> store_script() {
  std::vector<Step> steps;
  add_clients(steps);
  add_run(steps, RunId(1));
  add_run(steps, RunId(2));
  return steps;
}

StoreContent content_of(Store& store, std::uint64_t tasks_max) {
  StoreContent content;
  const Result<Federation> federation = store.federation();
  content.federation = federation ? federation->name : federation.error().code();
  content.fact = store.fact("epoch").value();
  content.clients = store.clients().value();
  for (const char digit : std::string_view("0123456789abcdef")) {
    content.certificates.push_back(store.find_certificate(std::string("0") + digit).value());
  }
  content.revocations = store.revocations().value();
  content.tokens = store.tokens(at(100)).value();
  content.runs = store.runs().value();
  for (const Run& run : content.runs) {
    content.rounds[run.id] = store.rounds(run.id, 1).value();
    content.evaluations[run.id] = store.evaluations(run.id, 1).value();
    content.models[run.id] = store.models(run.id).value();
    content.logs[run.id] = store.log_lines(run.id, 1, 1'000'000).value();
  }
  for (std::uint64_t task = 1; task <= tasks_max; ++task) {
    content.tasks.push_back(store.find_task(TaskId(task)).value());
    content.task_ends.push_back(store.find_task_end(TaskId(task)).value());
  }
  return content;
}

}  // namespace starling::store
