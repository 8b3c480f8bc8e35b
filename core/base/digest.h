// SPDX-License-Identifier: Apache-2.0
// SHA-256 for identities and models; XXH3 as a fast checksum against accidents, never against
// attackers (TLS already authenticates what travels).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/bytes.h"

namespace starling {

class Sha256Digest {
 public:
  static constexpr std::size_t kBytes = 32;
  Sha256Digest() = default;
  explicit Sha256Digest(std::array<std::byte, kBytes> bytes) : bytes_(bytes) {}

  ByteView bytes() const { return bytes_; }
  std::string hex() const { return to_hex(bytes_); }
  [[nodiscard]] static Result<Sha256Digest> parse(std::string_view hex);
  [[nodiscard]] static Result<Sha256Digest> from_bytes(ByteView bytes);

  friend auto operator<=>(const Sha256Digest&, const Sha256Digest&) = default;

 private:
  std::array<std::byte, kBytes> bytes_{};
};

Sha256Digest sha256(ByteView bytes);

// In pieces, where the whole never stands in memory at once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(ByteView bytes);
  // Ends the computation. Requires: called once.
  Sha256Digest finish() &&;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::uint64_t checksum(ByteView bytes);  // XXH3, 64 bit

// The same in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void update(ByteView bytes);
  // Of all pieces so far.
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace starling
