// SPDX-License-Identifier: Apache-2.0
#include "core/base/durable_directory.h"

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

}  // namespace

Result<NewDirectory> NewDirectory::create(const fs::path& path) {
  fs::path whole = fs::absolute(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // DIR/
  STARLING_TRY(expect_absent_or_empty(whole));
  STARLING_TRY(make_directory(whole.parent_path()));
  std::string name = whole.parent_path() / ("." + whole.filename().string() + ".XXXXXX");
  if (::mkdtemp(name.data()) == nullptr) return cannot("create a directory beside", whole, errno);
  return NewDirectory(whole, name);
}

NewDirectory::NewDirectory(fs::path path, fs::path temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)) {}

NewDirectory::NewDirectory(NewDirectory&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}

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
