// SPDX-License-Identifier: Apache-2.0
// Vectors that travel in their sparse form: the same bits as in their dense form wherever they are
// read, and a refusal by name for whatever is not the sparse form of a vector.
#include "core/update/sparse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "core/base/rng.h"
#include "core/update/update_source.h"
#include "tests/update/file_payload.h"

namespace starling::update {
namespace {

using Limits = std::numeric_limits<float>;

// About `density` of the elements are not zero; among them what must not be taken for zero.
std::vector<float> random_values(std::size_t size, double density, std::uint64_t seed) {
  Rng rng({.seed = seed});
  std::vector<float> values(size);
  for (float& value : values) {
    if (rng.uniform(0, 1) >= density) continue;
    switch (rng.below(8)) {
      case 0:
        value = -0.0F;
        break;
      case 1:
        value = Limits::denorm_min();
        break;
      case 2:
        value = -Limits::denorm_min();
        break;
      case 3:
        value = Limits::min() / 3;
        break;
      default:
        value = static_cast<float>(rng.uniform(-1, 1));
    }
  }
  return values;
}

std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

struct Update {
  ContributionHead head;
  SharedBytes payload;
};

Update update_of(std::vector<VectorSpec> vectors, Bytes payload) {
  SharedBytes bytes = SharedBytes::own(std::move(payload));
  return {{.task = TaskId(7),
           .weight = 600,
           .vectors = std::move(vectors),
           .payload_bytes = bytes.size(),
           .payload_checksum = checksum(bytes.view())},
          bytes};
}

// As a client sends the values.
Update encoded(std::vector<float> values, const Schema& schema) {
  std::vector<VectorSpec> vectors = encode(values, schema.vectors);
  const std::uint64_t bytes = payload_bytes(vectors);
  return update_of(std::move(vectors), to_bytes(as_bytes(values).first(bytes)));
}

Update dense(const std::vector<float>& values, const Schema& schema) {
  Update update = update_of(schema.vectors, to_bytes(as_bytes(values)));
  for (VectorSpec& vector : update.head.vectors) vector.encoding = dense_of(vector.encoding);
  return update;
}

Schema schema_of(const std::vector<std::size_t>& sizes) {
  Schema schema;
  for (const std::size_t size : sizes) {
    schema.vectors.push_back({.name = "v" + std::to_string(schema.vectors.size()),
                              .encoding = Encoding::kSparseFloat32Delta,
                              .elements = size});
  }
  return schema;
}

std::vector<float> all_of(const Contribution& contribution, std::size_t i, std::size_t block) {
  std::vector<float> values;
  EXPECT_TRUE(contribution.for_each_block(i, block, [&](std::size_t first, auto part) {
    EXPECT_EQ(first, values.size());
    values.insert(values.end(), part.begin(), part.end());
  }));
  return values;
}

TEST(Sparse, EveryVectorComesBackBitForBit) {
  for (const std::size_t size : {1U, 2U, 3U, 31U, 63U, 64U, 65U, 127U, 128U, 1000U, 4097U}) {
    for (const double density : {0.0, 0.01, 0.3, 0.9, 1.0}) {
      SCOPED_TRACE(::testing::Message() << size << " elements, density " << density);
      const std::vector<float> values = random_values(size, density, size);
      const std::uint64_t stored = count_stored(values);
      if (density == 1) {
        EXPECT_EQ(stored, size);
      }
      if (density == 0) {
        EXPECT_EQ(stored, 0U);
      }
      if (sparse_bytes(size, stored) > size * sizeof(float)) continue;
      std::vector<float> form = values;
      make_sparse(form, stored);
      const ByteView bytes = as_bytes(form).first(sparse_bytes(size, stored));
      const ByteView bitmap = bytes.first(bitmap_bytes(size));
      EXPECT_EQ(count_bits(bitmap, 0, size), stored);
      EXPECT_EQ(count_bits(bitmap, 0, bitmap.size() * 8), stored) << "nothing beyond the elements";
      std::vector<float> back(size, 7.0F);
      std::memcpy(back.data() + size - stored, bytes.data() + bitmap.size(),
                  stored * sizeof(float));
      expand(bitmap, 0, back);
      EXPECT_EQ(bits_of(back), bits_of(values));
    }
  }
}

TEST(Sparse, IsWhatItsHeaderSays) {
  std::vector<float> values(70);
  values[1] = 1.0F;
  values[64] = -0.0F;
  values[69] = -2.0F;
  make_sparse(values, 3);
  const ByteView bytes = as_bytes(values).first(sparse_bytes(70, 3));
  EXPECT_EQ(to_hex(bytes),
            "0200000000000000"
            "2100000000000000"
            "0000803f"
            "00000080"
            "000000c0");
}

TEST(Sparse, AnyRangeOfTheBitmapIsExpanded) {
  const std::vector<float> values = random_values(300, 0.4, 1);
  std::vector<float> form = values;
  const std::uint64_t stored = count_stored(values);
  make_sparse(form, stored);
  const ByteView bitmap = as_bytes(form).first(bitmap_bytes(300));
  const float* const kept = form.data() + bitmap.size() / sizeof(float);
  for (std::size_t begin = 0; begin < 300; ++begin) {
    for (const std::size_t size : {1U, 5U, 63U, 64U, 65U, 200U}) {
      if (begin + size > 300) continue;
      const std::uint64_t ahead = count_bits(bitmap, 0, begin);
      const std::uint64_t within = count_bits(bitmap, begin, begin + size);
      std::vector<float> out(size, 7.0F);
      std::copy_n(kept + ahead, within, out.end() - static_cast<std::ptrdiff_t>(within));
      expand(bitmap, begin, out);
      ASSERT_EQ(bits_of(out), bits_of(std::span(values).subspan(begin, size))) << begin;
    }
  }
}

TEST(Encode, TakesTheShorterFormOfEachVector) {
  Schema schema = schema_of({640, 640, 640, 1});
  schema.vectors[0].encoding = Encoding::kFloat32Delta;
  schema.vectors[2].encoding = Encoding::kSparseFloat32;
  std::vector<float> values(1921);
  for (std::size_t i = 640; i < 1280; ++i) values[i] = 1;  // no zeros
  values[1300] = 5;
  values[1920] = 9;
  const Update update = encoded(values, schema);
  const std::vector<VectorSpec>& vectors = update.head.vectors;
  EXPECT_EQ(vectors[0].encoding, Encoding::kFloat32Delta) << "as it was asked for";
  EXPECT_EQ(vectors[1].encoding, Encoding::kFloat32Delta) << "not longer than the sparse form";
  EXPECT_EQ(vectors[1].bytes, 0U);
  EXPECT_EQ(vectors[2].encoding, Encoding::kSparseFloat32);
  EXPECT_EQ(vectors[2].bytes, 80U + 4);
  EXPECT_EQ(vectors[3].encoding, Encoding::kFloat32Delta);
  EXPECT_EQ(update.payload.size(), 2 * 2560U + 84 + 4);
  const auto contribution = validate(update.head, update.payload, schema);
  ASSERT_TRUE(contribution) << contribution.error().message();
  std::vector<float> back;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::vector<float> vector = all_of(*contribution, i, 100);
    back.insert(back.end(), vector.begin(), vector.end());
  }
  EXPECT_EQ(bits_of(back), bits_of(values));
}

TEST(Encode, LeavesADenseUpdateWhereItIs) {
  Schema schema = schema_of({1000});
  std::vector<float> values = random_values(1000, 1, 3);
  const std::vector<float> before = values;
  const auto vectors = encode(values, schema.vectors);
  EXPECT_EQ(vectors[0].encoding, Encoding::kFloat32Delta);
  EXPECT_EQ(bits_of(values), bits_of(before));
}

TEST(SparseContribution, HasTheNormAndElementsOfTheDenseOneWhereverItIs) {
  // More than a block of either kind, and none whole.
  const Schema schema = schema_of({150'001, 70'003, 50});
  for (const double density : {0.0, 0.02, 0.5, 0.95}) {
    SCOPED_TRACE(density);
    const std::vector<float> values = random_values(220'054, density, 5);
    const Update plain = dense(values, schema);
    const Update sparse = encoded(values, schema);
    EXPECT_LT(sparse.payload.size(), plain.payload.size());
    starling::testing::FilePayload file(sparse.payload);
    const auto expected = validate(plain.head, plain.payload, schema);
    ASSERT_TRUE(expected) << expected.error().message();
    for (const Payload& payload : {Payload(sparse.payload), Payload(file)}) {
      const auto contribution = validate(sparse.head, payload, schema);
      ASSERT_TRUE(contribution) << contribution.error().message();
      EXPECT_EQ(std::bit_cast<std::uint64_t>(contribution->norm()),
                std::bit_cast<std::uint64_t>(expected->norm()));
      for (std::size_t i = 0; i < 3; ++i) {
        const std::vector<float> wanted = all_of(*expected, i, 1 << 20);
        for (const std::size_t block : {1'000U, 65'536U, 1U << 20}) {
          EXPECT_EQ(bits_of(all_of(*contribution, i, block)), bits_of(wanted)) << block;
        }
      }
    }
  }
}

TEST(SparseContribution, IsReadInTilesBesideADenseOne) {
  const Schema schema = schema_of({50, 40'000});
  const std::vector<float> values = random_values(40'050, 0.2, 8);
  const Update sparse = encoded(values, schema);
  const Update plain = dense(values, schema);
  starling::testing::FilePayload file(sparse.payload);
  KeptUpdates updates;
  updates.keep("a", validate(sparse.head, Payload(file), schema).value());
  updates.keep("b", validate(plain.head, plain.payload, schema).value());
  updates.keep("c", validate(sparse.head, sparse.payload, schema).value());
  for (const std::size_t tile : {257U, 16'384U, 16'500U, 40'000U}) {
    for (std::size_t first = 0; first < 40'000; first += tile) {
      const std::size_t size = std::min<std::size_t>(tile, 40'000 - first);
      std::vector<float> out(3 * size);
      ASSERT_TRUE(updates.read(1, first, size, out));
      const auto wanted = bits_of(std::span(values).subspan(50 + first, size));
      for (std::size_t k = 0; k < 3; ++k) {
        ASSERT_EQ(bits_of(std::span(out).subspan(k * size, size)), wanted) << tile << ' ' << first;
      }
    }
  }
}

TEST(SparseContribution, OfAFileThatCannotBeReadIsAnError) {
  const Schema schema = schema_of({1000});
  const Update sparse = encoded(random_values(1000, 0.2, 8), schema);
  starling::testing::FilePayload file(sparse.payload);
  const auto contribution = validate(sparse.head, Payload(file), schema);
  ASSERT_TRUE(contribution);
  for (const std::uint64_t readable : {std::uint64_t{0}, bitmap_bytes(1000) + 4}) {
    file.readable = readable;
    const auto refused = validate(sparse.head, Payload(file), schema);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), "upload-unreadable");
    EXPECT_EQ(refused.error().kind(), ErrorKind::kRetry);
    std::vector<float> out(1000);
    EXPECT_EQ(contribution->read(0, 0, out).error().code(), "upload-unreadable");
  }
}

class HostileSparse : public ::testing::Test {
 protected:
  std::string refusal(const Update& update) {
    const auto result = validate(update.head, update.payload, schema);
    return result ? "accepted" : result.error().code();
  }
  // With another bitmap, elements or announced size, and the checksum of what it is then.
  std::string changed(const std::vector<std::uint64_t>& bitmap, const std::vector<float>& stored,
                      std::optional<std::uint64_t> announced = std::nullopt) {
    Bytes bytes = to_bytes(std::as_bytes(std::span(bitmap)));
    const ByteView values = as_bytes(stored);
    bytes.insert(bytes.end(), values.begin(), values.end());
    std::vector<VectorSpec> vectors = schema.vectors;
    vectors[0].bytes = announced.value_or(bytes.size());
    Update update = update_of(std::move(vectors), std::move(bytes));
    return refusal(update);
  }

  Schema schema = schema_of({70});
};

TEST_F(HostileSparse, IsRefusedByName) {
  const float infinity = Limits::infinity();
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, 2, 3}), "accepted");
  EXPECT_EQ(changed({0, 0}, {}), "accepted");
  EXPECT_EQ(changed({0b101, 1 << 6}, {1, 2, 3}), "bad-bitmap") << "a bit beyond the elements";
  EXPECT_EQ(changed({0b111, 1 << 5}, {1, 2, 3}), "bad-bitmap") << "an element is missing";
  EXPECT_EQ(changed({0b001, 1 << 5}, {1, 2, 3}), "bad-bitmap") << "an element too many";
  EXPECT_EQ(changed({~0ULL, 0b111111}, {1, 2, 3}), "bad-bitmap");
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, 0, 3}), "stored-zero");
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, -0.0F, 3}), "accepted");
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, infinity, 3}), "not-finite");
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, Limits::quiet_NaN(), 3}), "not-finite");
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, 2e7F, 3}), "value-out-of-range");
  EXPECT_EQ(changed({0b1}, {}), "wrong-size") << "half of the bitmap";
  EXPECT_EQ(changed({}, {}), "wrong-size");
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, 2, 3}, 24), "wrong-size") << "less than is sent";
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, 2, 3}, 32), "wrong-size");
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, 2, 3}, 27), "wrong-size") << "not of whole elements";
  EXPECT_EQ(changed({~0ULL, 0b111111}, std::vector<float>(70, 1)), "wrong-size")
      << "longer than the dense form";
  EXPECT_EQ(changed({0b101, 1 << 5}, {1, 2, 3}, UINT64_MAX - 3), "wrong-size");
}

TEST_F(HostileSparse, HeadsAreCheckedBeforeAnyPayload) {
  const Update good = encoded(random_values(70, 0.1, 1), schema);
  const auto code = [&](auto change) {
    ContributionHead head = good.head;
    change(head);
    const auto valid = validate_head(head, schema);
    return valid ? std::string("accepted") : valid.error().code();
  };
  EXPECT_EQ(code([](auto&) {}), "accepted");
  EXPECT_EQ(code([](auto& h) { h.vectors[0].encoding = Encoding::kSparseFloat32; }),
            "wrong-vectors");
  EXPECT_EQ(code([](auto& h) { h.vectors[0].encoding = static_cast<Encoding>(9); }),
            "wrong-vectors");
  EXPECT_EQ(code([](auto& h) { h.vectors[0].elements = 71; }), "wrong-vectors");
  EXPECT_EQ(code([](auto& h) { h.vectors[0].bytes = h.payload_bytes = 284; }), "wrong-size");
  EXPECT_EQ(code([](auto& h) { h.payload_bytes += 4; }), "wrong-size");
  EXPECT_EQ(code([](auto& h) {
              h.vectors[0].encoding = Encoding::kFloat32Delta;
              h.payload_bytes = 280;
            }),
            "wrong-size")
      << "a dense vector announces no size";
  EXPECT_EQ(code([](auto& h) {
              h.vectors[0] = {"v0", Encoding::kFloat32Delta, 70};
              h.payload_bytes = 280;
            }),
            "accepted");
  schema.vectors[0].encoding = Encoding::kFloat32Delta;
  EXPECT_EQ(code([](auto&) {}), "wrong-vectors") << "nobody asked for the sparse form";
}

// What was damaged on its way is sent again, whatever it looks like.
TEST_F(HostileSparse, ADamagedOneIsNotMalformed) {
  schema = schema_of({70, 70});
  const Update good = encoded(random_values(140, 0.1, 1), schema);
  EXPECT_EQ(refusal(good), "accepted");
  for (std::size_t i = 0; i < good.payload.size(); ++i) {
    Bytes bytes = to_bytes(good.payload.view());
    bytes[i] ^= std::byte{0x41};
    EXPECT_EQ(refusal({good.head, SharedBytes::own(std::move(bytes))}), "checksum-mismatch") << i;
  }
}

TEST_F(HostileSparse, AMalformedBlockIsFoundWhereverItIs) {
  schema = schema_of({100'000});
  const std::vector<float> values = random_values(100'000, 0.05, 2);
  const Update good = encoded(values, schema);
  for (const std::size_t word : {0U, 255U, 256U, 1000U, 1561U}) {
    Bytes bytes = to_bytes(good.payload.view());
    const auto bits = load_little<std::uint64_t>(bytes.data() + word * 8);
    store_little(bytes.data() + word * 8, bits == 0 ? 1 : bits & (bits - 1));
    EXPECT_EQ(refusal(update_of(good.head.vectors, std::move(bytes))), "bad-bitmap") << word;
  }
}

}  // namespace
}  // namespace starling::update
