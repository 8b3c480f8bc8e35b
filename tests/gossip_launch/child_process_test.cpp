// SPDX-License-Identifier: Apache-2.0
// Real processes. Every wait has a deadline, and nothing is waited for by sleeping.
#include "gossip/launch/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "core/base/durable_file.h"
#include "core/base/scratch_directory.h"
#include "core/net/alarm.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class ChildProcessTest : public ::testing::Test {
 protected:
  ChildProcess::Options shell(const std::string& script) const {
    return {.arguments = {"/bin/sh", "-c", script}, .log = log()};
  }
  std::filesystem::path log() const { return directory_.path() / "child.log"; }

  net::Async<void> wait_for_end() {
    const TimePoint deadline = loop_.now() + seconds(30);
    while (!end_ && loop_.now() < deadline) {
      auto slept = co_await net::sleep_until(loop_, loop_.now() + std::chrono::milliseconds(5));
      if (!slept) co_return;
    }
  }
  std::optional<ChildEnd> end_of(ChildProcess&) {
    loop_.run_task(wait_for_end());
    return end_;
  }
  std::unique_ptr<ChildProcess> start(const ChildProcess::Options& options) {
    auto child = ChildProcess::start(loop_, options, [this](ChildEnd end) { end_ = end; });
    EXPECT_TRUE(child) << child.error().message();
    return std::move(*child);
  }
  std::string logged() const { return *read_text_file(log(), 1 << 20); }

  testing::TemporaryDirectory directory_;
  net::EventLoop loop_;
  std::optional<ChildEnd> end_;
};

// Readable when the process has ended; so it can be told from another that takes its number.
class Watched {
 public:
  explicit Watched(pid_t process)
      : descriptor_(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))) {}
  ~Watched() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  bool ends_in_time() const {
    if (descriptor_ < 0) return true;  // it has ended already
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 30'000) == 1;
  }

 private:
  int descriptor_;
};

TEST_F(ChildProcessTest, ItsOutputAndItsEndAreKnown) {
  const auto child = start(shell("echo to-output; echo to-error >&2; exit 7"));
  const auto end = end_of(*child);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 7);
  EXPECT_EQ(end->text(), "ended with exit code 7");
  EXPECT_FALSE(child->running());
  EXPECT_EQ(logged(), "to-output\nto-error\n");
}

TEST_F(ChildProcessTest, ASecondRunAddsToTheLog) {
  {
    const auto child = start(shell("echo one"));
    ASSERT_TRUE(end_of(*child));
  }
  end_.reset();
  const auto child = start(shell("echo two"));
  ASSERT_TRUE(end_of(*child));
  EXPECT_EQ(logged(), "one\ntwo\n");
}

TEST_F(ChildProcessTest, SignalsReachItsWholeGroup) {
  const auto child = start(shell("sleep 1000 & sleep 1000"));
  child->signal(SIGTERM);
  const auto end = end_of(*child);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 128 + SIGTERM);
  EXPECT_EQ(end->text(), "was ended by signal 15");
}

TEST_F(ChildProcessTest, APausedProcessIsEndedToo) {
  auto child = start(shell("exec sleep 1000"));
  const Watched watched(child->id());
  child->signal(SIGSTOP);
  child.reset();
  EXPECT_TRUE(watched.ends_in_time());
  EXPECT_FALSE(end_) << "nobody is told after the destructor";
}

TEST_F(ChildProcessTest, AProgramThatIsNotThereIsRefused) {
  const auto child =
      ChildProcess::start(loop_, {.arguments = {"/no/such/program"}, .log = log()}, nullptr);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code(), "cannot-start");
  EXPECT_THAT(child.error().message(), HasSubstr("/no/such/program cannot be run"));
  EXPECT_THAT(child.error().message(), HasSubstr("No such file"));
}

TEST_F(ChildProcessTest, ALogThatCannotBeWrittenIsRefused) {
  const auto child =
      ChildProcess::start(loop_, {.arguments = {"/bin/true"}, .log = "/no/such/log"}, nullptr);
  ASSERT_FALSE(child);
  EXPECT_THAT(child.error().message(), HasSubstr("/no/such/log"));
}

// As asio opens its sockets: without close-on-exec.
TEST_F(ChildProcessTest, ItInheritsNoSocketOfItsLauncher) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const auto child = start(shell("exec sleep 1000"));
  ::close(ends[0]);
  char byte = 0;
  EXPECT_EQ(::recv(ends[1], &byte, 1, MSG_DONTWAIT), 0) << "the other end is closed at once";
  ::close(ends[1]);
}

// In a process of its own: starts a child, says its number, and never ends by itself.
[[noreturn]] void play_launcher(const ChildProcess::Options& options, int report) {
  net::EventLoop loop;
  const auto child = ChildProcess::start(loop, options, nullptr);
  const pid_t id = child ? (*child)->id() : 0;
  if (::write(report, &id, sizeof id) != sizeof id) ::_exit(1);
  for (;;) ::pause();
}

TEST_F(ChildProcessTest, ItEndsWithItsLauncherHoweverThatEnds) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t launcher = ::fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) play_launcher(shell("exec sleep 1000"), ends[1]);
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  const Watched watched(child);
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(watched.ends_in_time());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(ScratchDirectory, IsGoneAfterwardsWithAllInIt) {
  std::filesystem::path path;
  {
    const auto scratch = *ScratchDirectory::make();
    path = scratch.path();
    std::filesystem::create_directories(path / "a" / "b");
    ASSERT_TRUE(write_durably(path / "a" / "b" / "c", as_bytes("text")));
    const auto permissions = std::filesystem::status(path).permissions();
    EXPECT_EQ(permissions & std::filesystem::perms::all, std::filesystem::perms::owner_all);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ScratchDirectory, SaysWhereNoneCanBeMade) {
  const testing::TemporaryDirectory directory;
  const std::string missing = (directory.path() / "missing").string();
  const char* const named = std::getenv("TMPDIR");
  const std::string before = named == nullptr ? "" : named;
  ::setenv("TMPDIR", missing.c_str(), 1);
  const auto scratch = ScratchDirectory::make();
  if (before.empty()) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", before.c_str(), 1);
  }
  ASSERT_FALSE(scratch);
  EXPECT_THAT(scratch.error().message(), HasSubstr("in " + missing + ": No such file"));
}

TEST(ScratchDirectory, CanBeKept) {
  std::filesystem::path path;
  {
    const auto scratch = *ScratchDirectory::make(ScratchDirectory::Afterwards::kKept);
    path = scratch.path();
  }
  const auto another = *ScratchDirectory::make();
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove_all(path);
}

TEST(ScratchDirectory, OfAKilledProcessGoesWithTheNext) {
  const auto of_the_living = *ScratchDirectory::make();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto scratch = *ScratchDirectory::make();
    ::_exit(::symlink(scratch.path().c_str(), (of_the_living.path() / "left").c_str()));
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  const auto left = std::filesystem::read_symlink(of_the_living.path() / "left");
  ASSERT_TRUE(std::filesystem::exists(left));
  {
    const auto next = *ScratchDirectory::make();
    EXPECT_FALSE(std::filesystem::exists(left));
  }
  EXPECT_TRUE(std::filesystem::exists(of_the_living.path()));
}

}  // namespace
}  // namespace starling::gossip
