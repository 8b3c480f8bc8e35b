// SPDX-License-Identifier: Apache-2.0
// Input: a CSV file.
#include <fstream>

#include "core/base/check.h"
#include "core/data/csv_reader.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/temporary_directory.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  static const testing::TemporaryDirectory kDirectory;
  const auto path = kDirectory.path() / "data.csv";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  for (const char* group_column : {"", "group"}) {
    data::LoadOptions options;
    options.bytes_max = 1 << 20;
    options.group_column = group_column;
    auto content = data::read_csv(path, options);
    if (!content) {
      STARLING_CHECK(!content.error().code().empty() && !content.error().message().empty());
    } else {
      STARLING_CHECK(data::Dataset::make(*std::move(content)));
    }
  }
  return 0;
}
