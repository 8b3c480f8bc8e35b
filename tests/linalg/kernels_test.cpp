// SPDX-License-Identifier: Apache-2.0
#include "core/linalg/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/linalg/kernel_cases.h"

namespace starling::linalg {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class KernelSet : public EachKernels {};
INSTANTIATE_TEST_SUITE_P(All, KernelSet, ::testing::ValuesIn(available_kernels()), kernels_name);

TEST(Kernels, AreFoundByName) {
  const auto sets = available_kernels();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(find_kernels("").value(), sets.front());
  for (const Kernels* set : sets) EXPECT_EQ(find_kernels(set->name).value(), set);
  EXPECT_EQ(find_kernels("v9").error().code(), "unknown-isa");
}

struct ProductSize {
  std::size_t groups, rows, columns, outer, inner;
};

// Every number of rows and lanes that has code of its own, one below and one above each block.
std::vector<ProductSize> product_sizes() {
  std::vector<ProductSize> sizes = {{3, 5, 33, 2, 7}, {2, 30, 64, 5, 3}, {1, 1, 1, 1, 1}};
  for (std::size_t rows = 1; rows <= 15; ++rows) sizes.push_back({1, rows, 37, 1, 9});
  for (std::size_t columns = 1; columns <= 34; ++columns) sizes.push_back({1, 3, columns, 2, 4});
  return sizes;
}

// C by definition, in double, with the epilogue of `p`.
double product_at(const Product& p, const std::vector<float>& old, std::ptrdiff_t at,
                  std::ptrdiff_t g, std::ptrdiff_t m, std::ptrdiff_t n) {
  double sum = p.bias == nullptr ? 0 : static_cast<double>(p.bias[n]);
  for (std::ptrdiff_t o = 0; o < static_cast<std::ptrdiff_t>(p.outer); ++o) {
    for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(p.inner); ++i) {
      sum += static_cast<double>(p.a[g * p.a_group + m * p.a_row + o * p.a_outer + i * p.a_inner]) *
             static_cast<double>(p.b[o * p.b_outer + i * p.b_inner + n]);
    }
  }
  if (p.keep != 0) sum += static_cast<double>(p.keep) * static_cast<double>(old[at]);
  if (p.mask != nullptr && !(p.mask[at] > 0)) sum = 0;
  return sum;
}

void check_product(const Kernels& kernels, const ProductSize& size, bool by_rows, int epilogue) {
  Rng rng({.seed = 5});
  const auto [groups, rows, columns, outer, inner] = size;
  const std::size_t terms = outer * inner;
  const auto a = random_floats(groups * rows * terms, rng);
  const auto b = random_floats(terms * columns, rng);
  const auto bias = random_floats(columns, rng);
  const std::size_t c_row = columns + 3;  // what lies between the rows must not be touched
  const auto mask = random_floats(groups * rows * c_row, rng);
  auto c = epilogue == 1 ? random_floats(groups * rows * c_row, rng)
                         : std::vector<float>(groups * rows * c_row, kNan);
  const auto old = c;
  const Product p = {.a = a.data(),
                     .a_group = static_cast<std::ptrdiff_t>(rows * terms),
                     .a_row = static_cast<std::ptrdiff_t>(by_rows ? terms : 1),
                     .a_outer = static_cast<std::ptrdiff_t>(inner * (by_rows ? 1 : rows)),
                     .a_inner = static_cast<std::ptrdiff_t>(by_rows ? 1 : rows),
                     .b = b.data(),
                     .b_outer = static_cast<std::ptrdiff_t>(inner * columns),
                     .b_inner = static_cast<std::ptrdiff_t>(columns),
                     .c = c.data(),
                     .c_group = static_cast<std::ptrdiff_t>(rows * c_row),
                     .c_row = static_cast<std::ptrdiff_t>(c_row),
                     .groups = groups,
                     .rows = rows,
                     .columns = columns,
                     .outer = outer,
                     .inner = inner,
                     .keep = epilogue == 1 ? 0.5F : 0,
                     .bias = epilogue == 2 ? bias.data() : nullptr,
                     .mask = epilogue == 3 ? mask.data() : nullptr};
  kernels.multiply(p);
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t m = 0; m < rows; ++m) {
      for (std::size_t n = 0; n < columns; ++n) {
        const std::size_t at = (g * rows + m) * c_row + n;
        const std::string where = std::to_string(rows) + "x" + std::to_string(columns) + " at " +
                                  std::to_string(m) + ", " + std::to_string(n);
        const auto signed_at = static_cast<std::ptrdiff_t>(at);
        expect_close(static_cast<double>(c[at]),
                     product_at(p, old, signed_at, static_cast<std::ptrdiff_t>(g),
                                static_cast<std::ptrdiff_t>(m), static_cast<std::ptrdiff_t>(n)),
                     terms, where);
      }
      for (std::size_t n = columns; n < c_row; ++n) {
        const std::size_t at = (g * rows + m) * c_row + n;
        EXPECT_TRUE(c[at] == old[at] || std::isnan(old[at])) << "beyond the row";
        EXPECT_EQ(std::isnan(c[at]), std::isnan(old[at])) << "beyond the row";
      }
    }
  }
}

TEST_P(KernelSet, MultiplyAgreesWithTheDefinition) {
  for (const ProductSize& size : product_sizes()) {
    for (const bool by_rows : {false, true}) {
      for (int epilogue = 0; epilogue < 4; ++epilogue) {
        check_product(kernels(), size, by_rows, epilogue);
      }
    }
  }
}

TEST_P(KernelSet, MultiplyGivesARowTheSameBitsInAnyCompany) {
  Rng rng({.seed = 6});
  const std::size_t rows = 29, columns = 45, inner = 50;
  const auto a = random_floats(rows * inner, rng);
  const auto b = random_floats(inner * columns, rng);
  std::vector<float> together(rows * columns), alone(columns);
  Product p = {.a = a.data(),
               .a_row = inner,
               .a_inner = 1,
               .b = b.data(),
               .b_inner = columns,
               .c = together.data(),
               .c_row = columns,
               .rows = rows,
               .columns = columns,
               .inner = inner};
  kernels().multiply(p);
  p.c = alone.data();
  p.rows = 1;
  for (std::size_t m = 0; m < rows; ++m) {
    p.a = a.data() + m * inner;
    kernels().multiply(p);
    for (std::size_t n = 0; n < columns; ++n) ASSERT_EQ(alone[n], together[m * columns + n]);
  }
}

void check_affine(const Kernels& kernels, std::size_t rows, std::size_t columns, std::size_t depth,
                  bool relu) {
  Rng rng({.seed = 7});
  const auto x = random_floats(rows * depth, rng);
  const auto w = random_floats(columns * depth, rng);
  const auto bias = random_floats(columns, rng);
  std::vector<float> y(rows * columns + 1, kNan), alone(columns);
  Affine p = {.x = x.data(),
              .x_row = static_cast<std::ptrdiff_t>(depth),
              .w = w.data(),
              .w_row = static_cast<std::ptrdiff_t>(depth),
              .bias = bias.data(),
              .y = y.data(),
              .y_row = static_cast<std::ptrdiff_t>(columns),
              .rows = rows,
              .columns = columns,
              .depth = depth,
              .relu = relu};
  kernels.affine(p);
  EXPECT_TRUE(std::isnan(y.back())) << "wrote beyond the end";
  p.y = alone.data();
  p.rows = 1;
  for (std::size_t m = 0; m < rows; ++m) {
    p.x = x.data() + m * depth;
    kernels.affine(p);
    for (std::size_t n = 0; n < columns; ++n) {
      double sum = static_cast<double>(bias[n]);
      for (std::size_t k = 0; k < depth; ++k) {
        sum += static_cast<double>(x[m * depth + k]) * static_cast<double>(w[n * depth + k]);
      }
      if (relu && sum < 0) sum = 0;
      expect_close(
          static_cast<double>(y[m * columns + n]), sum, depth,
          std::to_string(rows) + "x" + std::to_string(columns) + "x" + std::to_string(depth));
      EXPECT_EQ(alone[n], y[m * columns + n]) << "a row depends on its neighbours";
    }
  }
}

TEST_P(KernelSet, AffineAgreesWithTheDefinition) {
  for (std::size_t rows = 1; rows <= 7; ++rows) {
    for (std::size_t columns = 1; columns <= 17; ++columns) {
      check_affine(kernels(), rows, columns, 1 + rows * columns, columns % 2 == 0);
    }
  }
  check_affine(kernels(), 60, 9, 3, false);  // more tiles than a strip
  for (const std::size_t depth : {1023, 1024, 1025, 2100}) {
    check_affine(kernels(), 50, 11, depth, true);
  }
}

struct XentCase {
  std::vector<float> logits;
  std::int32_t label;
};

void check_cross_entropy(const Kernels& kernels, const XentCase& c) {
  const std::size_t classes = c.logits.size();
  std::vector<float> gradient(classes);
  CrossEntropy task = {.logits = c.logits.data(),
                       .labels = &c.label,
                       .rows = 1,
                       .classes = classes,
                       .gradient = gradient.data(),
                       .scale = 0.25F};
  kernels.cross_entropy(task);
  double largest = -std::numeric_limits<double>::infinity();
  for (const float z : c.logits) largest = std::max(largest, static_cast<double>(z));
  double sum = 0;
  for (const float z : c.logits) sum += std::exp(static_cast<double>(z) - largest);
  const double loss = std::log(sum) + largest - static_cast<double>(c.logits[c.label]);
  EXPECT_NEAR(task.loss_sum, loss, 1e-6 * (1 + loss));
  for (std::size_t j = 0; j < classes; ++j) {
    const double p = std::exp(static_cast<double>(c.logits[j]) - largest) / sum;
    const double one = j == static_cast<std::size_t>(c.label) ? 1 : 0;
    EXPECT_NEAR(gradient[j], 0.25 * (p - one), 2e-7);
  }
  task.gradient = nullptr;
  const double with_gradient = task.loss_sum;
  kernels.cross_entropy(task);
  EXPECT_EQ(task.loss_sum, with_gradient);
}

TEST_P(KernelSet, CrossEntropyAgreesWithDouble) {
  Rng rng({.seed = 8});
  for (std::size_t classes = 2; classes <= 40; ++classes) {
    XentCase c = {random_floats(classes, rng), static_cast<std::int32_t>(rng.below(classes))};
    check_cross_entropy(kernels(), c);
    for (float& z : c.logits) z *= 60;
    check_cross_entropy(kernels(), c);
  }
}

TEST_P(KernelSet, CrossEntropyIsStableAtTheExtremes) {
  check_cross_entropy(kernels(), {{1e30F, -1e30F, 0}, 0});
  check_cross_entropy(kernels(), {{1e30F, -1e30F, 0}, 1});
  check_cross_entropy(kernels(), {{3e38F, -3e38F}, 1});
  check_cross_entropy(kernels(), {{0, 0, 0, 0}, 3});
  check_cross_entropy(kernels(), {{-88, 0}, 0});
  check_cross_entropy(kernels(), {{-86.5F, 0}, 0});
}

TEST_P(KernelSet, CrossEntropyPassesOnWhatIsNotANumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits :
       {std::vector<float>{0, kNan, 1}, std::vector<float>{kNan, 0, 1},
        std::vector<float>{infinity, 0, 1}, std::vector<float>(20, kNan)}) {
    const std::int32_t label = 2;
    CrossEntropy task = {
        .logits = logits.data(), .labels = &label, .rows = 1, .classes = logits.size()};
    kernels().cross_entropy(task);
    EXPECT_TRUE(std::isnan(task.loss_sum));
    EXPECT_EQ(task.correct, 0U);
  }
}

TEST_P(KernelSet, CorrectMeansTheFirstOfTheLargest) {
  const std::vector<float> logits = {1, 3, 3, 2, 1, 3, 3, 2};
  const std::int32_t labels[] = {1, 2};
  CrossEntropy task = {.logits = logits.data(), .labels = labels, .rows = 2, .classes = 4};
  kernels().cross_entropy(task);
  EXPECT_EQ(task.correct, 1U);
}

TEST_P(KernelSet, PoolTakesTheFirstLargestAndSendsTheGradientBack) {
  Rng rng({.seed = 9});
  for (const std::size_t channels : {1, 3, 16, 21, 64}) {
    const std::size_t height = 3, width = 4;
    auto image = random_floats(4 * height * width * channels, rng);
    for (float& v : image) v = std::round(v * 2);  // ties and zeros
    const auto before = image;
    for (const bool by_channel : {false, true}) {
      image = before;
      std::vector<float> pooled(height * width * channels);
      std::vector<std::uint8_t> choice(pooled.size());
      const auto place = [&](std::size_t y, std::size_t x, std::size_t c) {
        return by_channel ? (c * height + y) * width + x : (y * width + x) * channels + c;
      };
      Pool p = {.image = image.data(),
                .image_row = static_cast<std::ptrdiff_t>(2 * width * channels),
                .pooled = pooled.data(),
                .pooled_row = static_cast<std::ptrdiff_t>(place(1, 0, 0)),
                .pooled_column = static_cast<std::ptrdiff_t>(place(0, 1, 0)),
                .pooled_channel = by_channel ? static_cast<std::ptrdiff_t>(height * width) : 1,
                .choice = choice.data(),
                .height = height,
                .width = width,
                .channels = channels};
      kernels().pool_forward(p);
      auto expected = std::vector<float>(image.size(), 0.0F);
      for (std::size_t y = 0; y < height; ++y) {
        for (std::size_t x = 0; x < width; ++x) {
          for (std::size_t c = 0; c < channels; ++c) {
            std::size_t best = ((2 * y * 2 * width) + 2 * x) * channels + c;
            for (const auto& [dy, dx] : {std::pair{0, 1}, {1, 0}, {1, 1}}) {
              const std::size_t at = ((2 * y + dy) * 2 * width + 2 * x + dx) * channels + c;
              if (before[at] > before[best]) best = at;
            }
            ASSERT_EQ(pooled[place(y, x, c)], std::max(0.0F, before[best]));
            if (before[best] > 0) expected[best] = static_cast<float>(place(y, x, c) + 1);
          }
        }
      }
      for (std::size_t i = 0; i < pooled.size(); ++i) pooled[i] = static_cast<float>(i + 1);
      kernels().pool_backward(p);
      ASSERT_EQ(image, expected);
    }
  }
}

TEST_P(KernelSet, SumRowsScalesAndKeeps) {
  Rng rng({.seed = 10});
  for (const std::size_t columns : {1, 7, 16, 33}) {
    const std::size_t rows = 13;
    const auto x = random_floats(rows * columns, rng);
    std::vector<float> fresh(columns, kNan), kept(columns, 2);
    const auto stride = static_cast<std::ptrdiff_t>(columns);
    kernels().sum_rows(x.data(), stride, rows, columns, 0, 3, fresh.data());
    kernels().sum_rows(x.data(), stride, rows, columns, 0.5F, 3, kept.data());
    for (std::size_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (std::size_t m = 0; m < rows; ++m) sum += static_cast<double>(x[m * columns + n]);
      expect_close(fresh[n], 3 * sum, rows, "fresh");
      expect_close(kept[n], 1 + 3 * sum, rows, "kept");
    }
  }
}

// Of every size around the vectors and every alignment, with guards before and after.
struct FixedCase {
  std::vector<float> x;
  std::vector<std::int64_t> sums;
  std::size_t first, size;
};

std::vector<FixedCase> fixed_cases(double magnitude_max) {
  Rng rng({.seed = 21});
  std::vector<FixedCase> cases;
  for (std::size_t size = 0; size <= 67; ++size) {
    for (std::size_t first = 0; first < 9; ++first) {
      FixedCase c{{}, {}, first, size};
      for (std::size_t i = 0; i < first + size + 3; ++i) {
        const double magnitude = std::exp2(rng.uniform(-149, std::log2(magnitude_max)));
        c.x.push_back(static_cast<float>(rng.below(2) == 0 ? magnitude : -magnitude));
        c.sums.push_back(static_cast<std::int64_t>(rng.next_u64()) >> 2);
      }
      for (const double extreme : {magnitude_max, -magnitude_max, 0.0, -0.0, 0x1p-149}) {
        if (size > 0) c.x[first + rng.below(size)] = static_cast<float>(extreme);
      }
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

TEST_P(KernelSet, AddFixedAddsTheNearestInteger) {
  // Odd multiples of a half are ties, to be rounded to even; the last two use the whole range.
  for (const double factor : {0.5, 1.0, 600 * 0x1p53 / 3, -0x1p30, 0x1.fffffffffffffp61}) {
    for (const FixedCase& c : fixed_cases(std::abs(factor) > 0x1p60 ? 1 : 0x1p7)) {
      std::vector<std::int64_t> sums = c.sums;
      kernels().add_fixed(sums.data() + c.first, c.x.data() + c.first, c.size, factor);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const bool inside = i >= c.first && i < c.first + c.size;
        const double term = inside ? std::nearbyint(static_cast<double>(c.x[i]) * factor) : 0;
        ASSERT_EQ(sums[i], c.sums[i] + static_cast<std::int64_t>(term))
            << factor << " * " << c.x[i] << " at " << i << " of " << c.first << " + " << c.size;
      }
    }
  }
}

TEST_P(KernelSet, AddFixedWideSplitsTheNearestInteger) {
  for (const double factor : {0x1p51 / 2, 0x1p51, 49'999 * 0x1p53 / 3, -0x1.fffffp76}) {
    for (const FixedCase& c : fixed_cases(0x1p24)) {
      std::vector<std::int64_t> low = c.sums, high(c.sums.rbegin(), c.sums.rend());
      const std::vector<std::int64_t> old_high = high;
      kernels().add_fixed_wide(high.data() + c.first, low.data() + c.first, c.x.data() + c.first,
                               c.size, factor);
      for (std::size_t i = 0; i < low.size(); ++i) {
        const bool inside = i >= c.first && i < c.first + c.size;
        const double scaled = inside ? static_cast<double>(c.x[i]) * (factor * 0x1p-51) : 0;
        const double whole = std::nearbyint(scaled);
        const double rest = std::nearbyint((scaled - whole) * 0x1p51);
        ASSERT_EQ(high[i], old_high[i] + static_cast<std::int64_t>(whole)) << factor << " " << i;
        ASSERT_EQ(low[i], c.sums[i] + static_cast<std::int64_t>(rest)) << factor << " " << i;
      }
    }
  }
}

TEST_P(KernelSet, FixedToDoubleRoundsAsItIsWrittenAlsoInPlace) {
  for (const FixedCase& c : fixed_cases(1)) {
    const std::int64_t* const sum = c.sums.data() + c.first;
    std::vector<double> out(c.size + 1, -1);
    kernels().fixed_to_double(sum, out.data(), c.size, 0x1p-53, 2400.5);
    std::vector<std::int64_t> in_place = c.sums;
    kernels().fixed_to_double(in_place.data() + c.first,
                              reinterpret_cast<double*>(in_place.data() + c.first), c.size, 0x1p-53,
                              2400.5);
    EXPECT_EQ(out.back(), -1) << "wrote beyond the end";
    for (std::size_t i = 0; i < c.size; ++i) {
      ASSERT_EQ(out[i], static_cast<double>(sum[i]) * 0x1p-53 / 2400.5);
      ASSERT_EQ(std::bit_cast<std::int64_t>(out[i]), in_place[c.first + i]);
    }
  }
}

TEST_P(KernelSet, LargestMagnitudeFindsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto largest = [&](const float* x, std::size_t size) {
    return std::bit_cast<float>(kernels().largest_magnitude_bits(x, size));
  };
  EXPECT_EQ(largest(nullptr, 0), 0);
  for (FixedCase& c : fixed_cases(100)) {
    float expected = 0;
    for (std::size_t i = c.first; i < c.first + c.size; ++i) {
      expected = std::max(expected, std::abs(c.x[i]));
    }
    ASSERT_EQ(largest(c.x.data() + c.first, c.size), expected);
    if (c.size == 0) continue;
    c.x[c.first + c.size / 2] = -kInfinity;
    ASSERT_EQ(largest(c.x.data() + c.first, c.size), kInfinity);
    c.x[c.first + c.size - 1] = kNan;
    ASSERT_TRUE(std::isnan(largest(c.x.data() + c.first, c.size)));
  }
}

}  // namespace
}  // namespace starling::linalg
