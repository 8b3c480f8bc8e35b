// SPDX-License-Identifier: Apache-2.0
#include "tests/coordinator/test_federation.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "core/base/durable_file.h"
#include "core/client/abilities.h"
#include "core/enrol/join.h"

namespace starling::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 60s;

// The built-in trainer behind the gate.
class GatedTrainer final : public client::Trainer {
 public:
  GatedTrainer(std::string client, client::ClientData data, Gate& gate)
      : client_(client), trainer_(client, std::move(data), cache_), gate_(gate) {}

  Result<client::TrainingReport> train(const client::TrainingRequest& request,
                                       std::span<float> parameters,
                                       const train::TrainingHooks<float>& hooks,
                                       const std::atomic<bool>& stop) override {
    gate_.count(client_, request.round);
    gate_.pass(client_, request.round);
    return trainer_.train(request, parameters, hooks, stop);
  }
  Result<train::Evaluation> evaluate(const client::TrainingRequest& request,
                                     std::span<const float> parameters,
                                     const std::atomic<bool>& stop) override {
    return trainer_.evaluate(request, parameters, stop);
  }

 private:
  std::string client_;
  client::TrainerCache cache_;
  client::BuiltinTrainer trainer_;
  Gate& gate_;
};

net::Async<void> stop_and_leave(coordinator::CoordinatorService& service, net::EventLoop& loop) {
  co_await service.stop();
  loop.stop();
}

}  // namespace

// --- log and gate -------------------------------------------------------------------------------

void SharedLog::write(LogLevel, std::string_view line) {
  const std::lock_guard lock(mutex_);
  lines_.emplace_back(line);
  arrived_.notify_all();
}

std::size_t SharedLog::count(std::string_view part) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(
      lines_, [&](const std::string& line) { return line.find(part) != line.npos; }));
}

void SharedLog::wait_for(std::string_view part) {
  std::unique_lock lock(mutex_);
  const auto said = [&] {
    return std::ranges::any_of(
        lines_, [&](const std::string& line) { return line.find(part) != line.npos; });
  };
  EXPECT_TRUE(arrived_.wait_for(lock, kPatience, said)) << "nobody said: " << part << "; but:\n"
                                                        << ::testing::PrintToString(lines_);
}

void Gate::close(const std::string& client, Round from) {
  const std::lock_guard lock(mutex_);
  closed_[client] = from;
  changed_.notify_all();
}

void Gate::close_from(Round round) {
  const std::lock_guard lock(mutex_);
  closed_from_ = round;
}

void Gate::open_all() {
  const std::lock_guard lock(mutex_);
  closed_.clear();
  closed_from_ = std::numeric_limits<Round>::max();
  changed_.notify_all();
}

void Gate::pass(const std::string& client, Round round) {
  std::unique_lock lock(mutex_);
  const auto open = [&] {
    const auto closed = closed_.find(client);
    return round < closed_from_ && (closed == closed_.end() || round < closed->second);
  };
  changed_.wait(lock, open);
}

void Gate::count(const std::string& client, Round round) {
  const std::lock_guard lock(mutex_);
  ++trainings_[{client, round}];
  ++begun_;
  changed_.notify_all();
}

std::map<std::pair<std::string, Round>, int> Gate::trainings() const {
  const std::lock_guard lock(mutex_);
  return trainings_;
}

void Gate::wait_for_trainings(std::size_t count) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return begun_ >= count; }));
}

void Gate::wait_for_training(const std::string& client, Round round) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] {
    return trainings_.contains({client, round});
  }));
}

// --- devices ------------------------------------------------------------------------------------

TestDevice::TestDevice(std::filesystem::path state, client::ClientData data, Gate& gate, Log& log)
    : state_{std::move(state)},
      identity_(identity::IdentityDirectory::load(state_.identity()).value()),
      pending_(edge_client::pending_files(disk_, state_)) {
  const std::string name = identity_.identity().name;
  edge_client::EdgeSession::Options options;
  options.client.rows = data.training.size();
  if (data.held_out) options.client.held_out = data.held_out->size();
  options.client.abilities =
      client::abilities_of(strategy::builtin_strategies(), data.held_out.has_value());
  options.client.backoff = {.minimum = 2ms, .maximum = 20ms};
  options.stop_deadline = 1s;
  edge_client::Trainers trainers;
  trainers.push_back(std::make_unique<GatedTrainer>(name, std::move(data), gate));
  const Rng backoff({.seed = 1, .purpose = Purpose::kBackoff, .node = hash_name(name)});
  session_ = std::make_unique<edge_client::EdgeSession>(
      edge_client::EdgeSession::World{loop_, clock_, log, state_, identity_, pending_}, options,
      backoff, pending_.load(log).value(), std::move(trainers));
  thread_ = std::jthread([this] {
    const auto ended = net::run_task(loop_, session_->run());
    EXPECT_TRUE(ended) << ended.error().message();
  });
}

TestDevice::~TestDevice() {
  loop_.post([this] { session_->request_stop(); });
  thread_.join();
}

// --- federation ---------------------------------------------------------------------------------

TestFederation::TestFederation() : state_(directory_.path() / "coordinator") {
  const auto made = coordinator::init_state_directory(
      state_.root(), {.federation = "test", .listen = "127.0.0.1:7443"}, clock);
  EXPECT_TRUE(made) << made.error().message();
  settings_.service.listen = "127.0.0.1:0";
  settings_.service.names = "127.0.0.1";
  settings_.service.threads = 1;
  settings_.service.goodbye = 500ms;
}

TestFederation::~TestFederation() {
  gate.open_all();
  devices_.clear();
  if (service_) stop_service();
}

void TestFederation::start_service() {
  loop_ = std::make_unique<net::EventLoop>();
  tasks_ = std::make_unique<net::TaskGroup>(*loop_);
  auto service = coordinator::CoordinatorService::start(
      *loop_, clock, log, state_, settings_,
      [](const Error& error) { ADD_FAILURE() << error.message(); });
  ASSERT_TRUE(service) << service.error().message();
  service_ = std::move(*service);
  port_ = service_->port();
  settings_.service.listen = "127.0.0.1:" + std::to_string(port_);  // after a restart too
  thread_ = std::jthread([this] { loop_->run(); });
}

void TestFederation::stop_service() {
  loop_->post([this] { tasks_->spawn(stop_and_leave(*service_, *loop_)); });
  thread_.join();
  service_.reset();
  tasks_.reset();
  loop_.reset();
}

std::unique_ptr<coordinator::OperatorClient> TestFederation::connect_operator() {
  auto client = coordinator::OperatorClient::connect(state_.root(), clock);
  EXPECT_TRUE(client) << client.error().message();
  return client ? std::move(*client) : nullptr;
}

Result<boost::json::value> TestFederation::ask(const std::string& command, Settings arguments,
                                               std::string_view payload) {
  return connect_operator()->ask(command, std::move(arguments), payload);
}

std::string TestFederation::refusal(const std::string& command, Settings arguments,
                                    std::string_view payload) {
  const auto answer = ask(command, std::move(arguments), payload);
  return answer ? "answered" : answer.error().code();
}

std::string TestFederation::wait_for_end(const std::string& run) {
  const auto client = connect_operator();
  const auto followed = client->stream(
      "run-log", {{"id", run}, {"follow", "true"}}, {}, [](ByteView) { return Result<void>(); },
      client->now() + kPatience);
  EXPECT_TRUE(followed) << followed.error().message();
  return client->ask("run-state", {{"id", run}}).value().at("state").get_string().c_str();
}

std::vector<std::string> TestFederation::models(const std::string& run) {
  std::vector<std::string> hashes;
  const boost::json::value shown = ask("run-show", {{"id", run}}).value();
  for (const auto& round : shown.at("rounds").get_array()) {
    const auto& hash = round.at("model_sha256");
    if (hash.is_string()) hashes.emplace_back(hash.get_string().c_str());
  }
  return hashes;
}

std::filesystem::path TestFederation::join(const std::string& name, const std::string& role,
                                           const std::string& address) {
  Settings arguments = {{"client", name}, {"role", role}};
  if (!address.empty()) arguments.emplace_back("address", address);
  const auto answer = ask("token-new", arguments).value();
  const auto token = identity::JoinToken::parse(answer.at("token").get_string().c_str()).value();
  auto state = directory_.path() / name;
  EXPECT_TRUE(make_directory(state));
  net::EventLoop loop;
  const enrol::JoinOptions options{.roles = {identity::parse_role(role).value()}};
  const auto joined =
      net::run_task(loop, enrol::join(loop, token, state / "identity", clock, options));
  EXPECT_TRUE(joined) << joined.error().message();
  return state;
}

void TestFederation::start_device(const std::string& name, client::ClientData data) {
  devices_.push_back(std::make_unique<TestDevice>(join(name), std::move(data), gate, log));
}

}  // namespace starling::testing
