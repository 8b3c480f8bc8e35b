// SPDX-License-Identifier: Apache-2.0
// Real processes; that they end with this one, and that sockets do not leak, is tested with
// gossip/launch/child_process.h.
#include "core/base/subprocess.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>

namespace starling {
namespace {

using ::testing::HasSubstr;

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader = FileDescriptor(ends[0]);
    writer = FileDescriptor(ends[1]);
  }
  // Up to the end: until every writer has closed it.
  std::string read_all() {
    writer.close();
    std::string text;
    std::array<char, 4096> buffer;
    for (;;) {
      const ssize_t got = ::read(reader.get(), buffer.data(), buffer.size());
      if (got <= 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  FileDescriptor reader;
  FileDescriptor writer;
};

std::unique_ptr<Subprocess> start(const Subprocess::Options& options) {
  auto process = Subprocess::start(options);
  EXPECT_TRUE(process) << process.error().message();
  return std::move(*process);
}

bool ends_in_time(const Subprocess& process) {
  pollfd waiting{.fd = process.pidfd(), .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, 30'000) == 1;
}

TEST(Subprocess, TheProgramIsLookedUpInPath) {
  const auto process = start({.arguments = {"sh", "-c", "exit 7"}});
  EXPECT_TRUE(process->running());
  EXPECT_EQ(process->wait().exit_code, 7);
  EXPECT_EQ(process->wait().text(), "ended with exit code 7");
  EXPECT_FALSE(process->running());
}

TEST(Subprocess, AProgramThatIsNotThereIsRefused) {
  const auto process = Subprocess::start({.arguments = {"no-such-program"}});
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().code(), "cannot-start");
  EXPECT_EQ(process.error().message(), "no-such-program cannot be run: No such file or directory");
}

// Each pipe's number here is the other's number there.
TEST(Subprocess, DescriptorsHaveTheirNumbersAlsoWhereTheyCrossOver) {
  Pipe first, second, third;
  const int a = first.writer.get(), b = second.writer.get(), c = third.writer.get();
  const auto say = [](const std::string& word, int number) {
    return "echo " + word + " >/proc/self/fd/" + std::to_string(number) + ";";
  };
  const std::string script = say("one", b) + say("two", c) + say("three", a);
  const auto process =
      start({.arguments = {"sh", "-c", script}, .descriptors = {{b, a}, {c, b}, {a, c}}});
  EXPECT_EQ(first.read_all(), "one\n");
  EXPECT_EQ(second.read_all(), "two\n");
  EXPECT_EQ(third.read_all(), "three\n");
  EXPECT_EQ(process->wait().exit_code, 0);
}

TEST(Subprocess, ItHasNoOtherDescriptors) {
  Pipe output, other;
  ::fcntl(other.writer.get(), F_SETFD, 0);
  const auto process = start({.arguments = {"sh", "-c", "echo /proc/self/fd/*; cat"},
                              .descriptors = {{1, output.writer.get()}, {5, other.reader.get()}}});
  const std::string listed = output.read_all();
  EXPECT_THAT(listed, HasSubstr("/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2"));
  EXPECT_THAT(listed, HasSubstr("/proc/self/fd/5"));
  for (const int number : {4, 6, 7, 8, 9}) {  // 3 is the shell's own, of this directory
    EXPECT_EQ(listed.find("/fd/" + std::to_string(number)), listed.npos) << listed;
  }
  EXPECT_EQ(process->wait().exit_code, 0) << "standard input is empty";
}

TEST(Subprocess, TheEnvironmentIsTheOneGiven) {
  ::setenv("STARLING_SUBPROCESS_TEST", "1", 1);
  auto environment = environment_without("STARLING_");
  environment.emplace_back("STARLING_TRAINER=1");
  Pipe output;
  const auto process = start({.arguments = {"sh", "-c", "env | grep STARLING_; echo \"$PATH\""},
                              .environment = environment,
                              .descriptors = {{1, output.writer.get()}}});
  ::unsetenv("STARLING_SUBPROCESS_TEST");
  EXPECT_EQ(output.read_all(), std::string("STARLING_TRAINER=1\n") + std::getenv("PATH") + "\n");
}

TEST(Subprocess, WhatItHasStartedEndsWithIt) {
  Pipe output;
  const auto process = start({.arguments = {"sh", "-c", "sleep 1000 & exit 3"},
                              .descriptors = {{1, output.writer.get()}}});
  ASSERT_TRUE(ends_in_time(*process));
  const auto end = process->try_wait();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 3);
  EXPECT_EQ(output.read_all(), "") << "which sleep held open";
}

TEST(Subprocess, SignalsReachItsGroup) {
  const auto process = start({.arguments = {"sh", "-c", "sleep 1000 & wait"}});
  EXPECT_FALSE(process->try_wait());
  process->kill_group(SIGKILL);
  EXPECT_TRUE(ends_in_time(*process));
  EXPECT_EQ(process->wait().exit_code, 128 + SIGKILL);
  EXPECT_EQ(process->wait().text(), "was ended by signal 9");
}

TEST(Subprocess, TheMemoryOfItsGroupIsCounted) {
  Pipe output;
  const auto process = start({.arguments = {"sh", "-c", "sleep 1000 & echo; wait"},
                              .descriptors = {{1, output.writer.get()}}});
  char byte = 0;
  ASSERT_EQ(::read(output.reader.get(), &byte, 1), 1);
  const std::uint64_t bytes = resident_bytes_of_group(process->id());
  EXPECT_GT(bytes, 100'000U);
  EXPECT_LT(bytes, 100'000'000U);
  process->kill_group(SIGKILL);
  process->wait();
  (void)output.read_all();  // its child gives its memory back before it closes the pipe
  EXPECT_EQ(resident_bytes_of_group(process->id()), 0U);
}

// The owner stands for a process that is killed while it runs a guarded program, whose child holds
// the pipe's other end until it is gone.
TEST(Subprocess, AGuardedGroupEndsEvenWhereItsOwnerIsKilled) {
  Pipe held, started;
  const pid_t owner = ::fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    const auto process = Subprocess::start(
        {.arguments = {"sh", "-c", "sleep 1000 & echo; exec sleep 1000"},
         .descriptors = {{STDOUT_FILENO, started.writer.get()}, {7, held.writer.get()}},
         .guarded = true});
    char line = 0;
    if (process && ::read(started.reader.get(), &line, 1) == 1) ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(owner, &status, 0), owner);
  EXPECT_TRUE(WIFSIGNALED(status));
  held.writer.close();
  pollfd waiting{.fd = held.reader.get(), .events = 0, .revents = 0};
  EXPECT_EQ(::poll(&waiting, 1, 30'000), 1) << "the child of the program still runs";
}

TEST(Subprocess, AGuardGoesWithItsProgram) {
  const auto process = start({.arguments = {"sh", "-c", "exit 3"}, .guarded = true});
  EXPECT_EQ(process->wait().exit_code, 3);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no child is left";
}

}  // namespace
}  // namespace starling
