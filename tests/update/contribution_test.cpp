// SPDX-License-Identifier: Apache-2.0
#include "core/update/contribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace starling::update {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ContributionTest : public ::testing::Test {
 protected:
  SharedBytes payload_of(std::vector<float> values) {
    auto owner = std::make_shared<const std::vector<float>>(std::move(values));
    const ByteView view = as_bytes(*owner);
    return {std::move(owner), view};
  }
  ContributionHead head_for(const SharedBytes& payload) {
    return {.task = TaskId(7),
            .weight = 600,
            .vectors = schema.vectors,
            .scalars = {{"train_loss", 0.5}},
            .payload_bytes = payload.size(),
            .payload_checksum = checksum(payload.view())};
  }
  std::string refusal(const ContributionHead& head, const SharedBytes& payload) {
    const auto result = validate(head, payload, schema);
    return result ? "accepted" : result.error().code();
  }

  Schema schema{.vectors = {{.name = "model", .elements = 3}, {.name = "control", .elements = 1}}};
  SharedBytes good = payload_of({1, -2, 3, 4});
};

TEST_F(ContributionTest, GivesItsVectorsBack) {
  const auto contribution = validate(head_for(good), good, schema);
  ASSERT_TRUE(contribution);
  EXPECT_EQ(contribution->vector(0)[1], -2);
  EXPECT_EQ(contribution->vector(0).size(), 3U);
  EXPECT_EQ(contribution->vector(1)[0], 4);
  EXPECT_EQ(contribution->weight(), 600);
}

TEST_F(ContributionTest, NamesWhatIsWrongWithAHead) {
  const auto refused = [&](auto change) {
    ContributionHead head = head_for(good);
    change(head);
    return refusal(head, good);
  };
  EXPECT_EQ(refused([](auto&) {}), "accepted");
  EXPECT_EQ(refused([](auto& h) { h.vectors.pop_back(); }), "wrong-vectors");
  EXPECT_EQ(refused([](auto& h) { h.vectors[0].elements = 4; }), "wrong-vectors");
  EXPECT_EQ(refused([](auto& h) { h.vectors[0].name = "models"; }), "wrong-vectors");
  EXPECT_EQ(refused([](auto& h) { h.payload_bytes = 12; }), "wrong-size");
  EXPECT_EQ(refused([](auto& h) { h.weight = 0; }), "bad-weight");
  EXPECT_EQ(refused([](auto& h) { h.weight = -1; }), "bad-weight");
  EXPECT_EQ(refused([](auto& h) { h.weight = std::nan(""); }), "bad-weight");
  EXPECT_EQ(refused([](auto& h) { h.weight = 1e300; }), "weight-out-of-range");
  EXPECT_EQ(refused([](auto& h) { h.weight = 0.99e-6; }), "weight-out-of-range");
  EXPECT_EQ(refused([](auto& h) { h.weight = 1e-6; }), "accepted");
  EXPECT_EQ(refused([](auto& h) { h.scalars["loss"] = std::nan(""); }), "bad-scalars");
  EXPECT_EQ(refused([](auto& h) { h.scalars["loss"] = 1e308; }), "bad-scalars");
  EXPECT_EQ(refused([](auto& h) { h.scalars["loss"] = -1e101; }), "bad-scalars");
  EXPECT_EQ(refused([](auto& h) { h.scalars["loss"] = 1e100; }), "accepted");
  EXPECT_EQ(refused([](auto& h) { h.scalars[""] = 1; }), "bad-scalars");
  EXPECT_EQ(refused([](auto& h) { h.scalars[std::string(kNameBytesMax + 1, 'x')] = 1; }),
            "bad-scalars");
  EXPECT_EQ(refused([](auto& h) {
              for (std::size_t i = 0; i <= kScalarsMax; ++i) h.scalars[std::to_string(i)] = 1;
            }),
            "bad-scalars");
  EXPECT_EQ(refused([](auto& h) { ++h.payload_checksum; }), "checksum-mismatch");
}

TEST_F(ContributionTest, RefusesValuesThatWouldSpoilASum) {
  for (const std::size_t at : {0U, 2U, 3U}) {
    std::vector<float> values{1, 2, 3, 4};
    const auto refused_with = [&](float bad) {
      values[at] = bad;
      const SharedBytes payload = payload_of(values);
      return refusal(head_for(payload), payload);
    };
    EXPECT_EQ(refused_with(kNan), "not-finite");
    EXPECT_EQ(refused_with(-kNan), "not-finite");
    EXPECT_EQ(refused_with(kInfinity), "not-finite");
    EXPECT_EQ(refused_with(-kInfinity), "not-finite");
    EXPECT_EQ(refused_with(std::nextafter(16'777'216.0F, kInfinity)), "value-out-of-range");
    EXPECT_EQ(refused_with(-3e38F), "value-out-of-range");
    EXPECT_EQ(refused_with(16'777'216.0F), "accepted");
    EXPECT_EQ(refused_with(std::numeric_limits<float>::denorm_min()), "accepted");
  }
}

TEST_F(ContributionTest, RefusesATruncatedPayload) {
  EXPECT_EQ(refusal(head_for(good), good.slice(0, 12)), "wrong-size");
}

TEST_F(ContributionTest, LooksAtEveryBlockOfALargePayload) {
  schema.vectors[0].elements = 200'000;  // four blocks, the last one not whole
  schema.vectors[1].elements = 70'000;
  const std::vector<float> values(270'000, 0.5F);
  const ContributionHead good_head = head_for(payload_of(values));
  EXPECT_EQ(refusal(good_head, payload_of(values)), "accepted");
  for (const std::size_t at : {0U, 65'535U, 65'536U, 199'999U, 200'000U, 265'536U, 269'999U}) {
    std::vector<float> bad = values;
    bad[at] = kNan;
    const SharedBytes payload = payload_of(bad);
    EXPECT_EQ(refusal(head_for(payload), payload), "not-finite") << at;
    EXPECT_EQ(refusal(good_head, payload), "checksum-mismatch") << at;
  }
}

}  // namespace
}  // namespace starling::update
