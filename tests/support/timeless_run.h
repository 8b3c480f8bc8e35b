// SPDX-License-Identifier: Apache-2.0
// The run.json of a simulated federation without what depends on the day and the machine.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace starling::testing {

inline std::string timeless(const std::string& text) {
  boost::json::object run = boost::json::parse(text).as_object();
  for (const char* member : {"submitted", "started", "ended"}) run.erase(member);
  for (boost::json::value& round : run.at("rounds").as_array()) {
    for (const char* member : {"started", "seconds", "federated_seconds"}) {
      round.as_object().erase(member);
    }
  }
  return boost::json::serialize(run);
}

}  // namespace starling::testing
