// SPDX-License-Identifier: Apache-2.0
// Where uploads are received whole before anything is added to a sum: large ones in files that
// outlive the process, small ones in pooled memory while that lasts, else in a file without a name.
// Files grow with what comes. Uploads are begun, written and given up on one thread; a complete
// one may be read by others meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/disk.h"
#include "core/base/error.h"
#include "core/base/page_block.h"
#include "core/store/kept_uploads.h"
#include "core/update/payload.h"

namespace starling::store {

class UploadSpool;

// Memory of an upload, aligned to 64 bytes: of a page or more from the system, which takes whole
// pages of it, large ones where it is large (up to an eighth more), and gives them back at once;
// smaller ones from the heap.
class UploadBuffer {
 public:
  UploadBuffer() = default;
  explicit UploadBuffer(std::size_t bytes);
  UploadBuffer(UploadBuffer&&) = default;
  UploadBuffer& operator=(UploadBuffer&&) = default;
  static std::uint64_t size_for(std::uint64_t bytes);

  std::byte* data() const { return small_ ? small_.get() : pages_.data(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> small_;
  PageBlock pages_;
  std::size_t size_ = 0;
};

// One upload of a size known beforehand. Must not outlive its spool; returns its room when
// destroyed, which changes nothing on the disk: what was received of one that has a key stays in
// its file, unless it was discarded.
class Upload {
 public:
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  // The contiguous prefix that is there: where a resumed upload goes on.
  std::uint64_t received() const { return received_; }
  bool complete() const { return received_ == bytes_; }
  bool on_disk() const { return std::holds_alternative<std::unique_ptr<GrowingFile>>(room_); }
  // Whether part of it was there at the beginning: after a power cut those bytes may be wrong.
  bool resumed() const { return resumed_; }

  // Takes what is new of [offset, offset + size); what was received before is never changed.
  // "upload-gap" beyond received(), "upload-range" beyond bytes(); "disk-full" (kOverloaded) and
  // "io-error" of a file, which may then hold a part of it.
  [[nodiscard]] Result<void> write(std::uint64_t offset, ByteView chunk);
  // Nothing of it is kept.
  void discard();
  // The promise out of which its room came is not given back with it: the update lies elsewhere.
  void use_up_promise() { promise_.reset(); }

  // What was received so far; in memory it is aligned to 64 bytes. As long as this object.
  update::Payload content() const;

 private:
  friend class UploadSpool;
  struct Promise {
    std::uint64_t uploads;  // that have no room yet
    std::uint64_t bytes;    // of each
  };
  using Room = std::variant<UploadBuffer, std::unique_ptr<GrowingFile>>;
  Upload(UploadSpool& spool, Room room, std::uint64_t bytes);
  Result<void> append(ByteView fresh);

  UploadSpool& spool_;
  Room room_;
  std::uint64_t bytes_;
  std::uint64_t received_ = 0;
  std::optional<UploadKey> key_;  // of a file that has a name
  bool resumed_ = false;
  std::shared_ptr<Promise> promise_;  // out of which its room came
};

class UploadSpool {
 public:
  struct Options {
    std::filesystem::path directory;  // spool/ of the state directory; created when needed
    std::uint64_t memory_bytes_max = std::uint64_t{32} << 20;  // all buffers, idle ones included
    std::uint64_t disk_bytes_max = std::uint64_t{16} << 30;    // 0: never on disk
    // Smaller uploads are lost with the process: to send them again costs little.
    std::uint64_t kept_bytes_min = std::uint64_t{1} << 20;
  };

  // How many uploads of `bytes` each an empty spool with such limits holds at once.
  static std::uint64_t uploads_max(const Options& options, std::uint64_t bytes);

  // Removes temporaries that a crash left in the directory; finds the uploads that are kept there.
  // The disk must outlive the spool.
  UploadSpool(Disk& disk, Options options);
  // Requires: every upload is gone.
  ~UploadSpool();
  UploadSpool(const UploadSpool&) = delete;
  UploadSpool& operator=(const UploadSpool&) = delete;

  // Room for `bytes` is promised here, before the sender gets any credit: within the limits, and
  // within the disk as far as nothing else fills it meanwhile. "spool-full" and "disk-full"
  // (kOverloaded): try again when another upload has gone. "upload-too-large" (kRejected): it would
  // not fit into an empty spool.
  [[nodiscard]] Result<std::unique_ptr<Upload>> begin(std::uint64_t bytes);
  // The same, with what was received of it earlier; another update of its task is forgotten. Where
  // it cannot be on disk, it is in memory and not kept.
  [[nodiscard]] Result<std::unique_ptr<Upload>> begin(const UploadKey& key);

  // Keeps room for so many uploads of the run at a time, or for as many as an empty spool holds;
  // begin() takes it from there. What of the run's uploads is kept on disk needs no other room.
  // "spool-full" and "disk-full" where it is not free now; where something else fills the disk
  // later, begin() fails with "disk-full". Requires: the run has no promise.
  [[nodiscard]] Result<void> promise(RunId run, std::uint64_t uploads, std::uint64_t bytes);
  void end_promise(RunId run) { promises_.erase(run); }
  bool has_promise(RunId run) const { return promises_.contains(run); }
  bool has_promises() const { return !promises_.empty(); }

  // Of the uploads that are kept and not open. They count as promised disk and make room for new
  // uploads.
  void forget(TaskId task) { kept_.remove(task); }
  void forget(RunId run) { kept_.remove(run); }
  void forget_all_but(const std::set<TaskId>& tasks) { kept_.keep_only(tasks); }
  bool keeps(const UploadKey& key) const { return kept_.contains(key); }

  // Models and the database need room more than what only saves sending again: of what is kept
  // without a promise at most as much stays as of the disk is free. To be called when uploads have
  // gone.
  void leave_free_space();
  // Gives pooled memory back to the system, when no uploads are expected for a while.
  void release_idle();

  // Of memory in use or idle, of disk promised or kept; never above the options' limits.
  std::uint64_t memory_bytes() const { return memory_bytes_; }
  std::uint64_t disk_bytes() const { return disk_bytes_ + kept_.bytes(); }

 private:
  friend class Upload;

  Result<std::unique_ptr<Upload>> find_room(const UploadKey& key);
  Result<void> check_promises(std::uint64_t last);
  std::optional<std::uint64_t> promised_on_disk(std::uint64_t memory, std::uint64_t disk) const;
  std::unique_ptr<Upload> begin_in_memory(std::uint64_t bytes);
  bool fits_memory(std::uint64_t bytes) const;
  bool fits_disk(std::uint64_t bytes) const;
  Error full(std::uint64_t bytes) const;
  Result<std::unique_ptr<Upload>> begin_on_disk(std::uint64_t bytes);
  Result<std::unique_ptr<Upload>> begin_kept(const UploadKey& key);
  Result<void> make_room(std::uint64_t bytes, std::uint64_t received);
  Result<void> find_free_space(std::uint64_t capacity);
  std::uint64_t kept_of_promised() const;
  bool drop_unpromised();
  bool drop_one_kept();
  std::unique_ptr<Upload> open(std::unique_ptr<GrowingFile> file, std::uint64_t bytes);
  UploadBuffer take_buffer(std::size_t capacity);
  void drop_one_idle();
  void give_back(UploadBuffer buffer);
  void give_back_file(std::uint64_t bytes, std::uint64_t written);

  Disk& disk_;
  const Options options_;
  KeptUploads kept_;
  std::map<RunId, std::shared_ptr<Upload::Promise>> promises_;
  std::vector<UploadBuffer> idle_;
  std::uint64_t memory_bytes_ = 0;   // in use and idle
  std::uint64_t idle_bytes_ = 0;     // of these, idle
  std::uint64_t disk_bytes_ = 0;     // promised
  std::uint64_t written_bytes_ = 0;  // of these, in files already
  std::size_t memory_uploads_ = 0;
  std::size_t disk_uploads_ = 0;
};

}  // namespace starling::store
