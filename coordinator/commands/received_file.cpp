// SPDX-License-Identifier: Apache-2.0
#include "coordinator/commands/received_file.h"

#include <algorithm>
#include <fstream>

#include "core/base/durable_file.h"

namespace starling::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLengthBytes = 8;

Error cannot_write(const fs::path& path) {
  return rejected("file-unwritable", "cannot write beside " + path.string() +
                                         "; is the disk full, or the directory not yours?");
}

}  // namespace

void ModelHasher::update(ByteView piece) {
  if (length_.size() < kLengthBytes) {
    const std::size_t size = std::min(kLengthBytes - length_.size(), piece.size());
    length_.insert(length_.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(size));
    piece = piece.subspan(size);
    if (length_.size() == kLengthBytes) to_skip_ = load_little<std::uint64_t>(length_.data());
  }
  const std::size_t skipped =
      static_cast<std::size_t>(std::min<std::uint64_t>(to_skip_, piece.size()));
  to_skip_ -= skipped;
  sha_.update(piece.subspan(skipped));
}

Result<std::uint64_t> receive_file(OperatorClient& client, const FileRequest& request,
                                   const fs::path& path,
                                   const std::function<void(ByteView)>& on_piece,
                                   const std::function<Result<void>()>& check) {
  std::uint64_t bytes = 0;
  const auto fill = [&](const fs::path& temporary) -> Result<void> {
    std::ofstream file(temporary, std::ios::binary);
    const auto write = [&](ByteView piece) -> Result<void> {
      file.write(reinterpret_cast<const char*>(piece.data()),
                 static_cast<std::streamsize>(piece.size()));
      if (!file) return cannot_write(path);
      bytes += piece.size();
      on_piece(piece);
      return {};
    };
    STARLING_TRY(client.stream(request.command, request.arguments, {}, write));
    file.close();
    if (!file) return cannot_write(path);
    return check();
  };
  STARLING_TRY(write_durably_by(path, fill));
  return bytes;
}

}  // namespace starling::coordinator
