// SPDX-License-Identifier: Apache-2.0
// The disk of one simulated process: files in memory that outlive the process. A change may fail,
// find the disk full, or be the moment at which the process is killed, and then be whole, undone,
// or half of a temporary. Files share the parts that were written, so that a model costs no copy.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "core/base/disk.h"

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
    kTornWrite,    // ... and half of a temporary is left where a file was written
    kCrashAfter,   // ... and the change is durable
  };
  // Called at each change (a write, removal, rename or new directory): the fault that it meets.
  using FaultInjector = std::function<Fault(const std::filesystem::path& path)>;

  explicit SimulatedDisk(std::uint32_t process) : process_(process) {}
  SimulatedDisk(const SimulatedDisk&) = delete;
  SimulatedDisk& operator=(const SimulatedDisk&) = delete;

  void set_fault_injector(FaultInjector injector) { injector_ = std::move(injector); }
  std::uint64_t bytes() const { return bytes_; }

  Result<void> write(const std::filesystem::path& path,
                     std::span<const SharedBytes> parts) override;
  Result<std::unique_ptr<DiskFile>> open(const std::filesystem::path& path) override;
  Result<std::vector<DiskEntry>> list(const std::filesystem::path& directory) override;
  Result<void> remove(const std::filesystem::path& path) override;
  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Result<void> sync(const std::filesystem::path&) override { return {}; }
  Result<void> make_directory(const std::filesystem::path& path, Access access) override;

 private:
  struct File {
    std::vector<SharedBytes> parts;
    std::uint64_t bytes = 0;
    std::uint64_t written = 0;  // the number of the change
  };

  // Makes `change` as far as the injected fault lets it; `torn` makes what half of it leaves.
  template <class Change, class Torn>
  Result<void> decide(const std::filesystem::path& path, const Change& change, const Torn& torn);
  void put(const std::string& path, File file);
  void drop(const std::string& path);
  bool is_directory(const std::filesystem::path& path) const;

  const std::uint32_t process_;
  FaultInjector injector_;
  std::uint64_t bytes_ = 0;
  std::uint64_t changes_ = 0;
  std::map<std::string, File> files_;  // by path
  std::set<std::string> directories_;
};

}  // namespace starling::sim
