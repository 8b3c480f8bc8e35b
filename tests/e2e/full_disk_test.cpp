// SPDX-License-Identifier: Apache-2.0
// A coordinator that starts where its disk is full.
#include <csignal>
#include <cstdio>

#include "tests/e2e/federation.h"
#include "tests/store/small_disk.h"

namespace starling::testing {
namespace {

namespace fs = std::filesystem;
const std::string kCoordinator = kPrograms + "starling-coordinator";

std::vector<std::string> serve(const std::string& state, const std::string& retry = "100ms") {
  return {kCoordinator, "serve", state, "--service.disk-retry", retry};
}

// A service that has a run finds no room for its address.
void start_where_no_room_is(const fs::path& disk) {
  const std::string state = (disk / "lab").string();
  const std::string listen = "127.0.0.1:" + std::to_string(free_port());
  ASSERT_TRUE(run({kCoordinator, "init", state, "--listen", listen}).exit_code == 0);
  std::ofstream(disk / "job.toml")
      << "[model]\nkind = \"softmax-regression\"\n[data]\ninput = [1, 1, 4]\nclasses = 2\n";
  {
    Process first(serve(state));
    ASSERT_TRUE(first.wait_for("listens on"));
    ASSERT_TRUE(
        run({kCoordinator, "run", "submit", disk / "job.toml", "--state", state}).exit_code == 0);
    ASSERT_TRUE(first.wait_for("waiting for"));
    first.signal(SIGTERM);
    ASSERT_EQ(first.wait(), 0);
  }
  fs::remove(fs::path(state) / "address");
  store::fill(disk / "filler");
  {
    Process told_to_end(serve(state, "1m"));
    ASSERT_TRUE(told_to_end.wait_for("the service cannot start yet: "));
    told_to_end.signal(SIGTERM);
    ASSERT_EQ(told_to_end.wait(std::chrono::seconds(50)), 0);  // does not wait to its end
    ASSERT_TRUE(told_to_end.output().find("listens on") == std::string::npos);
  }
  Process waiting(serve(state));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(waiting.wait_for("the service cannot start yet: "));
  fs::remove(disk / "filler");
  ASSERT_TRUE(waiting.wait_for("listens on"));
  const std::string log = run({kCoordinator, "run", "log", "1", "--state", state}).output;
  const std::string line = "resumed after round 0";
  ASSERT_TRUE(log.find(line) != std::string::npos);
  ASSERT_TRUE(log.find(line) == log.rfind(line));
  waiting.signal(SIGTERM);
  ASSERT_EQ(waiting.wait(), 0);
}

TEST(FullDisk, AServiceStartsWhenThereIsRoom) {
  const TemporaryDirectory directory;
  const int code = store::on_small_disk(directory.path(), "size=4m", [&] {
    start_where_no_room_is(directory.path());
    std::fflush(stdout);  // says what failed: this process ends at once
    return HasFailure() ? 1 : 0;
  });
  if (code == store::kNoMount) GTEST_SKIP() << "this process may not mount a file system";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace starling::testing
