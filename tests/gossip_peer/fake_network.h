// SPDX-License-Identifier: Apache-2.0
// protocols without sockets, threads or clocks: links that come and go in virtual time, and all
// that is sent over one arrives in order or dies with it. The same seed gives the same run.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/base/rng.h"
#include "gossip/peer/local_steps.h"
#include "gossip/peer/make_protocol.h"
#include "gossip/simulation/experiment.h"

namespace starling::testing {

// Requires: options that can run.
gossip::Experiment prepared(const gossip::NetOptions& options);

class FakeNetwork {
 public:
  using Member = protocol::Member;

  class Peer final : public gossip::ProtocolHost {
   public:
    Peer(FakeNetwork& network, Member self) : network_(network), self_(self) {}

    TimePoint now() const override { return network_.now; }
    void send(Member to, protocol::VectorTransfer transfer, SharedBytes data) override;
    void send(Member to, protocol::ReduceNote note) override;
    void compute(std::function<void()> work, std::function<void()> done) override;
    void train(std::uint64_t step, std::function<void()> work, std::function<void()> done) override;
    void copy_model(std::vector<Member> donors, gossip::ModelCopy::Patience patience) override;
    void say(LogLevel, std::string line) override { said.push_back(std::move(line)); }
    void advanced() override;
    bool is_leaving() const override { return run != network_.run_now_; }
    void finished() override { ++finishes; }
    void failed(Error error) override { failure = std::move(error); }

    std::unique_ptr<gossip::LocalSteps> local;
    std::unique_ptr<gossip::TrainingProtocol> training;  // null: not running
    std::uint64_t life = 0;
    Duration phase = std::chrono::milliseconds(10);  // on average
    std::optional<Duration> mixing;                  // and all that is no training; none: phase
    std::vector<std::string> said;
    int advances = 0;
    std::vector<float> mixed;               // the model when it advanced last
    int copies = 0;                         // asked for
    std::optional<Duration> copy_patience;  // of the last one
    int models_taken = 0;                   // of these: a donor had one to give
    int minorities_taken = 0;               // of these: a minority's that rests on less
    int finishes = 0;
    std::uint64_t computations = 0;           // local phases and mixings
    const gossip::NetworkRun* run = nullptr;  // of the epoch that it is in
    std::uint64_t trained_before = 0;         // steps, in earlier epochs
    std::optional<Error> failure;

   private:
    friend class FakeNetwork;
    void answer_copy(const std::vector<Member>& donors, std::uint64_t mine, int tries_left);
    void carry(Member to, std::function<void(gossip::TrainingProtocol&)> arrive);
    void compute_for(Duration mean, const std::function<void()>& work, std::function<void()> done);

    FakeNetwork& network_;
    Member self_;
  };

  FakeNetwork(const gossip::NetOptions& options, std::uint64_t seed);

  // A process with this incarnation; without a start, from the initial model. Not linked yet.
  void start(Member member, std::uint32_t incarnation,
             std::optional<gossip::ProtocolStart> start = std::nullopt);
  void stop(Member member);  // at once, and its links with it
  void connect(Member a, Member b);
  void connect_all();  // all that run
  void cut(Member a, Member b);
  // The cable of these is pulled: for so long nothing passes between them and the others, whose
  // links look whole, and what is sent waits, as with TCP. Failure detection finds out one by one.
  void pull(const std::set<Member>& members, Duration away);
  void at(TimePoint time, std::function<void()> event);
  // Another epoch, with a member more that is never started. Whoever runs goes on in it once it
  // computes nothing, as a peer does, and greets the others then.
  void join_without_starting();
  std::uint64_t trained(Member member) const;  // steps in this life, over all epochs

  // The next event. False: nothing will ever happen again.
  bool advance();
  // Fails the test after `events_max` events.
  void run_until(const std::function<bool()>& done, std::uint64_t events_max = 200'000);
  void run_to_rest() {
    run_until([] { return false; });
  }

  gossip::Experiment experiment;
  gossip::NetworkRun run;
  Rng rng;
  TimePoint now{};
  std::vector<std::unique_ptr<Peer>> peers;
  gossip::ProtocolPatience patience;
  std::set<Member> absent;  // as whoever is started next is told
  // Sees all that is sent over a link that is up.
  std::function<void(Member from, Member to, const protocol::VectorTransfer&)> on_send;
  // Where set: what is sent instead of the data.
  std::function<SharedBytes(Member from, SharedBytes data)> falsify;

 private:
  struct Link {
    std::uint64_t generation = 0;
    bool up = false;
    TimePoint busy_until{};  // of what was sent last
  };
  Link& link(Member from, Member to) { return links_[{from, to}]; }
  void make_protocol(Member member, gossip::ProtocolStart start);
  protocol::PeerHello hello_of(Member member) const;
  void adopt(Member member);

  std::vector<std::unique_ptr<gossip::NetworkRun>> later_runs_;  // of later epochs
  const gossip::NetworkRun* run_now_;
  std::map<std::pair<Member, Member>, Link> links_;
  std::set<Member> pulled_;
  TimePoint plugged_in_{};
  std::multimap<TimePoint, std::function<void()>> events_;
};

}  // namespace starling::testing
