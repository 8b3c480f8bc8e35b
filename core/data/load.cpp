// SPDX-License-Identifier: Apache-2.0
#include "core/data/load.h"

#include <algorithm>
#include <array>
#include <ios>
#include <new>

#include "core/base/nearest_name.h"
#include "core/data/csv_reader.h"
#include "core/data/idx_reader.h"
#include "core/data/row_selection.h"
#include "core/data/synthetic.h"

namespace starling::data {
namespace {

constexpr std::array<std::string_view, 4> kKinds = {"idx", "fashion-mnist", "csv", "synthetic"};
constexpr std::array<std::string_view, 2> kSplits = {"train", "test"};
constexpr std::string_view kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

std::string_view name_of(Split split) { return kSplits[static_cast<std::size_t>(split)]; }

Error bad_dataset_spec(std::string_view text, const std::string& why) {
  return wrong_setting("dataset-spec", "the data set '" + printable(text) + "' " + why);
}

// Takes ":train" or ":test" off the end of `rest`. A word that looks like a split and is none is
// refused; anything else after a colon belongs to the path.
Result<Split> take_split(std::string_view text, std::string_view& rest) {
  const std::size_t colon = rest.rfind(':');
  if (colon == rest.npos) return Split::kTrain;
  const std::string_view word = rest.substr(colon + 1);
  const auto split = std::ranges::find(kSplits, word);
  if (split == kSplits.end()) {
    const bool is_word =
        !word.empty() && std::ranges::all_of(word, [](char c) { return c >= 'a' && c <= 'z'; });
    if (!is_word) return Split::kTrain;
    std::string why = "has the splits train and test, not '" + printable(word) + "'";
    const bool has_path = colon > 0 || text.starts_with("synthetic");
    if (!has_path) why += "; for a file or directory of this name write ./" + printable(word);
    return bad_dataset_spec(text, why);
  }
  rest = rest.substr(0, colon);
  return static_cast<Split>(split - kSplits.begin());
}

Result<Dataset::Content> make_synthetic(const DatasetSpec& spec, const LoadOptions& options) {
  STARLING_ASSIGN(const SyntheticSpec synthetic, SyntheticSpec::parse(spec.path));
  const std::string name = spec.to_string();
  const auto width = static_cast<std::size_t>(synthetic.features);
  STARLING_TRY(check_rows(name, synthetic.rows, options));
  STARLING_TRY(check_bytes(name, static_cast<std::uint64_t>(synthetic.classes), width,
                           sizeof(float), options));
  const SyntheticGenerator generator(synthetic, name_of(spec.split));
  Dataset::Content content;
  content.shape = {1, 1, synthetic.features};
  content.labels.resize(synthetic.rows);
  for (std::uint32_t i = 0; i < synthetic.rows; ++i) content.labels[i] = generator.label(i);
  content.classes = synthetic.classes;
  LoadOptions bounded = options;
  bounded.classes = std::max(options.classes, options.classes > 0 ? 0 : synthetic.classes);
  STARLING_TRY(count_classes(name, content, bounded));
  STARLING_ASSIGN(const auto chosen, choose_rows(content, options));
  STARLING_TRY(check_bytes(name, chosen.size(), width, sizeof(float), options));
  content.features.resize(chosen.size() * width);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    generator.fill(chosen[i], std::span(content.features).subspan(i * width, width));
  }
  keep_rows(content, chosen);
  return content;
}

Result<void> expect_fashion_mnist(const DatasetSpec& spec) {
  std::error_code code;
  if (std::filesystem::is_directory(spec.path, code)) return {};
  return wrong_setting("dataset-missing", "there is no directory " + spec.path +
                                              "; install Fashion-MNIST with: apt-get install "
                                              "dataset-fashion-mnist");
}

Result<Dataset::Content> read_fashion_mnist(const DatasetSpec& spec, const LoadOptions& options) {
  STARLING_TRY(expect_fashion_mnist(spec));
  return read_idx(spec.path, spec.split, options);
}

Result<Dataset::Content> read_content(const DatasetSpec& spec, const LoadOptions& options) {
  if (!options.group_column.empty() && spec.kind != DatasetKind::kCsv) {
    return wrong_setting("dataset-column", spec.to_string() +
                                               " has no columns with names; only a csv "
                                               "data set can be divided by a column");
  }
  switch (spec.kind) {
    case DatasetKind::kIdx:
      return read_idx(spec.path, spec.split, options);
    case DatasetKind::kFashionMnist:
      return read_fashion_mnist(spec, options);
    case DatasetKind::kCsv:
      return read_csv(spec.path, options);
    case DatasetKind::kSynthetic:
      return make_synthetic(spec, options);
  }
  return bad_dataset_spec(spec.path, "is of no known kind");
}

}  // namespace

Result<DatasetSpec> DatasetSpec::parse(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto kind = std::ranges::find(kKinds, text.substr(0, colon));
  if (kind == kKinds.end()) {
    return bad_dataset_spec(text, "is of no known kind; write KIND:PATH with one of " +
                                      join_names(kKinds, "or") +
                                      suggestion(text.substr(0, colon), kKinds));
  }
  DatasetSpec spec;
  spec.kind = static_cast<DatasetKind>(kind - kKinds.begin());
  std::string_view rest = text.substr(colon);
  STARLING_ASSIGN(spec.split, take_split(text, rest));
  if (!rest.empty()) rest.remove_prefix(1);
  spec.path = rest;
  if (spec.kind == DatasetKind::kFashionMnist && rest.empty()) spec.path = kFashionMnistDirectory;
  if (spec.kind == DatasetKind::kSynthetic) {
    STARLING_ASSIGN(const SyntheticSpec synthetic, SyntheticSpec::parse(rest));
    spec.path = synthetic.to_string();
  }
  if (spec.path.empty())
    return bad_dataset_spec(text, "names no file: write " + std::string(*kind) + ":PATH");
  if (spec.kind == DatasetKind::kCsv && spec.split == Split::kTest) {
    return bad_dataset_spec(text, "has no splits: name the file that holds the test rows");
  }
  return spec;
}

bool DatasetSpec::has_test_split() const {
  if (kind == DatasetKind::kCsv || split == Split::kTest) return false;
  return kind == DatasetKind::kSynthetic || has_idx(path, Split::kTest);
}

std::string DatasetSpec::to_string() const {
  std::string text(kKinds[static_cast<std::size_t>(kind)]);
  text += ":" + path;
  return kind == DatasetKind::kCsv ? text : text + ":" + std::string(name_of(split));
}

Result<std::shared_ptr<const Dataset>> load_dataset(const DatasetSpec& spec,
                                                    const LoadOptions& options) {
  try {
    STARLING_ASSIGN(Dataset::Content content, read_content(spec, options));
    content.name = spec.to_string();
    return Dataset::make(std::move(content));
  } catch (const std::bad_alloc&) {
    return overloaded("out-of-memory", "there is not enough memory to load " + spec.to_string());
  } catch (const std::ios_base::failure& failure) {
    return rejected("dataset-unreadable", "reading " + spec.path + " failed: " + failure.what());
  }
}

Result<std::shared_ptr<const Dataset>> load_part(const DatasetSpec& spec,
                                                 const PartitionSpec& partition,
                                                 LoadOptions options) {
  options.group_column = partition.column;
  if (partition.index > 0) {
    options.select = [&](const RowLabels& labels) -> Result<std::vector<std::uint32_t>> {
      STARLING_ASSIGN(auto parts, data::partition(labels, partition, partition.of));
      return std::move(parts[partition.index - 1]);
    };
  }
  return load_dataset(spec, options);
}

Result<void> ReadableDatasets::check(const std::string& dataset, const std::string& group_column) {
  STARLING_ASSIGN(const DatasetSpec spec, DatasetSpec::parse(dataset));
  const auto [found, is_new] = known_.try_emplace({dataset, group_column});
  if (!is_new) return found->second;
  LoadOptions load;
  load.group_column = group_column;
  const auto loaded = load_dataset(spec, load);
  if (!loaded) found->second = loaded.error();
  return found->second;
}

}  // namespace starling::data
