// SPDX-License-Identifier: Apache-2.0
// Input: the payload of an update, after what its head says: elements of the first vector, asked
// for sparse (u16, little-endian), its encoding (u8) and its bytes (u24); a second vector of 3
// dense elements follows it. The checksum is that of the payload.
#include <vector>

#include "core/base/check.h"
#include "core/update/contribution.h"
#include "tests/fuzz/fuzz_target.h"

namespace starling {
namespace {

using update::Encoding;

// An update that was taken can be read, and is what a client would have sent of these values.
void check(const update::Contribution& contribution, const update::Schema& schema,
           ByteView payload) {
  std::vector<float> values;
  for (std::size_t i = 0; i < schema.vectors.size(); ++i) {
    const std::size_t first = values.size();
    values.resize(first + static_cast<std::size_t>(schema.vectors[i].elements));
    STARLING_CHECK(contribution.read(i, 0, std::span(values).subspan(first)));
    STARLING_CHECK(contribution.for_each_block(i, 100, [&](std::size_t at, auto block) {
      const ByteView read = as_bytes(block);
      const auto* const whole = reinterpret_cast<const std::byte*>(values.data() + first + at);
      STARLING_CHECK(std::equal(read.begin(), read.end(), whole));
    }));
  }
  const update::VectorSpec& sent = contribution.head().vectors[0];
  if (!is_sparse(sent.encoding)) return;
  const auto vectors = update::encode(values, schema.vectors);
  if (vectors[0].encoding != sent.encoding) return;  // sparse, and as long as its dense form
  STARLING_CHECK(vectors == contribution.head().vectors);
  STARLING_CHECK(std::equal(payload.begin(), payload.end(),
                            reinterpret_cast<const std::byte*>(values.data())));
}

}  // namespace
}  // namespace starling

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  const ByteView input = std::as_bytes(std::span(data, size));
  if (size < 6) return 0;
  const auto elements = load_little<std::uint16_t>(input.data());
  const auto sizes = load_little<std::uint32_t>(input.data() + 2);
  const update::Schema schema{
      .vectors = {{"sparse", Encoding::kSparseFloat32Delta, elements}, {.elements = 3}}};
  update::ContributionHead head{.weight = 1, .vectors = schema.vectors};
  head.vectors[0].encoding = static_cast<Encoding>(sizes & 0xFF);
  head.vectors[0].bytes = sizes >> 8;
  const SharedBytes payload = SharedBytes::own(to_bytes(input.subspan(6)));
  head.payload_bytes = payload.size();
  head.payload_checksum = checksum(payload.view());
  const auto contribution = update::validate(head, payload, schema);
  if (contribution) {
    check(*contribution, schema, payload.view());
  } else {
    STARLING_CHECK(!contribution.error().code().empty() && !contribution.error().message().empty());
  }
  return 0;
}
