// SPDX-License-Identifier: Apache-2.0
#include "core/model/parameters.h"

#include <gtest/gtest.h>

namespace starling::model {
namespace {

TEST(Layout, PlacesTensorsOneAfterTheOther) {
  const auto layout =
      Layout::make({{.name = "w", .shape = {2, 3}}, {.name = "s"}, {.name = "b", .shape = {3}}})
          .value();
  EXPECT_EQ(layout->size(), 10U);
  EXPECT_EQ(layout->find("w")->offset, 0U);
  EXPECT_EQ(layout->find("s")->offset, 6U);
  EXPECT_EQ(layout->find("s")->size(), 1U);
  EXPECT_EQ(layout->find("b")->offset, 7U);
  EXPECT_EQ(layout->find("c"), nullptr);
}

TEST(Layout, RefusesWhatCannotBe) {
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_EQ(Layout::make({{.name = ""}}).error().code(), "bad-layout");
  EXPECT_EQ(Layout::make({{.name = "a"}, {.name = "a"}}).error().code(), "bad-layout");
  EXPECT_FALSE(Layout::make({{.name = "a", .shape = {-1}}}));
  EXPECT_FALSE(Layout::make({{.name = "a", .shape = {huge, huge}}}));
  EXPECT_FALSE(Layout::make({{.name = "a", .shape = {huge, 4}}}));
  EXPECT_FALSE(Layout::make({{.name = "a", .shape = {huge}}, {.name = "b", .shape = {huge}}}));
  EXPECT_TRUE(Layout::make({{.name = "a", .shape = {huge, 0}}}));
}

TEST(Parameters, AreZeroAlignedAndHashTheirBytes) {
  const auto layout = Layout::make({{.name = "w", .shape = {2}}}).value();
  Parameters parameters(layout);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameters.values().data()) % 64, 0U);
  // SHA-256 of eight zero bytes, and of 1.0f, 2.0f little-endian.
  EXPECT_EQ(parameters.sha256().hex(),
            "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc");
  parameters.values()[0] = 1;
  parameters.values()[1] = 2;
  EXPECT_EQ(parameters.sha256().hex(),
            "b9c80b5adeca450753a16950c3cc655d271f7bef7a485bc83f112b72fef21d37");
}

TEST(Parameters, CompareBitsAndLayout) {
  const auto layout = Layout::make({{.name = "w", .shape = {2}}}).value();
  const auto other = Layout::make({{.name = "v", .shape = {2}}}).value();
  Parameters a(layout), b(layout);
  EXPECT_EQ(a, b);
  b.values()[0] = -0.0F;
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(a == Parameters(other));
}

}  // namespace
}  // namespace starling::model
