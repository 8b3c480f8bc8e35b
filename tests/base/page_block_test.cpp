// SPDX-License-Identifier: Apache-2.0
#include "core/base/page_block.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/digest.h"

namespace starling {
namespace {

std::size_t pages_in_memory(const PageBlock& block) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> states((block.size() + page - 1) / page);
  EXPECT_EQ(::mincore(block.data(), block.size(), states.data()), 0);
  return static_cast<std::size_t>(
      std::ranges::count_if(states, [](unsigned char state) { return (state & 1) != 0; }));
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST(PageBlock, TakesMemoryOnlyWhereItIsTouched) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  PageBlock block(10 * page - 5);
  EXPECT_EQ(pages_in_memory(block), 0U);
  std::memset(block.data() + 3 * page, 1, 2 * page);
  EXPECT_EQ(pages_in_memory(block), 2U);
  PageBlock moved = std::move(block);
  EXPECT_EQ(moved.size(), 10 * page - 5);
  EXPECT_TRUE(all_zero({moved.data(), 3 * page}));
  EXPECT_EQ(moved.data()[3 * page], std::byte{1});
}

TEST(PageBlock, GivesBackWholePagesAndNothingElse) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  PageBlock block(4 * page - 5);
  std::memset(block.data(), 1, block.size());
  block.release(1, page);  // a part of two pages
  EXPECT_EQ(pages_in_memory(block), 4U);
  block.release(1, 2 * page);
  EXPECT_EQ(pages_in_memory(block), 3U);
  EXPECT_TRUE(all_zero({block.data() + page, page}));
  EXPECT_EQ(block.data()[page - 1], std::byte{1});
  EXPECT_EQ(block.data()[2 * page], std::byte{1});
  const std::size_t before = pages_in_memory(block);
  block.release(3 * page, page - 5);  // the last page is not whole
  EXPECT_EQ(pages_in_memory(block), before - 1);
  block.release(0, block.size());
  EXPECT_EQ(pages_in_memory(block), 0U);
}

TEST(PageBlock, LiesWhereLargePagesDo) {
  constexpr std::size_t kLargePage = std::size_t{2} << 20;
  for (const std::size_t bytes : {kLargePage / 2, kLargePage, kLargePage + 1,
                                  std::size_t{4'000'000}, 3 * kLargePage, std::size_t{8'000'001}}) {
    PageBlock block(bytes, PageBlock::Pages::kLarge);
    EXPECT_EQ(block.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % kLargePage, 0U) << bytes;
    EXPECT_TRUE(all_zero({block.data(), bytes})) << bytes;
    std::memset(block.data(), 1, bytes);
    block.release(0, bytes);
    EXPECT_EQ(pages_in_memory(block), 0U) << bytes;
    EXPECT_TRUE(all_zero({block.data(), bytes})) << bytes;
  }
}

TEST(Checksum, OfPiecesIsThatOfTheWhole) {
  std::vector<std::byte> bytes(100'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 3);
  for (const std::size_t piece : {1U, 63U, 64U, 4096U, 65'537U, 100'000U}) {
    Checksum sum;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      sum.update(ByteView(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(sum.value(), checksum(bytes)) << piece;
  }
  Checksum empty;
  empty.update({});
  EXPECT_EQ(empty.value(), checksum({}));
}

}  // namespace
}  // namespace starling
