// SPDX-License-Identifier: Apache-2.0
// The directory of a simulated run: models/ while it runs, at its end what was drawn for links and
// nodes (core/sim/written_values.h), report.html and run.json.
// Until then unfinished.json says which run it is and what it has measured, and checkpoint.state
// has what another process needs to go on (simulation_journal.h).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "coordinator/rounds/run_json.h"
#include "core/base/directory_lock.h"
#include "core/base/disk.h"
#include "core/base/settings.h"
#include "core/sim/written_values.h"
#include "core/store/records.h"

namespace starling::coordinator {

// Of the models. While a simulation is repeated that another process had begun, the files that this
// one had written by then are taken to be there, and nothing is changed.
class OutputDisk final : public SystemDisk {
 public:
  explicit OutputDisk(std::filesystem::path models) : models_(std::move(models)) {}

  void begin_repetition() { repeats_ = true; }
  // The files of a model were written, earlier.
  void repeat_write(const store::ModelRecord& model);
  // Removes the files that the other process wrote after it saved its state: they are written
  // again.
  [[nodiscard]] Result<void> end_repetition();

  // A service waits for room on a full disk. A simulation ends: waiting in virtual time frees none.
  Result<void> write(const std::filesystem::path& path,
                     std::span<const SharedBytes> parts) override;
  Result<std::vector<DiskEntry>> list(const std::filesystem::path& directory) override;
  Result<void> remove(const std::filesystem::path& path) override;

 private:
  const std::filesystem::path models_;
  bool repeats_ = false;
  std::set<std::string> written_;  // names, in the repetition
};

class SimulationOutput {
 public:
  // Makes the directory, or takes that of the same run unfinished. `record`: the run's run.json as
  // far as it goes before its beginning. "out-not-empty", "out-in-use".
  [[nodiscard]] static Result<SimulationOutput> begin(const std::filesystem::path& directory,
                                                      const Settings& asked, const Settings& inputs,
                                                      const std::string& record);
  // The names of all that is written, here or by `report`.
  static std::vector<std::string> files();

  // Another process had begun this run.
  bool was_begun() const { return was_begun_; }
  // Nothing of it is left.
  [[nodiscard]] Result<void> begin_again();
  std::filesystem::path models() const { return directory_ / "models"; }
  std::filesystem::path checkpoint() const { return directory_ / "checkpoint.state"; }
  // What the run has measured so far.
  [[nodiscard]] Result<void> write_unfinished(const std::string& record) const;
  // What was drawn for links and nodes; before finish().
  [[nodiscard]] Result<void> write_values(const sim::WrittenValues& values) const;
  // `damaged`: rounds whose models are not as they were written.
  [[nodiscard]] Result<void> finish(const std::string& record,
                                    std::span<const Round> damaged) const;

 private:
  SimulationOutput(std::filesystem::path directory, DirectoryLock in_use)
      : directory_(std::move(directory)), in_use_(std::move(in_use)) {}

  std::filesystem::path directory_;
  DirectoryLock in_use_;
  bool was_begun_ = false;
};

}  // namespace starling::coordinator
