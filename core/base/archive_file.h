// SPDX-License-Identifier: Apache-2.0
// An archive as a file: whole or absent after a crash, with a checksum against accidents, and with
// the identity of the computation whose state it is.
#pragma once

#include <filesystem>
#include <functional>

#include "core/base/archive.h"
#include "core/base/digest.h"
#include "core/base/error.h"

namespace starling {

using VisitState = std::function<void(Archive&)>;

[[nodiscard]] Result<void> save_archive(const std::filesystem::path& path,
                                        const Sha256Digest& identity, const VisitState& visit);

// "file-missing"; "state-damaged": it is not as save_archive() wrote it, or not what `visit`
// visits; "state-other": of another identity. What was visited is of no use after an error.
[[nodiscard]] Result<void> load_archive(const std::filesystem::path& path,
                                        const Sha256Digest& identity, const VisitState& visit);

}  // namespace starling
