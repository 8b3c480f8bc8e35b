// SPDX-License-Identifier: Apache-2.0
#include "core/protocol/transfer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/base/rng.h"

namespace starling::protocol {
namespace {

SharedBytes pattern(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 256);
  return SharedBytes::own(std::move(bytes));
}

TEST(TransferSender, NeverPassesTheReceiversLimit) {
  TransferSender sender(pattern(1000), 300);
  EXPECT_FALSE(sender.next());
  ASSERT_TRUE(sender.start(0, 500));
  EXPECT_EQ(sender.next()->bytes.size(), 300U);
  EXPECT_EQ(sender.next()->bytes.size(), 200U);
  EXPECT_FALSE(sender.next());
  sender.extend(400);  // an old credit changes nothing
  EXPECT_FALSE(sender.next());
  sender.extend(1'000'000);
  EXPECT_EQ(sender.next()->offset, 500U);
  EXPECT_EQ(sender.next()->bytes.size(), 200U);
  EXPECT_TRUE(sender.done());
  EXPECT_FALSE(sender.next());
}

TEST(TransferSender, RefusesAnOffsetBeyondTheEnd) {
  TransferSender sender(pattern(10), 4);
  EXPECT_EQ(sender.start(11, 20).error().code(), "bad-offset");
  EXPECT_TRUE(sender.start(10, 0));
  EXPECT_TRUE(sender.done());
}

TEST(TransferReceiver, RefusesGapsOverlapsAndWhatExceedsItsWindow) {
  TransferReceiver receiver(1000, 200);
  EXPECT_EQ(receiver.tell_limit(), 200U);
  EXPECT_EQ(receiver.take(10, 5).error().code(), "bad-chunk");
  EXPECT_EQ(receiver.take(0, 201).error().code(), "bad-chunk");
  EXPECT_EQ(receiver.take(UINT64_MAX, 2).error().code(), "bad-chunk");
  EXPECT_EQ(receiver.take(0, UINT64_MAX).error().code(), "bad-chunk");
  EXPECT_TRUE(receiver.take(0, 100).value());
  EXPECT_FALSE(receiver.take(0, 100).value()) << "a repetition is skipped";
  EXPECT_EQ(receiver.take(50, 100).error().code(), "bad-chunk");
  EXPECT_EQ(receiver.received(), 100U);
}

TEST(TransferReceiver, TakesNoMoreThanItTold) {
  TransferReceiver receiver(1000, 200);
  EXPECT_EQ(receiver.tell_limit(), 200U);
  ASSERT_TRUE(receiver.take(0, 150).value());
  EXPECT_EQ(receiver.take(150, 51).error().code(), "bad-chunk") << "no credit was told yet";
  EXPECT_EQ(receiver.credit_due(), 350U);
  EXPECT_TRUE(receiver.take(150, 51).value());
}

TEST(TransferReceiver, TellsCreditByHalfWindowsUpToTheEnd) {
  TransferReceiver receiver(500, 200);
  EXPECT_EQ(receiver.tell_limit(), 200U);
  ASSERT_TRUE(receiver.take(0, 50));
  EXPECT_FALSE(receiver.credit_due());
  ASSERT_TRUE(receiver.take(50, 50));
  EXPECT_EQ(receiver.credit_due(), 300U);
  EXPECT_FALSE(receiver.credit_due());
  ASSERT_TRUE(receiver.take(100, 200));
  EXPECT_EQ(receiver.credit_due(), 500U);
  ASSERT_TRUE(receiver.take(300, 200));
  EXPECT_TRUE(receiver.done());
  EXPECT_FALSE(receiver.credit_due());
}

// Whatever sizes and interruptions: the bytes arrive once, in order, and it ends.
TEST(Transfer, ArrivesWholeUnderRandomWindowsAndReconnects) {
  Rng rng({.seed = 5});
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t total = 4 * rng.below(2000);
    const SharedBytes data = pattern(total);
    TransferSender sender(data, 1 + rng.below(500));
    ModelAssembler assembler(total, 1 + rng.below(700));
    TransferReceiver& receiver = assembler.receiver();
    ASSERT_TRUE(sender.start(0, receiver.tell_limit()));
    int steps = 0;
    while (!receiver.done()) {
      ASSERT_LT(++steps, 100'000);
      if (rng.below(20) == 0) {  // a reconnect: what is under way is lost
        ASSERT_TRUE(sender.start(receiver.received(), receiver.tell_limit()));
      }
      auto piece = sender.next();
      if (!piece) {
        const auto limit = receiver.credit_due();
        ASSERT_TRUE(limit.has_value()) << "stuck at " << receiver.received() << " of " << total;
        sender.extend(*limit);
        continue;
      }
      ASSERT_TRUE(assembler.take(piece->offset, piece->bytes));
    }
    const SharedBytes whole = std::move(assembler).finish();
    EXPECT_TRUE(std::equal(whole.view().begin(), whole.view().end(), data.view().begin(),
                           data.view().end()));
  }
}

TEST(ModelAssembler, KeepsOneWholePieceByReference) {
  const auto owner = std::make_shared<const std::vector<float>>(100, 1.5F);
  const SharedBytes data(owner, as_bytes(*owner));
  ModelAssembler assembler(data.size(), UINT64_MAX);
  ASSERT_TRUE(assembler.take(0, data));
  EXPECT_EQ(std::move(assembler).finish().view().data(), data.view().data());
}

}  // namespace
}  // namespace starling::protocol
