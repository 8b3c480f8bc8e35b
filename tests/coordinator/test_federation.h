// SPDX-License-Identifier: Apache-2.0
// A federation in a test: the coordinator's service with its state directory and devices that run
// the device's own session, all in this process, each on a thread, over real sockets and mutual
// TLS on 127.0.0.1.
#pragma once

#include <atomic>
#include <boost/json/value.hpp>
#include <condition_variable>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/commands/operator_client.h"
#include "coordinator/service/coordinator_service.h"
#include "core/client/local_trainer.h"
#include "core/identity/identity_directory.h"
#include "edge_client/edge_session.h"
#include "edge_client/pending_files.h"
#include "tests/support/shifted_clock.h"
#include "tests/support/temporary_directory.h"

namespace starling::testing {

// Lines of any thread, and waiting for one.
class SharedLog final : public Log {
 public:
  void write(LogLevel level, std::string_view line) override;
  // Fails the test where no line holds `part` within a minute.
  void wait_for(std::string_view part);
  std::size_t count(std::string_view part) const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::string> lines_;
};

// Holds trainings back, and counts them by client and round.
class Gate {
 public:
  // From this round on; replaces what was said of the client before.
  void close(const std::string& client, Round from = 0);
  // For everybody, from this round on.
  void close_from(Round round);
  void open_all();
  // Returns once the client may go on.
  void pass(const std::string& client, Round round);
  void count(const std::string& client, Round round);
  std::map<std::pair<std::string, Round>, int> trainings() const;
  // Until so many trainings have begun.
  void wait_for_trainings(std::size_t count);
  // Until the client has begun its training for the round.
  void wait_for_training(const std::string& client, Round round);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Round> closed_;
  Round closed_from_ = std::numeric_limits<Round>::max();
  std::map<std::pair<std::string, Round>, int> trainings_;
  std::size_t begun_ = 0;
};

class TestDevice {
 public:
  TestDevice(std::filesystem::path state, client::ClientData data, Gate& gate, Log& log);
  ~TestDevice();

 private:
  SystemClock clock_;
  edge_client::StateDirectory state_;
  identity::IdentityDirectory identity_;
  SystemDisk disk_;
  client::PendingStore pending_;
  net::EventLoop loop_;
  std::unique_ptr<edge_client::EdgeSession> session_;
  std::jthread thread_;
};

class TestFederation {
 public:
  TestFederation();
  ~TestFederation();

  void start_service();
  void stop_service();
  const coordinator::StateDirectory& state() const { return state_; }
  // Of the next start.
  coordinator::CoordinatorSettings& settings() { return settings_; }
  std::uint16_t port() const { return port_; }

  // An operator's request over its own connection.
  Result<boost::json::value> ask(const std::string& command, Settings arguments = {},
                                 std::string_view payload = {});
  std::string refusal(const std::string& command, Settings arguments = {},
                      std::string_view payload = {});
  std::unique_ptr<coordinator::OperatorClient> connect_operator();
  // The run's state once it has ended.
  std::string wait_for_end(const std::string& run);
  // model_sha256 of every committed round.
  std::vector<std::string> models(const std::string& run);

  // Joins by a token; returns where the device keeps its identity.
  std::filesystem::path join(const std::string& name, const std::string& role = "device",
                             const std::string& address = "");
  void start_device(const std::string& name, client::ClientData data);
  void stop_devices() { devices_.clear(); }

  Gate gate;
  SharedLog log;
  ShiftedClock clock;

 private:
  TemporaryDirectory directory_;
  coordinator::StateDirectory state_;
  coordinator::CoordinatorSettings settings_;
  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<net::TaskGroup> tasks_;
  std::unique_ptr<coordinator::CoordinatorService> service_;
  std::jthread thread_;
  std::uint16_t port_ = 0;
  std::vector<std::unique_ptr<TestDevice>> devices_;
};

}  // namespace starling::testing
