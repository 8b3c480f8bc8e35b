// SPDX-License-Identifier: Apache-2.0
// Input: the bytes of the labels file (u32, little-endian), then the labels file, then the images
// file; each plain or gzip.
#include <algorithm>
#include <fstream>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/data/idx_reader.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/temporary_directory.h"

namespace starling {
namespace {

void write(const std::filesystem::path& path, ByteView bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

}  // namespace
}  // namespace starling

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  static const testing::TemporaryDirectory kDirectory;
  const ByteView input = std::as_bytes(std::span(data, size));
  if (size < 4) return 0;
  const ByteView files = input.subspan(4);
  const auto labels = std::min<std::size_t>(load_little<std::uint32_t>(input.data()), files.size());
  write(kDirectory.path() / "train-labels-idx1-ubyte", files.first(labels));
  write(kDirectory.path() / "train-images-idx3-ubyte", files.subspan(labels));
  data::LoadOptions options;
  options.bytes_max = 1 << 20;
  auto content = data::read_idx(kDirectory.path(), data::Split::kTrain, options);
  if (!content) {
    STARLING_CHECK(!content.error().code().empty() && !content.error().message().empty());
  } else {
    STARLING_CHECK(data::Dataset::make(*std::move(content)));
  }
  return 0;
}
