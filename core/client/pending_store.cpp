// SPDX-License-Identifier: Apache-2.0
#include "core/client/pending_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "core/base/check.h"
#include "core/base/digest.h"

namespace starling::client {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "STLPEND1";
constexpr std::size_t kChecksumAt = 8;
constexpr std::size_t kHeaderSizeAt = 16;
constexpr std::size_t kPayloadSizeAt = 24;
constexpr std::size_t kPrefixBytes = 64;
constexpr std::size_t kAlignment = 64;
constexpr std::string_view kExtension = ".update";
constexpr std::string_view kDamagedExtension = ".damaged";

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Error damaged(std::string why) { return rejected("pending-damaged", std::move(why)); }

// Where the payload begins, once the prefix has been believed.
Result<std::size_t> check_prefix(const HeadCodec& codec, ByteView file) {
  if (file.size() < kPrefixBytes || as_text(file.first(kMagic.size())) != kMagic) {
    return damaged("it does not begin as an update does");
  }
  const auto header = load_little<std::uint32_t>(file.data() + kHeaderSizeAt);
  if (header > codec.bytes_max) return damaged("its head is too long");
  const std::size_t begin = kPrefixBytes + aligned(header);
  const auto payload = load_little<std::uint64_t>(file.data() + kPayloadSizeAt);
  if (file.size() < begin || file.size() - begin != payload) {
    return damaged(fmt::format("it has {} bytes, which is not what its head says", file.size()));
  }
  const ByteView covered = file.first(begin).subspan(kHeaderSizeAt);
  if (load_little<std::uint64_t>(file.data() + kChecksumAt) != checksum(covered)) {
    return damaged("the checksum of its head does not match");
  }
  return begin;
}

// Newest first.
std::vector<fs::path> files_in(Disk& disk, const fs::path& directory, std::string_view extension) {
  auto entries = disk.list(directory);
  if (!entries) return {};  // what cannot be listed is found by a later start
  std::ranges::sort(*entries, [](const DiskEntry& a, const DiskEntry& b) {
    return std::tie(a.written, a.name) > std::tie(b.written, b.name);
  });
  std::vector<fs::path> files;
  for (const DiskEntry& entry : *entries) {
    if (entry.name.ends_with(extension)) files.push_back(directory / entry.name);
  }
  return files;
}

}  // namespace

Result<Bytes> encode_pending_head(const HeadCodec& codec, const update::ContributionHead& head) {
  STARLING_ASSIGN(const Bytes header, codec.encode(head));
  Bytes file(kPrefixBytes + aligned(header.size()));
  std::ranges::copy(as_bytes(kMagic), file.begin());
  store_little(file.data() + kHeaderSizeAt, static_cast<std::uint32_t>(header.size()));
  store_little(file.data() + kPayloadSizeAt, head.payload_bytes);
  std::ranges::copy(header, file.begin() + kPrefixBytes);
  store_little(file.data() + kChecksumAt, checksum(ByteView(file).subspan(kHeaderSizeAt)));
  return file;
}

Result<PendingUpdate> decode_pending(const HeadCodec& codec, Bytes file) {
  STARLING_ASSIGN(const std::size_t begin, check_prefix(codec, file));
  const auto header = load_little<std::uint32_t>(file.data() + kHeaderSizeAt);
  auto decoded = codec.decode(ByteView(file).subspan(kPrefixBytes, header));
  if (!decoded) return damaged(decoded.error().message());
  update::ContributionHead head = std::move(*decoded);
  const SharedBytes whole = SharedBytes::own(std::move(file));
  SharedBytes payload = whole.slice(begin, whole.size() - begin);
  if (head.payload_bytes != payload.size() ||
      head.payload_bytes != update::payload_bytes(head.vectors)) {
    return damaged("its vectors have another size than its payload");
  }
  if (checksum(payload.view()) != head.payload_checksum) {
    return damaged("the checksum of its payload does not match");
  }
  return PendingUpdate{std::move(head), std::move(payload)};
}

fs::path PendingStore::file_of(TaskId task) const {
  return directory_ / fmt::format("{:016x}{}", task.value(), kExtension);
}

Result<void> PendingStore::store(const PendingUpdate& update) const {
  STARLING_CHECK(update.payload.size() == update.head.payload_bytes);
  STARLING_ASSIGN(Bytes head, encode_pending_head(codec_, update.head));
  const std::array<SharedBytes, 2> parts = {SharedBytes::own(std::move(head)), update.payload};
  return disk_->write(file_of(update.head.task), parts);
}

Result<void> PendingStore::forget(TaskId task) const {
  STARLING_TRY(disk_->remove(file_of(task)));
  return disk_->sync(directory_);
}

Result<PendingUpdate> PendingStore::read(const fs::path& file) const {
  const std::size_t overhead = kPrefixBytes + aligned(codec_.bytes_max);
  STARLING_ASSIGN(Bytes content, read_file(*disk_, file, options_.payload_bytes_max + overhead));
  STARLING_ASSIGN(PendingUpdate update, decode_pending(codec_, std::move(content)));
  if (file_of(update.head.task).filename() != file.filename()) {
    return damaged("it holds another task than its name says");
  }
  return update;
}

void PendingStore::set_aside(const fs::path& file, const Error& why, Log& log) const {
  log.warning("the pending update {} is set aside: {}", file.string(), why.message());
  const bool full =
      files_in(*disk_, directory_, kDamagedExtension).size() >= options_.set_aside_max;
  const auto moved = full
                         ? disk_->remove(file)
                         : disk_->rename(file, fs::path(file).replace_extension(kDamagedExtension));
  if (!moved) log.warning("{}", moved.error().message());
}

Result<std::vector<PendingUpdate>> PendingStore::load(Log& log) const {
  STARLING_TRY(disk_->make_directory(directory_, Disk::Access::kOwner));
  sweep_temporaries(*disk_, directory_);
  std::vector<PendingUpdate> updates;
  for (const fs::path& file : files_in(*disk_, directory_, kExtension)) {
    if (updates.size() == options_.updates_max) {
      log.warning("the pending update {} is dropped to make room", file.string());
      STARLING_TRY(disk_->remove(file));
      continue;
    }
    auto update = read(file);
    if (update) {
      updates.push_back(std::move(*update));
    } else {
      set_aside(file, update.error(), log);
    }
  }
  std::ranges::reverse(updates);
  return updates;
}

}  // namespace starling::client
