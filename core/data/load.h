// SPDX-License-Identifier: Apache-2.0
// The one way in for data: a name such as "fashion-mnist:/usr/share/datasets/fashion-mnist:test"
// becomes a Dataset. Files are hostile until read: sizes are judged before memory is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/data/dataset.h"
#include "core/data/partition.h"

namespace starling::data {

enum class DatasetKind { kIdx, kFashionMnist, kCsv, kSynthetic };
enum class Split { kTrain, kTest };

// KIND:PATH[:SPLIT]
//   idx:DIRECTORY[:train|test]             train-images-idx3-ubyte[.gz], t10k-labels-..., (MNIST)
//   fashion-mnist[:DIRECTORY][:train|test]  the same, by default where Debian installs it
//   csv:FILE                               a header row; the column `label`, else the last
//   synthetic[:KEY=VALUE,...][:train|test] see synthetic.h
struct DatasetSpec {
  DatasetKind kind = DatasetKind::kSynthetic;
  std::string path;  // of a synthetic data set: its parameters
  Split split = Split::kTrain;

  // Fails with "dataset-spec" and a sentence that names the known kinds.
  [[nodiscard]] static Result<DatasetSpec> parse(std::string_view text);
  // Whether another split of it is there to evaluate on. Looks for the files of an idx directory.
  bool has_test_split() const;
  std::string to_string() const;
  friend bool operator==(const DatasetSpec&, const DatasetSpec&) = default;
};

// Chooses rows from the labels, in ascending order without repetition, before a feature is
// converted: who holds part 3 of 12 never holds 12 parts as floats.
using RowSelector = std::function<Result<std::vector<std::uint32_t>>(const RowLabels&)>;

struct LoadOptions {
  std::uint64_t rows_max = 100'000'000;  // in the file
  std::uint64_t bytes_max = std::uint64_t{8}
                            << 30;  // of the file's content, and of the floats made
  int classes = 0;                  // 0: as many as the data shows; else labels must lie below it
  std::string group_column;         // CSV: kept out of the features, becomes row_labels().groups
  RowSelector select;               // null: every row
};

// Errors are kRejected: "dataset-missing", "dataset-malformed", "dataset-too-large",
// "label-out-of-range", "not-finite", ...; the sentence names file, line and column where known.
// "dataset-missing" is a wrong setting (kUsage).
[[nodiscard]] Result<std::shared_ptr<const Dataset>> load_dataset(const DatasetSpec& spec,
                                                                  const LoadOptions& options = {});

// The part that `partition` names (its index and of), with the same rows in the same order as
// partition_views gives to that part; a spec without an index: every row. Sets group_column and
// select itself.
[[nodiscard]] Result<std::shared_ptr<const Dataset>> load_part(const DatasetSpec& spec,
                                                               const PartitionSpec& partition,
                                                               LoadOptions options = {});

// Whether data sets can be read, as a study asks before its first run. Each is read once, and not
// kept.
class ReadableDatasets {
 public:
  // As DatasetSpec::parse() and load_dataset().
  [[nodiscard]] Result<void> check(const std::string& dataset,
                                   const std::string& group_column = "");

 private:
  std::map<std::pair<std::string, std::string>, Result<void>> known_;  // by these two
};

}  // namespace starling::data
