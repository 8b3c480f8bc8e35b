// SPDX-License-Identifier: Apache-2.0
// A file that comes from the service piece by piece: written as it comes, durable and whole at the
// end or not there at all.
#pragma once

#include <filesystem>
#include <functional>

#include "coordinator/commands/operator_client.h"
#include "core/base/digest.h"

namespace starling::coordinator {

// SHA-256 over the values of a safetensors file, without ever holding more than its beginning.
class ModelHasher {
 public:
  void update(ByteView piece);
  // Requires: called once, after the last piece.
  Sha256Digest finish() && { return std::move(sha_).finish(); }

 private:
  Bytes length_;               // the first 8 bytes
  std::uint64_t to_skip_ = 0;  // of the header
  Sha256 sha_;
};

struct FileRequest {
  std::string command;
  Settings arguments;
};

// `on_piece` sees every piece, `check` the whole once it is written; their errors leave `path` as
// it was. Returns the bytes.
[[nodiscard]] Result<std::uint64_t> receive_file(OperatorClient& client, const FileRequest& request,
                                                 const std::filesystem::path& path,
                                                 const std::function<void(ByteView)>& on_piece,
                                                 const std::function<Result<void>()>& check);

}  // namespace starling::coordinator
