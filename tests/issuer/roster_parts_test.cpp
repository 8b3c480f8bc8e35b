// SPDX-License-Identifier: Apache-2.0
#include "core/issuer/roster_parts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/wire/limits.h"
#include "tests/issuer/signed_rosters.h"

namespace starling::issuer {
namespace {

using identity::Roster;
using identity::SignedRoster;
using testing::RosterOwner;

static_assert(identity::kRosterBytesMax == wire::kRosterBytesMax);
static_assert(identity::kRosterMembersMax == wire::kMembersMax);
static_assert(identity::kRosterSettingsMax == wire::kSettingsMax);
static_assert(kRosterWindowBytes % protocol::kChunkBytesMax == 0);

class RosterParts : public ::testing::Test {
 public:
  // All windows, each asked for as the assembler says.
  std::optional<Bytes> carry(const SignedRoster& roster, RosterAssembler& to, const Roster* held) {
    std::optional<protocol::RosterAsk> ask = ask_for_newer(held);
    while (ask) {
      const auto parts = roster_parts(roster, *ask);
      ask.reset();
      ++asked;
      for (const protocol::Envelope& part : parts) {
        EXPECT_LE(part.payload.size(), protocol::kChunkBytesMax);
        sent += part.payload.size();
        auto taken = give(to, part, held);
        if (taken.whole) return std::move(taken.whole);
        if (taken.ask) ask = taken.ask;
      }
    }
    return {};
  }
  static RosterAssembler::Taken give(RosterAssembler& to, const protocol::Envelope& part,
                                     const Roster* held) {
    return to.take(std::get<protocol::RosterPart>(part.message), part.payload.view(), held);
  }

  RosterOwner owner;
  std::size_t asked = 0;
  std::size_t sent = 0;
};

TEST_F(RosterParts, CarryARosterInWindows) {
  const SignedRoster small = owner.sign(3, {RosterOwner::member("cam-1")});
  const SignedRoster large = owner.sign_large(3, 3'400'000);
  for (const SignedRoster& roster : {small, large}) {
    asked = sent = 0;
    RosterAssembler assembler;
    const auto whole = carry(roster, assembler, nullptr);
    ASSERT_TRUE(whole);
    EXPECT_TRUE(std::ranges::equal(*whole, roster.bytes().view()));
    EXPECT_EQ(sent, roster.bytes().size());
    EXPECT_EQ(asked, roster.bytes().size() / kRosterWindowBytes + 1);
  }
}

TEST_F(RosterParts, AnswerOnlyWhoHoldsAnOlderOne) {
  const SignedRoster roster = owner.sign(3, {RosterOwner::member("cam-1")});
  const SignedRoster renewed =
      owner.sign(3, {RosterOwner::member("cam-1")}, std::chrono::minutes(5));
  const SignedRoster next = owner.sign(4, {RosterOwner::member("cam-1")});
  EXPECT_EQ(roster_parts(renewed, ask_for_newer(&roster.roster())).size(), 1U);
  EXPECT_EQ(roster_parts(next, ask_for_newer(&renewed.roster())).size(), 1U);
  EXPECT_EQ(roster_parts(roster, ask_for_newer(&roster.roster())).size(), 0U);
  EXPECT_EQ(roster_parts(roster, ask_for_newer(&renewed.roster())).size(), 0U);
  EXPECT_EQ(roster_parts(renewed, ask_for_newer(&next.roster())).size(), 0U);
  protocol::RosterAsk beyond;
  beyond.offset = roster.bytes().size();
  EXPECT_EQ(roster_parts(roster, beyond).size(), 0U);
}

TEST_F(RosterParts, OlderOnesArePassedOver) {
  const SignedRoster old = owner.sign(3, {RosterOwner::member("cam-1")});
  const SignedRoster next = owner.sign(4, {RosterOwner::member("cam-1")});
  RosterAssembler assembler;
  for (const SignedRoster& roster : {old, next}) {
    const auto taken = give(assembler, roster_parts(roster, {}).front(), &next.roster());
    EXPECT_FALSE(taken.whole || taken.ask);
  }
}

TEST_F(RosterParts, AnotherRosterOrARepetitionInTheMiddleBeginsAnew) {
  const SignedRoster old = owner.sign_large(3, 1'500'000);
  const SignedRoster next = owner.sign_large(4, 1'500'000);
  RosterAssembler assembler;
  const auto first = roster_parts(old, {});
  for (std::size_t i = 0; i < 5; ++i) (void)give(assembler, first[i], nullptr);
  auto whole = carry(old, assembler, nullptr);  // asked again after a silence
  ASSERT_TRUE(whole);
  for (std::size_t i = 0; i < 5; ++i) (void)give(assembler, first[i], nullptr);
  whole = carry(next, assembler, nullptr);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(std::ranges::equal(*whole, next.bytes().view()));
}

TEST_F(RosterParts, WhatDoesNotContinueIsPassedOver) {
  const SignedRoster roster = owner.sign_large(3, 1'500'000);
  const auto parts = roster_parts(roster, {});
  RosterAssembler assembler;
  const auto nothing = [](const RosterAssembler::Taken& taken) {
    return !taken.whole && !taken.ask;
  };
  EXPECT_TRUE(nothing(give(assembler, parts[1], nullptr)));
  EXPECT_TRUE(nothing(give(assembler, parts[0], nullptr)));
  EXPECT_TRUE(nothing(give(assembler, parts[2], nullptr)));
  const std::uint64_t total = roster.bytes().size();
  const Bytes much(total, std::byte{0});
  EXPECT_TRUE(
      nothing(assembler.take({.epoch = 3, .offset = 65'536, .total = total}, much, nullptr)));
  EXPECT_TRUE(nothing(
      assembler.take({.epoch = 9, .offset = 0, .total = identity::kRosterBytesMax + 1}, much, {})));
  EXPECT_TRUE(nothing(assembler.take({.epoch = 9, .offset = 0, .total = 0}, {}, nullptr)));
  EXPECT_TRUE(carry(roster, assembler, nullptr));
}

}  // namespace
}  // namespace starling::issuer
