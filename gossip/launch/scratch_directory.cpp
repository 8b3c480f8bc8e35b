// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/scratch_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace starling::gossip {

Result<ScratchDirectory> ScratchDirectory::make() {
  // Not temp_directory_path(), which does not say where a directory is missing.
  const char* const named = std::getenv("TMPDIR");
  const std::filesystem::path parent = named != nullptr && *named != '\0' ? named : "/tmp";
  std::string pattern = (parent / "starling-launch-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    return rejected("cannot-write",
                    fmt::format("no directory can be made in {}: {}; set TMPDIR to one that can be "
                                "written to",
                                parent.string(), std::strerror(errno)));
  }
  return ScratchDirectory(pattern);
}

ScratchDirectory::ScratchDirectory(ScratchDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})), kept_(other.kept_) {}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  if (!path_.empty() && !kept_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace starling::gossip
