// SPDX-License-Identifier: Apache-2.0
#include "core/data/idx_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/data/dataset_files.h"
#include "tests/support/temporary_directory.h"

namespace starling::data {
namespace {

using starling::testing::big_endian;
using starling::testing::gzip;
using starling::testing::idx_images;
using starling::testing::idx_labels;
using starling::testing::write_file;

class IdxReader : public ::testing::Test {
 protected:
  void labels(std::string_view bytes, const char* name = "train-labels-idx1-ubyte") {
    write_file(directory_.path() / name, bytes);
  }
  void images(std::string_view bytes, const char* name = "train-images-idx3-ubyte") {
    write_file(directory_.path() / name, bytes);
  }
  Result<std::shared_ptr<const Dataset>> load(const LoadOptions& options = {},
                                              Split split = Split::kTrain) {
    return load_dataset({DatasetKind::kIdx, directory_.path().string(), split}, options);
  }
  // The code and sentence of the refusal.
  std::string refusal(const LoadOptions& options = {}) {
    const auto result = load(options);
    return result ? "accepted" : result.error().code() + ": " + result.error().message();
  }

  starling::testing::TemporaryDirectory directory_;
};

TEST_F(IdxReader, ScalesPixelsToOneAndKeepsTheShape) {
  labels(idx_labels({2, 0, 1}));
  images(idx_images(3, 2, 3));
  const auto dataset = load().value();
  EXPECT_EQ(dataset->shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(dataset->rows(), 3U);
  EXPECT_EQ(dataset->classes(), 3);
  for (std::size_t i = 0; i < 18; ++i) {
    EXPECT_EQ(dataset->features()[i], static_cast<float>(i) / 255.0F);
  }
  EXPECT_EQ(dataset->row(2)[0], 12.0F / 255.0F);
  EXPECT_EQ(std::vector(dataset->labels().begin(), dataset->labels().end()),
            (std::vector<std::int32_t>{2, 0, 1}));
}

TEST_F(IdxReader, ReadsGzipAlsoInSeveralMembers) {
  const std::string bytes = idx_images(300, 28, 28);  // more than any buffer
  labels(gzip(idx_labels(std::vector<int>(300, 4))), "train-labels-idx1-ubyte.gz");
  images(gzip(bytes.substr(0, 100'000)) + gzip(bytes.substr(100'000)),
         "train-images-idx3-ubyte.gz");
  const auto dataset = load().value();
  ASSERT_EQ(dataset->rows(), 300U);
  for (std::size_t i = 0; i < dataset->features().size(); ++i) {
    ASSERT_EQ(dataset->features()[i], static_cast<float>(i % 256) / 255.0F);
  }
}

TEST_F(IdxReader, SplitsAreDifferentFiles) {
  labels(idx_labels({1, 1}));
  images(idx_images(2, 1, 1));
  labels(idx_labels({3}), "t10k-labels-idx1-ubyte");
  images(idx_images(1, 1, 1), "t10k-images-idx3-ubyte");
  EXPECT_EQ(load({}, Split::kTest).value()->labels()[0], 3);
  EXPECT_EQ(load({}, Split::kTrain).value()->rows(), 2U);
}

TEST_F(IdxReader, ConvertsOnlyTheChosenRows) {
  labels(gzip(idx_labels({0, 1, 2, 3})), "train-labels-idx1-ubyte.gz");
  images(gzip(idx_images(4, 1, 2)), "train-images-idx3-ubyte.gz");
  LoadOptions options;
  options.select = [](const RowLabels& rows) -> Result<std::vector<std::uint32_t>> {
    EXPECT_EQ(rows.labels.size(), 4U);
    EXPECT_EQ(rows.classes, 4);
    return std::vector<std::uint32_t>{1, 3};
  };
  const auto dataset = load(options).value();
  EXPECT_EQ(dataset->rows(), 2U);
  EXPECT_EQ(dataset->classes(), 4) << "also where the part does not hold every class";
  EXPECT_EQ(dataset->labels()[1], 3);
  EXPECT_EQ(dataset->features()[0], 2.0F / 255.0F);
  EXPECT_EQ(dataset->features()[3], 7.0F / 255.0F);
}

TEST_F(IdxReader, RefusesWhatIsNoIdxFile) {
  labels(idx_labels({1}));
  images("PK\x03\x04 and so on, long enough for a header");
  EXPECT_THAT(refusal(), ::testing::HasSubstr("dataset-malformed"));
  EXPECT_THAT(refusal(), ::testing::HasSubstr("does not begin as an IDX file"));
  images(idx_labels({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_THAT(refusal(), ::testing::HasSubstr("does not begin as an IDX file"));
  images("");
  EXPECT_THAT(refusal(), ::testing::HasSubstr("ends too early: 16 more bytes"));
}

TEST_F(IdxReader, RefusesEveryTruncation) {
  const std::string image_bytes = idx_images(2, 2, 2);
  labels(idx_labels({0, 1}));
  for (std::size_t length = 0; length < image_bytes.size(); ++length) {
    images(image_bytes.substr(0, length));
    EXPECT_THAT(refusal(), ::testing::StartsWith("dataset-malformed")) << length;
  }
  images(image_bytes);
  const std::string label_bytes = idx_labels({0, 1});
  for (std::size_t length = 0; length < label_bytes.size(); ++length) {
    labels(label_bytes.substr(0, length));
    EXPECT_THAT(refusal(), ::testing::StartsWith("dataset-malformed")) << length;
  }
}

TEST_F(IdxReader, NoTruncationAndNoFlippedBitOfGzipChangesWhatIsRead) {
  const std::vector<std::int32_t> truth = {0, 1, 1, 0, 1};
  const std::string bytes = gzip(idx_labels(truth));
  images(idx_images(5, 1, 1));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    labels(bytes.substr(0, length));
    EXPECT_NE(refusal(), "accepted") << length;
  }
  for (std::size_t bit = 80; bit < bytes.size() * 8; ++bit) {  // past the gzip header
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    labels(flipped);
    if (const auto dataset = load()) {  // the padding after the last deflate block means nothing
      EXPECT_TRUE(std::ranges::equal((*dataset)->labels(), truth)) << bit;
    }
  }
}

TEST_F(IdxReader, RefusesTrailingBytes) {
  labels(idx_labels({0}));
  images(idx_images(1, 1, 1) + "x");
  EXPECT_THAT(refusal(), ::testing::HasSubstr("has more bytes than its header says"));
  images(idx_images(1, 1, 1));
  labels(gzip(idx_labels({0})) + "x");
  EXPECT_THAT(refusal(), ::testing::StartsWith("dataset-malformed"));
}

TEST_F(IdxReader, RefusesCountsThatDisagree) {
  labels(idx_labels({0, 1, 2}));
  images(idx_images(2, 1, 1));
  EXPECT_THAT(refusal(), ::testing::HasSubstr("has 2 images, but the labels file has 3 labels"));
}

TEST_F(IdxReader, RefusesHugeDimensionsBeforeTakingMemory) {
  labels(idx_labels({0}));
  images(big_endian(0x803) + big_endian(1) + big_endian(0xFFFFFFFF) + big_endian(0xFFFFFFFF));
  EXPECT_THAT(refusal(), ::testing::HasSubstr("1 to 4096 a side"));
  images(big_endian(0x803) + big_endian(1) + big_endian(0) + big_endian(5));
  EXPECT_THAT(refusal(), ::testing::HasSubstr("images of 0 x 5 pixels"));
  images(big_endian(0x803) + big_endian(1) + big_endian(4096) + big_endian(4096));
  EXPECT_THAT(refusal(), ::testing::HasSubstr("is too short for the 16777216 bytes"));
  labels(big_endian(0x801) + big_endian(0xFFFFFFFF));
  EXPECT_THAT(refusal(), ::testing::StartsWith("dataset-too-large"));
  labels(big_endian(0x801) + big_endian(99'999'999));
  EXPECT_THAT(refusal(), ::testing::HasSubstr("is too short for the 99999999 bytes"));
}

TEST_F(IdxReader, RefusesWhatExceedsItsLimits) {
  labels(idx_labels({0, 1}));
  images(idx_images(2, 8, 8));
  EXPECT_THAT(refusal({.rows_max = 1}), ::testing::HasSubstr("has 2 rows; at most 1"));
  EXPECT_THAT(refusal({.bytes_max = 511}), ::testing::StartsWith("dataset-too-large"));
  EXPECT_EQ(refusal({.bytes_max = 512}), "accepted") << "2 x 64 floats";
}

TEST_F(IdxReader, RefusesLabelsThatTheModelDoesNotHave) {
  labels(idx_labels({0, 9, 10}));
  images(idx_images(3, 1, 1));
  EXPECT_THAT(refusal({.classes = 10}),
              ::testing::HasSubstr("row 3 has the label 10, but the model has 10 classes"));
  EXPECT_EQ(load({.classes = 47}).value()->classes(), 47);
}

TEST_F(IdxReader, NamesWhatIsMissing) {
  EXPECT_THAT(refusal(), ::testing::HasSubstr("train-labels-idx1-ubyte nor the same with .gz"));
  const auto fashion = load_dataset({DatasetKind::kFashionMnist, "/nowhere"});
  EXPECT_EQ(fashion.error().code(), "dataset-missing");
  EXPECT_THAT(fashion.error().message(),
              ::testing::HasSubstr("apt-get install dataset-fashion-mnist"));
}

TEST_F(IdxReader, TheTestSplitIsThereWhereItsFilesAre) {
  const std::string directory = directory_.path().string();
  const auto has_test_split = [&](const std::string& text) {
    return DatasetSpec::parse(text).value().has_test_split();
  };
  EXPECT_FALSE(has_test_split("idx:" + directory));
  EXPECT_FALSE(has_test_split("fashion-mnist:" + directory));
  EXPECT_TRUE(has_test_split("synthetic:rows=10"));
  labels("", "t10k-labels-idx1-ubyte.gz");
  EXPECT_TRUE(has_test_split("idx:" + directory + ":train"));
  EXPECT_FALSE(has_test_split("idx:" + directory + ":test")) << "no other one";
}

TEST_F(IdxReader, RefusesADirectoryInPlaceOfAFile) {
  std::filesystem::create_directory(directory_.path() / "train-labels-idx1-ubyte");
  EXPECT_THAT(refusal(), ::testing::StartsWith("dataset-unreadable"));
}

}  // namespace
}  // namespace starling::data
