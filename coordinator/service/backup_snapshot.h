// SPDX-License-Identifier: Apache-2.0
// Everything that a coordinator needs to go on, as it stands at one instant, and its way to an
// operator. Taken on the service's thread between two events, so that no commit, removal of old
// models or renewal of a certificate falls into it. The database is copied; model files, which
// never change once they have their names, are hard links, so that they may be removed meanwhile.
#pragma once

#include "coordinator/service/backup_listing.h"
#include "coordinator/service/coordinator_options.h"
#include "coordinator/service/operator_answer.h"
#include "coordinator/service/state_directory.h"
#include "core/base/clock.h"
#include "core/store/store.h"

namespace starling::coordinator {

class BackupSnapshot {
 public:
  // In a folder of its own within spool/. "disk-full" and what the database says.
  // `settings`: what the service runs with; where a flag overruled coordinator.toml, a note says
  // so.
  [[nodiscard]] static Result<BackupSnapshot> take(store::Store& store, const StateDirectory& state,
                                                   const CoordinatorSettings& settings,
                                                   WallTime now);
  // What a crash left of earlier ones.
  static void sweep(const StateDirectory& state);
  // Removes the folder.
  ~BackupSnapshot();
  BackupSnapshot(BackupSnapshot&& other) noexcept;
  BackupSnapshot& operator=(BackupSnapshot&&) = delete;

  const BackupListing& listing() const { return listing_; }
  std::filesystem::path path(const BackupFile& file) const { return folder_ / file.path; }

 private:
  explicit BackupSnapshot(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Result<void> copy_settings(const StateDirectory& state, const CoordinatorSettings& settings);
  Result<void> copy_models(store::RunStore& store, const StateDirectory& state);
  Result<void> copy_folder(const StateDirectory& state, const std::filesystem::path& folder);
  Result<void> list();

  std::filesystem::path folder_;  // empty once moved from
  BackupListing listing_;
};

// The listing's bytes as a little-endian u64, the listing, then the files one after the other. The
// snapshot goes when the answer does.
std::unique_ptr<OperatorAnswer> answer_backup(BackupSnapshot snapshot);

}  // namespace starling::coordinator
