// SPDX-License-Identifier: Apache-2.0
// Digests of the files that a run's settings name: a run with the same settings is another run once
// such a file has other content.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "core/base/settings.h"

namespace starling::study {

class InputDigests {
 public:
  // (key, SHA-256) of each file that can be read: of links and nodes, of a graph, of a CSV data
  // set. Each file is read once.
  Settings of(const Settings& settings);

 private:
  std::map<std::filesystem::path, std::string> known_;  // "": it cannot be read
};

}  // namespace starling::study
