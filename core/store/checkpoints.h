// SPDX-License-Identifier: Apache-2.0
// The model files of one run, FOLDER/ROUND.safetensors, and beside them the state of its strategy
// where it has any, FOLDER/ROUND.state.safetensors; each whole or absent after any crash. Order of
// a commit: write both, commit them in the Store, then prune(). A file that the Store does not know
// is set aside at the next start, never removed: a crash before the commit leaves one, and a
// database from an older copy knows fewer rounds than there are models.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/disk.h"
#include "core/store/store.h"

namespace starling::store {

// The SHA-256 over the float32 values of a model file, as ModelRecord::sha256.
using HashModelFile =
    std::function<Result<Sha256Digest>(Disk& disk, const std::filesystem::path& file)>;

// What makes a model the best of its run: a number of the coordinator's evaluations or of the
// clients' (federated).
struct Metric {
  std::string name;  // "accuracy", "loss" or that of a trainer's metric
  bool federated = false;
  bool more_is_better = true;
  friend bool operator==(const Metric&, const Metric&) = default;
};

struct BestModel {
  Round round = 0;
  Metric by = {};
  double value = 0;
};
// The earlier of equals; none where nothing was evaluated that the metric asks for. Without a
// metric: of the highest accuracy, else (where no model has one) of the lowest loss, by the
// coordinator's evaluations; where it made none, by the clients'.
std::optional<BestModel> best_model(std::span<const ModelRecord> models,
                                    const std::optional<Metric>& metric = std::nullopt);
// Of it.
std::optional<Round> best_round(std::span<const ModelRecord> models,
                                const std::optional<Metric>& metric = std::nullopt);

// The last `keep` rounds (0: all), the first, the best and the last; in order of round.
std::vector<Round> rounds_to_keep(std::span<const ModelRecord> models, std::uint32_t keep,
                                  const std::optional<Metric>& metric = std::nullopt);

class Checkpoints {
 public:
  // `folder` is models/RUN of a state directory; it is created by the first write. The disk must
  // outlive all copies of this.
  Checkpoints(Disk& disk, std::filesystem::path folder)
      : disk_(&disk), folder_(std::move(folder)) {}

  static std::string file_name(Round round);
  static std::string state_file_name(Round round);
  Disk& disk() const { return *disk_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path path(Round round) const { return folder_ / file_name(round); }
  std::filesystem::path state_path(Round round) const { return folder_ / state_file_name(round); }

  // Write `parts` one after another. "disk-full" may be tried again; see disk.h.
  [[nodiscard]] Result<void> write(Round round, std::span<const SharedBytes> parts) const;
  [[nodiscard]] Result<void> write_state(Round round, std::span<const SharedBytes> parts) const;

  // That have files, in order.
  [[nodiscard]] Result<std::vector<Round>> rounds() const;
  // Requires: `models` are all committed ones of rounds(). Removes the files of the rounds that
  // rounds_to_keep leaves out.
  [[nodiscard]] Result<void> prune(std::span<const ModelRecord> models, std::uint32_t keep,
                                   const std::optional<Metric>& metric = std::nullopt) const;

  // At start: removes temporaries, and moves the files that are not of `models` to
  // FOLDER/set-aside/ROUND-CONTENT.safetensors (or .state.safetensors), where CONTENT is the
  // beginning of the file's SHA-256. Returns the new names within FOLDER.
  [[nodiscard]] Result<std::vector<std::string>> set_aside(
      std::span<const ModelRecord> models) const;

 private:
  Disk* disk_;
  std::filesystem::path folder_;
};

// The same with the models of the store: the first, best and last ones have files, so that no
// others need be read.
[[nodiscard]] Result<void> prune(RunStore& store, const Checkpoints& checkpoints, RunId run,
                                 std::uint32_t keep, const std::optional<Metric>& metric);

// What is wrong with the newest model of a run or with its state; empty where both are intact. Any
// thread.
[[nodiscard]] Result<std::string> find_damage(const Checkpoints& checkpoints,
                                              const ModelRecord& model, const HashModelFile& hash);

// Checkpoints::set_aside(), with a sentence for the run's log where there were such files.
[[nodiscard]] Result<std::vector<std::string>> set_aside_unknown(
    const Checkpoints& checkpoints, RunId run, std::span<const ModelRecord> models);

struct Recovery {
  ModelRecord model;  // the newest whose files are there and have their SHA-256
  // A sentence for each round that had to be withdrawn, and one for files that were set aside.
  std::vector<std::string> complaints;
};

// At start, for a running run: withdraws the newest rounds whose files are missing or damaged, and
// sets aside the files that no round of the store is of. "model-damaged" (kInternal) where no kept
// model is intact, "models-missing" (kRetry) where the folder is empty or not there.
[[nodiscard]] Result<Recovery> recover_run(RunStore& store, const Checkpoints& checkpoints,
                                           RunId run, const HashModelFile& hash);

// At start: sets aside the model files of runs that the store does not know or that have not
// started, whose numbers and names new rounds would take. `folder` is models/ of a state directory.
// Returns a sentence for each such run.
[[nodiscard]] Result<std::vector<std::string>> set_aside_unknown_runs(
    RunStore& store, Disk& disk, const std::filesystem::path& folder);

}  // namespace starling::store
