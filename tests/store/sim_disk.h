// SPDX-License-Identifier: Apache-2.0
// A disk in memory under SQLite, which fails on demand and forgets at a power cut what was not
// synced: of that, any part may have arrived, down to torn writes.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/rng.h"

namespace starling::store {

class SimDisk {
 public:
  enum class Fault { kIoError, kDiskFull };  // kDiskFull counts and fails only writes

  SimDisk();
  ~SimDisk();
  SimDisk(const SimDisk&) = delete;
  SimDisk& operator=(const SimDisk&) = delete;

  const std::string& vfs() const { return name_; }

  // The `at`-th operation from now on (from 1) fails once, or with all after it.
  void fail(std::uint64_t at, Fault fault, bool for_ever = false);
  bool failed() const { return failed_; }

  // Requires: nothing is open.
  void cut_power(Rng& rng);

 private:
  struct Change {  // a write, or (content empty) a truncation to `offset`
    std::uint64_t offset;
    Bytes content;
  };
  struct File {
    Bytes content;  // what a reader sees
    Bytes synced;
    std::vector<Change> unsynced;
    bool exists_after_cut = false;
  };
  struct Handle;
  static void apply(Bytes& content, const Change& change);
  // The code to return instead of doing an operation that is to fail.
  std::optional<int> fault(int code, bool is_write);

  static SimDisk& of(sqlite3_vfs* vfs) { return *static_cast<SimDisk*>(vfs->pAppData); }
  static int open(sqlite3_vfs*, const char*, sqlite3_file*, int, int*);
  static int remove(sqlite3_vfs*, const char*, int);
  static int access(sqlite3_vfs*, const char*, int, int*);
  static int full_path(sqlite3_vfs*, const char*, int, char*);
  static int read(sqlite3_file*, void*, int, sqlite3_int64);
  static int write(sqlite3_file*, const void*, int, sqlite3_int64);
  static int truncate(sqlite3_file*, sqlite3_int64);
  static int sync(sqlite3_file*, int);
  static int file_size(sqlite3_file*, sqlite3_int64*);
  static const sqlite3_io_methods kMethods;

  std::string name_;
  sqlite3_vfs vfs_{};
  std::map<std::string, std::shared_ptr<File>> files_;
  std::optional<std::uint64_t> countdown_;
  Fault kind_ = Fault::kIoError;
  bool for_ever_ = false;
  bool failed_ = false;
};

}  // namespace starling::store
