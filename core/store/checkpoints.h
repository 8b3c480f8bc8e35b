// SPDX-License-Identifier: Apache-2.0
// The model files of one run: FOLDER/ROUND.safetensors, whole or absent after any crash. Order of
// a commit: write() the file, commit it in the Store, then prune(). A file whose row was never
// committed is swept at the next start.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/store/store.h"

namespace starling::store {

// The SHA-256 over the float32 values of a model file, as ModelRecord::sha256.
using HashModelFile = std::function<Result<Sha256Digest>(const std::filesystem::path& file)>;

// Highest accuracy, else (where no model has one) lowest loss; the earlier of equals; none where
// nothing was evaluated.
std::optional<Round> best_round(std::span<const ModelRecord> models);

// The last `keep` rounds (0: all), the first, the best and the last; in order of round.
std::vector<Round> rounds_to_keep(std::span<const ModelRecord> models, std::uint32_t keep);

class Checkpoints {
 public:
  // `folder` is models/RUN of a state directory; it is created by the first write.
  explicit Checkpoints(std::filesystem::path folder) : folder_(std::move(folder)) {}

  static std::string file_name(Round round);
  std::filesystem::path path(Round round) const { return folder_ / file_name(round); }

  // Writes `parts` one after another. "disk-full" may be tried again; see durable_file.h.
  [[nodiscard]] Result<void> write(Round round, std::span<const ByteView> parts) const;

  // Requires: `models` are all committed ones. Removes the files that rounds_to_keep leaves out.
  [[nodiscard]] Result<void> prune(std::span<const ModelRecord> models, std::uint32_t keep) const;

  // At start: removes temporaries and the files of rounds that are not in `models`. Returns their
  // names.
  [[nodiscard]] Result<std::vector<std::string>> sweep(std::span<const ModelRecord> models) const;

 private:
  std::filesystem::path folder_;
};

struct Recovery {
  ModelRecord model;                    // the newest whose file is there and has its SHA-256
  std::vector<std::string> complaints;  // a sentence for each round that had to be withdrawn
};

// At start, for a running run: sweeps, and withdraws the newest rounds whose files are missing or
// damaged. "model-damaged" (kInternal) where no kept model is intact.
[[nodiscard]] Result<Recovery> recover_run(Store& store, const Checkpoints& checkpoints, RunId run,
                                           const HashModelFile& hash);

}  // namespace starling::store
