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
  // of the words of a trainer's command that are files. Of a directory: the names of the files in
  // it, their sizes, and the first GiB of their contents; not of directories in it. Each path is
  // read once.
  Settings of(const Settings& settings);

 private:
  std::map<std::filesystem::path, std::string> known_;  // "": it cannot be read
};

}  // namespace starling::study
