// SPDX-License-Identifier: Apache-2.0
#include "core/base/archive.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "core/base/archive_file.h"
#include "tests/support/temporary_directory.h"

namespace starling {
namespace {

struct State {
  std::uint32_t number = 0;
  double share = 0;
  bool on = false;
  std::string name;
  std::vector<float> values;
  std::optional<std::uint64_t> maybe;
  std::map<std::uint32_t, double> by_node;

  void archive(Archive& state) {
    state(number);
    state(share);
    state(on);
    state(name);
    state.vector(values);
    state(maybe);
    state.map(by_node, [&](double& value) { state(value); });
  }
  friend bool operator==(const State&, const State&) = default;
};

Bytes written(State state) {
  Bytes bytes;
  Archive archive([&](ByteView more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
  state.archive(archive);
  return bytes;
}

std::optional<State> read(ByteView bytes) {
  ByteView left = bytes;
  Archive archive(
      [&](MutableByteView into) {
        if (into.size() > left.size()) return false;
        std::memcpy(into.data(), left.data(), into.size());
        left = left.subspan(into.size());
        return true;
      },
      bytes.size());
  State state;
  state.archive(archive);
  if (!archive.complete()) return std::nullopt;
  return state;
}

const State kState{.number = 7,
                   .share = 0.25,
                   .on = true,
                   .name = "ring",
                   .values = {1, 2, 3},
                   .maybe = 9,
                   .by_node = {{1, 2.5}, {4, -1}}};

TEST(Archive, ReadsWhatItWrote) {
  EXPECT_EQ(read(written(kState)), kState);
  EXPECT_EQ(read(written(State())), State());
}

TEST(Archive, WhatIsCutOrTooLongIsRefused) {
  Bytes bytes = written(kState);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(read(ByteView(bytes).first(size))) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(read(bytes));
}

// No count leads to more memory than the archive is long.
TEST(Archive, ACountBeyondTheRestIsRefused) {
  State many;
  many.values.assign(4, 1);
  Bytes bytes = written(many);
  const std::size_t at = sizeof(std::uint32_t) + sizeof(double) + 1 + sizeof(std::uint64_t);
  for (const std::uint64_t count : {std::uint64_t{5}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    store_little(bytes.data() + at, count);
    EXPECT_FALSE(read(bytes)) << count;
  }
}

TEST(ArchiveFile, AStateThatCannotBeWrittenReplacesNone) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "state";
  std::uint32_t number = 7;
  const auto visit = [&](Archive& state) { state(number); };
  ASSERT_TRUE(save_archive(path, {}, visit));
  const auto saved = save_archive(path, {}, [](Archive& state) { state.fail(); });
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code(), "state-incomplete");
  number = 0;
  EXPECT_TRUE(load_archive(path, {}, visit));
  EXPECT_EQ(number, 7U);
}

}  // namespace
}  // namespace starling
