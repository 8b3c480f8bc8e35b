// SPDX-License-Identifier: Apache-2.0
// The output directory of a simulated or launched network: metrics.jsonl line by line while it
// runs, the rest at its end.
#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/directory_lock.h"
#include "core/base/settings.h"
#include "gossip/simulation/simulation.h"
#include "topologies/spectral_report.h"

namespace starling::gossip {

boost::json::object to_json(const Measurement& measurement);

class RunWriter {
 public:
  // Makes the directory. Fails with "out-not-empty" where it holds another run or anything else.
  [[nodiscard]] static Result<RunWriter> make(const std::filesystem::path& directory);

  // Of a run that may be stopped and gone on with: the directory is new, or that of the same run
  // unfinished. Until finish(), unfinished.json in it says which run it is; metrics.jsonl is
  // written anew. "out-not-empty" also where another run is unfinished there.
  [[nodiscard]] static Result<RunWriter> begin_or_resume(const std::filesystem::path& directory,
                                                         std::string_view program,
                                                         const Experiment& experiment,
                                                         const Settings& settings);
  // Where the state of an unfinished run is kept.
  static std::filesystem::path checkpoint_in(const std::filesystem::path& directory);

  // The names of all that it writes, or `report` does.
  static std::vector<std::string> files();

  // Appends a line to metrics.jsonl.
  [[nodiscard]] Result<void> write(const Measurement& measurement);

  // Says in unfinished.json why the run ended without an end, until it goes on.
  [[nodiscard]] Result<void> fail(const Error& why);

  // model.safetensors, topology.svg, what was drawn for links and nodes, report.html, and
  // summary.json, which says that all is there and so comes last. `program`: what ran, as in
  // "starling-gossip simulate".
  [[nodiscard]] Result<void> finish(std::string_view program, const Experiment& experiment,
                                    const SimulationResult& result, const Settings& settings);

 private:
  [[nodiscard]] static Result<RunWriter> open(const std::filesystem::path& directory);
  explicit RunWriter(std::filesystem::path directory) : directory_(std::move(directory)) {}

  std::filesystem::path directory_;
  DirectoryLock in_use_;           // while it writes
  Settings inputs_;                // digests of its files (study::InputDigests), as it began
  boost::json::object beginning_;  // of unfinished.json
  std::ofstream metrics_;
};

}  // namespace starling::gossip
