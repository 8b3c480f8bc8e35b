// SPDX-License-Identifier: Apache-2.0
#include "edge_client/state_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_directory.h"

namespace starling::edge_client {
namespace {

using ::testing::HasSubstr;

TEST(StateLock, RefusesASecondHolderByName) {
  const testing::TemporaryDirectory directory;
  const StateDirectory state{directory.path()};
  EXPECT_FALSE(StateLock::holder(state));
  {
    const auto lock = StateLock::acquire(state);
    ASSERT_TRUE(lock);
    EXPECT_EQ(StateLock::holder(state), ::getpid());
    const auto second = StateLock::acquire(state);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), "already-running");
    EXPECT_THAT(second.error().message(), HasSubstr(std::to_string(::getpid())));
  }
  EXPECT_FALSE(StateLock::holder(state));
  EXPECT_TRUE(StateLock::acquire(state));
}

TEST(StateLock, ADeadProcessHoldsNothing) {
  const testing::TemporaryDirectory directory;
  const StateDirectory state{directory.path()};
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = StateLock::acquire(state);
    ::_exit(lock ? 7 : 8);  // without letting go
  }
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  ASSERT_EQ(WEXITSTATUS(ended), 7);
  EXPECT_FALSE(StateLock::holder(state));
  EXPECT_TRUE(StateLock::acquire(state));
}

TEST(StateLock, AMissingDirectoryIsNamed) {
  const auto lock = StateLock::acquire(StateDirectory{"/nonexistent/device"});
  ASSERT_FALSE(lock);
  EXPECT_THAT(lock.error().message(), HasSubstr("/nonexistent/device"));
}

}  // namespace
}  // namespace starling::edge_client
