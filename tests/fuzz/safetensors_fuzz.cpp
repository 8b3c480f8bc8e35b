// SPDX-License-Identifier: Apache-2.0
// Input: a safetensors file.
#include "core/base/check.h"
#include "core/model/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

namespace starling {
namespace {

std::shared_ptr<const model::Layout> small_layout() {
  return model::Layout::make({{.name = "a", .shape = {2, 3}}, {.name = "b", .shape = {}}}).value();
}

void check_error(const Error& error) {
  STARLING_CHECK(!error.code().empty() && !error.message().empty());
}

// What was read, written again, reads as the same.
void check_again(const model::SafetensorsFile& file) {
  Bytes bytes = model::safetensors_header(*file.parameters.layout(), file.metadata);
  const ByteView values = as_bytes(file.parameters.values());
  bytes.insert(bytes.end(), values.begin(), values.end());
  const auto again = model::parse_safetensors(bytes);
  STARLING_CHECK(again);
  STARLING_CHECK(again->metadata == file.metadata && again->parameters == file.parameters);
}

}  // namespace
}  // namespace starling

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  static const auto kLayout = small_layout();
  const Bytes input = to_bytes(std::as_bytes(std::span(data, size)));
  if (const auto file = model::parse_safetensors(input)) {
    check_again(*file);
  } else {
    check_error(file.error());
  }
  const auto expected = model::parse_safetensors(input, {.expected = kLayout});
  if (!expected) {
    check_error(expected.error());
  } else {
    STARLING_CHECK(*expected->parameters.layout() == *kLayout);
  }
  return 0;
}
