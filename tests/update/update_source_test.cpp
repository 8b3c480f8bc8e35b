// SPDX-License-Identifier: Apache-2.0
#include "core/update/update_source.h"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

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

Contribution update(std::size_t k, const SharedBytes& payload) {
  return validate({.task = TaskId(k),
                   .weight = static_cast<double>(k + 1),
                   .vectors = kSchema.vectors,
                   .payload_bytes = payload.size(),
                   .payload_checksum = checksum(payload.view())},
                  payload, kSchema)
      .value();
}

SharedBytes in_memory(std::size_t k) {
  return SharedBytes::own(to_bytes(as_bytes(std::span<const float>(values_of(k)))));
}

// A payload in a file, as the spool has it.
class MappedPayload {
 public:
  explicit MappedPayload(std::size_t k) : file_(std::tmpfile()) {
    const std::vector<float> values = values_of(k);
    bytes_ = values.size() * sizeof(float);
    EXPECT_EQ(std::fwrite(values.data(), 1, bytes_, file_), bytes_);
    std::fflush(file_);
    data_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, ::fileno(file_), 0);
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~MappedPayload() {
    ::munmap(data_, bytes_);
    std::fclose(file_);
  }
  MappedPayload(const MappedPayload&) = delete;
  MappedPayload& operator=(const MappedPayload&) = delete;

  SharedBytes bytes() const {
    return SharedBytes::mapped({static_cast<const std::byte*>(data_), bytes_});
  }

 private:
  std::FILE* file_;
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
};

TEST(KeptUpdates, GivesTilesInTheOrderOfNamesWhereverThePayloadsAre) {
  const MappedPayload mapped(1);
  KeptUpdates updates;
  updates.keep("cam-2", update(2, in_memory(2)));
  updates.keep("cam-0", update(0, in_memory(0)));
  updates.keep("cam-1", update(1, mapped.bytes()));
  ASSERT_EQ(updates.size(), 3U);
  const auto heads = updates.heads();
  ASSERT_EQ(heads.size(), 3U);
  for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(heads[k]->task, TaskId(k));
  // Twice: pages that left memory come back.
  for (int pass = 0; pass < 2; ++pass) {
    for (const std::size_t tile : {1U, 7U, 1024U, 1999U, 2000U}) {
      for (std::size_t first = 0; first < 2000; first += tile) {
        const std::size_t size = std::min<std::size_t>(tile, 2000 - first);
        std::vector<float> out(3 * size);
        updates.read(0, first, size, out);
        for (std::size_t k = 0; k < 3; ++k) {
          ASSERT_EQ(out[k * size], value(k, first)) << "tile " << tile;
          ASSERT_EQ(out[k * size + size - 1], value(k, first + size - 1));
        }
      }
    }
  }
  std::vector<float> second(6);
  updates.read(1, 1, 2, second);
  EXPECT_EQ(second, (std::vector<float>{2001, 2002, 12001, 12002, 22001, 22002}));
}

}  // namespace
}  // namespace starling::update
