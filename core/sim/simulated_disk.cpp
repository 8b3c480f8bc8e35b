// SPDX-License-Identifier: Apache-2.0
#include "core/sim/simulated_disk.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace starling::sim {
namespace {

namespace fs = std::filesystem;

class OpenFile final : public DiskFile {
 public:
  OpenFile(std::vector<SharedBytes> parts, std::uint64_t size)
      : parts_(std::move(parts)), size_(size) {}

  std::uint64_t size() const override { return size_; }
  Result<void> read(std::uint64_t offset, MutableByteView to) override {
    for (const SharedBytes& part : parts_) {
      if (to.empty()) break;
      if (offset >= part.size()) {
        offset -= part.size();
        continue;
      }
      const std::size_t count = std::min<std::size_t>(part.size() - offset, to.size());
      std::memcpy(to.data(), part.view().data() + offset, count);
      to = to.subspan(count);
      offset = 0;
    }
    return {};
  }

 private:
  std::vector<SharedBytes> parts_;
  std::uint64_t size_;
};

Error missing(const fs::path& path) {
  return rejected("file-missing", path.string() + " is not on the simulated disk");
}

std::vector<SharedBytes> kept(std::span<const SharedBytes> parts) {
  std::vector<SharedBytes> kept(parts.begin(), parts.end());
  for (SharedBytes& part : kept) {
    if (!part.owner()) part = SharedBytes::own(to_bytes(part.view()));
  }
  return kept;
}

// What a process leaves that is killed while it writes.
Bytes first_half(std::span<const SharedBytes> parts) {
  Bytes whole;
  for (const SharedBytes& part : parts) {
    whole.insert(whole.end(), part.view().begin(), part.view().end());
  }
  whole.resize(whole.size() / 2);
  return whole;
}

}  // namespace

template <class Change, class Torn>
Result<void> SimulatedDisk::decide(const fs::path& path, const Change& change, const Torn& torn) {
  switch (injector_ ? injector_(path) : Fault::kNone) {
    case Fault::kNone:
      change();
      return {};
    case Fault::kFailedSync:
      return internal("fsync-failed", "fsync of " + path.string() + " failed, as simulated");
    case Fault::kFull:
      return overloaded("disk-full",
                        "cannot write " + path.string() + ": the simulated disk is full");
    case Fault::kCrashBefore:
      break;
    case Fault::kTornWrite:
      torn();
      break;
    case Fault::kCrashAfter:
      change();
      break;
  }
  throw ProcessCrash{process_};
}

void SimulatedDisk::put(const std::string& path, File file) {
  drop(path);
  bytes_ += file.bytes;
  file.written = ++changes_;
  files_[path] = std::move(file);
}

void SimulatedDisk::drop(const std::string& path) {
  const auto found = files_.find(path);
  if (found == files_.end()) return;
  bytes_ -= found->second.bytes;
  files_.erase(found);
}

bool SimulatedDisk::is_directory(const fs::path& path) const {
  return path.empty() || path == path.root_path() || directories_.contains(path.string());
}

Result<void> SimulatedDisk::write(const fs::path& path, std::span<const SharedBytes> parts) {
  if (!is_directory(path.parent_path())) return missing(path.parent_path());
  File file;
  for (const SharedBytes& part : parts) file.bytes += part.size();
  return decide(
      path,
      [&] {
        file.parts = kept(parts);
        put(path.string(), std::move(file));
      },
      [&] {
        const fs::path temporary =
            path.parent_path() / ("." + path.filename().string() + ".torn.tmp");
        Bytes half = first_half(parts);
        const std::uint64_t bytes = half.size();
        put(temporary.string(), {{SharedBytes::own(std::move(half))}, bytes});
      });
}

Result<std::unique_ptr<DiskFile>> SimulatedDisk::open(const fs::path& path) {
  const auto found = files_.find(path.string());
  if (found == files_.end()) return missing(path);
  return std::unique_ptr<DiskFile>(
      std::make_unique<OpenFile>(found->second.parts, found->second.bytes));
}

Result<std::vector<DiskEntry>> SimulatedDisk::list(const fs::path& directory) {
  const std::string prefix = directory.string() + "/";
  std::vector<DiskEntry> entries;
  const auto add = [&](const std::string& path, std::uint64_t written) {
    if (!path.starts_with(prefix) || path.find('/', prefix.size()) != path.npos) return;
    entries.push_back(
        {path.substr(prefix.size()), fs::file_time_type(fs::file_time_type::duration(written))});
  };
  for (auto it = files_.lower_bound(prefix); it != files_.end() && it->first.starts_with(prefix);
       ++it) {
    add(it->first, it->second.written);
  }
  for (const std::string& path : directories_) add(path, 0);
  std::ranges::sort(entries, {}, &DiskEntry::name);
  return entries;
}

Result<void> SimulatedDisk::remove(const fs::path& path) {
  if (!files_.contains(path.string())) return {};
  return decide(
      path, [&] { drop(path.string()); }, [] {});
}

Result<void> SimulatedDisk::rename(const fs::path& from, const fs::path& to) {
  const auto found = files_.find(from.string());
  if (found == files_.end()) return missing(from);
  if (!is_directory(to.parent_path())) return missing(to.parent_path());
  return decide(
      from,
      [&] {
        File file = found->second;
        drop(from.string());
        put(to.string(), std::move(file));
      },
      [] {});
}

Result<void> SimulatedDisk::make_directory(const fs::path& path, Access) {
  if (is_directory(path)) return {};
  return decide(
      path,
      [&] {
        for (fs::path made = path; !is_directory(made); made = made.parent_path()) {
          directories_.insert(made.string());
        }
      },
      [] {});
}

}  // namespace starling::sim
