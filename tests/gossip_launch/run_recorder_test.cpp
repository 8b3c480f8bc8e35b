// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/run_recorder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gossip/simulation/network_simulation.h"

namespace starling::gossip {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

NetOptions small() {
  NetOptions options;
  options.data.dataset = "synthetic:rows=120,features=4,classes=3";
  options.topology.nodes = 3;
  options.topology.spec = "ring";
  options.run.steps = 8;
  options.train.train.local_steps = 2;
  options.evaluate.every = 4;
  return options;
}

class RunRecorderTest : public ::testing::Test {
 protected:
  RunRecorderTest()
      : experiment_(*prepare(small())),
        recorder_(experiment_, pool_, {.hand_in_deadline = seconds(20), .patience = minutes(2)},
                  {"node-1", "node-2", "node-3"}, at(0)) {
    for (Node node = 0; node < 3; ++node) recorder_.started(node, at(0));
  }

  static TimePoint at(int second) { return TimePoint(seconds(1000 + second)); }

  // A model all of whose values are this.
  SharedBytes model(float value) const {
    const std::vector<float> values(experiment_.parameters(), value);
    return SharedBytes::own(to_bytes(std::as_bytes(std::span(values))));
  }
  void hand_in(Node node, protocol::Exchange exchange, float value, int second) {
    recorder_.handed_in(node, exchange, model(value), at(second));
  }

  ComputePool pool_{1};
  Experiment experiment_;
  RunRecorder recorder_;
};

TEST_F(RunRecorderTest, TheFirstMeasurementIsSimulates) {
  const auto simulation = make_simulation(experiment_, pool_);
  Measurer measurer(experiment_, pool_);
  const Measurement wanted = measurer.measure(*simulation);
  const Measurement& first = recorder_.measurements().front();
  EXPECT_EQ(first.step, 0U);
  EXPECT_EQ(first.eval_accuracy, wanted.eval_accuracy);
  EXPECT_EQ(first.eval_loss_mean_model, wanted.eval_loss_mean_model);
  EXPECT_EQ(first.consensus_distance, 0);
  EXPECT_EQ(first.nodes_up, 3U);
}

TEST_F(RunRecorderTest, AnEvaluationWaitsForEverybodyThatRuns) {
  hand_in(0, 1, 1, 1);
  hand_in(2, 1, 3, 2);
  EXPECT_FALSE(recorder_.take_measurement(at(3)));
  hand_in(1, 1, 2, 4);
  const auto measured = recorder_.take_measurement(at(4));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->step, 4U);
  EXPECT_EQ(measured->nodes_up, 3U);
  EXPECT_EQ(measured->virtual_seconds, 4);
  const double count = std::sqrt(static_cast<double>(experiment_.parameters()));
  EXPECT_NEAR(measured->consensus_distance, std::sqrt(2.0 / 3.0) * count, 1e-9 * count);
  EXPECT_NEAR(*recorder_.rows()[0].distance, count, 1e-9 * count);
  EXPECT_EQ(*recorder_.rows()[1].distance, 0);
  EXPECT_FALSE(recorder_.complete());
  EXPECT_FALSE(recorder_.take_measurement(at(99)));
}

// Also of those that are taken together, after a long evaluation.
TEST_F(RunRecorderTest, AnEvaluationHasTheTimeOfItsLastModel) {
  for (Node node = 0; node < 3; ++node) hand_in(node, 1, 1, 2 + static_cast<int>(node));
  for (Node node = 0; node < 3; ++node) hand_in(node, 3, 1, 6);
  const auto first = recorder_.take_measurement(at(9));
  const auto second = recorder_.take_measurement(at(9));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->virtual_seconds, 4);
  EXPECT_EQ(first->wall_seconds, 4);
  EXPECT_EQ(second->virtual_seconds, 6);
  const SimulationResult result = std::move(recorder_).result(at(10));
  EXPECT_EQ(result.totals.virtual_seconds, 6);
  EXPECT_EQ(result.wall_seconds, 10);
}

// The initial model may take long to evaluate.
TEST_F(RunRecorderTest, TimeBeginsWithTheFirstProcess) {
  RunRecorder recorder(experiment_, pool_, {}, {"node-1", "node-2", "node-3"}, at(0));
  recorder.started(0, at(10));
  recorder.started(1, at(11));
  recorder.started(2, at(11));
  for (Node node = 0; node < 3; ++node) recorder.handed_in(node, 1, model(1), at(15));
  const auto measured = recorder.take_measurement(at(15));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->virtual_seconds, 5);
}

// Peers may be far ahead when the launcher gets to an evaluation.
TEST_F(RunRecorderTest, AnEvaluationCountsWhatWasSentUntilItsModels) {
  for (const std::uint64_t exchange : {1U, 3U}) {
    for (Node node = 0; node < 3; ++node) {
      recorder_.reported(node,
                         {.step = 2 * (exchange + 1),
                          .state = "training",
                          .loss = 0.5,
                          .loss_steps = 4,
                          .bytes_sent = 1000 * (exchange + 1),
                          .messages = exchange + 1,
                          .arrived = exchange,
                          .late = 1,
                          .lost = exchange - 1,
                          .staleness = 2},
                         at(1));
      hand_in(node, exchange, 1, 1);
    }
  }
  const auto first = recorder_.take_measurement(at(2));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->bytes_sent, 6000U);
  EXPECT_EQ(first->messages, 6U);
  EXPECT_EQ(first->messages_arrived, 3U);
  EXPECT_EQ(first->messages_late, 3U);
  EXPECT_EQ(first->messages_lost, 0U);
  EXPECT_EQ(first->staleness, 2.0);
  EXPECT_EQ(first->train_loss, 0.5);
  const auto second = recorder_.take_measurement(at(2));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->bytes_sent, 12'000U);
  EXPECT_EQ(second->messages_arrived, 9U);
  EXPECT_EQ(second->messages_lost, 6U);
  EXPECT_NEAR(*second->staleness, 2.0 / 3, 1e-12);
  EXPECT_EQ(second->train_loss, 0.5);
}

// A process that is started again counts from 0.
TEST_F(RunRecorderTest, WhatCameBeforeARestartCounts) {
  const protocol::PeerReport report{
      .state = "training", .messages = 5, .arrived = 4, .late = 3, .lost = 2, .staleness = 3};
  recorder_.reported(0, report, at(1));
  recorder_.stopped(0, at(2));
  recorder_.started(0, at(3));
  recorder_.reported(0, report, at(4));
  for (Node node = 0; node < 3; ++node) hand_in(node, 1, 1, 5);
  const auto measured = recorder_.take_measurement(at(5));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->messages_arrived, 8U);
  EXPECT_EQ(measured->messages_late, 6U);
  EXPECT_EQ(measured->messages_lost, 4U);
  EXPECT_EQ(measured->staleness, 0.75);
}

TEST_F(RunRecorderTest, WhoIsDownOrPausedIsNotWaitedFor) {
  recorder_.stopped(1, at(1));
  recorder_.paused(2, at(1));
  hand_in(0, 1, 1, 2);
  const auto measured = recorder_.take_measurement(at(2));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->nodes_up, 1U);
  EXPECT_FALSE(recorder_.rows()[1].distance);
  recorder_.resumed(2, at(3));
  hand_in(0, 3, 1, 4);
  EXPECT_FALSE(recorder_.take_measurement(at(4)));
}

// The last evaluation waits also for those that come back, and its lack of them is told.
TEST_F(RunRecorderTest, WhoIsPausedAtTheEndIsWaitedForUnlessItLeft) {
  recorder_.stopped(1, at(1));
  recorder_.paused(2, at(1));
  hand_in(0, 3, 1, 2);
  EXPECT_FALSE(recorder_.take_measurement(at(2)));
  recorder_.left(1);
  EXPECT_FALSE(recorder_.take_measurement(at(3)));
  recorder_.resumed(2, at(100));
  EXPECT_FALSE(recorder_.take_measurement(at(219)));
  ASSERT_TRUE(recorder_.take_measurement(at(220)));
  EXPECT_EQ(recorder_.unfinished()->message(),
            "1 of 3 peers did not finish, and the result is without them: node-3 is resumed at "
            "step 0");
}

TEST_F(RunRecorderTest, NothingIsLackingWhereAllThatCameBackHaveFinished) {
  recorder_.paused(2, at(1));
  hand_in(0, 3, 1, 2);
  hand_in(1, 3, 1, 2);
  recorder_.resumed(2, at(100));
  hand_in(2, 3, 1, 101);
  ASSERT_TRUE(recorder_.take_measurement(at(101)));
  EXPECT_FALSE(recorder_.unfinished());
}

TEST_F(RunRecorderTest, WhoIsLateIsLeftOutAtTheDeadline) {
  hand_in(0, 1, 1, 1);
  hand_in(1, 1, 1, 5);
  EXPECT_EQ(recorder_.next_deadline(), at(21));
  EXPECT_FALSE(recorder_.take_measurement(at(20)));
  const auto measured = recorder_.take_measurement(at(21));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->nodes_up, 2U);
  hand_in(2, 1, 1, 22);
  EXPECT_FALSE(recorder_.take_measurement(at(60))) << "too late";
}

TEST_F(RunRecorderTest, WhoIsBeyondAnEvaluationIsNotWaitedForThere) {
  hand_in(0, 1, 1, 1);
  hand_in(1, 1, 1, 1);
  hand_in(2, 2, 1, 1);
  const auto measured = recorder_.take_measurement(at(1));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->nodes_up, 2U);
  EXPECT_FALSE(recorder_.take_measurement(at(1)));
}

TEST_F(RunRecorderTest, TheLastWaitsAsLongAsAnybodyGetsOn) {
  hand_in(0, 3, 1, 1);
  hand_in(1, 3, 1, 1);
  EXPECT_FALSE(recorder_.take_measurement(at(100)));
  recorder_.reported(2, {.step = 6, .state = "training"}, at(100));
  EXPECT_FALSE(recorder_.take_measurement(at(219)));
  EXPECT_EQ(recorder_.next_deadline(), at(220));
  EXPECT_FALSE(recorder_.stalled(at(220))) << "there is a result without the third";
  const auto measured = recorder_.take_measurement(at(220));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->step, 8U);
  EXPECT_EQ(measured->nodes_up, 2U);
  EXPECT_TRUE(recorder_.complete());
}

TEST_F(RunRecorderTest, WithLittlePatienceTheResultOfTheOthersIsKept) {
  RunRecorder recorder(experiment_, pool_,
                       {.hand_in_deadline = seconds(20), .patience = seconds(10)},
                       {"node-1", "node-2", "node-3"}, at(0));
  for (Node node = 0; node < 3; ++node) recorder.started(node, at(0));
  for (const protocol::Exchange exchange : {1U, 3U}) {
    for (const Node node : {0U, 1U}) recorder.handed_in(node, exchange, model(1), at(1));
  }
  EXPECT_EQ(recorder.next_deadline(), at(11));
  ASSERT_TRUE(recorder.take_measurement(at(11)));
  const auto last = recorder.take_measurement(at(11));
  ASSERT_TRUE(last);
  EXPECT_EQ(last->nodes_up, 2U);
  EXPECT_TRUE(recorder.complete());
  EXPECT_TRUE(recorder.unfinished()->message().starts_with("1 of 3 peers did not finish"));
  EXPECT_EQ(std::move(recorder).result(at(12)).incomplete,
            "1 of 3 peers did not finish, and the result is without them: node-3 is starting at "
            "step 0");
}

TEST_F(RunRecorderTest, WhoReportsNothingIsSilentUntilItReports) {
  const auto report = [&](Node node, const std::string& state, int second) {
    protocol::PeerReport said;
    said.state = state;
    recorder_.reported(node, said, at(second));
  };
  EXPECT_TRUE(recorder_.take_silent(at(99)).empty()) << "none has begun to report";
  report(0, "training", 1);
  report(1, "training", 5);
  report(2, "finished", 1);
  EXPECT_TRUE(recorder_.take_silent(at(10)).empty());
  EXPECT_EQ(recorder_.take_silent(at(11)), std::vector<Node>{0});
  EXPECT_EQ(recorder_.rows()[0].state, "silent");
  EXPECT_TRUE(recorder_.take_silent(at(12)).empty()) << "once";
  report(0, "training", 100);
  EXPECT_EQ(recorder_.rows()[0].state, "training");
  ASSERT_TRUE(recorder_.stalled(at(125))) << "that it reports again is no progress";
  EXPECT_EQ(recorder_.take_silent(at(125)), (std::vector<Node>{0, 1}));
  recorder_.paused(1, at(126));
  recorder_.resumed(1, at(200));
  EXPECT_TRUE(recorder_.take_silent(at(211)).empty()) << "it has not reported since";
}

TEST_F(RunRecorderTest, CountersGoOnOverARestart) {
  const auto report = [&](std::uint64_t step, double loss, std::uint64_t bytes, int second) {
    recorder_.reported(0,
                       {.step = step,
                        .state = "training",
                        .loss = loss,
                        .loss_steps = 2,
                        .neighbours = 1,
                        .expected = 2,
                        .bytes_sent = bytes,
                        .bytes_received = 2 * bytes,
                        .messages = bytes / 10},
                       at(second));
  };
  report(2, 3.0, 100, 1);
  recorder_.stopped(0, at(2));
  report(9, 9.0, 9999, 2);  // was still under way
  recorder_.started(0, at(3));
  report(4, 1.0, 50, 4);
  const PeerRow& row = recorder_.rows()[0];
  EXPECT_EQ(row.state, "training");
  EXPECT_EQ(row.step, 4U);
  EXPECT_EQ(row.bytes_sent, 150U);
  EXPECT_EQ(row.bytes_received, 300U);
  EXPECT_EQ(row.loss, 1.0);
  for (Node node = 0; node < 3; ++node) hand_in(node, 3, 1, 5);
  const auto measured = recorder_.take_measurement(at(5));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->train_loss, 2.0);
  EXPECT_EQ(measured->bytes_sent, 150U);
  EXPECT_EQ(measured->messages, 15U);
}

TEST_F(RunRecorderTest, WhereNobodyGetsOnItSaysWho) {
  recorder_.reported(0, {.step = 8, .state = "finished"}, at(10));
  recorder_.reported(1, {.step = 5, .state = "waiting"}, at(10));
  recorder_.stopped(2, at(20));
  EXPECT_EQ(recorder_.next_deadline(), at(140));
  EXPECT_FALSE(recorder_.stalled(at(139)));
  const auto stalled = recorder_.stalled(at(140));
  ASSERT_TRUE(stalled);
  EXPECT_EQ(stalled->code(), "no-progress");
  EXPECT_EQ(stalled->message(), "no peer got on for 2m: node-2 is waiting at step 5");
  recorder_.reported(1, {.step = 5, .state = "waiting"}, at(141));
  EXPECT_TRUE(recorder_.stalled(at(141))) << "the same word again is no progress";
  recorder_.reported(1, {.step = 6, .state = "waiting"}, at(142));
  EXPECT_FALSE(recorder_.stalled(at(142)));
}

TEST_F(RunRecorderTest, TheResultIsOfTheLastModels) {
  for (Node node = 0; node < 3; ++node) hand_in(node, 1, 7, 1);
  ASSERT_TRUE(recorder_.take_measurement(at(1)));
  for (Node node = 0; node < 3; ++node) hand_in(node, 3, static_cast<float>(node), 2);
  ASSERT_TRUE(recorder_.take_measurement(at(2)));
  const SimulationResult result = std::move(recorder_).result(at(3));
  EXPECT_EQ(result.measurements.size(), 3U);
  EXPECT_EQ(result.totals.step, 8U);
  EXPECT_EQ(result.wall_seconds, 3);
  for (const float value : result.mean_model.values()) ASSERT_EQ(value, 1.0F);
}

// The digest is simulate's where the models are.
TEST_F(RunRecorderTest, TheDigestOfTheModelsIsSimulates) {
  const auto simulation = make_simulation(experiment_, pool_);
  ASSERT_TRUE(simulation->advance(8, 1e9));
  Measurer measurer(experiment_, pool_);
  const Measurement wanted = measurer.measure(*simulation);
  for (Node node = 0; node < 3; ++node) {
    const auto bytes = to_bytes(std::as_bytes(simulation->model(node)));
    recorder_.handed_in(node, 3, SharedBytes::own(bytes), at(1));
  }
  const auto measured = recorder_.take_measurement(at(1));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->eval_accuracy, wanted.eval_accuracy);
  EXPECT_EQ(measured->consensus_distance, wanted.consensus_distance);
  EXPECT_EQ(std::move(recorder_).result(at(1)).models, measurer.models_digest());
}

}  // namespace
}  // namespace starling::gossip
