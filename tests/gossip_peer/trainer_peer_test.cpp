// SPDX-License-Identifier: Apache-2.0
// Peers that train with a custom trainer: what becomes of a run while its trainer starts, fails or
// takes long. That their models are the simulation's, launch_network_test shows with processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/client/fake_trainer.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_cluster.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerCluster;

// Two peers, each with the script in one of its modes.
class TrainerPeers : public ::testing::Test {
 protected:
  TrainerPeers() : cluster_(testing::small_network("ring", 2)) {
    cluster_.experiment.options.model.kind = "external";
    cluster_.shorten_timeouts();
    cluster_.trainer = [this](std::size_t index) { return &trainers_[index]->host(); };
  }
  // Outlived by the peers' threads otherwise.
  ~TrainerPeers() override {
    for (std::size_t i = 0; i < cluster_.peers.size(); ++i) {
      if (cluster_.peers[i]->node) cluster_.stop(i);
      cluster_.peers[i]->node.reset();
    }
  }

  void start(const std::string& first, const std::string& second) {
    for (const std::string& mode : {first, second}) {
      trainers_.push_back(std::make_unique<client::FakeTrainer>(mode));
    }
    cluster_.start_all();
  }
  // Before which the second trainer waits at its start.
  void make_gate() const { ASSERT_EQ(::mkfifo(gate().c_str(), 0600), 0); }
  // Open from now on. For both ends, for this thread, on which the peers live, must not wait for a
  // reader.
  void open_gate() {
    gate_ = FileDescriptor(::open(gate().c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_GE(gate_.get(), 0);
  }
  std::filesystem::path gate() const { return trainers_[1]->directory.path() / "gate"; }
  const std::string& problem(std::size_t index) const {
    static const std::string kNone;
    return cluster_.peers[index]->last ? cluster_.peers[index]->last->problem : kNone;
  }

  std::vector<std::unique_ptr<client::FakeTrainer>> trainers_;
  FileDescriptor gate_;
  PeerCluster cluster_;
};

TEST_F(TrainerPeers, ATrainerThatDiesIsStartedAgainAndTheRunGoesOn) {
  start("honest", "dies");
  cluster_.publish(cluster_.roster(1));
  cluster_.run_until_finished();
  EXPECT_EQ(cluster_.log.count("node-02: the trainer ended with exit code 3"), 1U)
      << cluster_.log.all();
  EXPECT_EQ(cluster_.model(0).size(), 5U);
}

TEST_F(TrainerPeers, WhatTheTrainerSaysIsLoggedAndItIsAskedAgain) {
  cluster_.options.start_patience = std::chrono::milliseconds(300);
  start("honest", "error");
  cluster_.publish(cluster_.roster(1));
  cluster_.run_until(
      [&] { return cluster_.log.count("the trainer says: cam-7 has no rows; retrying in ") > 0; },
      "the trainer's word is in the log");
  cluster_.run_until([&] { return cluster_.peers[0]->node->peer().is_finished(); },
                     "the other goes on alone");
}

TEST_F(TrainerPeers, OneThatStartsSlowlyKeepsNeitherRosterNorEndWaiting) {
  start("honest", "starts-when-told");
  make_gate();
  cluster_.publish(cluster_.roster(1));
  const auto first = [&] {
    return cluster_.log.count("roster 1 of run run-1") == 2 &&
           trainers_[1]->log.count("starting") == 1;
  };
  cluster_.run_until(first, "both have the first roster and the second trainer starts");
  cluster_.publish(cluster_.roster(2));  // while it describes itself
  open_gate();
  cluster_.run_until_finished();
  EXPECT_EQ(cluster_.log.count("roster 2 of run run-1"), 2U) << cluster_.log.all();
}

TEST_F(TrainerPeers, StopsWhileItsTrainerStarts) {
  start("honest", "starts-when-told");
  make_gate();
  cluster_.publish(cluster_.roster(1));
  cluster_.run_until([&] { return cluster_.log.count("roster 1 of run run-1") == 2; },
                     "both have the roster");
  cluster_.stop(1);
}

TEST_F(TrainerPeers, ATaskThatTakesLongIsCancelledAtTheEnd) {
  start("honest", "cancellable");
  cluster_.publish(cluster_.roster(1));
  cluster_.run_until([&] { return trainers_[1]->log.count("waits for a cancel") > 0; },
                     "the task has begun");
  cluster_.stop(1);
  cluster_.peers[1]->node.reset();
  EXPECT_EQ(trainers_[1]->log.count("was killed"), 0U) << "it answered the cancel";
}

// Whatever it is at, the roster that follows is adopted at once.
class BusyTrainers : public TrainerPeers, public ::testing::WithParamInterface<const char*> {
 protected:
  void begin() {
    start("honest", GetParam());
    cluster_.publish(cluster_.roster(1));
    const bool complains = std::string_view(GetParam()).ends_with("error");
    cluster_.run_until(
        [&] {
          return complains ? !problem(1).empty()
                           : std::filesystem::exists(trainers_[1]->directory.path() / "misbehaved");
        },
        "the trainer is at it");
  }
};

TEST_P(BusyTrainers, LetAStoppedRunEnd) {
  begin();
  cluster_.publish(cluster_.stopped_roster(2));
  cluster_.run_until([&] { return cluster_.log.count("run run-1 was ended by its issuer") == 2; },
                     "both have ended the run");
}

TEST_P(BusyTrainers, LetTheRosterExpire) {
  begin();
  cluster_.clock.put_forward(std::chrono::hours(2));
  cluster_.run_until([&] { return cluster_.log.count("no peer is a member any more") == 2; },
                     "the roster has expired");
  cluster_.run_until([&] { return problem(1).starts_with("the roster expired"); }, "it says so");
}

TEST_P(BusyTrainers, LetAnotherRunBegin) {
  begin();
  cluster_.publish(cluster_.roster(2, {}, std::chrono::hours(1), "run-2"));
  cluster_.run_until([&] { return cluster_.log.count("roster 2 of run run-2") == 2; },
                     "both are in the other run");
}

INSTANTIATE_TEST_SUITE_P(Trainers, BusyTrainers,
                         ::testing::Values("initialize:error", "initialize:hangs", "fit:error",
                                           "fit:hangs"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase_if(name, [](char c) { return c == ':'; });
                           return name;
                         });

// A renewal is no other epoch, and what was prepared for the roster before holds.
TEST_F(TrainerPeers, RenewalsDoNotBeginThePreparationAgain) {
  start("honest", "initialize:error");
  cluster_.publish(cluster_.roster(1));
  cluster_.run_until([&] { return !problem(1).empty(); }, "the trainer is at it");
  for (int renewal = 0; renewal < 3; ++renewal) {
    cluster_.clock.put_forward(std::chrono::seconds(10));
    cluster_.publish(cluster_.roster(1));
  }
  cluster_.run_until([&] { return cluster_.log.count("retrying in 2") > 0; }, "it goes on");
  EXPECT_EQ(cluster_.log.count("roster 1 of run run-1"), 2U) << cluster_.log.all();
}

TEST_F(TrainerPeers, MeansAndPairsTrainWithThemToo) {
  cluster_.options.start_patience = std::chrono::milliseconds(300);
  for (const char* algorithm : {"all-reduce", "push-sum"}) {
    cluster_.experiment.options.algorithm.name = algorithm;
    if (trainers_.empty()) start("without-buffers", "fit:dies-always-without-buffers");
    cluster_.publish(
        cluster_.roster(algorithm[0] == 'a' ? 1 : 2, {}, std::chrono::hours(1), algorithm));
    cluster_.run_until(
        [&] { return problem(1).find("ended with exit code 1") != std::string::npos; },
        "the failure is named");
    cluster_.run_until([&] { return cluster_.peers[0]->last->step > 0; }, "the other goes on");
  }
}

TEST_F(TrainerPeers, RunsOfAnotherKindAreRefusedByName) {
  start("honest", "honest");
  cluster_.experiment.options.model.kind = "softmax-regression";
  cluster_.publish(cluster_.roster(1));
  cluster_.run_until([&] { return !problem(0).empty(); }, "it says why it does not begin");
  EXPECT_EQ(problem(0),
            "the run trains a built-in model, and this device has a trainer in place of data: "
            "start the run with model.kind = \"external\", or give the device [data] in edge.toml");
  cluster_.experiment.options.model.kind = "external";
  cluster_.experiment.options.algorithm.name = "detag";
  cluster_.publish(cluster_.roster(2));
  cluster_.run_until([&] { return problem(0).starts_with("detag would change"); },
                     "it says what the algorithm would do");
}

TEST(PeerNode, AnExternalRunNeedsATrainer) {
  PeerCluster cluster(testing::small_network("ring", 2));
  cluster.experiment.options.model.kind = "external";
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until(
      [&] { return cluster.peers[0]->last && !cluster.peers[0]->last->problem.empty(); },
      "it says why it does not begin");
  EXPECT_EQ(cluster.peers[0]->last->problem,
            "the run trains a model of the kind external, and this device has no program that "
            "does: name it in edge.toml, [trainer] command");
}

}  // namespace
}  // namespace starling::gossip
