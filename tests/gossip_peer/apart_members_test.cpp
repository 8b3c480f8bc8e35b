// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/apart_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using protocol::PeerHello;
using Change = ApartMembers::Change;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr std::uint64_t kOwnSize = 100;

PeerHello says_size(std::uint64_t size) { return {.begun = true, .elements = size}; }
PeerHello says_refusal(const std::string& why) { return {.refusal = why}; }

ApartMembers five_members() { return {kOwnSize, {"n1", "n2", "n3", "n4", "n5"}}; }

TEST(ApartMembers, AreThoseOfAnotherSizeAndThoseThatRefuse) {
  ApartMembers apart = five_members();
  EXPECT_EQ(apart.greeted(1, says_size(kOwnSize)).change, Change::kNone);
  EXPECT_EQ(apart.greeted(2, says_size(0)).change, Change::kNone) << "of an earlier version";
  EXPECT_EQ(apart.problem(), "");
  EXPECT_EQ(apart.greeted(3, says_size(7)).change, Change::kLeft);
  EXPECT_EQ(apart.greeted(4, says_refusal("no data")).change, Change::kLeft);
  EXPECT_FALSE(apart.contains(1) || apart.contains(2));
  EXPECT_TRUE(apart.contains(3) && apart.contains(4));
  EXPECT_EQ(apart.other_size(3), 7U);
  EXPECT_EQ(apart.other_size(4), 0U);
  EXPECT_EQ(apart.problem(),
            "nothing is exchanged with n4: their models have another size than this device's, "
            "which has 100 values; n5 takes no part in this run: it says \"no data\"");
  EXPECT_EQ(apart.greeted(3, says_size(kOwnSize)).change, Change::kCameBack);
  EXPECT_EQ(apart.other_size(3), 0U);
  EXPECT_EQ(apart.greeted(4, says_size(kOwnSize)).change, Change::kCameBack);
  EXPECT_EQ(apart.problem(), "");
}

// Where it says "this device", it is the other one.
TEST(ApartMembers, WhatARefusalSaysIsQuoted) {
  ApartMembers apart = five_members();
  EXPECT_THAT(apart.greeted(1, says_refusal("this device has\nno data")).line,
              Optional(HasSubstr("n2 takes no part in this run, and is not waited for: it says "
                                 "\"this device has?no data\"")));
  apart.greeted(2, says_refusal("no trainer"));
  EXPECT_EQ(apart.problem(),
            "n2, n3 take no part in this run: n2 says \"this device has?no data\"");
}

TEST(ApartMembers, AReasonIsSaidOnceAndAgainWhenItIsAnother) {
  ApartMembers apart = five_members();
  EXPECT_THAT(apart.greeted(1, says_size(7)).line, Optional(HasSubstr("its model has 7 values")));
  EXPECT_EQ(apart.greeted(1, says_size(7)).line, std::nullopt);
  PeerHello refuses = says_size(7);
  refuses.refusal = "this device's model has 7 values";
  EXPECT_EQ(apart.greeted(1, refuses).line, std::nullopt) << "the same reason";
  EXPECT_THAT(apart.greeted(1, says_refusal("text labels")).line,
              Optional(HasSubstr("text labels")));
  EXPECT_THAT(apart.problem(), HasSubstr("text labels"));
  EXPECT_EQ(apart.other_size(1), 0U);
}

// A device that was started again has no run for a moment.
TEST(ApartMembers, WhoHasNoRunYetDoesNotComeBack) {
  ApartMembers apart = five_members();
  apart.greeted(1, says_size(7));
  for (int start = 0; start < 3 * ApartMembers::kReturnsMax; ++start) {
    EXPECT_EQ(apart.greeted(1, PeerHello{}).change, Change::kNone);
    EXPECT_TRUE(apart.contains(1));
    EXPECT_EQ(apart.greeted(1, says_size(7)).line, std::nullopt);
  }
  EXPECT_EQ(apart.greeted(1, says_size(kOwnSize)).change, Change::kCameBack);
}

TEST(ApartMembers, WhoComesAndGoesStaysApartInTheEnd) {
  ApartMembers apart = five_members();
  int changes = 0;
  std::vector<std::string> lines;
  for (int i = 0; i < 100; ++i) {
    for (const PeerHello& hello : {says_size(7), says_size(kOwnSize)}) {
      const auto greeted = apart.greeted(1, hello);
      if (greeted.change != Change::kNone) ++changes;
      if (greeted.line) lines.push_back(*greeted.line);
    }
  }
  EXPECT_EQ(changes, 2 * ApartMembers::kReturnsMax + 1);
  ASSERT_EQ(lines.size(), ApartMembers::kReturnsMax + 1U);
  EXPECT_THAT(lines.back(), HasSubstr("has come back 4 times, and stays apart"));
  EXPECT_TRUE(apart.contains(1));
  EXPECT_THAT(apart.problem(), HasSubstr("n2"));
}

TEST(ApartMembers, WhoseReasonsChangeDoesNotFillTheLog) {
  ApartMembers apart = five_members();
  int lines = 0;
  for (int i = 0; i < 100; ++i) {
    if (apart.greeted(1, says_refusal("reason " + std::to_string(i))).line) ++lines;
  }
  EXPECT_EQ(lines, ApartMembers::kLinesMax);
  EXPECT_THAT(apart.problem(), HasSubstr("reason 99"));
}

}  // namespace
}  // namespace starling::gossip
