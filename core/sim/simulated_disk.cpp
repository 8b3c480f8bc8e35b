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

Error full(const fs::path& path) {
  return overloaded("disk-full", "cannot write " + path.string() + ": the simulated disk is full");
}

}  // namespace

// What was appended to a file, which counts as long as a name or an open file refers to it.
class SimulatedDisk::Grown {
 public:
  explicit Grown(std::uint64_t& counted) : counted_(counted) {}
  ~Grown() { counted_ -= content_.size(); }
  Grown(const Grown&) = delete;
  Grown& operator=(const Grown&) = delete;

  ByteView content() const { return content_; }
  void append(ByteView bytes) {
    content_.insert(content_.end(), bytes.begin(), bytes.end());
    counted_ += bytes.size();
  }
  void cut(std::uint64_t bytes) {
    counted_ -= content_.size() - bytes;
    content_.resize(static_cast<std::size_t>(bytes));
  }
  void damage(std::uint64_t from) {
    for (auto i = static_cast<std::size_t>(from); i < content_.size(); ++i) {
      content_[i] = ~content_[i];
    }
  }

 private:
  std::uint64_t& counted_;
  Bytes content_;
};

class SimulatedDisk::OpenGrowing final : public GrowingFile {
 public:
  OpenGrowing(SimulatedDisk& disk, fs::path path, std::shared_ptr<Grown> grown)
      : disk_(disk), path_(std::move(path)), grown_(std::move(grown)) {}

  std::uint64_t size() const override { return grown_->content().size(); }
  Result<void> read(std::uint64_t offset, MutableByteView to) override {
    std::ranges::copy(grown_->content().subspan(static_cast<std::size_t>(offset), to.size()),
                      to.begin());
    return {};
  }
  Result<void> append(ByteView bytes) override { return disk_.append(*grown_, path_, bytes); }

 private:
  SimulatedDisk& disk_;
  fs::path path_;
  std::shared_ptr<Grown> grown_;
};

template <class Change, class Torn>
Result<void> SimulatedDisk::decide(const fs::path& path, const Change& change, const Torn& torn) {
  switch (injector_ ? injector_(path) : Fault::kNone) {
    case Fault::kNone:
      change();
      return {};
    case Fault::kFailedSync:
      return internal("fsync-failed", "fsync of " + path.string() + " failed, as simulated");
    case Fault::kFull:
      return full(path);
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
  if (file.bytes > room()) return full(path);
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
        put(temporary.string(), {.parts = {SharedBytes::own(std::move(half))}, .bytes = bytes});
      });
}

Result<std::unique_ptr<DiskFile>> SimulatedDisk::open(const fs::path& path) {
  const auto found = files_.find(path.string());
  if (found == files_.end()) return missing(path);
  std::vector<SharedBytes> parts = found->second.parts;
  std::uint64_t bytes = found->second.bytes;
  if (found->second.grown) {
    const ByteView content = found->second.grown->content();
    parts = {SharedBytes::own(to_bytes(content))};
    bytes = content.size();
  }
  return std::unique_ptr<DiskFile>(std::make_unique<OpenFile>(std::move(parts), bytes));
}

Result<std::unique_ptr<GrowingFile>> SimulatedDisk::open_growing(const fs::path& path,
                                                                 Content content) {
  if (!is_directory(path.parent_path())) return missing(path.parent_path());
  const auto found = files_.find(path.string());
  if (found == files_.end() || content == Content::kDropped) {
    STARLING_TRY(decide(
        path, [&] { put(path.string(), {.grown = std::make_shared<Grown>(bytes_)}); }, [] {}));
  } else if (!found->second.grown) {
    auto grown = std::make_shared<Grown>(bytes_);
    for (const SharedBytes& part : found->second.parts) grown->append(part.view());
    put(path.string(), {.grown = std::move(grown)});
  }
  return std::unique_ptr<GrowingFile>(
      std::make_unique<OpenGrowing>(*this, path, files_.at(path.string()).grown));
}

Result<std::unique_ptr<GrowingFile>> SimulatedDisk::make_nameless(const fs::path& directory) {
  if (!is_directory(directory)) return missing(directory);
  STARLING_TRY(decide(
      directory, [] {}, [] {}));
  return std::unique_ptr<GrowingFile>(
      std::make_unique<OpenGrowing>(*this, directory, std::make_shared<Grown>(bytes_)));
}

Result<void> SimulatedDisk::append(Grown& file, const fs::path& path, ByteView bytes) {
  const ByteView fits =
      bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(room(), bytes.size())));
  STARLING_TRY(decide(
      path, [&] { file.append(fits); }, [&] { file.append(fits.first(fits.size() / 2)); }));
  if (fits.size() < bytes.size()) return full(path);
  return {};
}

std::uint64_t SimulatedDisk::room() const {
  return capacity_ ? *capacity_ - std::min(*capacity_, bytes_) : UINT64_MAX;
}

Result<std::optional<std::uint64_t>> SimulatedDisk::free_bytes(const fs::path& directory) {
  if (!is_directory(directory)) return missing(directory);
  return capacity_ ? std::optional(room()) : std::nullopt;
}

void SimulatedDisk::cut_power(Rng& rng) {
  for (auto it = files_.begin(); it != files_.end();) {
    const auto file = it++;
    if (!file->second.grown) continue;
    Grown& grown = *file->second.grown;
    switch (rng.below(4)) {
      case 0:
        files_.erase(file);
        break;
      case 1:
        grown.cut(rng.below(grown.content().size() + 1));
        break;
      case 2:
        grown.damage(rng.below(grown.content().size() + 1));
        break;
      default:
        break;
    }
  }
}

Result<std::vector<DiskEntry>> SimulatedDisk::list(const fs::path& directory) {
  const std::string prefix = directory.string() + "/";
  std::vector<DiskEntry> entries;
  const auto add = [&](const std::string& path, std::uint64_t written,
                       std::optional<std::uint64_t> bytes) {
    if (!path.starts_with(prefix) || path.find('/', prefix.size()) != path.npos) return;
    entries.push_back({path.substr(prefix.size()),
                       fs::file_time_type(fs::file_time_type::duration(written)), bytes});
  };
  for (auto it = files_.lower_bound(prefix); it != files_.end() && it->first.starts_with(prefix);
       ++it) {
    const File& file = it->second;
    add(it->first, file.written, file.grown ? file.grown->content().size() : file.bytes);
  }
  for (const std::string& path : directories_) add(path, 0, std::nullopt);
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
