// SPDX-License-Identifier: Apache-2.0
#include "core/model/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "core/base/durable_file.h"
#include "core/base/rng.h"
#include "tests/support/temporary_directory.h"

namespace starling::model {
namespace {

// A file as the format's documentation describes it.
Bytes file_of(const std::string& header, const std::vector<float>& values) {
  Bytes bytes(8 + header.size() + values.size() * sizeof(float));
  store_little<std::uint64_t>(bytes.data(), header.size());
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  if (!values.empty()) {
    std::memcpy(bytes.data() + 8 + header.size(), values.data(), values.size() * sizeof(float));
  }
  return bytes;
}

const std::string kTorchHeader =
    R"({"__metadata__":{"format":"pt"},"fc1.bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("fc1.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]}})";

std::shared_ptr<const Layout> small_layout() {
  return Layout::make({{.name = "fc1.weight", .shape = {2, 1}}, {.name = "fc1.bias", .shape = {2}}})
      .value();
}

std::string refusal(const std::string& header, const std::vector<float>& values) {
  const auto result = parse_safetensors(file_of(header, values));
  return result ? "none" : result.error().code();
}

TEST(Safetensors, ReadsAKnownFileAsItIs) {
  const auto file = parse_safetensors(file_of(kTorchHeader, {1, 2, 3, 4})).value();
  EXPECT_EQ(file.metadata, (Metadata{{"format", "pt"}}));
  EXPECT_EQ(file.parameters.layout()->tensors()[0].name, "fc1.bias");
  const auto values = file.parameters.values();
  EXPECT_EQ(std::vector(values.begin(), values.end()), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Safetensors, PutsAKnownFileIntoTheExpectedOrder) {
  const auto file =
      parse_safetensors(file_of(kTorchHeader, {1, 2, 3, 4}), {.expected = small_layout()}).value();
  EXPECT_EQ(*file.parameters.layout(), *small_layout());
  const auto values = file.parameters.values();
  EXPECT_EQ(std::vector(values.begin(), values.end()), (std::vector<float>{3, 4, 1, 2}));
}

TEST(Safetensors, WritesExactlyTheseBytes) {
  Parameters parameters(small_layout());
  for (std::size_t i = 0; i < 4; ++i) parameters.values()[i] = static_cast<float>(i + 1);
  std::string header = R"({"__metadata__":{"round":"3"},)"
                       R"("fc1.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                       R"("fc1.bias":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "model.safetensors";
  ASSERT_TRUE(write_safetensors(path, parameters, {{"round", "3"}}));
  EXPECT_EQ(read_file(path, 1000).value(), file_of(header, {1, 2, 3, 4}));
}

TEST(Safetensors, RoundTripKeepsEveryBit) {
  const auto layout = Layout::make({{.name = "a \"quoted\" n\u00e4me", .shape = {3, 7}},
                                    {.name = "scalar"},
                                    {.name = "empty", .shape = {0, 4}},
                                    {.name = "b", .shape = {2}}})
                          .value();
  Parameters parameters(layout);
  Rng rng({.seed = 1});
  for (float& v : parameters.values()) v = std::bit_cast<float>(rng.next_u32());  // also NaN
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "model.safetensors";
  const Metadata metadata = {{"run", "1"}, {"note", "line\nbreak"}};
  ASSERT_TRUE(write_safetensors(path, parameters, metadata));
  const auto file = load_safetensors(path).value();
  EXPECT_EQ(file.parameters, parameters);
  EXPECT_EQ(file.parameters.sha256(), parameters.sha256());
  EXPECT_EQ(file.metadata, metadata);
  EXPECT_EQ(read_safetensors(path, {.expected = layout}).value(), parameters);
}

TEST(Safetensors, NamesWhatDiffersFromTheExpected) {
  const auto expect = [](std::vector<TensorInfo> tensors) {
    return parse_safetensors(file_of(kTorchHeader, {1, 2, 3, 4}),
                             {.expected = Layout::make(std::move(tensors)).value()})
        .error();
  };
  const Error missing = expect({{.name = "fc1.weight", .shape = {2, 1}},
                                {.name = "fc1.bias", .shape = {2}},
                                {.name = "fc2.bias", .shape = {1}}});
  EXPECT_EQ(missing.code(), "layout-mismatch");
  EXPECT_NE(missing.message().find("fc2.bias"), std::string::npos);
  const Error shape =
      expect({{.name = "fc1.weight", .shape = {1, 2}}, {.name = "fc1.bias", .shape = {2}}});
  EXPECT_NE(shape.message().find("[2, 1]; [1, 2]"), std::string::npos);
  const Error extra = expect({{.name = "fc1.weight", .shape = {2, 1}}});
  EXPECT_NE(extra.message().find("fc1.bias"), std::string::npos);
}

TEST(Safetensors, RefusesHostileHeaders) {
  const auto tensor = [](const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(refusal(tensor("[1]", "[0,4]"), {1}), "none");
  for (const auto& [shape, offsets] : {std::pair{"[2]", "[0,4]"},
                                       {"[1]", "[4,8]"},
                                       {"[1]", "[4,0]"},
                                       {"[1]", "[0,8]"},
                                       {"[-1]", "[0,4]"},
                                       {"[1]", "[-4,0]"},
                                       {"[1.5]", "[0,4]"},
                                       {"[1]", "[0,4,8]"},
                                       {"[1]", "[0]"},
                                       {"1", "[0,4]"},
                                       {"[\"1\"]", "[0,4]"},
                                       {"[1]", "[0,18446744073709551615]"},
                                       {"[4611686018427387904,4]", "[0,4]"},
                                       {"[4294967296,4294967296]", "[0,0]"},
                                       {"[1,1,1,1,1,1,1,1,1]", "[0,4]"},
                                       {"[1e30]", "[0,4]"},
                                       {"[1099511627777]", "[0,4]"}}) {
    EXPECT_EQ(refusal(tensor(shape, offsets), {1}), "bad-safetensors") << shape << offsets;
  }
  for (const std::string header :
       {"", "{", "[]", "null", "{}", R"({"a":1})", R"({"a":{}})", R"({"__metadata__":[]})",
        R"({"__metadata__":{"a":1}})", R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[[[[[[1]]]]]],"data_offsets":[0,4]}})",
        "{\"a\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"}) {
    EXPECT_EQ(refusal(header, {1}), "bad-safetensors") << header;
  }
}

TEST(Safetensors, RefusesOverlapsGapsAndRepetitions) {
  const auto two = [](const std::string& first, const std::string& second, const char* name = "b") {
    return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + first + R"(},")" + name +
           R"(":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(refusal(two("[4,8]", "[0,4]"), {1, 2}), "none");
  EXPECT_EQ(refusal(two("[0,4]", "[0,4]"), {1}), "bad-safetensors");
  EXPECT_EQ(refusal(two("[0,4]", "[0,4]"), {1, 2}), "bad-safetensors");
  EXPECT_EQ(refusal(two("[0,4]", "[8,12]"), {1, 2, 3}), "bad-safetensors");
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]"), {1, 2, 3}), "bad-safetensors");
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]", "a"), {1, 2}), "bad-safetensors");
}

TEST(Safetensors, RefusesOtherTypesByName) {
  for (const char* dtype : {"F16", "BF16", "I64", "F64", "BOOL"}) {
    const std::string header =
        std::string(R"({"a":{"dtype":")") + dtype + R"(","shape":[1],"data_offsets":[0,2]}})";
    const auto result = parse_safetensors(file_of(header, {1}));
    EXPECT_EQ(result.error().code(), "unsupported-dtype");
    EXPECT_NE(result.error().message().find(dtype), std::string::npos);
  }
}

TEST(Safetensors, RefusesImpossibleLengths) {
  Bytes file = file_of(kTorchHeader, {1, 2, 3, 4});
  for (const std::uint64_t length :
       {file.size() - 7, std::uint64_t{1} << 30, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    store_little<std::uint64_t>(file.data(), length);
    EXPECT_EQ(parse_safetensors(file).error().code(), "bad-safetensors") << length;
  }
  const Bytes whole = file_of(kTorchHeader, {1, 2, 3, 4});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(parse_safetensors(ByteView(whole).first(size)).error().code(), "bad-safetensors");
  }
  EXPECT_EQ(parse_safetensors(whole, {.file_bytes_max = 50}).error().code(), "file-too-large");
}

TEST(Safetensors, SurvivesAnyDamagedByte) {
  const Bytes whole = file_of(kTorchHeader, {1, 2, 3, 4});
  Rng rng({.seed = 2});
  for (int i = 0; i < 20'000; ++i) {
    Bytes damaged = whole;
    for (std::uint64_t k = 0; k <= rng.below(3); ++k) {
      damaged[rng.below(damaged.size())] = static_cast<std::byte>(rng.below(256));
    }
    const auto result = parse_safetensors(damaged, {.expected = small_layout()});
    EXPECT_TRUE(!result || result->parameters.size() == 4U);
  }
}

TEST(Safetensors, MetadataIsReadAlone) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "model.safetensors";
  SystemDisk disk;
  EXPECT_EQ(load_safetensors_metadata(disk, path).error().code(), "file-missing");
  ASSERT_TRUE(write_safetensors(path, Parameters(small_layout()), {{"round", "3"}}));
  EXPECT_EQ(load_safetensors_metadata(disk, path).value(), (Metadata{{"round", "3"}}));
  const Bytes whole = read_file(path, 1000).value();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(write_durably(path, ByteView(whole).first(size)));
    const auto cut = load_safetensors_metadata(disk, path);
    ASSERT_FALSE(cut) << size;
    EXPECT_EQ(cut.error().code(), "bad-safetensors") << size;
    EXPECT_NE(cut.error().message().find(path.string()), std::string::npos) << size;
  }
}

TEST(Safetensors, FilesThatCannotBeReadAreNamed) {
  const testing::TemporaryDirectory directory;
  EXPECT_EQ(load_safetensors(directory.path() / "absent").error().code(), "file-missing");
  EXPECT_EQ(load_safetensors(directory.path()).error().code(), "file-unreadable");
  const auto path = directory.path() / "cut.safetensors";
  const Bytes whole = file_of(kTorchHeader, {1, 2, 3, 4});
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{5}, std::size_t{60}, whole.size() - 1}) {
    ASSERT_TRUE(write_durably(path, ByteView(whole).first(size)));
    const Error error = load_safetensors(path).error();
    EXPECT_EQ(error.code(), "bad-safetensors");
    EXPECT_NE(error.message().find("cut.safetensors"), std::string::npos);
  }
  ASSERT_TRUE(write_durably(path, whole));
  EXPECT_EQ(load_safetensors(path, {.file_bytes_max = 50}).error().code(), "file-too-large");
  EXPECT_TRUE(load_safetensors(path));
}

}  // namespace
}  // namespace starling::model
