// SPDX-License-Identifier: Apache-2.0
// Store, checkpoints and spool on a real file system of 512 KiB and 200 files; the spool also on a
// simulated disk of that size.
#include "core/sim/simulated_disk.h"
#include "core/store/checkpoints.h"
#include "core/store/spool.h"
#include "tests/store/small_disk.h"
#include "tests/store/store_fixture.h"

namespace starling::store {
namespace {

namespace fs = std::filesystem;

void fill_store(const fs::path& directory) {
  const auto store = open_sqlite_store(directory / "starling.db", {.create = true}).value();
  const RunId run = store->submit_run({"job", 1, "", ""}, at(0)).value();
  fill(directory / "filler");
  const std::vector<std::string> lines(20, std::string(4000, 'y'));
  Result<void> written;
  std::size_t count = 0;
  while ((written = store->append_log(run, lines, at(1)))) count += lines.size();
  STARLING_CHECK(written.error().code() == "disk-full");
  STARLING_CHECK(written.error().kind() == ErrorKind::kOverloaded);
  STARLING_CHECK(store->log_lines(run, 1, 100000).value().size() == count);
  fs::remove(directory / "filler");
  STARLING_CHECK(store->append_log(run, lines, at(2)).has_value());
  STARLING_CHECK(store->log_lines(run, 1, 100000).value().size() == count + lines.size());
}

void fill_checkpoints(const fs::path& directory) {
  SystemDisk disk;
  const Checkpoints checkpoints(disk, directory / "models" / "1");
  const Bytes content(100 * 1024);
  const SharedBytes parts[] = {{nullptr, content}};
  Round round = 0;
  Result<void> written;
  while ((written = checkpoints.write(round, parts))) ++round;
  STARLING_CHECK(written.error().code() == "disk-full");
  STARLING_CHECK(round >= 3);
  STARLING_CHECK(std::distance(fs::directory_iterator(directory / "models" / "1"), {}) == round);
  std::vector<ModelRecord> models;
  for (Round committed = 0; committed < round; ++committed) models.push_back(model(committed, "x"));
  STARLING_CHECK(checkpoints.prune(models, 1).has_value());
  STARLING_CHECK(checkpoints.write(round, parts).has_value());
}

// The folder of a run that begins cannot be made.
void fill_files(const fs::path& directory) {
  for (int i = 0; std::ofstream(directory / std::to_string(i)); ++i) STARLING_CHECK(i < 200);
  SystemDisk disk;
  const Checkpoints checkpoints(disk, directory / "models" / "1");
  const SharedBytes parts[] = {{nullptr, as_bytes("model")}};
  const Error error = checkpoints.write(0, parts).error();
  STARLING_CHECK(error.code() == "disk-full");
  STARLING_CHECK(error.kind() == ErrorKind::kOverloaded);
  for (int i = 0; i < 10; ++i) fs::remove(directory / std::to_string(i));
  STARLING_CHECK(checkpoints.write(0, parts).has_value());
}

void fill_spool(Disk& disk, const fs::path& directory) {
  UploadSpool spool(disk, {.directory = directory / "spool", .memory_bytes_max = 0});
  std::vector<std::unique_ptr<Upload>> uploads;
  const Bytes content(100 * 1024, std::byte{1});
  Result<std::unique_ptr<Upload>> upload = spool.begin(content.size());
  for (; upload; upload = spool.begin(content.size())) {
    STARLING_CHECK((*upload)->write(0, content).has_value());  // would be SIGBUS, had it no blocks
    uploads.push_back(std::move(*upload));
  }
  STARLING_CHECK(upload.error().code() == "disk-full");
  STARLING_CHECK(upload.error().kind() == ErrorKind::kOverloaded);
  STARLING_CHECK(uploads.size() >= 3);
  uploads.pop_back();
  STARLING_CHECK(spool.begin(content.size()).has_value());
}

// What is kept leaves room for other files and goes when a new upload needs its room.
void fill_kept_uploads(Disk& disk, const fs::path& directory) {
  UploadSpool spool(disk,
                    {.directory = directory / "spool", .memory_bytes_max = 0, .kept_bytes_min = 1});
  const Bytes content(60 * 1024, std::byte{1});
  const auto key = [&](std::uint64_t task) {
    return UploadKey{TaskId(task), RunId(1), content.size(), 1};
  };
  std::uint64_t task = 0;
  for (; task < 20; ++task) {
    STARLING_CHECK((*spool.begin(key(task)))->write(0, content).has_value());
    spool.leave_free_space();
    STARLING_CHECK(spool.disk_bytes() <= disk.free_bytes(directory).value());
  }
  STARLING_CHECK(spool.disk_bytes() >= 2 * content.size());
  std::vector<std::unique_ptr<Upload>> uploads;
  auto upload = spool.begin(key(task));
  for (; upload; upload = spool.begin(key(++task))) {
    STARLING_CHECK((*upload)->write(0, content).has_value());
    uploads.push_back(std::move(*upload));
  }
  STARLING_CHECK(upload.error().code() == "disk-full");
  STARLING_CHECK(uploads.size() >= 5);
}

// After a restart a promise counts on the updates that are received already; files of other runs
// make way, those of a promise never.
void promise_what_is_kept(Disk& disk, const fs::path& directory) {
  const Bytes content(60 * 1024, std::byte{1});
  const auto key = [&](std::uint64_t run, std::uint64_t task) {
    return UploadKey{TaskId(task), RunId(run), content.size(), 1};
  };
  STARLING_CHECK(disk.make_directory(directory / "spool", Disk::Access::kOwner).has_value());
  const auto leave = [&](const UploadKey& left) {
    const auto path = KeptUploads(disk, directory / "spool").path_of(left);
    const auto file = disk.open_growing(path, Disk::Content::kDropped).value();
    STARLING_CHECK(file->append(content).has_value());
  };
  for (std::uint64_t task = 0; task < 6; ++task) leave(key(2, task));
  leave(key(1, 10));  // 92 KiB are free now
  UploadSpool spool(disk,
                    {.directory = directory / "spool", .memory_bytes_max = 0, .kept_bytes_min = 1});
  STARLING_CHECK(spool.promise(RunId(3), 9, content.size()).error().code() == "disk-full");
  STARLING_CHECK(spool.keeps(key(1, 10)));  // it would not have been enough
  STARLING_CHECK(spool.promise(RunId(2), 6, content.size()).has_value());
  STARLING_CHECK(spool.promise(RunId(3), 2, content.size()).has_value());
  STARLING_CHECK(!spool.keeps(key(1, 10)));
  STARLING_CHECK(spool.begin(key(1, 11)).error().code() == "disk-full");
  std::vector<std::unique_ptr<Upload>> uploads;
  for (const std::uint64_t task : {20U, 21U}) {
    uploads.push_back(spool.begin(key(3, task)).value());
    STARLING_CHECK(uploads.back()->write(0, content).has_value());
  }
  for (std::uint64_t task = 0; task < 6; ++task) {
    uploads.push_back(spool.begin(key(2, task)).value());
    STARLING_CHECK(uploads.back()->complete());
  }
  uploads.clear();
  for (std::uint64_t task = 0; task < 6; ++task) STARLING_CHECK(spool.keeps(key(2, task)));
}

class FullDiskTest : public ::testing::Test {
 protected:
  void run(const std::function<void(const fs::path&)>& body) {
    const int code = on_small_disk(directory_.path(), "size=512k,nr_inodes=200", [&] {
      body(directory_.path());
      return 0;
    });
    if (code == kNoMount) GTEST_SKIP() << "this process may not mount a file system";
    EXPECT_EQ(code, 0);
  }
  void run_on_both(void (*body)(Disk&, const fs::path&)) {
    sim::SimulatedDisk simulated{0};
    simulated.set_capacity(512 * 1024);
    STARLING_CHECK(simulated.make_directory("d", Disk::Access::kShared).has_value());
    body(simulated, "d");
    run([body](const fs::path& directory) {
      SystemDisk disk;
      body(disk, directory);
    });
  }

 private:
  testing::TemporaryDirectory directory_;
};

TEST_F(FullDiskTest, StopsNoStore) { run(fill_store); }
TEST_F(FullDiskTest, StopsNoCheckpoints) { run(fill_checkpoints); }
TEST_F(FullDiskTest, WithoutFilesStopsNoCheckpoints) { run(fill_files); }
TEST_F(FullDiskTest, StopsNoSpool) { run_on_both(fill_spool); }
TEST_F(FullDiskTest, IsNotFilledByKeptUploads) { run_on_both(fill_kept_uploads); }
TEST_F(FullDiskTest, PromisesWhatIsKept) { run_on_both(promise_what_is_kept); }

}  // namespace
}  // namespace starling::store
