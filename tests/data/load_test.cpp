// SPDX-License-Identifier: Apache-2.0
#include "core/data/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "core/data/synthetic.h"

namespace starling::data {
namespace {

using ::testing::HasSubstr;

DatasetSpec parsed(std::string_view text) { return DatasetSpec::parse(text).value(); }
std::string refusal(std::string_view text) {
  const auto spec = DatasetSpec::parse(text);
  return spec ? "accepted" : spec.error().code() + ": " + spec.error().message();
}

TEST(DatasetSpec, ReadsKindPathAndSplit) {
  EXPECT_EQ(parsed("idx:/data/mnist"), (DatasetSpec{DatasetKind::kIdx, "/data/mnist"}));
  EXPECT_EQ(parsed("idx:/data/mnist:test"),
            (DatasetSpec{DatasetKind::kIdx, "/data/mnist", Split::kTest}));
  EXPECT_EQ(parsed("csv:C:/a b.csv"), (DatasetSpec{DatasetKind::kCsv, "C:/a b.csv"}));
  EXPECT_EQ(
      parsed("fashion-mnist:test"),
      (DatasetSpec{DatasetKind::kFashionMnist, "/usr/share/datasets/fashion-mnist", Split::kTest}));
  EXPECT_EQ(parsed("synthetic:rows=7:test").path, "rows=7,features=20,classes=4,noise=1.5,seed=1");
  EXPECT_EQ(parsed("synthetic").split, Split::kTrain);
}

TEST(DatasetSpec, TextRoundTrips) {
  for (const char* text : {"idx:/data/a:b/c", "csv:x.csv", "fashion-mnist", "synthetic:noise=0.1",
                           "synthetic:seed=18446744073709551615:test"}) {
    EXPECT_EQ(parsed(parsed(text).to_string()), parsed(text)) << text;
  }
}

TEST(DatasetSpec, RefusesWithASentence) {
  EXPECT_THAT(refusal("mnist:/x"), HasSubstr("one of idx, fashion-mnist, csv or synthetic"));
  EXPECT_THAT(refusal("fashon-mnist"), HasSubstr("did you mean 'fashion-mnist'?"));
  EXPECT_THAT(refusal("idx"), HasSubstr("names no file: write idx:PATH"));
  EXPECT_THAT(refusal("csv:"), HasSubstr("names no file: write csv:PATH"));
  EXPECT_THAT(refusal("idx:/x:tset"), HasSubstr("has the splits train and test, not 'tset'"));
  EXPECT_THAT(refusal("fashion-mnist:data"),
              HasSubstr("not 'data'; for a file or directory of this name write ./data"));
  EXPECT_THAT(refusal("csv:x.csv:test"), HasSubstr("has no splits"));
  EXPECT_THAT(refusal("synthetic:row=5"), HasSubstr("has no key 'row'"));
  EXPECT_THAT(refusal("synthetic:rows=0"), HasSubstr("rows = '0' is out of range"));
  EXPECT_THAT(refusal("synthetic:seed=1,rows"), HasSubstr("write rows=VALUE"));
  EXPECT_THAT(refusal("synthetic:rows=5,rows=6"), HasSubstr("gives 'rows' twice"));
  EXPECT_THAT(refusal(std::string(1000, '\n')), HasSubstr("..."));
}

TEST(Synthetic, IsTheSameWhateverPartIsMade) {
  const DatasetSpec spec = parsed("synthetic:rows=500,features=3,classes=5,seed=9");
  const auto whole = load_dataset(spec).value();
  LoadOptions options;
  options.select = [](const RowLabels&) -> Result<std::vector<std::uint32_t>> {
    return std::vector<std::uint32_t>{17, 499};
  };
  const auto part = load_dataset(spec, options).value();
  for (std::size_t j = 0; j < 3; ++j) {
    EXPECT_EQ(part->row(0)[j], whole->row(17)[j]);
    EXPECT_EQ(part->row(1)[j], whole->row(499)[j]);
  }
  EXPECT_EQ(part->labels()[0], 17 % 5);
}

TEST(Synthetic, RowsScatterAroundTheirCentresAsStated) {
  const SyntheticSpec spec{.rows = 20'000, .features = 8, .classes = 2, .noise = 3};
  const SyntheticGenerator generator(spec, "train");
  std::vector<float> x(8);
  double sum = 0;
  double squares = 0;
  for (std::uint32_t i = 0; i < spec.rows; ++i) {
    generator.fill(i, x);
    for (std::size_t j = 0; j < x.size(); ++j) {
      const double z = (x[j] - generator.centre(generator.label(i))[j]) / spec.noise;
      sum += z;
      squares += z * z;
    }
  }
  const double n = 8.0 * spec.rows;
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));  // 5 standard errors
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0) / std::sqrt(n));
}

TEST(Synthetic, SplitsShareCentresButNoRows) {
  const auto train = load_dataset(parsed("synthetic:rows=50,noise=0")).value();
  const auto test = load_dataset(parsed("synthetic:rows=50,noise=0:test")).value();
  EXPECT_TRUE(std::ranges::equal(train->features(), test->features()));
  const auto noisy = load_dataset(parsed("synthetic:rows=50")).value();
  const auto other = load_dataset(parsed("synthetic:rows=50:test")).value();
  for (std::size_t i = 0; i < noisy->features().size(); ++i) {
    EXPECT_NE(noisy->features()[i], other->features()[i]);
  }
}

TEST(Synthetic, RefusesWhatWouldNotFit) {
  EXPECT_EQ(load_dataset(parsed("synthetic:rows=2000000000")).error().code(), "dataset-too-large");
  EXPECT_EQ(load_dataset(parsed("synthetic:classes=65536,features=1048576")).error().code(),
            "dataset-too-large");
  EXPECT_EQ(load_dataset(parsed("synthetic:classes=4"), {.classes = 3}).error().code(),
            "label-out-of-range");
  EXPECT_EQ(load_dataset(parsed("synthetic"), {.group_column = "user"}).error().code(),
            "dataset-column");
}

TEST(Dataset, RefusesContentThatDoesNotFitTogether) {
  const auto code = [](Dataset::Content content) {
    const auto made = Dataset::make(std::move(content));
    return made ? "accepted" : made.error().code();
  };
  EXPECT_EQ(code({"a", {1, 1, 2}, 2, {1, 2, 3, 4}, {0, 1}}), "accepted");
  EXPECT_EQ(code({"a", {1, 1, 2}, 2, {1, 2, 3}, {0, 1}}), "dataset-shape");
  EXPECT_EQ(code({"a", {1, 1, 0}, 2, {}, {0, 1}}), "dataset-shape");
  EXPECT_EQ(code({"a", {1, 1, 1}, 2, {1, 2}, {0, 2}}), "label-out-of-range");
  EXPECT_EQ(code({"a", {1, 1, 1}, 2, {1, 2}, {0, -1}}), "label-out-of-range");
  EXPECT_EQ(code({"a", {1, 1, 1}, 1, {NAN}, {0}}), "not-finite");
  EXPECT_EQ(code({"a", {1, 1, 1}, 1, {1}, {0}, {1}, {"only"}}), "dataset-shape");
}

// A device that loads only its part holds, bit for bit and in the same order, what a simulation
// gives to that part.
TEST(LoadPart, EqualsTheViewOfTheWhole) {
  for (const char* scheme : {"dirichlet:alpha=0.3", "iid", "shards", "pathological:classes=2",
                             "quantity:alpha=1", "linear"}) {
    const DatasetSpec spec = parsed("synthetic:rows=1000,features=4,classes=6");
    const auto whole = load_dataset(spec).value();
    const auto views = partition_views(whole, PartitionSpec::parse(scheme).value(), 7).value();
    for (std::uint32_t k = 1; k <= 7; ++k) {
      PartitionSpec part = PartitionSpec::parse(scheme).value();
      part.index = k;
      part.of = 7;
      const auto loaded = load_part(spec, part).value();
      const DatasetView& view = views[k - 1];
      ASSERT_EQ(loaded->rows(), view.size());
      EXPECT_EQ(loaded->classes(), whole->classes());
      for (std::size_t i = 0; i < view.size(); ++i) {
        ASSERT_EQ(loaded->labels()[i], view.label(i));
        ASSERT_TRUE(std::ranges::equal(loaded->row(i), view.features(i)));
      }
    }
  }
}

TEST(FashionMnist, IsTheDataSetThatPeopleKnow) {
  const auto missing = DatasetSpec::parse("fashion-mnist").value();
  if (!std::filesystem::exists(missing.path)) GTEST_SKIP() << "dataset-fashion-mnist is absent";
  const auto test = load_dataset(parsed("fashion-mnist:test")).value();
  EXPECT_EQ(test->shape(), (Shape{1, 28, 28}));
  EXPECT_EQ(test->rows(), 10'000U);
  std::vector<int> counts(10);
  for (std::int32_t label : test->labels()) ++counts[static_cast<std::size_t>(label)];
  EXPECT_THAT(counts, ::testing::Each(1000));
  const auto train = load_dataset(parsed("fashion-mnist")).value();
  ASSERT_EQ(train->rows(), 60'000U);
  const double sum = std::accumulate(train->features().begin(), train->features().end(), 0.0);
  EXPECT_NEAR(sum / (60'000.0 * 784), 0.2860, 5e-5);  // the mean that normalisations quote
}

}  // namespace
}  // namespace starling::data
