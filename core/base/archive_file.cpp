// SPDX-License-Identifier: Apache-2.0
#include "core/base/archive_file.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "core/base/durable_file.h"

namespace starling {
namespace {

// The file: this line, the identity, the archive, and the checksum of all before it.
constexpr std::string_view kMagic = "starling-state 1\n";
constexpr std::uint64_t kHeadBytes = kMagic.size() + Sha256Digest::kBytes;
constexpr std::uint64_t kTailBytes = sizeof(std::uint64_t);
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

Error damaged(const std::filesystem::path& path) {
  return rejected("state-damaged", path.string() + " is damaged: it is not as it was written");
}

bool read(std::istream& in, MutableByteView bytes) {
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return static_cast<bool>(in);
}

// Whether the checksum at its end is that of its `bytes` before it.
bool is_whole(std::istream& in, std::uint64_t bytes) {
  Checksum checksum;
  Bytes piece(kPieceBytes);
  while (bytes > 0) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, piece.size()));
    const MutableByteView part(piece.data(), size);
    if (!read(in, part)) return false;
    checksum.update(part);
    bytes -= size;
  }
  std::uint64_t said = 0;
  return read(in, std::as_writable_bytes(std::span(&said, 1))) && said == checksum.value();
}

}  // namespace

Result<void> save_archive(const std::filesystem::path& path, const Sha256Digest& identity,
                          const VisitState& visit) {
  return write_durably_by(path, [&](const std::filesystem::path& temporary) -> Result<void> {
    std::ofstream out(temporary, std::ios::binary);
    Checksum checksum;
    const auto write = [&](ByteView bytes) {
      checksum.update(bytes);
      out.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    };
    write(as_bytes(kMagic));
    write(identity.bytes());
    Archive archive(write);
    visit(archive);
    if (!archive.good()) {
      return rejected("state-incomplete", path.string() +
                                              " is not replaced: a part of the state "
                                              "cannot be written");
    }
    const std::uint64_t value = checksum.value();
    write(std::as_bytes(std::span(&value, 1)));
    out.close();
    if (out) return {};
    return rejected("cannot-write", path.string() + " cannot be written: is the disk full?");
  });
}

Result<void> load_archive(const std::filesystem::path& path, const Sha256Digest& identity,
                          const VisitState& visit) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) {
    return rejected("file-missing", path.string() + " does not exist");
  }
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error || size < kHeadBytes + kTailBytes) return damaged(path);
  std::ifstream in(path, std::ios::binary);
  if (!is_whole(in, size - kTailBytes)) return damaged(path);
  in.seekg(0);
  Bytes head(kHeadBytes);
  if (!read(in, head) || as_text(head).substr(0, kMagic.size()) != kMagic) return damaged(path);
  if (!std::ranges::equal(std::span(head).subspan(kMagic.size()), identity.bytes())) {
    return rejected("state-other", path.string() +
                                       " is of a run with other settings, other data or another "
                                       "version");
  }
  Archive archive([&](MutableByteView bytes) { return read(in, bytes); },
                  size - kHeadBytes - kTailBytes);
  visit(archive);
  if (!archive.complete()) return damaged(path);
  return {};
}

}  // namespace starling
