// SPDX-License-Identifier: Apache-2.0
#include "core/update/update_source.h"

#include <gtest/gtest.h>

#include "tests/update/file_payload.h"

namespace starling::update {
namespace {

const Schema kSchema{
    .vectors = {{.name = "model", .elements = 2000}, {.name = "c", .elements = 3}}};

// Element j of update k.
float value(std::size_t k, std::size_t j) {
  return static_cast<float>(k) * 10'000 + static_cast<float>(j);
}

std::vector<float> values_of(std::size_t k) {
  std::vector<float> values(2003);
  for (std::size_t j = 0; j < values.size(); ++j) values[j] = value(k, j);
  return values;
}

Contribution update(std::size_t k, Payload payload) {
  const std::vector<float> values = values_of(k);
  return validate({.task = TaskId(k),
                   .weight = static_cast<double>(k + 1),
                   .vectors = kSchema.vectors,
                   .payload_bytes = payload.size(),
                   .payload_checksum = checksum(as_bytes(std::span(values)))},
                  std::move(payload), kSchema)
      .value();
}

SharedBytes in_memory(std::size_t k) {
  return SharedBytes::own(to_bytes(as_bytes(std::span<const float>(values_of(k)))));
}

TEST(KeptUpdates, GivesTilesInTheOrderOfNamesWhereverThePayloadsAre) {
  starling::testing::FilePayload file(in_memory(1));
  KeptUpdates updates;
  updates.keep("cam-2", update(2, in_memory(2)));
  updates.keep("cam-0", update(0, in_memory(0)));
  updates.keep("cam-1", update(1, Payload(file)));
  ASSERT_EQ(updates.size(), 3U);
  const auto heads = updates.heads();
  ASSERT_EQ(heads.size(), 3U);
  for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(heads[k]->task, TaskId(k));
  for (const std::size_t tile : {1U, 7U, 1024U, 1999U, 2000U}) {
    for (std::size_t first = 0; first < 2000; first += tile) {
      const std::size_t size = std::min<std::size_t>(tile, 2000 - first);
      std::vector<float> out(3 * size);
      ASSERT_TRUE(updates.read(0, first, size, out));
      for (std::size_t k = 0; k < 3; ++k) {
        ASSERT_EQ(out[k * size], value(k, first)) << "tile " << tile;
        ASSERT_EQ(out[k * size + size - 1], value(k, first + size - 1));
      }
    }
  }
  std::vector<float> second(6);
  ASSERT_TRUE(updates.read(1, 1, 2, second));
  EXPECT_EQ(second, (std::vector<float>{2001, 2002, 12001, 12002, 22001, 22002}));
}

TEST(KeptUpdates, SaysWhoseUpdateCannotBeReadAnyMore) {
  starling::testing::FilePayload file(in_memory(1));
  KeptUpdates updates;
  updates.keep("cam-1", update(1, Payload(file)));
  file.readable = 4000;
  std::vector<float> out(1000);
  EXPECT_TRUE(updates.read(0, 0, 1000, out));
  const auto failed = updates.read(0, 1, 1000, out);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::kInternal) << "the process has to start again";
  EXPECT_EQ(failed.error().code(), "upload-unreadable");
  EXPECT_NE(failed.error().message().find("cam-1: "), std::string::npos);
}

TEST(Contribution, OfAFileThatCannotBeReadIsAnError) {
  starling::testing::FilePayload file(in_memory(1));
  const ContributionHead head = update(1, Payload(file)).head();
  for (const std::uint64_t readable : {8011U, 7999U, 0U}) {
    file.readable = readable;
    const auto refused = validate(head, Payload(file), kSchema);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), "upload-unreadable");
    EXPECT_EQ(refused.error().kind(), ErrorKind::kRetry);
  }
}

}  // namespace
}  // namespace starling::update
