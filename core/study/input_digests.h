// SPDX-License-Identifier: Apache-2.0
// Digests of the files and directories that a run's settings name: a run with the same settings is
// another run once one of them has other content.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "core/base/settings.h"

namespace starling::study {

class InputDigests {
 public:
  // (key, SHA-256) of what can be read of links and nodes, graphs, data sets, initial models, and
  // of a trainer's script: the first word of its command that is a file and no executable binary,
  // as interpreters are; others the trainer may write. Of a directory: the names, sizes and
  // contents of the files in it; not of directories in it. Each path is read once.
  Settings of(const Settings& settings);

 private:
  std::map<std::filesystem::path, std::string> known_;  // "": it cannot be read
};

}  // namespace starling::study
