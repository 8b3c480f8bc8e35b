// SPDX-License-Identifier: Apache-2.0
// Checkpoints: what comes back is what was kept, nothing damaged is taken, and a state goes with
// its own model only.
#include "gossip/peer/checkpoint.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/base/digest.h"
#include "core/base/durable_file.h"
#include "core/model/safetensors.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_world.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerWorld;
using starling::testing::TemporaryDirectory;

std::shared_ptr<const model::Layout> small_layout() {
  return *model::Layout::make(
      {{.name = "weight", .shape = {2, 3}}, {.name = "bias", .shape = {3}}});
}

class Checkpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto saved = save_checkpoint(disk, path, kept, layout);
    ASSERT_TRUE(saved) << saved.error().message();
  }
  std::string load_code() const {
    const auto loaded = load_checkpoint(disk, path, layout);
    return loaded ? "" : std::string(loaded.error().code());
  }
  std::string state_code(const std::string& algorithm = "diloco") const {
    const auto loaded = load_state(disk, path, kept, algorithm);
    return loaded ? "" : std::string(loaded.error().code());
  }

  mutable SystemDisk disk;
  TemporaryDirectory directory;
  std::filesystem::path path = directory.path() / "checkpoint.safetensors";
  std::filesystem::path beside = directory.path() / "checkpoint.state";
  std::shared_ptr<const model::Layout> layout = small_layout();
  Checkpoint kept{.run = "run 1",
                  .exchange = 42,
                  .model = {1, 2, 3, 4, 5, 6, 7, 8, 9},
                  .state = {.algorithm = "diloco", .epoch = 3, .bytes = Bytes(50, std::byte{7})},
                  .support = {.minority = true, .quorum_seconds = 7, .backed = 40}};
};

TEST_F(Checkpoints, ComeBackAsTheyWere) {
  const auto loaded = load_checkpoint(disk, path, layout);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->run, kept.run);
  EXPECT_EQ(loaded->exchange, kept.exchange);
  EXPECT_EQ(loaded->support, kept.support);
  EXPECT_EQ(loaded->model, kept.model);
  const auto state = load_state(disk, path, *loaded, "diloco");
  ASSERT_TRUE(state) << state.error().message();
  EXPECT_EQ(state->algorithm, "diloco");
  EXPECT_EQ(state->epoch, 3U);
  EXPECT_EQ(state->bytes, kept.state.bytes);
}

// How long a quorum was held is no part of the model that a run ends with.
TEST_F(Checkpoints, ModelsOfEqualRunsAreEqualFiles) {
  const auto model = directory.path() / "model.safetensors";
  ASSERT_TRUE(save_model(disk, model, kept, layout));
  const Bytes first = *read_file(model, 1 << 20);
  kept.support.quorum_seconds += 1;
  ASSERT_TRUE(save_model(disk, model, kept, layout));
  EXPECT_EQ(*read_file(model, 1 << 20), first);
}

TEST_F(Checkpoints, RefuseEveryCutAndEveryFlippedByte) {
  for (const auto& file : {path, beside}) {
    const Bytes good = *read_file(file, 1 << 20);
    const auto refused = [&](const Bytes& bytes) {
      std::ofstream(file, std::ios::binary | std::ios::trunc)
          .write(as_text(bytes).data(), static_cast<std::streamsize>(bytes.size()));
      return file == path ? !load_code().empty() : !state_code().empty();
    };
    for (std::size_t size = 0; size < good.size(); size += 5) {
      EXPECT_TRUE(refused(Bytes(good.begin(), good.begin() + static_cast<long>(size)))) << size;
    }
    for (std::size_t at = 0; at < good.size(); at += 3) {
      Bytes flipped = good;
      flipped[at] ^= std::byte{0x04};
      // The padding after the JSON header, and white space in it, may be anything that parses.
      if (refused(flipped)) continue;
      const auto loaded = load_checkpoint(disk, path, layout);
      ASSERT_TRUE(loaded && file == path) << file << " " << at;
      EXPECT_EQ(loaded->model, kept.model) << at;
      EXPECT_EQ(loaded->exchange, kept.exchange) << at;
      EXPECT_EQ(loaded->run, kept.run) << at;
    }
    EXPECT_FALSE(refused(good));
  }
}

TEST_F(Checkpoints, AStateIsOfOneModelAndOneAlgorithm) {
  EXPECT_EQ(state_code(), "");
  EXPECT_EQ(state_code("dpsgd"), "state-other");
  kept.exchange += 1;
  EXPECT_EQ(state_code(), "state-other");
  kept.exchange -= 1;
  kept.model[4] += 1;
  EXPECT_EQ(state_code(), "state-other");
  std::filesystem::remove(beside);
  EXPECT_EQ(state_code(), "file-missing");
}

// As earlier versions left them: with what was not 0 of the support only, and no other file.
TEST_F(Checkpoints, OfAnEarlierVersionAreLoaded) {
  const std::string digest = "822993286ff4bb1a33dfc929b6b42745b7eab714af9e74d8225660621b62af17";
  const Bytes header = model::safetensors_header(
      *layout, {{"run", "run 1"}, {"exchange", "42"}, {"backed", "40"}, {"sha256", digest}});
  const ByteView of_model[] = {header, as_bytes(std::span<const float>(kept.model))};
  ASSERT_TRUE(write_durably(path, of_model));
  const std::string state = "starling-state 1 diloco 3 " + digest + "\nmomentum";
  const Sha256Digest state_digest = sha256(as_bytes(state));
  const ByteView of_state[] = {as_bytes(state), state_digest.bytes()};
  ASSERT_TRUE(write_durably(beside, of_state));
  const auto loaded = load_checkpoint(disk, path, layout);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->exchange, 42U);
  EXPECT_EQ(loaded->support, protocol::Support{.backed = 40});
  EXPECT_EQ(loaded->model, kept.model);
  const auto found = load_state(disk, path, *loaded, "diloco");
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->epoch, 3U);
  EXPECT_EQ(as_text(found->bytes), "momentum");
}

// A crash of an earlier version after the new state and before the new model.
TEST_F(Checkpoints, AnEarlierVersionsModelWithoutItsStateIsLoaded) {
  const Bytes older = *read_file(path, 1 << 20);
  Checkpoint newer = kept;
  newer.exchange = 43;
  newer.model[0] = 10;
  ASSERT_TRUE(save_checkpoint(disk, path, newer, layout));
  ASSERT_TRUE(write_durably(path, older));
  EXPECT_EQ(load_code(), "");
  EXPECT_EQ(state_code(), "state-other");
}

TEST_F(Checkpoints, AnotherVersionIsRefused) {
  const Bytes file = *read_file(beside, 1 << 20);
  std::string text(as_text(ByteView(file).first(file.size() - Sha256Digest::kBytes)));
  text.replace(text.find(" 1 "), 3, " 2 ");
  const Sha256Digest digest = sha256(as_bytes(text));
  const ByteView parts[] = {as_bytes(text), digest.bytes()};
  ASSERT_TRUE(write_durably(beside, parts));
  EXPECT_EQ(state_code(), "state-version");
}

// --- protocols -----------------------------------------------------------------------------------

TEST(ProtocolState, GoesOnWithWhatWasKept) {
  const std::filesystem::path file = "gossip/checkpoint.safetensors";
  for (const std::string algorithm : {"push-sum", "sgp", "diloco", "qg-dsgdm"}) {
    NetOptions options = testing::small_network("exponential", 3, algorithm);
    options.run.steps = 100;
    PeerWorld world(options, 3);
    world.begin();
    world.run_to_exchange(1, 10);
    world.stop(1);
    auto& peer = *world.peers[1];
    auto kept = load_checkpoint(peer.disk, file, world.experiment.layout());
    ASSERT_TRUE(kept) << kept.error().message();
    const auto state = load_state(peer.disk, file, *kept, algorithm);
    ASSERT_TRUE(state) << state.error().message();
    EXPECT_FALSE(state->bytes.empty()) << algorithm;
    const auto warnings = [&world](std::size_t before) {
      const auto said = world.said(1);
      return std::count_if(said.begin() + static_cast<std::ptrdiff_t>(before), said.end(),
                           [](const std::string& line) { return line.find("state") != line.npos; });
    };
    std::size_t before = world.said(1).size();
    world.start(1);
    if (world.training(1).model()) {
      EXPECT_EQ(world.training(1).state(), state->bytes) << algorithm;
    }
    EXPECT_EQ(warnings(before), 0) << algorithm << world.status();
    // What is no state of its own is said, and the model alone is used.
    world.kill(1);
    kept->state = *state;
    kept->state.bytes.pop_back();
    ASSERT_TRUE(save_checkpoint(peer.disk, file, *kept, world.experiment.layout()));
    before = world.said(1).size();
    world.start(1);
    EXPECT_EQ(warnings(before), 1) << algorithm << world.status();
    EXPECT_EQ(world.progress(1).exchange, kept->exchange) << algorithm;
    world.run_to_end();
  }
}

}  // namespace
}  // namespace starling::gossip
