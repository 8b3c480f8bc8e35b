// SPDX-License-Identifier: Apache-2.0
// Models as safetensors files (github.com/huggingface/safetensors): 8 bytes header length, a JSON
// header, then the raw little-endian values. The flat vector is the file's data section as it is,
// so the SHA-256 of a model can be recomputed from its file. Which tensors are buffers stands in
// the metadata, as a JSON array of names behind "starling.buffers"; the others are trainable. Those
// of the buffers whose rule is not the mean stand behind "starling.maximum" or "starling.last" too.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "core/base/bytes.h"
#include "core/base/disk.h"
#include "core/model/parameters.h"

namespace starling::model {

// The file's free-form `__metadata__`, without the roles of its tensors.
using Metadata = std::map<std::string, std::string>;

struct SafetensorsOptions {
  // If set, the file must hold exactly these tensors (in any order); the result has this layout.
  // Otherwise any float32 file is taken as it is, in the order of its data.
  std::shared_ptr<const Layout> expected = nullptr;
  std::uint64_t file_bytes_max = std::uint64_t{16} << 30;
  bool hash_file = false;  // only where nothing is expected
};

struct SafetensorsFile {
  Parameters parameters;
  Metadata metadata;
  Sha256Digest sha256 = {};  // of the whole file, where it is hashed
};

// Fails with "file-missing", "bad-safetensors" (not such a file, or an inconsistent one),
// "unsupported-dtype" (only F32), "layout-mismatch", "file-too-large". Nothing is allocated that
// the file's own size does not warrant. Values may be of any kind, also not finite.
[[nodiscard]] Result<SafetensorsFile> load_safetensors(const std::filesystem::path& path,
                                                       const SafetensorsOptions& options = {});
[[nodiscard]] Result<SafetensorsFile> load_safetensors(Disk& disk,
                                                       const std::filesystem::path& path,
                                                       const SafetensorsOptions& options = {});
[[nodiscard]] Result<SafetensorsFile> parse_safetensors(ByteView file,
                                                        const SafetensorsOptions& options = {});
[[nodiscard]] Result<Parameters> read_safetensors(const std::filesystem::path& path,
                                                  const SafetensorsOptions& options = {});

// The metadata alone, of which a caller may need one entry; the values are not read. Fails as
// load_safetensors() does.
[[nodiscard]] Result<Metadata> load_safetensors_metadata(Disk& disk,
                                                         const std::filesystem::path& path);

// What stands before the values: length and JSON header, padded to 8 bytes.
Bytes safetensors_header(const Layout& layout, const Metadata& metadata);

// Whole or absent after a crash (base/durable_file.h).
[[nodiscard]] Result<void> write_safetensors(const std::filesystem::path& path,
                                             const Parameters& parameters,
                                             const Metadata& metadata = {});

}  // namespace starling::model
