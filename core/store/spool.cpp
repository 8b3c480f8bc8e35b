// SPDX-License-Identifier: Apache-2.0
#include "core/store/spool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "core/base/check.h"
#include "core/base/durable_file.h"

namespace starling::store {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kPage = 4096;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return std::max<std::uint64_t>((bytes + unit - 1) / unit, 1) * unit;
}

Error disk_error(const std::filesystem::path& directory, const char* doing, int cause) {
  const std::string message =
      fmt::format("cannot {} a file in {}: {}", doing, directory.string(), std::strerror(cause));
  if (cause == ENOSPC || cause == EDQUOT || cause == EFBIG) {
    return overloaded("disk-full", message + "; free some space and it will be tried again");
  }
  if (cause == ENOMEM || cause == EMFILE || cause == ENFILE) {
    return overloaded("spool-full", message);
  }
  return internal("io-error", message);
}

// A file that has no name, so that it is gone with the process; negative with errno set.
int open_nameless(const std::filesystem::path& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string name = (directory / ".upload.XXXXXX.tmp").string();
  const int named = ::mkostemps(name.data(), 4, O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

Result<std::uint64_t> file_bytes(int descriptor, const std::filesystem::path& directory) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return disk_error(directory, "read", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

// What others may take of the disk; nothing: it has no limit of its own.
Result<std::optional<std::uint64_t>> free_bytes(const std::filesystem::path& directory) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0) return disk_error(directory, "create", errno);
  if (disk.f_blocks == 0) return std::optional<std::uint64_t>();
  return std::optional(std::uint64_t{disk.f_bavail} * disk.f_frsize);
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

struct Upload::File final : DiskFile {
  File(int fd, const Upload& its_upload) : descriptor(fd), upload(its_upload) {}
  ~File() override { ::close(descriptor); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const override { return upload.received_; }
  Result<void> read(std::uint64_t offset, MutableByteView to) override {
    const std::filesystem::path& directory = upload.spool_.options_.directory;
    while (!to.empty()) {
      const ssize_t count = ::pread(descriptor, to.data(), to.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return disk_error(directory, "read", errno);
      if (count == 0) {
        return internal("io-error", fmt::format("a file in {} ends at {} bytes of the {} that were "
                                                "written to it",
                                                directory.string(), offset, size()));
      }
      offset += static_cast<std::uint64_t>(count);
      to = to.subspan(static_cast<std::size_t>(count));
    }
    return {};
  }

  const int descriptor;
  const Upload& upload;
};

Upload::Upload(UploadSpool& spool, Room room, std::uint64_t bytes)
    : spool_(spool), room_(std::move(room)), bytes_(bytes) {}

Upload::~Upload() {
  if (on_disk()) {
    if (key_ && received_ == 0) discard();
    spool_.give_back_file(bytes_, received_);
    if (promise_) ++promise_->uploads;
    if (key_) spool_.keep(*key_, received_);
    return;
  }
  spool_.give_back(std::get<UploadBuffer>(std::move(room_)));
  if (promise_) ++promise_->uploads;
}

void Upload::discard() {
  if (!key_) return;
  ::unlink(spool_.kept_.path_of(*key_).c_str());
  key_.reset();
}

update::Payload Upload::content() const {
  if (const auto* const file = std::get_if<std::unique_ptr<File>>(&room_)) {
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
  const auto* const file = std::get_if<std::unique_ptr<File>>(&room_);
  if (file == nullptr) {
    std::memcpy(std::get<UploadBuffer>(room_).data() + received_, fresh.data(), fresh.size());
    received_ += fresh.size();
    return {};
  }
  while (!fresh.empty()) {
    const ssize_t count =
        ::pwrite((*file)->descriptor, fresh.data(), fresh.size(), static_cast<off_t>(received_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ENOSPC && spool_.drop_one_kept()) continue;
    if (count <= 0) {
      return disk_error(spool_.options_.directory, "write", count == 0 ? ENOSPC : errno);
    }
    fresh = fresh.subspan(static_cast<std::size_t>(count));
    received_ += static_cast<std::uint64_t>(count);
    spool_.written_bytes_ += static_cast<std::uint64_t>(count);
  }
  return {};
}

UploadSpool::UploadSpool(Options options)
    : options_(std::move(options)), kept_(options_.directory) {
  sweep_temporaries(options_.directory);
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
  const int descriptor = open_nameless(options_.directory);
  if (descriptor < 0) return disk_error(options_.directory, "create", errno);
  return open(descriptor, bytes, 0);
}

// An update that waits for room asks often: without a file of it, none is opened before there is
// room.
Result<std::unique_ptr<Upload>> UploadSpool::begin_kept(const UploadKey& key) {
  const bool is_kept = kept_.contains(key);
  if (!is_kept) STARLING_TRY(make_room(key.bytes, 0));
  const int begins = is_kept ? 0 : O_TRUNC;  // a file that could not be listed is of another
  const int descriptor =
      ::open(kept_.path_of(key).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | begins, 0600);
  if (descriptor < 0) return disk_error(options_.directory, "create", errno);
  const auto received = file_bytes(descriptor, options_.directory);
  if (!received) {
    ::close(descriptor);
    return received.error();
  }
  if (is_kept) {
    kept_.take(key);
    const auto room = make_room(key.bytes, *received);
    if (!room) {
      ::close(descriptor);
      kept_.add(key, *received);
      return room.error();
    }
  }
  auto upload = open(descriptor, key.bytes, *received);
  upload->key_ = key;
  upload->resumed_ = *received > 0;
  return upload;
}

// Owns the descriptor.
std::unique_ptr<Upload> UploadSpool::open(int descriptor, std::uint64_t bytes,
                                          std::uint64_t received) {
  disk_bytes_ += round_up(bytes, kPage);
  written_bytes_ += received;
  ++disk_uploads_;
  std::unique_ptr<Upload> upload(new Upload(*this, nullptr, bytes));
  upload->room_ = std::make_unique<Upload::File>(descriptor, *upload);
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
  STARLING_TRY(make_directory(options_.directory, true));
  while (true) {
    STARLING_ASSIGN(const auto free, free_bytes(options_.directory));
    const std::uint64_t promised = promised_on_disk(0, 0).value_or(0);
    const std::uint64_t kept = kept_of_promised();
    const std::uint64_t needed =
        disk_bytes_ - written_bytes_ + promised - std::min(promised, kept) + capacity;
    if (!free || needed <= *free) return {};
    if (needed > *free + kept_.bytes() - kept || !drop_unpromised()) {
      return disk_error(options_.directory, "promise room for", ENOSPC);
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

// Models and the database need room more than what only saves sending again; what a promise counts
// on has its room as when it was open.
void UploadSpool::keep(const UploadKey& key, std::uint64_t received) {
  kept_.add(key, received);
  auto free = free_bytes(options_.directory);
  while (free && *free && kept_.bytes() > **free && drop_unpromised()) {
    free = free_bytes(options_.directory);
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
