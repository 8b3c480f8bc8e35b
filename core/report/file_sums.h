// SPDX-License-Identifier: Apache-2.0
// What the files of a finished run were as it ended, so that one that has changed since is noticed:
// SHA256SUMS in its directory, which `sha256sum -c` reads too.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/base/error.h"

namespace starling::report {

inline constexpr const char* kSumsFile = "SHA256SUMS";
// What changed_files() has hashed, so that a file is read again only once it has changed.
inline constexpr const char* kCheckedFile = ".SHA256SUMS.checked";

// False: the file cannot be read.
bool add_file(Sha256& digest, const std::filesystem::path& file);
// In hexadecimal digits; "": there is no such file, or it cannot be read.
std::string sum_of(const std::filesystem::path& file);

// Of the files that are there, by their paths within the directory, and of the record that is to
// be written as `record_name`.
[[nodiscard]] Result<void> write_sums(const std::filesystem::path& directory,
                                      std::span<const std::string> names,
                                      const std::string& record_name, std::string_view record);

// The files that are there and have changed or cannot be read, kSumsFile where it lacks lines. None
// where the run is of an earlier version; what was removed is no damage. Writes kCheckedFile.
std::vector<std::string> changed_files(const std::filesystem::path& directory);

}  // namespace starling::report
