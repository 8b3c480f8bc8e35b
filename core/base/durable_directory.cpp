// SPDX-License-Identifier: Apache-2.0
#include "core/base/durable_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/durable_file.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

Error cannot(const char* doing, const fs::path& path, int number) {
  const std::string message =
      std::string("cannot ") + doing + " " + path.string() + ": " + std::strerror(number);
  if (number == ENOTEMPTY || number == EEXIST) {
    return rejected("directory-not-empty", message + "; name a new directory");
  }
  return rejected("no-directory", message);
}

Result<void> expect_absent_or_empty(const fs::path& path) {
  std::error_code code;
  if (!fs::exists(path, code)) return {};
  if (fs::is_directory(path, code) && fs::is_empty(path, code) && !code) return {};
  return rejected("directory-not-empty",
                  path.string() + " exists and is not an empty directory; name a new one");
}

constexpr std::string_view kMark = ".unfinished-";
constexpr std::size_t kRandomLetters = 6;

bool is_unfinished(const std::string& name) {
  const std::size_t mark = name.size() - std::min(name.size(), kMark.size() + kRandomLetters);
  return name.starts_with('.') && mark > 0 && name.compare(mark, kMark.size(), kMark) == 0;
}

// Removes those that no process holds.
void sweep(const fs::path& parent) {
  std::error_code code;
  std::error_code ignored;
  for (auto it = fs::directory_iterator(parent, code); !code && it != fs::directory_iterator();
       it.increment(code)) {
    const bool ours = is_unfinished(it->path().filename().string()) && !it->is_symlink(ignored);
    if (ours && DirectoryLock(it->path()).taken()) fs::remove_all(it->path(), ignored);
  }
}

}  // namespace

Result<NewDirectory> NewDirectory::create(const fs::path& path) {
  fs::path whole = fs::absolute(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // DIR/
  STARLING_TRY(expect_absent_or_empty(whole));
  STARLING_TRY(make_directory(whole.parent_path()));
  sweep(whole.parent_path());
  const std::string pattern =
      whole.parent_path() / fmt::format(".{}{}XXXXXX", whole.filename().string(), kMark);
  for (;;) {
    std::string name = pattern;
    if (::mkdtemp(name.data()) == nullptr) return cannot("create a directory beside", whole, errno);
    DirectoryLock lock{fs::path(name)};
    // Another one's sweep may have come first. Where the file system has no such locks, it removes
    // nothing.
    std::error_code ignored;
    if (!lock.held_elsewhere() && fs::exists(name, ignored)) {
      return NewDirectory(whole, name, std::move(lock));
    }
  }
}

NewDirectory::NewDirectory(fs::path path, fs::path temporary, DirectoryLock lock)
    : path_(std::move(path)), temporary_(std::move(temporary)), lock_(std::move(lock)) {}

NewDirectory::NewDirectory(NewDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      lock_(std::move(other.lock_)) {}

NewDirectory::~NewDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

Result<void> NewDirectory::commit() {
  std::error_code code;
  for (auto it = fs::recursive_directory_iterator(temporary_, code);
       !code && it != fs::recursive_directory_iterator(); it.increment(code)) {
    if (it->is_directory(code)) STARLING_TRY(sync_directory(it->path()));
  }
  if (code) return rejected("no-directory", "cannot list " + temporary_.string());
  STARLING_TRY(sync_directory(temporary_));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return cannot("rename to", path_, errno);
  }
  temporary_.clear();
  return sync_directory(path_.parent_path());
}

}  // namespace starling
