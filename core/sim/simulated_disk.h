// SPDX-License-Identifier: Apache-2.0
// The disk of one simulated process: files in memory that outlive the process. A change may fail,
// find the disk full, or be the moment at which the process is killed, and then be whole, undone,
// or half of a temporary or of what is appended. What was appended survives that, but not always a
// power cut. Files share the parts that were written, so that a model costs no copy.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/base/disk.h"
#include "core/base/rng.h"

namespace starling::sim {

// Unwinds a turn of a simulated process to the simulation, which destroys the process: nothing
// after the point of the crash happens.
struct ProcessCrash {
  std::uint32_t process;
};

class SimulatedDisk final : public Disk {
 public:
  enum class Fault {  // of a change
    kNone,
    kFailedSync,   // "fsync-failed"; nothing has changed
    kFull,         // "disk-full"; nothing has changed
    kCrashBefore,  // the process is killed, and nothing has changed
    kTornWrite,    // ... and half is left: of a temporary where a file was written, or appended
    kCrashAfter,   // ... and the change is durable
  };
  // Called at each change (of a file, its name or a directory): the fault that it meets. The path
  // of a file without a name is its directory's.
  using FaultInjector = std::function<Fault(const std::filesystem::path& path)>;

  explicit SimulatedDisk(std::uint32_t process) : process_(process) {}
  SimulatedDisk(const SimulatedDisk&) = delete;
  SimulatedDisk& operator=(const SimulatedDisk&) = delete;

  void set_fault_injector(FaultInjector injector) { injector_ = std::move(injector); }
  // How much fits; none, as at first: any amount.
  void set_capacity(std::optional<std::uint64_t> bytes) { capacity_ = bytes; }
  // Of files that have a name or are open.
  std::uint64_t bytes() const { return bytes_; }
  // Of what was appended, anything may be gone, end early or be wrong from some byte on; what was
  // written as a whole stays. Requires: no growing file is open.
  void cut_power(Rng& rng);

  Result<void> write(const std::filesystem::path& path,
                     std::span<const SharedBytes> parts) override;
  Result<std::unique_ptr<DiskFile>> open(const std::filesystem::path& path) override;
  Result<std::unique_ptr<GrowingFile>> open_growing(const std::filesystem::path& path,
                                                    Content content) override;
  Result<std::unique_ptr<GrowingFile>> make_nameless(
      const std::filesystem::path& directory) override;
  Result<std::optional<std::uint64_t>> free_bytes(const std::filesystem::path& directory) override;
  Result<std::vector<DiskEntry>> list(const std::filesystem::path& directory) override;
  Result<void> remove(const std::filesystem::path& path) override;
  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Result<void> sync(const std::filesystem::path&) override { return {}; }
  Result<void> make_directory(const std::filesystem::path& path, Access access) override;

 private:
  class Grown;
  class OpenGrowing;
  struct File {
    std::vector<SharedBytes> parts;
    std::uint64_t bytes = 0;       // of the parts
    std::uint64_t written = 0;     // the number of the change
    std::shared_ptr<Grown> grown;  // instead of the parts: what was appended
  };

  // Makes `change` as far as the injected fault lets it; `torn` makes what half of it leaves.
  template <class Change, class Torn>
  Result<void> decide(const std::filesystem::path& path, const Change& change, const Torn& torn);
  void put(const std::string& path, File file);
  void drop(const std::string& path);
  bool is_directory(const std::filesystem::path& path) const;
  std::uint64_t room() const;
  Result<void> append(Grown& file, const std::filesystem::path& path, ByteView bytes);

  const std::uint32_t process_;
  FaultInjector injector_;
  std::optional<std::uint64_t> capacity_;
  std::uint64_t bytes_ = 0;
  std::uint64_t changes_ = 0;
  std::map<std::string, File> files_;  // by path
  std::set<std::string> directories_;
};

}  // namespace starling::sim
