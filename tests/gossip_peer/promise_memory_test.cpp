// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/promise_memory.h"

#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using protocol::Progress;

constexpr Progress kThird{.backed = 3, .exchange = 3};
constexpr Progress kFifth{.backed = 5, .exchange = 5};

TEST(PromiseMemory, HoldsWhereEachSessionBeginsWhereTheOneBeforeEnded) {
  PromiseMemory promises;
  EXPECT_TRUE(promises.session_begins("run", 1, {}));
  promises.session_ended("run", kThird, true);
  EXPECT_TRUE(promises.session_begins("run", 2, kThird));
  promises.session_ended("run", kThird, true);
  EXPECT_TRUE(promises.session_begins("run", 3, kFifth));
}

TEST(PromiseMemory, LacksWhatAnEarlierProcessPromisedUntilItIsKnown) {
  PromiseMemory promises;
  promises.run_had_begun("run");
  EXPECT_FALSE(promises.session_begins("run", 1, kThird));
  promises.session_ended("run", kThird, false);
  EXPECT_FALSE(promises.session_begins("run", 2, kThird));
  promises.session_ended("run", kFifth, true);
  EXPECT_TRUE(promises.session_begins("run", 3, kFifth));
}

TEST(PromiseMemory, LacksWhatIsAheadOfWhereASessionBegins) {
  PromiseMemory promises;
  promises.session_begins("run", 1, {});
  promises.session_ended("run", kFifth, true);
  EXPECT_FALSE(promises.session_begins("run", 2, kThird));
  promises.session_ended("run", kThird, false);
  EXPECT_FALSE(promises.session_begins("run", 3, kThird)) << "still";
}

TEST(PromiseMemory, LacksThoseOfASessionOfTheSameEpoch) {
  PromiseMemory promises;
  promises.session_begins("run", 1, {});
  promises.session_ended("run", kThird, true);
  EXPECT_FALSE(promises.session_begins("run", 1, kThird));
}

TEST(PromiseMemory, AnotherRunHasPromisesOfItsOwn) {
  PromiseMemory promises;
  promises.run_had_begun("run");
  EXPECT_TRUE(promises.session_begins("other", 1, {}));
  promises.session_ended("other", kFifth, true);
  EXPECT_FALSE(promises.session_begins("run", 2, kThird)) << "nothing more is known of it";
}

}  // namespace
}  // namespace starling::gossip
