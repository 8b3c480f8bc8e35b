// SPDX-License-Identifier: Apache-2.0
// Models that only a custom trainer can compute with (`model.kind = "external"`): Starling
// knows the names, shapes and roles of their tensors. In the flat vector they lie in the order of
// their names, so that a file and a trainer that list them otherwise mean the same vector.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/digest.h"
#include "core/base/disk.h"
#include "core/model/parameters.h"

namespace starling::model {

// In the order of the names, by bytes. Refuses what Layout::make does, no values at all,
// names that no file can hold, a rule of what is no buffer, and private tensors, which do not
// travel
// ("bad-layout").
[[nodiscard]] Result<std::shared_ptr<const Layout>> external_layout(
    std::vector<TensorInfo> tensors);

// Of names, shapes, roles and rules: equal where two sides mean the same vector.
Sha256Digest digest_of(const Layout& layout);

// A safetensors file in that order, whatever its own. The errors of load_safetensors and
// external_layout.
[[nodiscard]] Result<Parameters> load_external_model(Disk& disk, const std::filesystem::path& path);

// The same, read once, with the SHA-256 of the file's bytes.
struct HashedModel {
  Parameters model;
  Sha256Digest file_sha256;
};
[[nodiscard]] Result<HashedModel> load_hashed_model(Disk& disk, const std::filesystem::path& path);

}  // namespace starling::model
