// SPDX-License-Identifier: Apache-2.0
// Checkpoints through crashes: the process is killed, the power is cut or the disk is full at each
// step of a save in turn, and again at each step of the next process's save. A model is always
// found with its own state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "gossip/peer/checkpoint.h"

namespace starling::gossip {
namespace {

using ::testing::ElementsAre;

struct Died {};

class OpenBytes final : public DiskFile {
 public:
  explicit OpenBytes(Bytes bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<void> read(std::uint64_t offset, MutableByteView to) override {
    std::ranges::copy(ByteView(bytes_).subspan(offset, to.size()), to.begin());
    return {};
  }

 private:
  Bytes bytes_;
};

// One directory in memory. Each call that changes it takes several steps, at one of which it fails.
// As with SystemDisk, a rename or removal that was not synced may be undone by a power cut, also
// where a later one is not.
class SteppedDisk final : public SystemDisk {
 public:
  enum class Fault { kDies, kIsFull };
  void fail_at(int step, Fault fault) {
    steps_ = 0;
    fails_at_ = step;
    fault_ = fault;
  }
  int steps() const { return steps_; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, content] : files_) {
      if (!name.ends_with(".tmp")) names.push_back(name);
    }
    return names;
  }
  void put(const std::string& name, std::string_view content) {
    files_[name] = to_bytes(as_bytes(content));
    sync_all();
  }
  // All that a power cut can make of what was not synced.
  std::vector<SteppedDisk> after_power_cuts() const {
    std::vector<SteppedDisk> after;
    for (std::uint32_t lasting = 0; lasting < 1U << unsynced_.size(); ++lasting) {
      SteppedDisk disk = *this;
      disk.files_ = synced_;
      for (std::size_t i = 0; i < unsynced_.size(); ++i) {
        if ((lasting >> i & 1U) != 0) disk.apply(unsynced_[i]);
      }
      disk.sync_all();
      after.push_back(std::move(disk));
    }
    return after;
  }

  Result<void> write(const std::filesystem::path& path,
                     std::span<const SharedBytes> parts) override {
    const std::string name = path.filename().string();
    const std::string temporary = "." + name + ".tmp";
    Bytes content;
    for (const SharedBytes& part : parts) {
      content.insert(content.end(), part.view().begin(), part.view().end());
    }
    STARLING_TRY(step());
    files_[temporary] = Bytes(content.begin(), content.begin() + std::ssize(content) / 2);
    if (auto rest = step(); !rest) {
      files_.erase(temporary);
      return rest;
    }
    change({{temporary, std::nullopt}, {name, std::move(content)}});
    return sync(path);
  }
  Result<std::unique_ptr<DiskFile>> open(const std::filesystem::path& path) override {
    const auto found = files_.find(path.filename().string());
    if (found == files_.end()) return rejected("file-missing", path.string());
    STARLING_TRY(step());
    return std::unique_ptr<DiskFile>(std::make_unique<OpenBytes>(found->second));
  }
  Result<void> remove(const std::filesystem::path& path) override {
    STARLING_TRY(step());
    change({{path.filename().string(), std::nullopt}});
    return {};
  }
  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    STARLING_TRY(step());
    Bytes content = files_.at(from.filename().string());
    change({{from.filename().string(), std::nullopt}, {to.filename().string(), content}});
    return {};
  }
  Result<void> sync(const std::filesystem::path&) override {
    STARLING_TRY(step());
    sync_all();
    return {};
  }

 private:
  using Change = std::map<std::string, std::optional<Bytes>>;  // none: the name goes

  Result<void> step() {
    if (++steps_ != fails_at_) return {};
    if (fault_ == Fault::kDies) throw Died();
    return overloaded("disk-full", "no space left");
  }
  void apply(const Change& change) {
    for (const auto& [name, content] : change) {
      files_.erase(name);
      if (content) files_[name] = *content;
    }
  }
  void change(Change change) {
    apply(change);
    unsynced_.push_back(std::move(change));
  }
  void sync_all() {
    synced_ = files_;
    unsynced_.clear();
  }

  std::map<std::string, Bytes> files_;
  std::map<std::string, Bytes> synced_;
  std::vector<Change> unsynced_;
  int steps_ = 0;
  int fails_at_ = 0;
  Fault fault_ = Fault::kDies;
};

const std::filesystem::path kSteppedPath = "gossip/checkpoint.safetensors";

std::shared_ptr<const model::Layout> three_floats() {
  return *model::Layout::make({{.name = "weight", .shape = {3}}});
}

Checkpoint checkpoint_of(protocol::Exchange exchange, std::uint8_t state) {
  const auto value = static_cast<float>(exchange);
  return {.run = "run 1",
          .exchange = exchange,
          .model = {value, 1, 2},
          .state = {.algorithm = "diloco", .epoch = 3, .bytes = Bytes(20, std::byte{state})}};
}

// What a process finds; nothing: there is no checkpoint.
using Pair = std::optional<Checkpoint>;

Pair found_on(SteppedDisk& disk) {
  auto kept = load_checkpoint(disk, kSteppedPath, three_floats());
  if (!kept) {
    EXPECT_EQ(kept.error().code(), "file-missing") << kept.error().message();
    return std::nullopt;
  }
  auto state = load_state(disk, kSteppedPath, *kept, "diloco");
  EXPECT_TRUE(state) << state.error().message();
  if (state) kept->state = std::move(*state);
  return std::move(*kept);
}

// Whether the process lives and has kept it.
bool saved_on(SteppedDisk& disk, const Checkpoint& checkpoint) {
  try {
    return save_checkpoint(disk, kSteppedPath, checkpoint, three_floats()).has_value();
  } catch (const Died&) {
    return false;
  }
}

// What the next process may find, without a power cut and with one.
std::vector<SteppedDisk> all_after(const SteppedDisk& disk) {
  std::vector<SteppedDisk> all = disk.after_power_cuts();
  all.push_back(disk);
  return all;
}

// Saves with a fault at each step in turn, then without one. Gives `then` each disk that a next
// process may find.
void disturb_a_save(const SteppedDisk& before, const Checkpoint& checkpoint,
                    const std::function<void(SteppedDisk)>& then) {
  // There are several where a process died before it had synced its changes.
  std::vector<Pair> former;
  for (SteppedDisk& disk : all_after(before)) former.push_back(found_on(disk));
  for (const SteppedDisk::Fault fault : {SteppedDisk::Fault::kDies, SteppedDisk::Fault::kIsFull}) {
    for (int step = 1;; ++step) {
      SCOPED_TRACE(::testing::Message()
                   << "step " << step << (fault == SteppedDisk::Fault::kDies ? "" : ", full"));
      SteppedDisk disk = before;
      disk.fail_at(step, fault);
      const bool kept = saved_on(disk, checkpoint);
      const bool disturbed = disk.steps() >= step;
      EXPECT_TRUE(kept || disturbed);
      disk.fail_at(0, fault);
      for (SteppedDisk& after : all_after(disk)) {
        const Pair pair = found_on(after);
        EXPECT_TRUE(pair == checkpoint || (!kept && std::ranges::count(former, pair) > 0))
            << "exchange " << (pair ? static_cast<int>(pair->exchange) : -1);
        then(std::move(after));
      }
      if (::testing::Test::HasFailure()) return;
      if (!disturbed) break;
    }
  }
}

class CheckpointsInCrashes : public ::testing::Test {
 protected:
  const Checkpoint former = checkpoint_of(41, 1);
  const Checkpoint next = checkpoint_of(42, 2);
};

TEST_F(CheckpointsInCrashes, FindAModelWithItsOwnState) {
  SteppedDisk empty;
  SteppedDisk with_former;
  ASSERT_TRUE(saved_on(with_former, former));
  // The next process keeps what comes later, or the same with the same state or another one.
  const Checkpoint later[] = {checkpoint_of(43, 3), next, checkpoint_of(42, 4)};
  int disks = 0;
  for (const SteppedDisk& begin : {empty, with_former}) {
    disturb_a_save(begin, next, [&](const SteppedDisk& disk) {
      for (const Checkpoint& checkpoint : later) {
        disturb_a_save(disk, checkpoint, [&](SteppedDisk again) {
          ++disks;
          ASSERT_TRUE(saved_on(again, checkpoint_of(44, 5)));
          EXPECT_TRUE(found_on(again) == checkpoint_of(44, 5));
          EXPECT_THAT(again.names(), ElementsAre("checkpoint.safetensors", "checkpoint.state"));
        });
      }
    });
  }
  EXPECT_GT(disks, 1000);
}

// It is removed at once, so that others have room until the next attempt.
TEST_F(CheckpointsInCrashes, AFullDiskIsNotFilledByAStateWithoutItsModel) {
  SteppedDisk disk;
  ASSERT_TRUE(saved_on(disk, former));
  const int steps_until_model = 4;
  disk.fail_at(steps_until_model + 1, SteppedDisk::Fault::kIsFull);
  EXPECT_FALSE(saved_on(disk, next));
  EXPECT_THAT(disk.names(), ElementsAre("checkpoint.safetensors", "checkpoint.state"));
  EXPECT_TRUE(found_on(disk) == former);
}

// Also a state that no model on the disk goes with.
TEST_F(CheckpointsInCrashes, ForeignFilesAreReplaced) {
  SteppedDisk disk;
  ASSERT_TRUE(saved_on(disk, former));
  for (const char* rubbish : {"", "rubbish", "starling-state 1 diloco 3 0123\n",
                              "starling-state 2 diloco 3 0123 more\n"}) {
    disk.put("checkpoint.state.new", rubbish);
    EXPECT_TRUE(found_on(disk) == former) << rubbish;
    ASSERT_TRUE(saved_on(disk, next));
    EXPECT_TRUE(found_on(disk) == next) << rubbish;
    ASSERT_TRUE(saved_on(disk, former));
  }
  disk.put("checkpoint.state.new", "starling-state 1 diloco 3 0123\n");
  disk.put("checkpoint.safetensors", "rubbish");
  ASSERT_TRUE(saved_on(disk, next));
  EXPECT_TRUE(found_on(disk) == next);
  EXPECT_THAT(disk.names(), ElementsAre("checkpoint.safetensors", "checkpoint.state"));
}

}  // namespace
}  // namespace starling::gossip
