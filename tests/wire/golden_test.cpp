// SPDX-License-Identifier: Apache-2.0
// Frames of every released version, byte for byte: they decode to what they meant, or are
// refused where that is of no use any more, and what is sent today is still the same. A file in
// golden/ is never changed; a new version adds its own.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/wire/codec.h"
#include "tests/support/paths.h"
#include "tests/wire/sample_messages.h"

namespace starling::wire {
namespace {

constexpr std::size_t kHeadBytes = 8;

std::filesystem::path golden() { return testing::source_root() / "tests/wire/golden"; }

std::filesystem::path path_of(const std::string& name) { return golden() / (name + ".hex"); }

// Hexadecimal words of 8 bytes, one a line; lines with '#' are for people.
Bytes read_golden(const std::string& name) {
  std::ifstream file(path_of(name));
  std::string line, text;
  while (std::getline(file, line)) {
    if (!line.starts_with('#')) text += line;
  }
  return from_hex(text).value();
}

// The frame that the transport makes of a header: payload bytes, header words, type.
Bytes frame_of(const protocol::Message& message, ByteView header) {
  Bytes frame(kHeadBytes + header.size());
  store_little<std::uint32_t>(frame.data(), 0);
  store_little(frame.data() + 4, static_cast<std::uint16_t>(header.size() / 8));
  store_little(frame.data() + 6, static_cast<std::uint16_t>(frame_type(message)));
  std::memcpy(frame.data() + kHeadBytes, header.data(), header.size());
  return frame;
}

std::string as_lines(ByteView frame) {
  std::string lines;
  for (std::size_t i = 0; i < frame.size(); i += 8) lines += to_hex(frame.subspan(i, 8)) + '\n';
  return lines;
}

TEST(Golden, EachFrameDecodesToWhatItMeant) {
  for (const testing::Sample& sample : testing::sample_messages()) {
    const Bytes frame = read_golden(sample.name);
    ASSERT_GE(frame.size(), kHeadBytes) << path_of(sample.name);
    EXPECT_EQ(load_little<std::uint32_t>(frame.data()), 0U);
    ASSERT_EQ(load_little<std::uint16_t>(frame.data() + 4) * 8U, frame.size() - kHeadBytes);
    const auto message = decode_header(load_little<std::uint16_t>(frame.data() + 6),
                                       ByteView(frame).subspan(kHeadBytes));
    ASSERT_TRUE(message) << sample.name << ": " << message.error().message();
    EXPECT_EQ(*message, sample.message) << sample.name;
  }
}

TEST(Golden, TodaysFramesAreTheSame) {
  for (const testing::Sample& sample : testing::sample_messages()) {
    if (!sample.today) continue;
    const auto header = encode_header(sample.message);
    ASSERT_TRUE(header) << sample.name << ": " << header.error().message();
    EXPECT_EQ(as_lines(frame_of(sample.message, *header)), as_lines(read_golden(sample.name)))
        << path_of(sample.name);
  }
}

// Notes of an all-reduce that name a mean by its attempt alone, as before version 5: nobody can ask
// for it, or tell it from another.
const std::set<std::string> kRefused = {"reduce_note_v1", "reduce_note_v2", "reduce_note_v4"};

TEST(Golden, AMeanWithoutADigestIsRefused) {
  for (const std::string& name : kRefused) {
    const Bytes frame = read_golden(name);
    ASSERT_GE(frame.size(), kHeadBytes) << path_of(name);
    const auto message = decode_header(load_little<std::uint16_t>(frame.data() + 6),
                                       ByteView(frame).subspan(kHeadBytes));
    ASSERT_FALSE(message) << name;
    EXPECT_EQ(message.error().code(), "bad-message") << name;
  }
}

TEST(Golden, EachFileIsTested) {
  std::set<std::string> names = kRefused;
  for (const testing::Sample& sample : testing::sample_messages()) names.insert(sample.name);
  for (const auto& entry : std::filesystem::directory_iterator(golden())) {
    EXPECT_TRUE(names.contains(entry.path().stem().string())) << entry.path();
  }
}

}  // namespace
}  // namespace starling::wire
