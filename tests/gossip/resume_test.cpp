// SPDX-License-Identifier: Apache-2.0
// A simulation that was stopped goes on from its checkpoint with the bits of one that was not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "core/base/archive_file.h"
#include "core/base/durable_file.h"
#include "gossip/simulation/run_identity.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::small_network;
using Now = SaveNow;

struct Case {
  const char* name;
  const char* algorithm;
  const char* topology;
  void (*world)(NetOptions&);
};

void quiet(NetOptions&) {}
void lossy(NetOptions& o) {
  o.network.loss = 0.2;
  o.network.jitter = "exponential:20ms";
  o.network.deadline = milliseconds(15);
}
void churning(NetOptions& o) {
  o.network.latency = "uniform:1ms,20ms";
  o.nodes.speed = "lognormal:1,0.5";
  o.nodes.crash_every = milliseconds(100);
  o.nodes.return_after = milliseconds(40);
  o.nodes.join_within = milliseconds(50);
}
void momentum(NetOptions& o) {
  o.train.train.optimizer = "momentum";
  o.network.splits = "50ms-120ms:2";
}
void local_steps(NetOptions& o) {
  o.train.train.local_steps = 3;
  o.train.local_steps_from = 4;
  o.train.train.schedule = "cosine";
}
void lazy(NetOptions& o) {
  local_steps(o);
  o.topology.mixing = "lazy";
}
void adam(NetOptions& o) {
  o.train.train.optimizer = "adam";
  o.train.train.learning_rate = 0.01;
}
void lying(NetOptions& o) {
  o.attack.kind = "alie";
  o.robust.rule = "clip";
}
void compressed(NetOptions& o) { o.algorithm.compressor = "qsgd"; }
void spread(NetOptions& o) { o.model.initial = "spread=1"; }

class Resumed : public ::testing::TestWithParam<Case> {
 protected:
  NetOptions options() const {
    NetOptions options = small_network(GetParam().topology, 8, GetParam().algorithm);
    GetParam().world(options);
    return options;
  }
  std::filesystem::path file() const { return directory_.path() / "checkpoint.state"; }

  starling::testing::TemporaryDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(
    All, Resumed,
    ::testing::Values(
        Case{"dpsgd", "dpsgd", "ring", spread},
        Case{"dpsgd_combine_first", "dpsgd", "ring",
             [](NetOptions& o) { o.algorithm.order = "combine-while-adapt"; }},
        Case{"dpsgd_lossy", "dpsgd", "complete", lossy},
        Case{"dpsgd_churning", "dpsgd", "hypercube", churning},
        Case{"dpsgd_momentum", "dpsgd", "exponential", momentum},
        Case{"dpsgd_adam", "dpsgd", "base-graph:k=1", adam},
        Case{"dpsgd_lying", "dpsgd", "complete", lying},
        Case{"sgp", "sgp", "one-peer-exponential", local_steps},
        Case{"sgp_lossy", "sgp", "exponential", lossy},
        Case{"sgp_churning", "sgp", "exponential", churning}, Case{"d2", "d2", "ring", lazy},
        Case{"gradient_tracking", "gradient-tracking", "ring", local_steps},
        Case{"detag", "detag", "ring", local_steps}, Case{"choco", "choco", "ring", compressed},
        Case{"relaysgd", "relaysgd", "path", lossy}, Case{"qg_dsgdm", "qg-dsgdm", "ring", lossy},
        Case{"diloco", "diloco", "exponential", local_steps},
        Case{"epidemic", "epidemic", "epidemic:s=2", lossy},
        Case{"all_reduce", "all-reduce", "ring", local_steps},
        Case{"all_reduce_churning", "all-reduce", "ring", churning},
        Case{"groups_churning", "all-reduce:group=3", "ring", churning},
        Case{"diloco_all", "diloco-all", "ring", local_steps},
        Case{"ad_psgd", "ad-psgd", "ring", quiet}, Case{"ad_psgd_lossy", "ad-psgd", "ring", lossy},
        Case{"ad_psgd_churning", "ad-psgd", "ring", churning},
        Case{"push_sum", "push-sum", "exponential", momentum},
        Case{"push_sum_lossy", "push-sum", "exponential", lossy},
        Case{"push_sum_churning", "push-sum", "exponential", churning}),
    [](const auto& instance) { return std::string(instance.param.name); });

// A process's part of a run: saves when it was asked so often, and stops.
Result<SimulationResult> part(const Experiment& experiment, const std::filesystem::path& file,
                              int asked_max, unsigned threads = 1,
                              std::vector<Measurement>* told = nullptr,
                              std::optional<std::uint64_t>* from = nullptr) {
  const SystemClock clock;
  int asked = 0;
  SimulationHooks hooks;
  if (from != nullptr) {
    from->reset();
    hooks.on_resume = [from, told](std::uint64_t step) {
      EXPECT_TRUE(told->empty()) << "it is said first";
      *from = step;
    };
  }
  if (told != nullptr) {
    told->clear();
    hooks.on_measurement = [told](const Measurement& m) { told->push_back(m); };
  }
  hooks.checkpoints = SimulationCheckpoints{
      .file = file,
      .identity = identity_of(experiment, experiment.options.settings(), "1.0"),
      .now = [&](TimePoint) { return ++asked > asked_max ? Now::kSaveAndStop : Now::kNothing; }};
  return simulate(experiment, threads, clock, hooks);
}

void expect_same(const Measurement& one, const Measurement& other) {
  Bytes written[2];
  for (const Measurement* measurement : {&one, &other}) {
    Measurement copy = *measurement;
    copy.wall_seconds = 0;
    Bytes& bytes = written[measurement == &one ? 0 : 1];
    Archive archive([&](ByteView more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
    copy.archive(archive);
  }
  EXPECT_EQ(written[0], written[1]) << "at step " << one.step;
}

void expect_same(const SimulationResult& one, const SimulationResult& other) {
  EXPECT_EQ(one.trace.hex(), other.trace.hex());
  EXPECT_EQ(one.models.hex(), other.models.hex());
  EXPECT_EQ(one.mean_model, other.mean_model);
  EXPECT_EQ(one.present, other.present);
  EXPECT_EQ(one.totals.loss_sum, other.totals.loss_sum);
  EXPECT_EQ(one.totals.traffic.arrived, other.totals.traffic.arrived);
  EXPECT_EQ(one.totals.traffic.lost, other.totals.traffic.lost);
  EXPECT_EQ(one.totals.traffic.staleness, other.totals.traffic.staleness);
  ASSERT_EQ(one.measurements.size(), other.measurements.size());
  for (std::size_t i = 0; i < one.measurements.size(); ++i) {
    expect_same(one.measurements[i], other.measurements[i]);
  }
}

TEST_P(Resumed, AfterEveryFewStepsItEndsAsIfNeverStopped) {
  const auto experiment = prepare(options());
  ASSERT_TRUE(experiment) << experiment.error().message();
  const SystemClock clock;
  const auto whole = simulate(*experiment, 2, clock, {});
  ASSERT_TRUE(whole) << whole.error().message();
  for (const int every : {1, 3, 7}) {
    std::vector<Measurement> told;
    std::optional<std::uint64_t> from;
    int stops = 0;
    auto ended = part(*experiment, file(), every, 1, &told, &from);
    EXPECT_FALSE(from);
    while (!ended) {
      ASSERT_EQ(ended.error().code(), "stopped") << ended.error().message();
      ASSERT_LT(++stops, 1000);
      const std::string stopped = ended.error().message();
      ended = part(*experiment, file(), every, stops % 2 == 0 ? 1 : 3, &told, &from);
      ASSERT_TRUE(from);
      EXPECT_THAT(stopped, HasSubstr("after step " + std::to_string(*from) + ":"));
    }
    EXPECT_GE(stops, every == 7 ? 1 : 2);
    expect_same(*whole, *ended);
    EXPECT_EQ(told.size(), whole->measurements.size());
    std::filesystem::remove(file());
  }
}

class Hostile : public Resumed {};
INSTANTIATE_TEST_SUITE_P(All, Hostile,
                         ::testing::Values(Case{"dpsgd_lossy", "dpsgd", "complete", lossy},
                                           Case{"push_sum_lossy", "push-sum", "exponential", lossy},
                                           Case{"ad_psgd_churning", "ad-psgd", "ring", churning}),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Each prefix of a checkpoint, and it with one byte changed.
TEST_P(Hostile, ADamagedCheckpointIsRefused) {
  const auto experiment = prepare(options());
  ASSERT_TRUE(experiment);
  ASSERT_FALSE(part(*experiment, file(), 4));
  const auto whole = read_file(file(), 1 << 26);
  ASSERT_TRUE(whole);
  const auto refused = [&](const Bytes& bytes) {
    EXPECT_TRUE(write_durably(file(), bytes));
    const auto result = part(*experiment, file(), 4);
    return !result &&
           (result.error().code() == "state-damaged" || result.error().code() == "state-other");
  };
  const std::size_t stride = whole->size() / 11 + 1;
  for (std::size_t size = 0; size < whole->size(); size += stride) {
    EXPECT_TRUE(refused(Bytes(whole->begin(), whole->begin() + static_cast<long>(size)))) << size;
    Bytes changed = *whole;
    changed[size] ^= std::byte{0x40};
    EXPECT_TRUE(refused(changed)) << size;
  }
}

// With the right checksum: what is read is a state, or refused; never memory out of bounds.
TEST_P(Hostile, AForgedCheckpointIsReadWithinItsBounds) {
  const auto experiment = prepare(options());
  ASSERT_TRUE(experiment);
  ASSERT_FALSE(part(*experiment, file(), 6));
  auto bytes = read_file(file(), 1 << 26);
  ASSERT_TRUE(bytes);
  constexpr std::size_t kHead = 17 + 32;
  Rng rng({.seed = 5, .purpose = Purpose::kTest});
  int refused = 0;
  for (int forged = 0; forged < 60; ++forged) {
    Bytes changed = *bytes;
    const std::size_t body = changed.size() - 8 - kHead;
    for (int k = 0; k < 3; ++k) {
      const auto at = kHead + static_cast<std::size_t>(rng.below(body));
      changed[at] = static_cast<std::byte>(rng.below(256));
    }
    const std::uint64_t sum = checksum(ByteView(changed).first(changed.size() - 8));
    store_little(changed.data() + changed.size() - 8, sum);
    const Sha256Digest identity = identity_of(*experiment, experiment->options.settings(), "1.0");
    ASSERT_TRUE(write_durably(file(), changed));
    ComputePool pool(1);
    const auto simulation = make_simulation(*experiment, pool);
    const auto loaded =
        load_archive(file(), identity, [&](Archive& state) { simulation->archive(state); });
    refused += loaded ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

TEST(Resuming, OtherSettingsAnotherVersionAndOtherDataAreRefused) {
  const starling::testing::TemporaryDirectory directory;
  const auto file = directory.path() / "checkpoint.state";
  NetOptions options = small_network("ring", 8);
  const auto experiment = prepare(options);
  ASSERT_TRUE(experiment);
  ASSERT_FALSE(part(*experiment, file, 2));
  options.train.train.learning_rate *= 2;
  const auto other = prepare(options);
  ASSERT_TRUE(other);
  const auto refused = part(*other, file, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), "state-other");
  EXPECT_THAT(refused.error().message(), HasSubstr("is of a run with other settings"));
  const Settings settings = experiment->options.settings();
  EXPECT_NE(identity_of(*experiment, settings, "1.0"), identity_of(*experiment, settings, "1.1"));
  options = experiment->options;
  options.data.dataset = "synthetic:rows=601,features=12,classes=3";
  const auto data = prepare(options);
  ASSERT_TRUE(data);
  EXPECT_NE(identity_of(*experiment, settings, "1.0"), identity_of(*data, settings, "1.0"));
}

TEST(Resuming, AStopBeforeTheFirstStepAndOneOfWholePeersLoseNothing) {
  const starling::testing::TemporaryDirectory directory;
  const auto file = directory.path() / "checkpoint.state";
  const auto experiment = prepare(small_network("ring", 4));
  ASSERT_TRUE(experiment);
  EXPECT_EQ(part(*experiment, file, 0).error().code(), "stopped");
  EXPECT_TRUE(part(*experiment, file, 1000));
  std::filesystem::remove(file);
  const SystemClock clock;
  SimulationHooks hooks;
  hooks.checkpoints = SimulationCheckpoints{
      .file = file, .identity = {}, .now = [](TimePoint) { return Now::kSaveAndStop; }};
  const auto stopped = simulate(*experiment, 1, clock, hooks, Simulated::kPeers);
  ASSERT_FALSE(stopped);
  EXPECT_THAT(stopped.error().message(), HasSubstr("the same command begins again"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace starling::gossip
