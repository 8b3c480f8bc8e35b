// SPDX-License-Identifier: Apache-2.0
#include "core/base/digest.h"

#include <openssl/evp.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "core/base/check.h"

namespace starling {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  STARLING_CHECK(context_->evp != nullptr);
  STARLING_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(ByteView bytes) {
  STARLING_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1);
}

Sha256Digest Sha256::finish() && {
  std::array<std::byte, Sha256Digest::kBytes> out;
  unsigned length = 0;
  STARLING_CHECK(EVP_DigestFinal_ex(context_->evp, reinterpret_cast<unsigned char*>(out.data()),
                                    &length) == 1);
  STARLING_CHECK(length == out.size());
  return Sha256Digest(out);
}

Sha256Digest sha256(ByteView bytes) {
  Sha256 context;
  context.update(bytes);
  return std::move(context).finish();
}

Result<Sha256Digest> Sha256Digest::parse(std::string_view hex) {
  STARLING_ASSIGN(const Bytes bytes, from_hex(hex));
  return from_bytes(bytes);
}

Result<Sha256Digest> Sha256Digest::from_bytes(ByteView bytes) {
  if (bytes.size() != kBytes) return rejected("not-a-digest", "a SHA-256 digest has 32 bytes");
  std::array<std::byte, kBytes> copy;
  std::copy(bytes.begin(), bytes.end(), copy.begin());
  return Sha256Digest(copy);
}

std::uint64_t checksum(ByteView bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Checksum::~Checksum() = default;

void Checksum::update(ByteView bytes) {
  if (!bytes.empty()) XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh3); }

}  // namespace starling
