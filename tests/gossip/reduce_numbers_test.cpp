// SPDX-License-Identifier: Apache-2.0
// Numbers that cannot be of this run: whatever a member adds to a sum or changes on the way, its
// next ones refuse it, or the mean stays as near as was asked for; and nobody else is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "tests/gossip/one_reduction.h"

namespace starling::collective {
namespace {

constexpr double kDistance = 8;
constexpr double kApart = 0.01;  // honest members, in each number

double distance(std::span<const float> a, const std::vector<float>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  }
  return std::sqrt(squares);
}

std::vector<std::vector<float>> inputs_of(std::size_t members, std::size_t floats) {
  Rng rng({.seed = members * 100 + floats});
  std::vector<std::vector<float>> inputs(members, std::vector<float>(floats));
  for (auto& input : inputs) {
    for (std::size_t k = 0; k < floats; ++k) {
      input[k] = static_cast<float>(std::sin(k) + kApart * (2 * rng.uniform() - 1));
    }
  }
  return inputs;
}

// Pieces of `liar` are changed on their way.
using Lie = std::function<void(std::uint64_t place, std::vector<float>& values)>;
struct Spoilt {
  Spoilt(Shape shape, std::size_t members, std::size_t floats, std::size_t its_liar, const Lie& lie)
      : liar(its_liar), inputs(inputs_of(members, floats)), reduction(shape, inputs, kDistance) {
    reduction.run([&](std::size_t from, Reduction::Outgoing& piece) {
      if (from != liar || !lie) return;
      std::vector<float> values(piece.floats.values.begin(), piece.floats.values.end());
      lie(piece.place, values);
      piece.floats = share(std::move(values));
    });
  }
  // Of those who have it and are honest, how far it is from their own at most; 0: nobody has it.
  double furthest() const {
    double most = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (i == liar || !reduction.parts[i].done()) continue;
      const double its = distance(reduction.parts[i].mean().values, inputs[i]);
      most = std::isnan(its) ? its : std::max(most, its);
    }
    return most;
  }

  std::size_t liar;
  std::vector<std::vector<float>> inputs;
  testing::OneReduction reduction;
};

struct Case {
  Shape shape;
  std::size_t members;
  std::size_t floats;
};

class ReduceNumbers : public ::testing::TestWithParam<Case> {
 protected:
  void for_each_liar(const Lie& lie, const std::function<void(const Spoilt&)>& check) const {
    const auto& [shape, members, floats] = GetParam();
    for (std::size_t liar = 0; liar < members; ++liar) {
      SCOPED_TRACE(liar);
      check(Spoilt(shape, members, floats, liar, lie));
    }
  }
};

TEST_P(ReduceNumbers, OfHonestMembersAreTaken) {
  for_each_liar({}, [](const Spoilt& its) {
    EXPECT_TRUE(its.reduction.all_done());
    EXPECT_THAT(its.reduction.refused, ::testing::IsEmpty());
  });
}

TEST_P(ReduceNumbers, ThatAreHugeOrNoneAreRefusedAndTheirSenderAlone) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float number : {1e3F, -1e30F, 3e38F, none, infinite}) {
    SCOPED_TRACE(number);
    const auto lie = [number](std::uint64_t, std::vector<float>& values) {
      if (!values.empty()) values.back() = number;
    };
    for_each_liar(lie, [](const Spoilt& its) {
      EXPECT_THAT(its.reduction.refused, ::testing::Not(::testing::IsEmpty()));
      for (const auto& [by, of] : its.reduction.refused) EXPECT_EQ(of, its.liar);
      EXPECT_EQ(its.furthest(), 0);  // nobody has a mean
    });
  }
}

// Each of its pieces a little, in sums and in means: no step is large, and together they would be.
TEST_P(ReduceNumbers, SpoilNoMeanByMoreThanWasAskedFor) {
  const auto& [shape, members, floats] = GetParam();
  for (double away = 0.25; away < 64; away *= 1.25) {
    SCOPED_TRACE(away);
    for (const bool in_means : {false, true}) {
      const auto lie = [&, floats = floats](std::uint64_t place, std::vector<float>& values) {
        const bool is_mean =
            place >= place_of(Phase::kGather, 0) && place < place_of(Phase::kUp, 0);
        if ((is_mean || place >= place_of(Phase::kDown, 0)) != in_means) return;
        const double all = std::sqrt(static_cast<double>(floats));
        for (float& value : values) value += static_cast<float>(away * kDistance / all);
      };
      for_each_liar(lie, [](const Spoilt& its) {
        EXPECT_LE(its.furthest(), kDistance);
        EXPECT_TRUE(!its.reduction.refused.empty() || its.reduction.all_done());
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ReduceNumbers,
                         ::testing::Values(Case{Shape::kRing, 2, 10}, Case{Shape::kRing, 5, 64},
                                           Case{Shape::kRing, 16, 1000}, Case{Shape::kRing, 7, 3},
                                           Case{Shape::kTree, 2, 10}, Case{Shape::kTree, 5, 64},
                                           Case{Shape::kTree, 16, 1000}, Case{Shape::kTree, 7, 3}),
                         [](const auto& test) {
                           return std::string(test.param.shape == Shape::kRing ? "Ring" : "Tree") +
                                  std::to_string(test.param.members) + "Of" +
                                  std::to_string(test.param.floats);
                         });

}  // namespace
}  // namespace starling::collective
