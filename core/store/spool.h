// SPDX-License-Identifier: Apache-2.0
// Where uploads are received whole before anything is added to a sum: pooled memory while it
// lasts and the upload is small, else an unlinked, preallocated, memory-mapped file. Uploads are
// begun, written and given up on one thread; a complete view may be read by others meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/base/fields.h"

namespace starling::store {

class UploadSpool;

// One upload of a size known beforehand. Must not outlive its spool; returns its room when
// destroyed.
class Upload {
 public:
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  // The contiguous prefix that is there: where a resumed upload goes on.
  std::uint64_t received() const { return received_; }
  bool complete() const { return received_ == bytes_; }
  bool on_disk() const { return on_disk_; }

  // Takes what is new of [offset, offset + size); what was received before is never changed.
  // "upload-gap" beyond received(), "upload-range" beyond bytes().
  [[nodiscard]] Result<void> write(std::uint64_t offset, ByteView chunk);
  // Forgets what was received, for an upload that was refused and may come again.
  void restart() { received_ = 0; }

  // What was received so far, aligned to 64 bytes.
  ByteView view() const { return {data_, static_cast<std::size_t>(received_)}; }

 private:
  friend class UploadSpool;
  Upload(UploadSpool& spool, std::byte* data, std::size_t capacity, std::uint64_t bytes,
         bool on_disk);

  UploadSpool& spool_;
  std::byte* data_;
  std::size_t capacity_;
  std::uint64_t bytes_;
  std::uint64_t received_ = 0;
  bool on_disk_;
};

class UploadSpool {
 public:
  struct Options {
    std::filesystem::path directory;  // spool/ of the state directory; created when needed
    std::uint64_t memory_bytes_max = std::uint64_t{512} << 20;  // all buffers, idle ones included
    std::size_t memory_uploads_max = 64;                        // uploads held in memory at a time
    std::uint64_t spill_bytes = std::uint64_t{128} << 20;       // larger uploads go to disk
    std::uint64_t disk_bytes_max = std::uint64_t{16} << 30;     // 0: never on disk
  };

  // Removes what a crash may have left in the directory.
  explicit UploadSpool(Options options);
  // Requires: every upload is gone.
  ~UploadSpool();
  UploadSpool(const UploadSpool&) = delete;
  UploadSpool& operator=(const UploadSpool&) = delete;

  // Room for `bytes` is reserved here, before the sender gets any credit. "spool-full" and
  // "disk-full" (kOverloaded): try again when another upload has gone. "upload-too-large"
  // (kRejected): it would not fit into an empty spool.
  [[nodiscard]] Result<std::unique_ptr<Upload>> begin(std::uint64_t bytes);

  // Gives pooled memory back to the system, when no uploads are expected for a while.
  void release_idle();

  // In use or idle; never above the options' limits.
  std::uint64_t memory_bytes() const { return memory_bytes_; }
  std::uint64_t disk_bytes() const { return disk_bytes_; }

 private:
  friend class Upload;
  struct Buffer {
    std::byte* data;
    std::size_t capacity;
  };

  std::unique_ptr<Upload> begin_in_memory(std::uint64_t bytes);
  Result<std::unique_ptr<Upload>> begin_on_disk(std::uint64_t bytes);
  Buffer take_buffer(std::size_t capacity);
  void drop_one_idle();
  void give_back(std::byte* data, std::size_t capacity, bool on_disk);

  const Options options_;
  std::vector<Buffer> idle_;
  std::uint64_t memory_bytes_ = 0;  // in use and idle
  std::uint64_t disk_bytes_ = 0;
  std::size_t memory_uploads_ = 0;
  std::size_t disk_uploads_ = 0;
};

template <class V>
void describe(V& visit, UploadSpool::Options& o) {
  visit("memory-bytes-max", o.memory_bytes_max,
        FieldInfo{.help = "memory for updates that are being received", .unit = "bytes", .min = 0});
  visit("memory-uploads-max", o.memory_uploads_max,
        FieldInfo{.help = "updates received in memory at a time; more go to disk",
                  .unit = "updates",
                  .min = 0});
  visit("spill-bytes", o.spill_bytes,
        FieldInfo{.help = "larger updates are received on disk", .unit = "bytes", .min = 0});
  visit(
      "disk-bytes-max", o.disk_bytes_max,
      FieldInfo{
          .help = "disk for updates that are being received; 0: none", .unit = "bytes", .min = 0});
}

}  // namespace starling::store
