// SPDX-License-Identifier: Apache-2.0
// CHOCO-SGD and its compressors.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "gossip/algorithms/choco.h"
#include "tests/gossip/harness.h"

namespace starling::gossip {
namespace {

constexpr Node kNodes = 8;
constexpr std::size_t kSize = 20;

AlgorithmOptions choco(const std::string& compressor, double gamma = 0,
                       const std::string& order = "adapt-then-combine") {
  return {.name = "choco",
          .order = order,
          .compressor = compressor,
          .ratio = 0.1,
          .bits = 4,
          .consensus_step = gamma};
}

Row random_row(std::size_t size, std::uint64_t seed) {
  Rng rng({.seed = seed});
  Row row(size);
  for (double& v : row) v = rng.normal();
  return row;
}

Row decoded(const AlgorithmOptions& options, const Row& v, std::uint64_t seed = 1,
            std::size_t* bytes = nullptr) {
  Compressor compressor(options, v.size());
  Rng rng({.seed = seed});
  std::vector<std::byte> packed;
  compressor.encode(v, rng, packed);
  if (bytes != nullptr) *bytes = packed.size();
  Row out(v.size());
  compressor.add(packed, 1, out);
  return out;
}

double squared(const Row& v) { return std::inner_product(v.begin(), v.end(), v.begin(), 0.0); }

// The k of largest modulus by sorting, rounded to float as they travel.
Row top(const Row& v, std::size_t k) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::abs(v[a]) > std::abs(v[b]); });
  Row out(v.size());
  for (std::size_t i = 0; i < k; ++i) out[order[i]] = static_cast<float>(v[order[i]]);
  return out;
}

TEST(Compressor, TopKKeepsTheLargest) {
  for (const std::size_t size : {1, 7, 100, 1001}) {
    const Row v = random_row(size, size);
    std::size_t bytes = 0;
    const std::size_t k = (size + 9) / 10;
    EXPECT_EQ(decoded(choco("top-k"), v, 1, &bytes), top(v, k));
    EXPECT_EQ(bytes, 8 * k);
  }
}

// Ties go to the lowest indices; subnormals, zeros and equal moduli are told apart or not.
TEST(Compressor, TopKTakesTheFirstOfEqualModuli) {
  Row v(95, 0);
  for (std::size_t i = 10; i < 40; ++i) v[i] = i % 2 == 0 ? 0.75 : -0.75;
  v[60] = -2;
  v[70] = 0.76;
  Row expected(95, 0);
  expected[60] = -2;
  expected[70] = static_cast<double>(0.76F);
  for (std::size_t i = 10; i < 18; ++i) expected[i] = v[i];
  EXPECT_EQ(decoded(choco("top-k"), v), expected);  // k = 10
  Row tiny(20, 1e-310);
  tiny[13] = std::numeric_limits<double>::infinity();
  std::size_t bytes = 0;
  EXPECT_EQ(decoded(choco("top-k"), tiny, 1, &bytes)[13], tiny[13]);
  EXPECT_EQ(bytes, 16U);
}

TEST(Compressor, SignKeepsTheMeanModulusOfEachBlock) {
  const Row v = random_row(1100, 2);
  std::size_t bytes = 0;
  const Row out = decoded(choco("sign"), v, 1, &bytes);
  EXPECT_EQ(bytes, 64 + 4 + 64 + 4 + 10 + 4);
  for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 512}, {1024, 1100}}) {
    double mean = 0;
    for (std::size_t i = begin; i < end; ++i) mean += std::abs(v[i]);
    mean /= static_cast<double>(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      EXPECT_NEAR(out[i], std::copysign(mean, v[i]), 1e-6);
    }
  }
}

TEST(Compressor, QsgdIsUnbiasedButForItsDivisor) {
  const Row v = random_row(600, 3);
  std::size_t bytes = 0;
  Row mean(v.size());
  const int draws = 4000;
  for (int draw = 0; draw < draws; ++draw) {
    const Row out = decoded(choco("qsgd"), v, static_cast<std::uint64_t>(draw), &bytes);
    for (std::size_t i = 0; i < v.size(); ++i) mean[i] += out[i] / draws;
  }
  EXPECT_EQ(bytes, (4 + 256) + (4 + 44));
  const double divisor = 1 + std::min(512.0 / 49, std::sqrt(512.0) / 7);
  Row off(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) off[i] = mean[i] * divisor - v[i];
  // A level is norm / 7 wide, about 3.2; its draw varies by at most half of that.
  EXPECT_LT(std::sqrt(squared(off) / static_cast<double>(v.size())), 1.6 / std::sqrt(draws) * 1.5);
}

TEST(Compressor, EachIsAContraction) {
  for (const std::string name : {"top-k", "sign", "qsgd"}) {
    for (const int bits : {2, 4, 8}) {
      AlgorithmOptions options = choco(name);
      options.bits = bits;
      double left = 0, whole = 0;
      for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const Row v = random_row(700, seed);
        Row rest = v;
        const Row out = decoded(options, v, seed);
        for (std::size_t i = 0; i < v.size(); ++i) rest[i] -= out[i];
        left += squared(rest);
        whole += squared(v);
      }
      const double s = std::ldexp(1.0, bits - 1) - 1;
      const double omega = name == "top-k" ? 0.1
                           : name == "sign"
                               ? 0.5  // of normal elements 2 / pi
                               : 1 / (1 + std::min(512 / (s * s), std::sqrt(512.0) / s));
      EXPECT_LE(left, (1 - omega) * whole) << name << ' ' << bits;
    }
  }
}

TEST(Compressor, PassesOnWhatIsNotANumberAndKeepsZero) {
  for (const std::string name : {"top-k", "sign", "qsgd"}) {
    Row v(40);
    EXPECT_EQ(decoded(choco(name), v), v) << name;
    v[17] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(decoded(choco(name), v)[17])) << name;
  }
}

TEST(Choco, WithoutCompressionIsDpsgd) {
  const Quadratics problem(kNodes, kSize);
  const Matrix start = scattered(kNodes, kSize);
  for (const std::string order : {"adapt-then-combine", "combine-while-adapt"}) {
    Fleet<double> compressed(plan_by_hand(choco("none", 1, order), kNodes), problem, start);
    Fleet<double> plain(plan_by_hand({.name = "dpsgd", .order = order}, kNodes), problem, start);
    // In the second order neighbours know nothing of each other before the first message.
    if (order != "adapt-then-combine") compressed.step(ring(kNodes), 0);
    for (int t = 0; t < 50; ++t) {
      compressed.step(ring(kNodes), 0.05, 2);
      plain.step(ring(kNodes), 0.05, 2);
    }
    EXPECT_LT(distance(compressed.models(), plain.models()), 1e-13) << order;
  }
}

TEST(Choco, IsThePapersIterationInBothOrders) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = ring(kNodes);
  const double gamma = 0.3, rate = 0.05;
  for (const bool adapt_first : {true, false}) {
    Matrix x = scattered(kNodes, kSize), known = zeros(kNodes, kSize);
    const auto order = adapt_first ? "adapt-then-combine" : "combine-while-adapt";
    Fleet<double> fleet(plan_by_hand(choco("top-k", gamma, order), kNodes), problem, x);
    for (int t = 0; t < 80; ++t) {
      x = sum(x, problem.gradients(x), -rate);
      const auto combine = [&] { x = sum(x, sum(product(mesh.w(), known), known, -1), gamma); };
      if (!adapt_first) combine();
      for (Node i = 0; i < kNodes; ++i) {
        Row difference = x[i];
        for (std::size_t k = 0; k < kSize; ++k) difference[k] -= known[i][k];
        const Row q = top(difference, 2);
        for (std::size_t k = 0; k < kSize; ++k) known[i][k] += q[k];
      }
      if (adapt_first) combine();
      fleet.step(mesh, rate);
    }
    EXPECT_LT(distance(fleet.models(), x), 1e-12) << order;
    EXPECT_EQ(fleet.bytes(), 80 * kNodes * 2 * 2 * 8);
  }
}

TEST(Choco, NeighboursKnowTheCopiesAndTheMeanIsKeptAtEveryStep) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = ring(kNodes);
  for (const std::string name : {"none", "top-k", "sign", "qsgd"}) {
    Fleet<float> fleet(plan_by_hand(choco(name), kNodes), problem, scattered(kNodes, kSize));
    const auto node = [&](Node i) -> Choco<float>& {
      return dynamic_cast<Choco<float>&>(fleet.node(i));
    };
    const Row mean = fleet.mean();
    for (int t = 0; t < 400; ++t) {
      fleet.step(mesh, 0);
      Matrix known;
      for (Node i = 0; i < kNodes; ++i) {
        known.emplace_back(node(i).public_copy().begin(), node(i).public_copy().end());
      }
      const Matrix expected = sum(product(mesh.w(), known), known, -1);
      for (Node i = 0; i < kNodes; ++i) {
        const Matrix pull(1, Row(node(i).pull().begin(), node(i).pull().end()));
        ASSERT_LT(distance(pull, {expected[i]}), 1e-13) << name << t;
      }
      ASSERT_LT(distance({fleet.mean()}, {mean}), 1e-6) << name << t;
    }
    EXPECT_LT(distance(fleet.models(), Matrix(kNodes, mean)), 1e-2) << name;
  }
}

// Compression mixes more slowly, so it costs a multiple of D-PSGD's bias, not more.
TEST(Choco, SettlesNearTheOptimum) {
  const Quadratics problem(kNodes, kSize);
  Fleet<double> plain(plan_by_hand({.name = "dpsgd"}, kNodes), problem, zeros(kNodes, kSize));
  plain.run(ring(kNodes), 20000, 0.001);
  const double bias = distance(plain.models(), problem.optima());
  for (const std::string name : {"none", "top-k", "sign", "qsgd"}) {
    Fleet<double> fleet(plan_by_hand(choco(name), kNodes), problem, zeros(kNodes, kSize));
    fleet.run(ring(kNodes), 20000, 0.001);
    EXPECT_LT(distance(fleet.models(), problem.optima()), 8 * bias) << name;
  }
}

// What it knows of the copies would pull at it for as long as they are not begun anew.
TEST(Choco, WhoLacksAMessageMixesNoMoreUntilItBeginsAnew) {
  const Quadratics problem(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(choco("top-k"), kNodes), problem, scattered(kNodes, kSize));
  const auto pull = [&](Node i) {
    const std::span<const double> of = dynamic_cast<Choco<double>&>(fleet.node(i)).pull();
    return largest({Row(of.begin(), of.end())});
  };
  fleet.run(ring(kNodes), 5, 0.1);
  EXPECT_GT(pull(3), 0);
  fleet.cut(3);
  fleet.step(ring(kNodes), 0.1);
  EXPECT_EQ(pull(3), 0);
  fleet.cut({});
  const Row before = fleet.models()[3];
  fleet.run(ring(kNodes), 5, 0);
  EXPECT_EQ(fleet.models()[3], before);
  EXPECT_GT(pull(2), 0);
  for (Node i = 0; i < kNodes; ++i) ASSERT_TRUE(fleet.replace(i, {}));
  fleet.step(ring(kNodes), 0.1);
  EXPECT_GT(pull(3), 0);
}

TEST(Choco, WhoIsAwayFromTheBeginningHasNoPart) {
  const Quadratics problem(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(choco("top-k"), kNodes), problem, scattered(kNodes, kSize));
  fleet.cut(3);
  fleet.run(ring(kNodes), 20, 0);
  const auto& alone = dynamic_cast<Choco<double>&>(fleet.node(3));
  EXPECT_EQ(largest({Row(alone.pull().begin(), alone.pull().end())}), 0);
}

TEST(Choco, ARestartedNodeStartsFromTheModelItWasGiven) {
  const Quadratics problem(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(choco("top-k"), kNodes), problem, zeros(kNodes, kSize));
  fleet.run(ring(kNodes), 10, 0.1);
  const Row given(kSize, 0.25);
  fleet.node(3).restart(given);
  EXPECT_EQ(fleet.models()[3], given);
  fleet.run(ring(kNodes), 2000, 0.01);
  EXPECT_LT(distance(fleet.models(), problem.optima()), 1);
}

}  // namespace
}  // namespace starling::gossip
