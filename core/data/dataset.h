// SPDX-License-Identifier: Apache-2.0
// Labelled rows in memory: a feature matrix as one flat float32 buffer, a class per row. Immutable
// once made, so that views, clients and threads share one copy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/data/scaling.h"

namespace starling::data {

// How the features of one row are arranged: images [channels, height, width], flat data {1, 1, n}.
struct Shape {
  int channels = 1;
  int height = 1;
  int width = 0;

  std::size_t features() const {
    return static_cast<std::size_t>(channels) * static_cast<std::size_t>(height) *
           static_cast<std::size_t>(width);
  }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// What decides which rows a part holds; known before any feature is converted. Borrowed.
struct RowLabels {
  std::span<const std::int32_t> labels;  // [rows], each in [0, classes)
  int classes = 0;
  std::span<const std::uint32_t> groups = {};     // [rows], index into group_names, or empty
  std::span<const std::string> group_names = {};  // sorted, distinct
};

class Dataset {
 public:
  struct Content {
    std::string name;
    Shape shape;
    int classes = 0;
    std::vector<float> features;             // [rows, shape.features()], row-major
    std::vector<std::int32_t> labels;        // [rows]
    std::vector<std::uint32_t> groups = {};  // [rows] or empty; see LoadOptions::group_column
    std::vector<std::string> group_names = {};
    std::vector<std::string> class_names = {};    // [classes] where the file spelled them, or empty
    std::string class_column = {};                // its name, where the file has columns
    std::vector<std::string> feature_names = {};  // [features] where the file names them, or empty
    Scaling scaling = {};                         // what `features` were scaled by
    // [rows, features] or empty: where every feature is exactly a byte / 255.0f, that byte. Whoever
    // gathers rows from all over memory reads a quarter of it this way.
    std::vector<std::uint8_t> bytes = {};
  };

  // Fails (kRejected) with "dataset-shape", "label-out-of-range" or "not-finite" where the content
  // does not fit together.
  [[nodiscard]] static Result<std::shared_ptr<const Dataset>> make(Content content);

  // The content of `dataset`: moved out of it if this is the last reference, else copied.
  static Content take(std::shared_ptr<const Dataset> dataset);

  const std::string& name() const { return content_.name; }
  const Shape& shape() const { return content_.shape; }
  int classes() const { return content_.classes; }
  std::size_t rows() const { return content_.labels.size(); }
  std::span<const float> features() const { return content_.features; }  // [rows, features]
  std::span<const std::int32_t> labels() const { return content_.labels; }
  // Requires: row < rows().
  std::span<const float> row(std::size_t row) const {
    return features().subspan(row * content_.shape.features(), content_.shape.features());
  }
  // See Content::bytes. Requires of byte_row(): has_bytes() and row < rows().
  bool has_bytes() const { return !content_.bytes.empty(); }
  std::span<const std::uint8_t> byte_row(std::size_t row) const {
    return std::span(content_.bytes)
        .subspan(row * content_.shape.features(), content_.shape.features());
  }
  const std::string& class_column() const { return content_.class_column; }
  const std::vector<std::string>& feature_names() const { return content_.feature_names; }
  const std::vector<std::string>& class_names() const { return content_.class_names; }
  const Scaling& scaling() const { return content_.scaling; }
  RowLabels row_labels() const {
    return {content_.labels, content_.classes, content_.groups, content_.group_names};
  }

 private:
  explicit Dataset(Content content) : content_(std::move(content)) {}

  Content content_;
};

// Some rows of a dataset, in a fixed order. Copies share everything.
struct DatasetView {
  std::shared_ptr<const Dataset> dataset = nullptr;                  // null: no rows
  std::shared_ptr<const std::vector<std::uint32_t>> rows = nullptr;  // null: every row

  std::size_t size() const {
    if (rows) return rows->size();
    return dataset ? dataset->rows() : 0;
  }
  // The dataset's row number of this view's i-th row. Requires: i < size().
  std::uint32_t row(std::size_t i) const {
    return rows ? (*rows)[i] : static_cast<std::uint32_t>(i);
  }
  std::span<const float> features(std::size_t i) const { return dataset->row(row(i)); }
  std::int32_t label(std::size_t i) const { return dataset->labels()[row(i)]; }
};

}  // namespace starling::data
