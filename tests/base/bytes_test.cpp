// SPDX-License-Identifier: Apache-2.0
#include "core/base/bytes.h"

#include <gtest/gtest.h>

#include "core/base/digest.h"

namespace starling {
namespace {

TEST(Bytes, HexRoundTrips) {
  EXPECT_EQ(to_hex(as_bytes("\x01\xffz")), "01ff7a");
  EXPECT_EQ(as_text(from_hex("01FF7a").value()), "\x01\xffz");
  EXPECT_FALSE(from_hex("abc"));
  EXPECT_FALSE(from_hex("zz"));
}

TEST(Bytes, Base32IsRfc4648) {
  EXPECT_EQ(to_base32(as_bytes("foobar")), "MZXW6YTBOI");
  EXPECT_EQ(to_base32(as_bytes("fooba")), "MZXW6YTB");
  EXPECT_EQ(to_base32(as_bytes("f")), "MY");
  EXPECT_EQ(as_text(from_base32("mzxw6ytboi").value()), "foobar");
  EXPECT_FALSE(from_base32("MZ1"));
  EXPECT_FALSE(from_base32("MZ")) << "spare bits";
  EXPECT_FALSE(from_base32("MZXW6YTBO")) << "spare digit";
}

TEST(Bytes, CountsReadAsPeopleExpect) {
  EXPECT_EQ(format_byte_count(0), "0 B");
  EXPECT_EQ(format_byte_count(999), "999 B");
  EXPECT_EQ(format_byte_count(4'800'000), "4.8 MB");
  EXPECT_EQ(format_byte_count(999'960), "1.0 MB");
}

TEST(Digest, Sha256IsFips180) {
  EXPECT_EQ(sha256(as_bytes("abc")).hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.update(as_bytes("a"));
  pieces.update(as_bytes("bc"));
  EXPECT_EQ(std::move(pieces).finish(), sha256(as_bytes("abc")));
  EXPECT_EQ(Sha256Digest::parse(sha256(as_bytes("abc")).hex()).value(), sha256(as_bytes("abc")));
  EXPECT_FALSE(Sha256Digest::parse("ab"));
}

}  // namespace
}  // namespace starling
