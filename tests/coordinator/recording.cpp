// SPDX-License-Identifier: Apache-2.0
#include "tests/coordinator/recording.h"

#include <gtest/gtest.h>

#include <sstream>

namespace starling::testing {

std::string Recording::to_text() const {
  std::ostringstream out;
  for (const auto& [key, value] : defaults) out << "default " << key << ' ' << value << '\n';
  for (const RecordedStep& step : steps) {
    out << step.kind;
    if (step.number > 0) out << ' ' << step.number;
    if (!step.client.empty()) out << ' ' << step.client;
    if (!step.frame.empty()) out << ' ' << to_hex(step.frame);
    out << '\n';
  }
  return out.str();
}

Recording Recording::parse(std::string_view text) {
  Recording recording;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    RecordedStep step;
    words >> step.kind;
    if (step.kind == "default") {
      std::string key, value;
      words >> key >> value;
      recording.defaults.emplace_back(key, value);
      continue;
    }
    const bool frame = step.kind == "client" || step.kind == "coordinator";
    const bool numbered =
        frame || step.kind == "open" || step.kind == "close" || step.kind == "advance";
    if (numbered) words >> step.number;
    if (step.kind == "admit" || step.kind == "open") words >> step.client;
    std::string hex;
    if (frame) words >> hex;
    EXPECT_TRUE(words) << line.substr(0, 80);
    if (frame) step.frame = from_hex(hex).value();
    recording.steps.push_back(std::move(step));
  }
  return recording;
}

}  // namespace starling::testing
