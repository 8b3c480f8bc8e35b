// SPDX-License-Identifier: Apache-2.0
// A network of real peers in one process: an authority, a state directory each, sockets on
// 127.0.0.1, one event loop. Waits end with an event, never with time alone.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/identity/certificate_authority.h"
#include "core/net/alarm.h"
#include "core/net/task_group.h"
#include "gossip/peer/peer_node.h"
#include "gossip/simulation/experiment.h"
#include "tests/support/shifted_clock.h"
#include "tests/support/temporary_directory.h"

namespace starling::testing {

class PeerCluster {
 public:
  struct Peer {
    std::string name;
    std::filesystem::path directory;
    std::unique_ptr<identity::IdentityDirectory> identity;
    std::unique_ptr<net::TaskGroup> running;
    std::unique_ptr<gossip::PeerNode> node;  // null: not running
    std::uint16_t port = 0;
    std::optional<protocol::PeerReport> last;
    std::uint64_t trained = 0;  // steps, by all reports
    std::vector<std::pair<protocol::WholeModel, std::vector<float>>> models;  // handed in
    std::vector<std::uint64_t> step_known;  // of each of them: the step last reported before
  };

  // What is said at info and above, by everybody.
  class Lines final : public Log {
   public:
    void write(LogLevel level, std::string_view line) override;
    std::size_t count(std::string_view part) const;
    std::string all() const;

   private:
    mutable std::mutex mutex_;  // disks speak too
    std::vector<std::string> lines_;
  };

  // As many peers as the options have nodes, named node-01, node-02, ...; `experiment` is what a
  // simulation of the same options would run.
  explicit PeerCluster(const gossip::NetOptions& options, bool lossy = false);
  ~PeerCluster();

  // Peers that start from now on do not wait long for who is gone.
  void shorten_timeouts();
  // With the port of its former life, if it had one.
  void start(std::size_t index);
  void stop(std::size_t index);  // in good order
  void start_all();
  // A roster of these peers (all, where empty), taken by everybody that runs.
  identity::SignedRoster roster(std::uint64_t epoch, std::vector<std::size_t> members = {},
                                Duration lifetime = std::chrono::hours(1),
                                const std::string& run = "run-1") const;
  identity::SignedRoster stopped_roster(std::uint64_t epoch) const;  // of the same
  void publish(const identity::SignedRoster& roster);

  // Runs the loop until `done` holds, asked every two milliseconds; fails the test after a minute.
  void run_until(const std::function<bool()>& done, const std::string& what);
  void run_until_finished();
  template <typename T>
  T run_until_ready(std::future<T>& future, const std::string& what) {
    using namespace std::chrono_literals;
    run_until([&] { return future.wait_for(0s) == std::future_status::ready; }, what);
    return future.get();
  }
  std::vector<float> model(std::size_t index) const;  // of the last hand-in

  net::EventLoop loop;
  ShiftedClock clock;
  Lines log;
  std::vector<std::unique_ptr<Peer>> peers;
  gossip::Experiment experiment;
  gossip::PeerNode::Options options;  // of peers that start from now on
  identity::CertificateAuthority authority;
  std::string run_id;               // of rosters that are made from now on; empty: none
  std::set<std::size_t> undialled;  // they do not listen, and have no address in the roster
  // What a peer trains with, of peers that start from now on; null: its part of the data.
  std::function<client::TrainerHost*(std::size_t index)> trainer;
  // The link of a peer with its issuer, of peers that start from now on.
  std::function<gossip::RelayLine::Carrier(const std::string& name)> relay;

 private:
  net::Async<void> wait_for(std::function<bool()> done);

  bool lossy_;
  identity::Credentials issuer_;
  TemporaryDirectory directory_;
  bool timed_out_ = false;
};

// The models of a simulation of the same experiment after all its steps.
std::vector<std::vector<float>> simulated_models(const gossip::Experiment& experiment);

}  // namespace starling::testing
