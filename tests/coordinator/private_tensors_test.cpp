// SPDX-License-Identifier: Apache-2.0
// What a trainer keeps to itself, by the bytes of all messages between a federation's processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "coordinator/simulation/federation_simulator.h"
#include "core/base/durable_file.h"
#include "core/client/abilities.h"
#include "core/client/process_trainer.h"
#include "core/model/external_model.h"
#include "core/model/safetensors.h"
#include "core/store/sqlite_store.h"
#include "core/wire/codec.h"
#include "tests/client/fake_trainer.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

constexpr Round kRounds = 3;
const std::vector<std::string> kClients = {"cam-1", "cam-2", "cam-3"};

// Ends the trainer's process before each training, where it is told to.
class RestartedTrainer final : public client::ProcessTrainer {
 public:
  RestartedTrainer(const std::string& name, client::TrainerHost& host, bool restarts)
      : ProcessTrainer(name, host), host_(host), restarts_(restarts) {}
  Result<client::TrainingReport> train(const client::TrainingRequest& request,
                                       std::span<float> parameters,
                                       const train::TrainingHooks<float>& hooks,
                                       const std::atomic<bool>& stop) override {
    if (restarts_) host_.stop();
    return ProcessTrainer::train(request, parameters, hooks, stop);
  }

 private:
  client::TrainerHost& host_;
  bool restarts_;
};

struct Federation {
  Bytes sent;                          // all messages, as the wire has them
  std::vector<float> last;             // the model after the last round
  std::vector<std::string> models;     // SHA-256, by round
  std::map<std::string, Bytes> heads;  // by client: every value that its head had, as float32
  std::size_t starts = 0;              // of the trainer's process
};

Federation run_federation(bool restarts) {
  const testing::TemporaryDirectory directory;
  const auto initial = directory.path() / "initial.safetensors";
  model::Parameters start(model::external_layout({{.name = "w", .shape = {4}}}).value());
  for (std::size_t i = 0; i < start.size(); ++i)
    start.values()[i] = 0.3F / (static_cast<float>(i) + 1);
  EXPECT_TRUE(model::write_safetensors(initial, start));
  Job job;
  job.training.model.kind = "external";
  job.training.model.initial = initial.string();
  job.job.rounds = kRounds;
  job.round.cohort = job.round.min_updates = static_cast<int>(kClients.size());
  job.evaluate.federated_every = 1;

  client::TrainerLog log;
  const auto script = testing::source_root() / "tests" / "coordinator" / "private_trainer.py";
  client::TrainerHost host({.trainer = {.command = {"python3", "-B", script.string()}},
                            .directory = directory.path() / "own",
                            .client = "cam-1",
                            .pause_min = Duration::zero()},
                           log);
  const std::atomic<bool> never = false;
  const auto description = host.describe("{}", never);
  EXPECT_TRUE(description) << description.error().message();
  Federation federation;
  if (!description) return federation;
  EXPECT_EQ(*description->layout, *start.layout());
  EXPECT_EQ(description->private_tensors,
            (std::vector<client::PrivateTensor>{{"head", {6}, "float32"}}));

  FederationSimulator::Options options;
  options.trainers = {
      .make = [&](const std::string& name,
                  unsigned) { return std::make_unique<RestartedTrainer>(name, host, restarts); },
      .abilities = client::abilities_of(strategy::builtin_strategies(), *description)};
  FederationSimulator::Hooks hooks;
  hooks.on_message = [&](const protocol::Envelope& envelope) {
    const Bytes header = wire::encode_header(envelope.message).value();
    const ByteView payload = envelope.payload.view();
    federation.sent.insert(federation.sent.end(), header.begin(), header.end());
    federation.sent.insert(federation.sent.end(), payload.begin(), payload.end());
  };
  const SystemClock clock;
  const auto store = store::open_store_in_memory();
  FederationSimulator simulator(*store, clock, std::move(options), std::move(hooks));
  for (const std::string& name : kClients) simulator.add_client(name, {});
  const auto id = simulator.run(prepare_run(job, nullptr).value(), {});
  EXPECT_TRUE(id) << (id ? "" : id.error().message());
  if (!id) return federation;
  for (const auto& round : store->rounds(*id, 1).value()) {
    if (round.model) federation.models.push_back(round.model->hex());
  }
  const auto file = std::filesystem::path("models") / "1" / std::to_string(kRounds);
  const auto last =
      model::load_external_model(simulator.disk_of("coordinator"), file.string() + ".safetensors");
  EXPECT_TRUE(last) << last.error().message();
  if (last) federation.last.assign(last->values().begin(), last->values().end());
  for (const std::string& name : kClients) {
    const auto history = directory.path() / "own" / (name + ".history");
    federation.heads[name] = read_file(history, 1 << 20).value();
  }
  host.stop();
  federation.starts = log.count("trainer: started");
  return federation;
}

template <class Number>
bool contains(const Bytes& sent, Number number) {
  std::array<std::byte, sizeof number> pattern{};
  std::memcpy(pattern.data(), &number, sizeof number);
  return !std::ranges::search(sent, pattern).empty();
}

std::vector<float> floats_of(const Bytes& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

TEST(PrivateTensors, NoValueOfThemIsInAnyMessage) {
  const Federation federation = run_federation(false);
  ASSERT_EQ(federation.models.size(), kRounds);
  ASSERT_EQ(federation.last.size(), 4U);
  for (const float value : federation.last) {
    EXPECT_TRUE(contains(federation.sent, value)) << "what travels is seen";
  }
  for (const auto& [name, history] : federation.heads) {
    const std::vector<float> values = floats_of(history);
    constexpr std::size_t kTargets = 6;
    ASSERT_EQ(values.size(), (kRounds + 1) * kTargets) << name << " trained in every round";
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_FALSE(contains(federation.sent, values[i])) << name << ", " << values[i];
      EXPECT_FALSE(contains(federation.sent, static_cast<double>(values[i])));
      if (i < kTargets) continue;
      const float step = values[i] - values[i - kTargets];
      EXPECT_NE(step, 0) << name << " trains its head";
      EXPECT_FALSE(contains(federation.sent, step)) << name << ", a step of " << step;
    }
  }
}

TEST(PrivateTensors, SurviveRestartsOfTheTrainer) {
  const Federation undisturbed = run_federation(false);
  const Federation restarted = run_federation(true);
  EXPECT_EQ(undisturbed.starts, 1U);
  EXPECT_EQ(restarted.starts, 1 + kRounds * kClients.size());
  EXPECT_EQ(restarted.models, undisturbed.models);
  EXPECT_EQ(restarted.heads, undisturbed.heads);
}

}  // namespace
}  // namespace starling::coordinator
