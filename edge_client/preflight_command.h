// SPDX-License-Identifier: Apache-2.0
// `starling-edge preflight`: would this device work? Each thing that can be wrong is looked at by
// itself, so that one run names all that is to be mended.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/config/command_line.h"
#include "edge_client/edge_options.h"
#include "edge_client/state_directory.h"

namespace starling::edge_client {

struct Check {
  std::string name;  // configuration, data, certificate, disk, connection, clock
  bool ok = false;
  std::string finding;
  std::string remedy;  // where not ok
  config::ExitCode exit_code = config::ExitCode::kOk;
};

struct PreflightRequest {
  StateDirectory state;
  Result<EdgeOptions> options;  // as far as reading them went well
  std::string version;
};

// Greets the coordinator and leaves, unless a process runs on this state directory: that one would
// lose its session to us.
[[nodiscard]] std::vector<Check> preflight_checks(const PreflightRequest& request,
                                                  const Clock& clock);

// Prints each check, in lines of at most `columns`; 0, 4 if the coordinator or a certificate is the
// first to fail, else 1.
int preflight(const PreflightRequest& request, const Clock& clock, config::OutputFormat format,
              std::ostream& out, std::size_t columns = SIZE_MAX);

}  // namespace starling::edge_client
