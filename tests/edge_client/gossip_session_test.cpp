// SPDX-License-Identifier: Apache-2.0
// A device as a gossip peer and the link to its roster's issuer, which comes and goes: a network of
// one, so that there is nobody to wait for.
#include "edge_client/gossip_session.h"

#include <gtest/gtest.h>

#include "core/issuer/roster_parts.h"
#include "gossip/peer/network_run.h"
#include "tests/edge_client/edge_fixture.h"
#include "tests/edge_client/scripted_coordinator.h"
#include "tests/identity/earlier_roster.h"
#include "tests/support/temporary_directory.h"

namespace starling::edge_client {
namespace {

using protocol::VectorTransfer;
using protocol::WholeModel;

constexpr std::uint64_t kSteps = 4;

class GossipSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    session.set_on_report([this] { reports.push(1); });
    ASSERT_TRUE(session.start());
    running_.spawn(session.run());
  }
  void TearDown() override {
    session.request_stop();
    federation.loop.run_task(running_.wait());
  }

  identity::SignedRoster roster(gossip::NetOptions net = {}, protocol::Epoch epoch = 1) const {
    net.topology.spec = "ring";
    net.topology.nodes = 1;
    net.data.dataset = testing::kRows;
    net.run.steps = kSteps;
    if (net.evaluate.every == 0) net.evaluate.every = kSteps;
    net.train.train.batch_size = 8;
    identity::Roster roster{.federation = "kitchen", .run = "run-1", .epoch = epoch};
    roster.issued = testing::kNow;
    roster.expires = testing::kNow + std::chrono::hours(1);
    roster.settings = gossip::run_settings(net, true);
    roster.members = {{"cam-7", self_->credentials().certificate.public_key_digest(), ""}};
    return *identity::SignedRoster::sign(roster, issuer_);
  }
  void train_to_the_end() { train_to_the_end(roster()); }
  void train_to_the_end(const identity::SignedRoster& of) {
    session.peer().take_roster(of, gossip::PeerShell::Source::kOther);
    federation.loop.run_task(wait_for_end());
  }
  // Models that were announced over the link from `first` on.
  std::vector<VectorTransfer> announced(std::size_t first = 0) const {
    std::vector<VectorTransfer> found;
    for (std::size_t i = first; i < sent.size(); ++i) {
      const auto* transfer = std::get_if<VectorTransfer>(&sent[i].message);
      if (transfer != nullptr) found.push_back(*transfer);
    }
    return found;
  }

  testing::Loopback federation;
  testing::Mailbox<int> reports{federation.loop};
  std::vector<protocol::Envelope> sent;

 private:
  net::Async<void> wait_for_end() {
    while (!session.peer().is_finished()) {
      const int reported = co_await reports.next();
      static_cast<void>(reported);
    }
  }
  static gossip::PeerNode::Options options(const StateDirectory& state) {
    gossip::PeerNode::Options options;
    options.directory = state.gossip();
    options.report_every = std::chrono::milliseconds(5);
    return options;
  }

  const testing::TemporaryDirectory directory_;
  const StateDirectory state_{directory_.path()};
  testing::FixedClock clock_{testing::kNow};
  testing::RecordingLog log_;
  const identity::Credentials issuer_ = *federation.authority.issue_credentials(
      {.role = identity::Role::kIssuer, .name = "coordinator"}, testing::kNow);
  std::optional<identity::IdentityDirectory> self_ = [this] {
    EXPECT_TRUE(identity::IdentityDirectory::save(state_.identity(), federation.device(),
                                                  {"127.0.0.1", 1}));
    return *identity::IdentityDirectory::load(state_.identity());
  }();
  net::TaskGroup running_{federation.loop};

 protected:
  GossipSession session{
      {federation.loop, clock_, log_, state_, *self_},
      options(state_),
      {.rows = testing::tiny_data()},
      {.send = [this](const protocol::Envelope& envelope) { sent.push_back(envelope); },
       .queued_bytes = [] { return std::size_t{0}; }}};
};

// A service that has no update yet.
TEST_F(GossipSessionTest, WhatACoordinatorsServerSignedIsNotTakenFromIt) {
  session.link_up();
  const auto send = [this](const identity::SignedRoster& sent_roster) {
    for (const protocol::Envelope& part : issuer::roster_parts(sent_roster, {})) {
      EXPECT_TRUE(session.take(part));
    }
  };
  const std::string text = testing::signed_again(roster(), federation.coordinator);
  send(*identity::SignedRoster::verify(as_bytes(text),
                                       std::span(&federation.authority.certificate(), 1), "kitchen",
                                       identity::RosterOrigin::kOwnDisk));
  EXPECT_EQ(session.peer().roster(), nullptr);
  send(roster());
  EXPECT_NE(session.peer().roster(), nullptr);
}

TEST_F(GossipSessionTest, AModelOfWhileThereWasNoLinkIsHandedInOverTheNext) {
  train_to_the_end();
  EXPECT_TRUE(sent.empty());
  session.link_up();
  const auto models = announced();
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(std::get<WholeModel>(models[0].content).step, kSteps);
  // The issuer hears of the steps before.
  ASSERT_GE(sent.size(), 2U);
  ASSERT_TRUE(std::holds_alternative<protocol::PeerReport>(sent[1].message));
  EXPECT_EQ(std::get<protocol::PeerReport>(sent[1].message).state, "finished");
  EXPECT_TRUE(std::holds_alternative<protocol::Chunk>(sent.back().message));
}

TEST_F(GossipSessionTest, AModelIsHandedInAgainUntilTheIssuerAnswers) {
  session.link_up();
  train_to_the_end();
  ASSERT_FALSE(announced().empty());
  session.link_down();
  std::size_t seen = sent.size();
  session.link_up();
  ASSERT_EQ(announced(seen).size(), 1U) << "the link broke before the answer";
  TaskId transfer = announced(seen)[0].id;
  session.take({protocol::TaskEnded{transfer, "too-many-models", "try again later"}, {}});
  session.link_down();
  seen = sent.size();
  session.link_up();
  ASSERT_EQ(announced(seen).size(), 1U) << "the issuer was busy";
  transfer = announced(seen)[0].id;
  session.take({protocol::UpdateReceived{transfer}, {}});
  session.link_down();
  seen = sent.size();
  session.link_up();
  EXPECT_TRUE(announced(seen).empty());
}

TEST_F(GossipSessionTest, AnAnswerAboutAModelOfAnEarlierEpochIsNotAboutThisOne) {
  gossip::NetOptions net;
  net.model.kind = "mlp";
  net.model.hidden = {600, 600};  // more than a window, so that one waits for the other
  net.evaluate.every = kSteps / 2;
  session.link_up();
  train_to_the_end(roster(net));
  train_to_the_end(roster(net, 2));
  ASSERT_EQ(announced().size(), 1U) << "of the evaluation before the end";
  std::vector<VectorTransfer> models;
  for (models = announced(); models.back().epoch == 1; models = announced()) {
    ASSERT_LT(models.size(), 9U);
    session.take({protocol::TaskEnded{models.back().id, "model-unwanted", "not wanted"}, {}});
  }
  ASSERT_GE(models.size(), 3U);
  EXPECT_EQ(models.back().content, models[models.size() - 2].content);
  session.link_down();
  const std::size_t seen = sent.size();
  session.link_up();
  ASSERT_EQ(announced(seen).size(), 1U);
  EXPECT_EQ(announced(seen)[0].epoch, 2U);
}

}  // namespace
}  // namespace starling::edge_client
