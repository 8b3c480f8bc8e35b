// SPDX-License-Identifier: Apache-2.0
#include "tests/store/sim_disk.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/base/check.h"

namespace starling::store {

struct SimDisk::Handle {
  sqlite3_file base;
  SimDisk* disk;
  std::shared_ptr<File> file;
};

const sqlite3_io_methods SimDisk::kMethods = {
    .iVersion = 1,  // no shared memory: only a store that locks exclusively can use a log here
    .xClose =
        [](sqlite3_file* file) {
          reinterpret_cast<Handle*>(file)->~Handle();
          return SQLITE_OK;
        },
    .xRead = SimDisk::read,
    .xWrite = SimDisk::write,
    .xTruncate = SimDisk::truncate,
    .xSync = SimDisk::sync,
    .xFileSize = SimDisk::file_size,
    .xLock = [](sqlite3_file*, int) { return SQLITE_OK; },
    .xUnlock = [](sqlite3_file*, int) { return SQLITE_OK; },
    .xCheckReservedLock =
        [](sqlite3_file*, int* taken) {
          *taken = 0;
          return SQLITE_OK;
        },
    .xFileControl = [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; },
    .xSectorSize = [](sqlite3_file*) { return 512; },
    .xDeviceCharacteristics = [](sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; },
    .xShmMap = nullptr,
    .xShmLock = nullptr,
    .xShmBarrier = nullptr,
    .xShmUnmap = nullptr,
    .xFetch = nullptr,
    .xUnfetch = nullptr};

SimDisk::SimDisk() {
  static int count = 0;
  name_ = "sim-disk-" + std::to_string(++count);
  const sqlite3_vfs* system = sqlite3_vfs_find(nullptr);
  vfs_.iVersion = 1;
  vfs_.szOsFile = sizeof(Handle);
  vfs_.mxPathname = system->mxPathname;
  vfs_.zName = name_.c_str();
  vfs_.pAppData = this;
  vfs_.xOpen = open;
  vfs_.xDelete = remove;
  vfs_.xAccess = access;
  vfs_.xFullPathname = full_path;
  vfs_.xRandomness = [](sqlite3_vfs*, int size, char* out) {
    std::memset(out, 7, static_cast<std::size_t>(size));
    return size;
  };
  vfs_.xSleep = [](sqlite3_vfs*, int) { return 0; };
  vfs_.xCurrentTime = [](sqlite3_vfs*, double* days) {
    *days = 2461000.5;
    return SQLITE_OK;
  };
  vfs_.xGetLastError = [](sqlite3_vfs*, int, char*) { return 0; };
  STARLING_CHECK(sqlite3_vfs_register(&vfs_, 0) == SQLITE_OK);
}

SimDisk::~SimDisk() { sqlite3_vfs_unregister(&vfs_); }

void SimDisk::fail(std::uint64_t at, Fault fault, bool for_ever) {
  countdown_ = at;
  kind_ = fault;
  for_ever_ = for_ever;
  failed_ = false;
}

std::optional<int> SimDisk::fault(int code, bool is_write) {
  if (!countdown_ || (kind_ == Fault::kDiskFull && !is_write)) return std::nullopt;
  if (*countdown_ > 1) {
    --*countdown_;
    return std::nullopt;
  }
  if (!for_ever_) countdown_.reset();
  failed_ = true;
  return kind_ == Fault::kDiskFull ? SQLITE_FULL : code;
}

void SimDisk::apply(Bytes& content, const Change& change) {
  if (change.content.empty()) {
    content.resize(std::min<std::size_t>(content.size(), change.offset));
    return;
  }
  const std::size_t end = change.offset + change.content.size();
  if (content.size() < end) content.resize(end);
  std::memcpy(content.data() + change.offset, change.content.data(), change.content.size());
}

void SimDisk::cut_power(Rng& rng) {
  countdown_.reset();
  for (auto it = files_.begin(); it != files_.end();) {
    File& file = *it->second;
    STARLING_CHECK(it->second.use_count() == 1);
    if (!file.exists_after_cut && rng.below(2) == 0) {
      it = files_.erase(it);
      continue;
    }
    for (Change& change : file.unsynced) {
      const std::uint64_t fate = rng.below(3);
      if (fate == 0) continue;
      if (fate == 1 && change.content.size() > 1) {  // torn
        change.content.resize(1 + rng.below(change.content.size() - 1));
      }
      apply(file.synced, change);
    }
    file.unsynced.clear();
    file.content = file.synced;
    file.exists_after_cut = true;
    ++it;
  }
}

int SimDisk::open(sqlite3_vfs* vfs, const char* path, sqlite3_file* out, int flags, int* granted) {
  SimDisk& disk = of(vfs);
  out->pMethods = nullptr;
  if (const auto code = disk.fault(SQLITE_CANTOPEN, false)) return *code;
  auto* handle = new (out) Handle{{&kMethods}, &disk, nullptr};
  std::shared_ptr<File>& file = disk.files_[path == nullptr ? "temporary" : path];
  if (!file) file = std::make_shared<File>();
  handle->file = file;
  if (granted != nullptr) *granted = flags;
  return SQLITE_OK;
}

int SimDisk::remove(sqlite3_vfs* vfs, const char* path, int) {
  SimDisk& disk = of(vfs);
  if (const auto code = disk.fault(SQLITE_IOERR_DELETE, false)) return *code;
  return disk.files_.erase(path) == 0 ? SQLITE_IOERR_DELETE_NOENT : SQLITE_OK;
}

int SimDisk::access(sqlite3_vfs* vfs, const char* path, int, int* found) {
  *found = of(vfs).files_.contains(path) ? 1 : 0;
  return SQLITE_OK;
}

int SimDisk::full_path(sqlite3_vfs*, const char* path, int size, char* out) {
  sqlite3_snprintf(size, out, "%s", path);
  return SQLITE_OK;
}

int SimDisk::read(sqlite3_file* base, void* out, int size, sqlite3_int64 offset) {
  auto* handle = reinterpret_cast<Handle*>(base);
  if (const auto code = handle->disk->fault(SQLITE_IOERR_READ, false)) return *code;
  const Bytes& content = handle->file->content;
  const auto wanted = static_cast<std::size_t>(size);
  const std::size_t from = std::min<std::size_t>(static_cast<std::size_t>(offset), content.size());
  const std::size_t count = std::min(wanted, content.size() - from);
  std::memset(out, 0, wanted);
  if (count > 0) std::memcpy(out, content.data() + from, count);
  return count == wanted ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

int SimDisk::write(sqlite3_file* base, const void* from, int size, sqlite3_int64 offset) {
  auto* handle = reinterpret_cast<Handle*>(base);
  if (const auto code = handle->disk->fault(SQLITE_IOERR_WRITE, true)) return *code;
  const auto* bytes = static_cast<const std::byte*>(from);
  Change change{static_cast<std::uint64_t>(offset), Bytes(bytes, bytes + size)};
  apply(handle->file->content, change);
  handle->file->unsynced.push_back(std::move(change));
  return SQLITE_OK;
}

int SimDisk::truncate(sqlite3_file* base, sqlite3_int64 size) {
  auto* handle = reinterpret_cast<Handle*>(base);
  if (const auto code = handle->disk->fault(SQLITE_IOERR_TRUNCATE, false)) return *code;
  const Change change{static_cast<std::uint64_t>(size), {}};
  apply(handle->file->content, change);
  handle->file->unsynced.push_back(change);
  return SQLITE_OK;
}

int SimDisk::sync(sqlite3_file* base, int) {
  auto* handle = reinterpret_cast<Handle*>(base);
  if (const auto code = handle->disk->fault(SQLITE_IOERR_FSYNC, false)) return *code;
  File& file = *handle->file;
  file.synced = file.content;
  file.unsynced.clear();
  file.exists_after_cut = true;
  return SQLITE_OK;
}

int SimDisk::file_size(sqlite3_file* base, sqlite3_int64* size) {
  auto* handle = reinterpret_cast<Handle*>(base);
  if (const auto code = handle->disk->fault(SQLITE_IOERR_FSTAT, false)) return *code;
  *size = static_cast<sqlite3_int64>(handle->file->content.size());
  return SQLITE_OK;
}

}  // namespace starling::store
