// SPDX-License-Identifier: Apache-2.0
#include "core/store/spool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "core/base/check.h"

namespace starling::store {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kPage = 4096;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return std::max<std::uint64_t>((bytes + unit - 1) / unit, 1) * unit;
}

// What the callers tell apart: waiting for room helps, or the disk is broken.
Error spool_error(const Error& error) {
  if (error.kind() != ErrorKind::kOverloaded) return internal("io-error", error.message());
  const bool of_disk = error.code() == "disk-full" || error.code() == "file-too-large";
  return overloaded(of_disk ? "disk-full" : "spool-full", error.message());
}

}  // namespace

UploadBuffer::UploadBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes < kPage) {
    small_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kAlignment))));
  } else {
    pages_ = PageBlock(bytes, PageBlock::Pages::kLarge);
  }
}

void UploadBuffer::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t(kAlignment));
}

std::uint64_t UploadBuffer::size_for(std::uint64_t bytes) {
  return round_up(bytes, bytes < kPage ? kAlignment : kPage);
}

Upload::Upload(UploadSpool& spool, Room room, std::uint64_t bytes)
    : spool_(spool), room_(std::move(room)), bytes_(bytes) {}

Upload::~Upload() {
  if (promise_) ++promise_->uploads;
  if (on_disk()) {
    spool_.give_back_file(bytes_, received_);
    if (key_) spool_.kept_.add(*key_, received_);
  } else {
    spool_.give_back(std::get<UploadBuffer>(std::move(room_)));
  }
}

void Upload::discard() {
  if (!key_) return;
  (void)spool_.disk_.remove(spool_.kept_.path_of(*key_));
  key_.reset();
}

update::Payload Upload::content() const {
  if (const auto* const file = std::get_if<std::unique_ptr<GrowingFile>>(&room_)) {
    return update::Payload(**file);
  }
  const ByteView received(std::get<UploadBuffer>(room_).data(),
                          static_cast<std::size_t>(received_));
  return SharedBytes(nullptr, received);
}

Result<void> Upload::write(std::uint64_t offset, ByteView chunk) {
  if (offset > bytes_ || chunk.size() > bytes_ - offset) {
    return rejected("upload-range", fmt::format("a chunk of {} bytes at {} does not fit into the "
                                                "upload of {} bytes",
                                                chunk.size(), offset, bytes_));
  }
  if (offset > received_) {
    return rejected(
        "upload-gap",
        fmt::format("a chunk at {} leaves a gap: the next byte to send is {}", offset, received_));
  }
  const std::uint64_t known = received_ - offset;
  if (chunk.size() <= known) return {};
  return append(chunk.subspan(static_cast<std::size_t>(known)));
}

Result<void> Upload::append(ByteView fresh) {
  const auto* const file = std::get_if<std::unique_ptr<GrowingFile>>(&room_);
  if (file == nullptr) {
    std::memcpy(std::get<UploadBuffer>(room_).data() + received_, fresh.data(), fresh.size());
    received_ += fresh.size();
    return {};
  }
  while (true) {
    const auto appended = (*file)->append(fresh);
    const std::uint64_t more = (*file)->size() - received_;
    fresh = fresh.subspan(static_cast<std::size_t>(more));
    received_ += more;
    spool_.written_bytes_ += more;
    if (appended) return {};
    const bool full = appended.error().code() == "disk-full";
    if (!full || !spool_.drop_one_kept()) return spool_error(appended.error());
  }
}

UploadSpool::UploadSpool(Disk& disk, Options options)
    : disk_(disk), options_(std::move(options)), kept_(disk, options_.directory) {
  sweep_temporaries(disk_, options_.directory);
  while (kept_.bytes() > options_.disk_bytes_max) drop_one_kept();
}

UploadSpool::~UploadSpool() {
  STARLING_CHECK(memory_uploads_ == 0 && disk_uploads_ == 0);
  release_idle();
}

std::uint64_t UploadSpool::uploads_max(const Options& options, std::uint64_t bytes) {
  return options.memory_bytes_max / UploadBuffer::size_for(bytes) +
         options.disk_bytes_max / round_up(bytes, kPage);
}

bool UploadSpool::fits_memory(std::uint64_t bytes) const {
  return bytes <= options_.memory_bytes_max &&
         UploadBuffer::size_for(bytes) <= options_.memory_bytes_max;
}

bool UploadSpool::fits_disk(std::uint64_t bytes) const {
  return bytes <= options_.disk_bytes_max && round_up(bytes, kPage) <= options_.disk_bytes_max;
}

Error UploadSpool::full(std::uint64_t bytes) const {
  return overloaded("spool-full",
                    fmt::format("no room for an upload of {}: {} in memory and {} on "
                                "disk are taken",
                                format_byte_count(bytes), format_byte_count(memory_bytes_),
                                format_byte_count(disk_bytes())));
}

Result<std::unique_ptr<Upload>> UploadSpool::begin(std::uint64_t bytes) {
  if (!fits_memory(bytes) && !fits_disk(bytes)) {
    return rejected(
        "upload-too-large",
        fmt::format("an upload of {} is more than the spool can ever hold ({} in "
                    "memory, {} on disk); raise its limits",
                    format_byte_count(bytes), format_byte_count(options_.memory_bytes_max),
                    format_byte_count(options_.disk_bytes_max)));
  }
  std::unique_ptr<Upload> upload = begin_in_memory(bytes);
  if (upload) return upload;
  if (!fits_disk(bytes)) return full(bytes);
  return begin_on_disk(bytes);
}

Result<std::unique_ptr<Upload>> UploadSpool::begin(const UploadKey& key) {
  const auto found = promises_.find(key.run);
  if (found == promises_.end() || found->second->uploads == 0) return find_room(key);
  const std::shared_ptr<Upload::Promise> promise = found->second;
  --promise->uploads;
  auto upload = find_room(key);
  if (upload) {
    (*upload)->promise_ = promise;
  } else {
    ++promise->uploads;
  }
  return upload;
}

Result<void> UploadSpool::promise(RunId run, std::uint64_t uploads, std::uint64_t bytes) {
  uploads = std::min(uploads, uploads_max(options_, bytes));
  const bool is_new =
      promises_.emplace(run, std::make_shared<Upload::Promise>(Upload::Promise{uploads, bytes}))
          .second;
  STARLING_CHECK(is_new);
  auto kept = check_promises(uploads * bytes);
  if (!kept) end_promise(run);
  return kept;
}

Result<void> UploadSpool::check_promises(std::uint64_t last) {
  const auto on_disk = promised_on_disk(0, 0);
  if (!on_disk) return full(last);
  if (*on_disk == 0) return {};
  return find_free_space(0);
}

// What of the promises is for the disk, in memory as much of them as fits beside what is in use and
// `memory` and `disk` more; nothing: they do not fit. Beginning one of the promised uploads, where
// it fits by this, leaves the others their room.
std::optional<std::uint64_t> UploadSpool::promised_on_disk(std::uint64_t memory,
                                                           std::uint64_t disk) const {
  const std::uint64_t memory_used = memory_bytes_ - idle_bytes_ + memory;
  if (memory_used > options_.memory_bytes_max) return std::nullopt;
  if (disk > options_.disk_bytes_max - disk_bytes_) return std::nullopt;
  std::uint64_t memory_left = options_.memory_bytes_max - memory_used;
  const std::uint64_t disk_left = options_.disk_bytes_max - disk_bytes_ - disk;
  std::uint64_t on_disk = 0;
  for (const auto& [run, promise] : promises_) {
    const std::uint64_t buffer = UploadBuffer::size_for(promise->bytes);
    const std::uint64_t in_memory = std::min(promise->uploads, memory_left / buffer);
    memory_left -= in_memory * buffer;
    on_disk += (promise->uploads - in_memory) * round_up(promise->bytes, kPage);
    if (on_disk > disk_left) return std::nullopt;
  }
  return on_disk;
}

Result<std::unique_ptr<Upload>> UploadSpool::find_room(const UploadKey& key) {
  kept_.remove_others(key);
  if (key.bytes < options_.kept_bytes_min || !fits_disk(key.bytes)) return begin(key.bytes);
  auto upload = begin_kept(key);
  if (upload) return upload;
  if (auto in_memory = begin_in_memory(key.bytes)) return in_memory;
  return upload;
}

// Null where it does not fit, or where the memory is used up.
std::unique_ptr<Upload> UploadSpool::begin_in_memory(std::uint64_t bytes) {
  if (!fits_memory(bytes)) return nullptr;
  UploadBuffer buffer = take_buffer(static_cast<std::size_t>(UploadBuffer::size_for(bytes)));
  if (buffer.size() == 0) return nullptr;
  ++memory_uploads_;
  return std::unique_ptr<Upload>(new Upload(*this, std::move(buffer), bytes));
}

Result<std::unique_ptr<Upload>> UploadSpool::begin_on_disk(std::uint64_t bytes) {
  STARLING_TRY(make_room(bytes, 0));
  auto file = disk_.make_nameless(options_.directory);
  if (!file) return spool_error(file.error());
  return open(std::move(*file), bytes);
}

// An update that waits for room asks often: without a file of it, none is opened before there is
// room.
Result<std::unique_ptr<Upload>> UploadSpool::begin_kept(const UploadKey& key) {
  const bool is_kept = kept_.contains(key);
  if (!is_kept) STARLING_TRY(make_room(key.bytes, 0));
  // A file that could not be listed is of another.
  const auto content = is_kept ? Disk::Content::kKept : Disk::Content::kDropped;
  auto file = disk_.open_growing(kept_.path_of(key), content);
  if (!file) return spool_error(file.error());
  const std::uint64_t received = (*file)->size();
  if (is_kept) {
    kept_.take(key);
    const auto room = make_room(key.bytes, received);
    if (!room) {
      kept_.add(key, received);
      return room.error();
    }
  }
  auto upload = open(std::move(*file), key.bytes);
  upload->key_ = key;
  upload->resumed_ = received > 0;
  return upload;
}

std::unique_ptr<Upload> UploadSpool::open(std::unique_ptr<GrowingFile> file, std::uint64_t bytes) {
  const std::uint64_t received = file->size();
  disk_bytes_ += round_up(bytes, kPage);
  written_bytes_ += received;
  ++disk_uploads_;
  std::unique_ptr<Upload> upload(new Upload(*this, std::move(file), bytes));
  upload->received_ = received;
  return upload;
}

// For an upload of which so much is on disk already; kept ones make way. Requires: fits_disk.
Result<void> UploadSpool::make_room(std::uint64_t bytes, std::uint64_t received) {
  const std::uint64_t capacity = round_up(bytes, kPage);
  if (!promised_on_disk(0, capacity)) return full(bytes);
  while (capacity > options_.disk_bytes_max - disk_bytes()) {
    if (!drop_one_kept()) return full(bytes);
  }
  return find_free_space(capacity - received);
}

// Files take their room as they grow; what was promised to others is not free any more, and what of
// it is kept on disk already takes none. Other kept files make way if that is enough.
Result<void> UploadSpool::find_free_space(std::uint64_t capacity) {
  const auto made = disk_.make_directory(options_.directory, Disk::Access::kOwner);
  if (!made) return made.error().kind() == ErrorKind::kInternal ? spool_error(made.error()) : made;
  while (true) {
    const auto found = disk_.free_bytes(options_.directory);
    if (!found) return spool_error(found.error());
    const std::optional<std::uint64_t> free = *found;
    const std::uint64_t promised = promised_on_disk(0, 0).value_or(0);
    const std::uint64_t kept = kept_of_promised();
    const std::uint64_t needed =
        disk_bytes_ - written_bytes_ + promised - std::min(promised, kept) + capacity;
    if (!free || needed <= *free) return {};
    if (needed > *free + kept_.bytes() - kept || !drop_unpromised()) {
      return overloaded("disk-full",
                        fmt::format("cannot promise room for a file in {}: No space left on "
                                    "device; free some space",
                                    options_.directory.string()));
    }
  }
}

std::uint64_t UploadSpool::kept_of_promised() const {
  std::uint64_t bytes = 0;
  for (const auto& [run, promise] : promises_) {
    bytes += std::min(kept_.bytes(run), promise->uploads * round_up(promise->bytes, kPage));
  }
  return bytes;
}

// Of what a promise counts on, nothing; of a run that has more than that, some.
bool UploadSpool::drop_unpromised() {
  return kept_.remove_one([this](RunId run) {
    const auto found = promises_.find(run);
    return found != promises_.end() &&
           kept_.bytes(run) <= found->second->uploads * round_up(found->second->bytes, kPage);
  });
}

bool UploadSpool::drop_one_kept() {
  return drop_unpromised() || kept_.remove_one([](RunId) { return false; });
}

// What a promise counts on has its room as when it was open.
void UploadSpool::leave_free_space() {
  while (kept_.bytes() > 0) {
    const auto free = disk_.free_bytes(options_.directory);
    if (!free || !*free || kept_.bytes() <= **free || !drop_unpromised()) return;
  }
}

// The smallest idle buffer that is large enough and at most half wasted, else a new one, for which
// idle ones of other sizes make room.
UploadBuffer UploadSpool::take_buffer(std::size_t capacity) {
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->size() < capacity || it->size() / 2 > capacity) continue;
    if (best == idle_.end() || it->size() < best->size()) best = it;
    if (best->size() == capacity) break;
  }
  // A smaller buffer leaves promises at least as much room as a larger one.
  if (best != idle_.end() && !promised_on_disk(best->size(), 0)) best = idle_.end();
  if (best != idle_.end()) {
    std::swap(*best, idle_.back());
    UploadBuffer buffer = std::move(idle_.back());
    idle_.pop_back();
    idle_bytes_ -= buffer.size();
    return buffer;
  }
  if (!promised_on_disk(capacity, 0)) return {};
  while (capacity > options_.memory_bytes_max - memory_bytes_) drop_one_idle();
  memory_bytes_ += capacity;
  return UploadBuffer(capacity);
}

void UploadSpool::drop_one_idle() {
  memory_bytes_ -= idle_.back().size();
  idle_bytes_ -= idle_.back().size();
  idle_.pop_back();
}

void UploadSpool::release_idle() {
  while (!idle_.empty()) drop_one_idle();
}

void UploadSpool::give_back(UploadBuffer buffer) {
  idle_bytes_ += buffer.size();
  idle_.push_back(std::move(buffer));
  --memory_uploads_;
}

void UploadSpool::give_back_file(std::uint64_t bytes, std::uint64_t written) {
  disk_bytes_ -= round_up(bytes, kPage);
  written_bytes_ -= written;
  --disk_uploads_;
}

}  // namespace starling::store
