// SPDX-License-Identifier: Apache-2.0
// The SqliteStore on a disk that fails and forgets: after whatever happens, it stands exactly at
// the end of one of its calls, and no durable call that returned is lost.
#include "tests/store/sim_disk.h"
#include "tests/store/store_fixture.h"
#include "tests/store/store_script.h"

namespace starling::store {
namespace {

constexpr std::uint64_t kTasksMax = 64;

class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest() : script_(store_script()) {
    const std::unique_ptr<Store> memory = open_store_in_memory();
    expected_.push_back(content_of(*memory, kTasksMax));
    for (const Step& step : script_) {
      const Result<void> done = step.call(*memory);
      EXPECT_TRUE(done) << done.error().message();
      expected_.push_back(content_of(*memory, kTasksMax));
      EXPECT_NE(expected_.back(), expected_[expected_.size() - 2]) << "every step must show";
    }
  }

  Result<std::unique_ptr<Store>> open(const SimDisk& disk) {
    return open_sqlite_store(directory_.path() / "starling.db",
                             {.create = true, .vfs = disk.vfs()});
  }

  // Runs the script from step `done` until a call fails; returns how many have succeeded.
  std::size_t run(Store& store, std::size_t done, std::optional<Error>& error) {
    for (; done < script_.size(); ++done) {
      const Result<void> result = script_[done].call(store);
      if (result) continue;
      error = result.error();
      return done;
    }
    return done;
  }

  // At which step a store stands; the number of steps + 1 where at none.
  std::size_t position(Store& store) {
    const StoreContent content = content_of(store, kTasksMax);
    const auto found = std::find(expected_.begin(), expected_.end(), content);
    return static_cast<std::size_t>(found - expected_.begin());
  }
  // The first step that a power cut may undo after `done` steps.
  std::size_t last_durable(std::size_t done) const {
    while (done > 0 && !script_[done - 1].durable) --done;
    return done;
  }

  const std::vector<Step> script_;
  std::vector<StoreContent> expected_;  // after 0, 1, ... steps
  testing::TemporaryDirectory directory_;
};

TEST_F(FaultsTest, TheScriptGivesTheSameOnADiskAsInMemory) {
  const SimDisk disk;
  const std::unique_ptr<Store> store = open(disk).value();
  for (std::size_t i = 0; i < script_.size(); ++i) {
    ASSERT_TRUE(script_[i].call(*store)) << i;
    ASSERT_EQ(content_of(*store, kTasksMax), expected_[i + 1]) << i;
  }
}

TEST_F(FaultsTest, AFullDiskChangesNothingAndTheSameCallMayBeMadeAgain) {
  std::uint64_t refusals = 0;
  for (std::uint64_t at = 1;; ++at) {
    SimDisk disk;
    disk.fail(at, SimDisk::Fault::kDiskFull);
    auto opened = open(disk);
    if (!opened) {
      EXPECT_EQ(opened.error().kind(), ErrorKind::kOverloaded) << opened.error().message();
      EXPECT_EQ(opened.error().code(), "disk-full");
      opened = open(disk);
    }
    ASSERT_TRUE(opened) << at << ": " << opened.error().message();
    std::optional<Error> error;
    const std::size_t done = run(**opened, 0, error);
    if (error) {
      ++refusals;
      EXPECT_EQ(error->code(), "disk-full") << at << ": " << error->message();
      ASSERT_EQ(position(**opened), done) << at;
      error.reset();
      ASSERT_EQ(run(**opened, done, error), script_.size()) << at << ": " << error->message();
    }
    ASSERT_EQ(position(**opened), script_.size());
    if (!disk.failed()) break;
  }
  EXPECT_GT(refusals, script_.size()) << "every call met a full disk";
}

TEST_F(FaultsTest, AnIoErrorStopsTheStoreAndARestartRecovers) {
  std::uint64_t stops = 0;
  for (std::uint64_t at = 1;; ++at) {
    SimDisk disk;
    disk.fail(at, SimDisk::Fault::kIoError);
    Result<std::unique_ptr<Store>> store = open(disk);
    std::optional<Error> error;
    std::size_t done = 0;
    if (!store) {
      EXPECT_EQ(store.error().kind(), ErrorKind::kInternal) << store.error().message();
    } else {
      done = run(**store, 0, error);
    }
    if (error) {
      ++stops;
      EXPECT_EQ(error->kind(), ErrorKind::kInternal) << at << ": " << error->message();
      const Result<void> after = (*store)->set_fact("epoch", "2");
      ASSERT_FALSE(after) << "nothing is written after a failure";
      EXPECT_EQ(after.error(), *error);
    }
    const bool finished = !disk.failed();
    store = internal("closed", "");
    store = open(disk);
    ASSERT_TRUE(store) << at << ": " << store.error().message();
    const std::size_t found = position(**store);
    ASSERT_GE(found, done) << at;
    ASSERT_LE(found, std::min(done + 1, script_.size())) << at;
    error.reset();
    ASSERT_EQ(run(**store, found, error), script_.size()) << at << ": " << error->message();
    if (finished) break;
  }
  EXPECT_GT(stops, script_.size());
}

TEST_F(FaultsTest, APowerCutTakesNothingThatWasAcknowledged) {
  std::size_t undone = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng({.seed = seed, .purpose = Purpose::kTest});
    SimDisk disk;
    std::size_t done = 0;
    for (int cut = 0; cut < 4; ++cut) {
      disk.fail(1 + rng.below(600), SimDisk::Fault::kIoError, true);
      std::optional<Error> error;
      {
        const auto store = open(disk);
        if (store) done = run(**store, done, error);
      }
      disk.cut_power(rng);
      const auto store = open(disk);
      ASSERT_TRUE(store) << store.error().message();
      const std::size_t found = position(**store);
      ASSERT_GE(found, last_durable(done));
      ASSERT_LE(found, std::min(done + 1, script_.size()));
      if (found < done) ++undone;
      done = found;
    }
  }
  EXPECT_GT(undone, 0U) << "the disk forgets, so that what is not durable can be lost";
}

}  // namespace
}  // namespace starling::store
