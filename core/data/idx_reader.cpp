// SPDX-License-Identifier: Apache-2.0
#include "core/data/idx_reader.h"

#include <algorithm>
#include <array>

#include "core/data/byte_source.h"
#include "core/data/row_selection.h"
#include "core/linalg/huge_pages.h"

namespace starling::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kLabelsMagic = 0x00000801;  // unsigned bytes, 1 dimension
constexpr std::uint32_t kImagesMagic = 0x00000803;  // unsigned bytes, 3 dimensions
constexpr const char* kLabelsFile = "labels-idx1-ubyte";
constexpr const char* kImagesFile = "images-idx3-ubyte";

fs::path plain_path(const fs::path& directory, Split split, const std::string& rest) {
  return directory / ((split == Split::kTrain ? "train-" : "t10k-") + rest);
}

// The one of the two files that is there; empty: neither.
fs::path find_idx(const fs::path& directory, Split split, const std::string& rest) {
  fs::path plain = plain_path(directory, split, rest);
  std::error_code code;
  if (fs::exists(plain, code)) return plain;
  fs::path compressed = plain;
  compressed += ".gz";
  return fs::exists(compressed, code) ? compressed : fs::path();
}

Result<ByteSource> open_idx(const fs::path& directory, Split split, const std::string& rest) {
  const fs::path found = find_idx(directory, split, rest);
  if (!found.empty()) return ByteSource::open(found);
  return wrong_setting("dataset-missing",
                       "there is neither " + plain_path(directory, split, rest).string() +
                           " nor the same with .gz; an idx data set is a directory "
                           "with files named as those of MNIST");
}

template <std::size_t Dimensions>
Result<std::array<std::uint32_t, Dimensions>> read_header(ByteSource& file, std::uint32_t magic) {
  std::array<std::byte, 4 * (Dimensions + 1)> bytes;
  STARLING_TRY(file.read(bytes));
  std::array<std::uint32_t, Dimensions + 1> words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      words[i] = words[i] << 8 | std::to_integer<std::uint32_t>(bytes[4 * i + j]);
    }
  }
  if (words[0] != magic) {
    return rejected("dataset-malformed",
                    file.name() + " does not begin as an IDX file of unsigned bytes with " +
                        std::to_string(Dimensions) + " dimensions does");
  }
  std::array<std::uint32_t, Dimensions> sizes;
  std::copy(words.begin() + 1, words.end(), sizes.begin());
  return sizes;
}

Result<std::vector<std::int32_t>> read_labels(ByteSource& file, const LoadOptions& options) {
  STARLING_ASSIGN(const auto sizes, read_header<1>(file, kLabelsMagic));
  STARLING_TRY(check_rows(file.name(), sizes[0], options));
  STARLING_TRY(file.expect_at_least(sizes[0]));
  std::vector<std::byte> bytes(sizes[0]);
  STARLING_TRY(file.read(bytes));
  STARLING_TRY(file.expect_end());
  std::vector<std::int32_t> labels(sizes[0]);
  std::ranges::transform(bytes, labels.begin(),
                         [](std::byte b) { return std::to_integer<std::int32_t>(b); });
  return labels;
}

// Converts the images of `chosen` (ascending), and reads the file to its end.
Result<void> read_images(ByteSource& file, std::size_t count, std::span<const std::uint32_t> chosen,
                         Dataset::Content& content) {
  const std::size_t pixels = content.shape.features();
  content.features.reserve(chosen.size() * pixels);
  content.bytes.reserve(chosen.size() * pixels);
  linalg::prefer_huge_pages(content.features.data(), chosen.size() * pixels * sizeof(float));
  linalg::prefer_huge_pages(content.bytes.data(), chosen.size() * pixels);
  std::vector<std::byte> image(pixels);
  std::size_t next = 0;
  for (std::size_t row = 0; row < count; ++row) {
    STARLING_TRY(file.read(image));
    if (next == chosen.size() || chosen[next] != row) continue;
    for (std::byte b : image) {
      const auto value = std::to_integer<std::uint8_t>(b);
      content.features.push_back(static_cast<float>(value) / 255.0F);
      content.bytes.push_back(value);
    }
    ++next;
  }
  return file.expect_end();
}

Result<Shape> check_images(const std::string& name, const std::array<std::uint32_t, 3>& sizes,
                           std::size_t labels) {
  constexpr std::uint32_t kSideMax = 1 << 12;
  const auto [count, height, width] = sizes;
  if (count != labels) {
    return rejected("dataset-malformed", name + " has " + std::to_string(count) +
                                             " images, but the labels file has " +
                                             std::to_string(labels) + " labels");
  }
  if (height == 0 || width == 0 || height > kSideMax || width > kSideMax) {
    return rejected("dataset-malformed", name + " has images of " + std::to_string(height) + " x " +
                                             std::to_string(width) + " pixels; 1 to " +
                                             std::to_string(kSideMax) + " a side can be read");
  }
  return Shape{1, static_cast<int>(height), static_cast<int>(width)};
}

}  // namespace

bool has_idx(const fs::path& directory, Split split) {
  return !find_idx(directory, split, kLabelsFile).empty() ||
         !find_idx(directory, split, kImagesFile).empty();
}

Result<Dataset::Content> read_idx(const fs::path& directory, Split split,
                                  const LoadOptions& options) {
  STARLING_ASSIGN(ByteSource labels_file, open_idx(directory, split, kLabelsFile));
  STARLING_ASSIGN(ByteSource images_file, open_idx(directory, split, kImagesFile));
  Dataset::Content content;
  STARLING_ASSIGN(content.labels, read_labels(labels_file, options));
  STARLING_ASSIGN(const auto sizes, read_header<3>(images_file, kImagesMagic));
  STARLING_ASSIGN(content.shape, check_images(images_file.name(), sizes, content.labels.size()));
  const std::size_t pixels = content.shape.features();
  STARLING_TRY(check_bytes(images_file.name(), sizes[0], pixels, 1, options));
  STARLING_TRY(images_file.expect_at_least(sizes[0] * pixels));
  STARLING_TRY(count_classes(labels_file.name(), content, options));
  STARLING_ASSIGN(const auto chosen, choose_rows(content, options));
  STARLING_TRY(check_bytes(images_file.name(), chosen.size(), pixels, sizeof(float), options));
  STARLING_TRY(read_images(images_file, sizes[0], chosen, content));
  keep_rows(content, chosen);
  return content;
}

}  // namespace starling::data
