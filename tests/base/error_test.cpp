// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(Error, IsOfItsFactorysKindAndCategory) {
  EXPECT_EQ(rejected("a", "b"), Error(ErrorKind::kRejected, "a", "b", ErrorCategory::kFailed));
  EXPECT_EQ(internal("a", "b").category(), ErrorCategory::kFailed);
  EXPECT_EQ(wrong_setting("a", "b"), Error(ErrorKind::kRejected, "a", "b", ErrorCategory::kUsage));
  EXPECT_EQ(timed_out("a", "b"), Error(ErrorKind::kRetry, "a", "b", ErrorCategory::kTimedOut));
  EXPECT_EQ(not_connected("a", "b"),
            Error(ErrorKind::kRetry, "a", "b", ErrorCategory::kNotConnected));
  EXPECT_EQ(not_authorised("a", "b"),
            Error(ErrorKind::kRejected, "a", "b", ErrorCategory::kNotAuthorised));
}

TEST(Error, KeepsItsCategoryWhereMoreIsSaid) {
  const Error unknown = unsupported("unknown-strategy", "no such").as(ErrorCategory::kUsage);
  EXPECT_EQ(unknown.within("job.toml"), Error(ErrorKind::kUnsupported, "unknown-strategy",
                                              "job.toml: no such", ErrorCategory::kUsage));
  EXPECT_EQ(unknown.with_message("none"),
            Error(ErrorKind::kUnsupported, "unknown-strategy", "none", ErrorCategory::kUsage));
}

}  // namespace
}  // namespace starling
