// SPDX-License-Identifier: Apache-2.0
// How long a donor of a model is waited for.
#include <gtest/gtest.h>

#include <vector>

#include "gossip/peer/model_copy.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using protocol::Member;
using protocol::ModelColumns;

class ModelCopies : public ::testing::Test {
 protected:
  static TimePoint at(Duration time) { return TimePoint{} + time; }
  // Whom the copy asks for the first half of the model, of all that it asks.
  std::vector<Member> asked_for_first_half(Duration now) {
    std::vector<Member> asked;
    for (const ModelCopy::Ask& ask : copy_.asks(at(now))) {
      if (ask.columns.begin == 0) asked.push_back(ask.to);
    }
    return asked;
  }
  // Both are asked for a half, and the second one gives its own.
  void begin() {
    EXPECT_EQ(asked_for_first_half(0s), std::vector<Member>{1});
    const std::vector<float> half(5);
    copy_.take(2, {.exchange = 7, .begin = 5, .floats = 5}, {}, half);
  }

  const ModelColumns first_half_{.exchange = 7, .begin = 0, .floats = 5};
  ModelCopy copy_{{1, 2}, 10, {.silent = 2s, .sending = 60s}};
};

TEST_F(ModelCopies, ADonorThatStallsInTheMiddleIsReplacedAfterOneSilence) {
  begin();
  copy_.progressed(1, first_half_, at(1s));
  copy_.progressed(1, first_half_, at(2500ms));
  EXPECT_EQ(copy_.next_deadline(), at(4500ms));
  EXPECT_TRUE(asked_for_first_half(4499ms).empty());
  EXPECT_EQ(asked_for_first_half(4500ms), std::vector<Member>{2});
}

TEST_F(ModelCopies, ADonorThatSendsLittleByLittleIsReplacedInTheEnd) {
  begin();
  for (Duration now = 1s; now < 61s; now += 1s) {
    copy_.progressed(1, first_half_, at(now));
    EXPECT_TRUE(asked_for_first_half(now).empty());
  }
  EXPECT_EQ(asked_for_first_half(61s), std::vector<Member>{2});
}

}  // namespace
}  // namespace starling::gossip
