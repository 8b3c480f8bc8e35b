// SPDX-License-Identifier: Apache-2.0
// The coordinator's machine driven by hand.
#pragma once

#include <gtest/gtest.h>

#include "coordinator/machine/coordinator_machine.h"
#include "coordinator/rounds/run_context.h"
#include "coordinator/rounds/run_records.h"

namespace starling::coordinator {

using namespace std::chrono_literals;
using protocol::Message;

class CoordinatorMachineTest : public ::testing::Test {
 protected:
  explicit CoordinatorMachineTest(std::size_t runs_max = 4)
      : machine({.runs_max = runs_max, .transfer = {.chunk_bytes_max = 20, .window_bytes = 50}}),
        context(make_context()) {
    model = std::make_shared<model::Parameters>(model::initial_parameters(*context.model, 1));
    version = {RunId(1), 0, model->sha256()};
  }
  RunPosition at(const update::ModelVersion& where) const { return {where, model, {}, {}}; }
  RunStart start_of(std::uint64_t run, const std::vector<store::RoundRecord>& rounds = {},
                    const std::optional<store::RoundRecord>& open = std::nullopt) const {
    const update::ModelVersion where = run == 1 ? version : update::ModelVersion{RunId(run), 0, {}};
    return to_run_start(RunId(run), context, at(where), rounds, open);
  }
  const RoundMachine* phase(std::uint64_t run = 1) const {
    const RunMachine* held = machine.find_run(RunId(run));
    return held ? held->phase() : nullptr;
  }

  static RunContext make_context() {
    Job job;
    job.job.rounds = 2;
    job.training.model.kind = "softmax-regression";
    job.training.data = {{4}, 2};
    job.evaluate.every = 0;
    job.round.cohort = 2;
    job.round.min_updates = 1;
    job.round.wait_for = 2;
    job.round.attempts_max = 2;
    return prepare_run(job, nullptr).value();
  }

  void feed(Event event) { actions = machine.on(std::move(event), now); }
  void hear(std::uint64_t session, Message message, SharedBytes payload = {}) {
    feed(MessageReceived{SessionId(session), {std::move(message), std::move(payload)}});
  }
  template <class T>
  std::vector<T> did() const {
    std::vector<T> found;
    for (const Action& action : actions) {
      if (const auto* one = std::get_if<T>(&action)) found.push_back(*one);
    }
    return found;
  }
  template <class T>
  std::vector<std::pair<SessionId, T>> sent() const {
    std::vector<std::pair<SessionId, T>> found;
    for (const Send& send : did<Send>()) {
      if (const auto* one = std::get_if<T>(&send.envelope.message)) {
        found.emplace_back(send.session, *one);
      }
    }
    return found;
  }
  std::string closed_because() const {
    const auto closed = did<CloseSession>();
    return closed.empty() ? "" : closed[0].code;
  }

  void join(const std::string& client, std::uint64_t session, std::uint64_t rows = 10) {
    feed(ClientAdmitted{client});
    feed(SessionOpened{SessionId(session), client});
    hear(session, protocol::Hello{.rows = rows, .abilities = can_do});
  }
  void submit() { feed(RunSubmitted{start_of(1)}); }
  // Clients a (session 1) and b (session 2) with the plan of round 1 each.
  void open_round() {
    submit();
    join("a", 1, rows_of_a);
    join("b", 2);
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 2U);
    plan_a = plans[0].second;
    plan_b = plans[1].second;
    ASSERT_EQ(did<BeginRound>().size(), 1U);
  }
  update::ContributionHead head(const protocol::RoundPlan& plan) const {
    return {.task = plan.task,
            .base = plan.base,
            .weight = 10,
            .vectors = plan.schema.vectors,
            .scalars = {{"train_loss", 0.5}},
            .payload_bytes = update::payload_bytes(plan.schema.vectors)};
  }
  // By client a. What is said of the weight, but for the settings to look at.
  std::string offer(const protocol::RoundPlan& plan, double weight) {
    update::ContributionHead claims = head(plan);
    claims.weight = weight;
    hear(1, protocol::UpdateOffer{claims});
    EXPECT_EQ(did<OpenUpload>().size(), 1U);
    const auto said = did<Say>();
    return said.empty() ? "" : said[0].line.substr(0, said[0].line.find(" ("));
  }
  void upload(std::uint64_t session, const protocol::RoundPlan& plan) {
    hear(session, protocol::UpdateOffer{head(plan)});
    ASSERT_EQ(did<OpenUpload>().size(), 1U);
    feed(UploadOpened{plan.task, 0});
    ASSERT_EQ(sent<protocol::UpdateAccept>().size(), 1U);
    const SharedBytes bytes = SharedBytes::own(Bytes(head(plan).payload_bytes));
    for (std::uint64_t at = 0; at < bytes.size(); at += 20) {
      hear(session, protocol::Chunk{plan.task, at},
           bytes.slice(at, std::min<std::size_t>(20, bytes.size() - at)));
      ASSERT_EQ(did<WriteUpload>().size(), 1U) << at;
    }
    ASSERT_EQ(did<SumUpload>().size(), 1U);
  }
  void commit() {
    const update::ModelVersion next{RunId(1), version.round + 1, sha256(as_bytes("next"))};
    version = next;
    feed(RoundDurable{RunId(1), Durable{at(next), measured}});
  }

  TimePoint now{};
  CoordinatorMachine machine;
  RunContext context;
  model::Snapshot model;
  update::ModelVersion version;
  protocol::RoundPlan plan_a;
  protocol::RoundPlan plan_b;
  std::vector<Action> actions;
  std::uint64_t rows_of_a = 10;
  std::vector<std::string> can_do;   // each client
  std::optional<Measured> measured;  // of the next commit
};

}  // namespace starling::coordinator
