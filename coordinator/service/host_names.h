// SPDX-License-Identifier: Apache-2.0
// Under which names this machine can be reached, where nobody said it.
#pragma once

#include <string>
#include <vector>

namespace starling::coordinator {

bool is_wildcard(const std::string& host);  // "0.0.0.0", "::"

// For a service that listens on `host` (numeric): that address; where it is the wildcard, the
// addresses of the interfaces that are up. Then the host's name. Never empty.
std::vector<std::string> default_names(const std::string& host);

// What a certificate of this machine also covers: commands beside the service dial these.
std::vector<std::string> local_names();

}  // namespace starling::coordinator
