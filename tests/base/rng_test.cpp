// SPDX-License-Identifier: Apache-2.0
#include "core/base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace starling {
namespace {

// Known answers published with Random123 (kat_vectors, philox4x32 10).
TEST(Rng, PhiloxMatchesThePublishedVectors) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, StreamsDifferInEveryPartOfTheirKey) {
  const StreamKey base{
      .seed = 1, .purpose = Purpose::kBatches, .node = 2, .round = 3, .attempt = 4};
  std::vector<StreamKey> keys(6, base);
  keys[1].seed = 2;
  keys[2].purpose = Purpose::kSelection;
  keys[3].node = 3;
  keys[4].round = 4;
  keys[5].attempt = 5;
  std::vector<std::uint64_t> first;
  for (const StreamKey& key : keys) first.push_back(Rng(key).next_u64());
  std::sort(first.begin(), first.end());
  EXPECT_EQ(std::adjacent_find(first.begin(), first.end()), first.end());
  EXPECT_EQ(Rng(base).next_u64(), Rng(base).next_u64());
}

TEST(Rng, MomentsAreThoseOfTheDistributions) {
  Rng rng({.seed = 7});
  constexpr int kDraws = 200'000;
  double normal = 0, square = 0, uniform = 0, gamma = 0, small_gamma = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = rng.normal();
    normal += z;
    square += z * z;
    uniform += rng.uniform();
    gamma += rng.gamma(3.5);
    small_gamma += rng.gamma(0.3);
  }
  EXPECT_NEAR(normal / kDraws, 0, 0.01);  // 4.5 standard errors
  EXPECT_NEAR(square / kDraws, 1, 0.015);
  EXPECT_NEAR(uniform / kDraws, 0.5, 0.003);
  EXPECT_NEAR(gamma / kDraws, 3.5, 0.02);
  EXPECT_NEAR(small_gamma / kDraws, 0.3, 0.006);
}

TEST(Rng, BelowIsUniformAndShufflePermutes) {
  Rng rng({.seed = 9});
  std::array<int, 7> counts{};
  for (int i = 0; i < 70'000; ++i) ++counts[rng.below(7)];
  for (int count : counts) EXPECT_NEAR(count, 10'000, 450);
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 0);
  auto shuffled = values;
  rng.shuffle(std::span(shuffled));
  EXPECT_NE(shuffled, values);
  std::sort(shuffled.begin(), shuffled.end());
  EXPECT_EQ(shuffled, values);
}

TEST(Rng, DirichletSumsToOneEvenWhereGammaUnderflows) {
  Rng rng({.seed = 11});
  std::vector<double> p(5);
  for (double alpha : {1e-300, 0.01, 0.5, 1.0, 100.0}) {
    rng.dirichlet(alpha, p);
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-12) << alpha;
  }
}

}  // namespace
}  // namespace starling
