// SPDX-License-Identifier: Apache-2.0
#include "core/store/kept_uploads.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

namespace starling::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUploadEnding = ".upload";
constexpr std::uint64_t kDiskPage = 4096;

std::string upload_name(const UploadKey& key) {
  return fmt::format("{:x}-{:x}-{:x}-{:016x}{}", key.task.value(), key.run.value(), key.bytes,
                     key.checksum, kUploadEnding);
}

std::optional<UploadKey> parse_upload_name(const std::string& name) {
  std::uint64_t numbers[4] = {};
  const char* at = name.data();
  const char* const end = name.data() + name.size() - kUploadEnding.size();
  for (std::uint64_t& number : numbers) {
    if (&number != numbers && (at == end || *at++ != '-')) return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, number, 16);
    if (error != std::errc()) return std::nullopt;
    at = next;
  }
  const UploadKey key{TaskId(numbers[0]), RunId(numbers[1]), numbers[2], numbers[3]};
  return upload_name(key) == name ? std::optional(key) : std::nullopt;
}

}  // namespace

KeptUploads::KeptUploads(Disk& disk, fs::path directory)
    : disk_(disk), directory_(std::move(directory)) {
  find();
}

void KeptUploads::find() {
  const auto entries = disk_.list(directory_);
  if (!entries) return;  // what cannot be listed is sent again
  for (const DiskEntry& entry : *entries) {
    if (!entry.name.ends_with(kUploadEnding)) continue;
    const auto key = parse_upload_name(entry.name);
    const std::uint64_t bytes = entry.bytes.value_or(0);
    if (key && bytes > 0 && bytes <= key->bytes) {
      add(*key, bytes);
    } else {
      (void)disk_.remove(directory_ / entry.name);
    }
  }
}

fs::path KeptUploads::path_of(const UploadKey& key) const { return directory_ / upload_name(key); }

void KeptUploads::add(const UploadKey& key, std::uint64_t received) {
  const std::uint64_t pages = std::max<std::uint64_t>(1, (received + kDiskPage - 1) / kDiskPage);
  const std::uint64_t on_disk = pages * kDiskPage;
  if (!files_.emplace(key, on_disk).second) return;
  bytes_ += on_disk;
  run_bytes_[key.run] += on_disk;
}

void KeptUploads::uncount(Files::const_iterator file) {
  bytes_ -= file->second;
  const auto run = run_bytes_.find(file->first.run);
  run->second -= file->second;
  if (run->second == 0) run_bytes_.erase(run);
}

std::uint64_t KeptUploads::bytes(RunId run) const {
  const auto found = run_bytes_.find(run);
  return found == run_bytes_.end() ? 0 : found->second;
}

void KeptUploads::take(const UploadKey& key) {
  const auto file = files_.find(key);
  if (file == files_.end()) return;
  uncount(file);
  files_.erase(file);
}

// A file that cannot be removed is found again by the next process.
KeptUploads::Files::iterator KeptUploads::remove(Files::iterator file) {
  (void)disk_.remove(path_of(file->first));
  uncount(file);
  return files_.erase(file);
}

void KeptUploads::remove_others(const UploadKey& key) {
  auto file = files_.lower_bound({.task = key.task});
  while (file != files_.end() && file->first.task == key.task) {
    file = file->first == key ? std::next(file) : remove(file);
  }
}

void KeptUploads::remove(TaskId task) {
  auto file = files_.lower_bound({.task = task});
  while (file != files_.end() && file->first.task == task) file = remove(file);
}

void KeptUploads::remove(RunId run) {
  for (auto file = files_.begin(); file != files_.end();) {
    file = file->first.run == run ? remove(file) : std::next(file);
  }
}

void KeptUploads::keep_only(const std::set<TaskId>& tasks) {
  for (auto file = files_.begin(); file != files_.end();) {
    file = tasks.contains(file->first.task) ? std::next(file) : remove(file);
  }
}

bool KeptUploads::remove_one(const std::function<bool(RunId)>& spares) {
  const auto file =
      std::ranges::find_if(files_, [&](const auto& entry) { return !spares(entry.first.run); });
  if (file == files_.end()) return false;
  remove(file);
  return true;
}

}  // namespace starling::store
