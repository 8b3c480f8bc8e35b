// SPDX-License-Identifier: Apache-2.0
// Numbers that cannot be of this run: whatever a member adds to a sum or changes on the way, its
// next ones refuse it, or the mean stays as near as was asked for; and nobody else is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "gossip/collective/reduction.h"

namespace starling::collective {
namespace {

constexpr double kDistance = 8;
constexpr double kApart = 0.01;  // honest members, in each number

std::vector<float> values_of(const Floats& floats) {
  return {floats.values.begin(), floats.values.end()};
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  }
  return std::sqrt(squares);
}

// One reduction; pieces of `liar` are changed on their way.
class OneReduction {
 public:
  using Lie = std::function<void(std::uint64_t place, std::vector<float>& values)>;

  OneReduction(Shape shape, std::size_t members, std::size_t floats, std::size_t its_liar, Lie its)
      : liar(its_liar), lie_(std::move(its)) {
    Rng rng({.seed = members * 100 + floats});
    for (std::size_t i = 0; i < members; ++i) {
      std::vector<float> input(floats);
      for (std::size_t k = 0; k < floats; ++k) {
        input[k] = static_cast<float>(std::sin(k) + kApart * (2 * rng.uniform() - 1));
      }
      inputs.push_back(input);
      parts_.emplace_back(shape, i, members, share(std::move(input)), kDistance);
    }
  }

  void run() {
    std::vector<Reduction::Outgoing> out;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].start(out);
      send(i, out);
    }
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const auto [from, piece] = queue_[i];
      const auto taken = parts_[piece.to].take(from, piece.place, piece.floats, out);
      if (taken == Reduction::Taken::kWrong) {
        EXPECT_TRUE(out.empty());
        refused.emplace_back(piece.to, from);
      }
      send(piece.to, out);
    }
  }

  // Of those who have it and are honest, how far it is from their own at most; 0: nobody has it.
  double furthest() const {
    double most = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (i == liar || !parts_[i].done()) continue;
      const double its = distance(values_of(parts_[i].mean()), inputs[i]);
      most = std::isnan(its) ? its : std::max(most, its);
    }
    return most;
  }
  bool all_done() const {
    return std::ranges::all_of(parts_, [](const Reduction& part) { return part.done(); });
  }

  const std::size_t liar;
  std::vector<std::vector<float>> inputs;
  std::vector<std::pair<std::size_t, std::size_t>> refused;  // by, of

 private:
  void send(std::size_t from, std::vector<Reduction::Outgoing>& out) {
    for (Reduction::Outgoing& piece : out) {
      if (from == liar && lie_) {
        std::vector<float> values = values_of(piece.floats);
        lie_(piece.place, values);
        piece.floats = share(std::move(values));
      }
      queue_.emplace_back(from, std::move(piece));
    }
    out.clear();
  }

  Lie lie_;
  std::vector<Reduction> parts_;
  std::deque<std::pair<std::size_t, Reduction::Outgoing>> queue_;
};

struct Case {
  Shape shape;
  std::size_t members;
  std::size_t floats;
};

class ReduceNumbers : public ::testing::TestWithParam<Case> {
 protected:
  void for_each_liar(const OneReduction::Lie& lie,
                     const std::function<void(const OneReduction&)>& check) const {
    const auto& [shape, members, floats] = GetParam();
    for (std::size_t liar = 0; liar < members; ++liar) {
      SCOPED_TRACE(liar);
      OneReduction reduction(shape, members, floats, liar, lie);
      reduction.run();
      check(reduction);
    }
  }
};

TEST_P(ReduceNumbers, OfHonestMembersAreTaken) {
  for_each_liar({}, [](const OneReduction& reduction) {
    EXPECT_TRUE(reduction.all_done());
    EXPECT_THAT(reduction.refused, ::testing::IsEmpty());
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
    for_each_liar(lie, [](const OneReduction& reduction) {
      EXPECT_THAT(reduction.refused, ::testing::Not(::testing::IsEmpty()));
      for (const auto& [by, of] : reduction.refused) EXPECT_EQ(of, reduction.liar);
      EXPECT_EQ(reduction.furthest(), 0);  // nobody has a mean
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
      for_each_liar(lie, [](const OneReduction& reduction) {
        EXPECT_LE(reduction.furthest(), kDistance);
        EXPECT_TRUE(!reduction.refused.empty() || reduction.all_done());
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
