// SPDX-License-Identifier: Apache-2.0
// Input: a line with which a trainer answers request 1, and what it prints.
#include <cmath>

#include "core/base/check.h"
#include "core/client/trainer_messages.h"
#include "core/client/trainer_output.h"
#include "tests/fuzz/fuzz_target.h"

namespace starling::client {
namespace {

void check_error(const Error& error) {
  STARLING_CHECK(!error.code().empty() && error.code().size() <= 40);
  STARLING_CHECK(!error.message().empty());
  for (const char c : error.message()) STARLING_CHECK(static_cast<unsigned char>(c) >= ' ');
}

class CheckingLog final : public Log {
 public:
  void write(LogLevel, std::string_view line) override {
    for (const char c : line) STARLING_CHECK(static_cast<unsigned char>(c) >= ' ');
    STARLING_CHECK(line.size() <= 4 * TrainerOutput::kLineBytesMax + 16);
  }
};

}  // namespace
}  // namespace starling::client

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  using namespace starling::client;
  const std::string_view text = as_text(std::as_bytes(std::span(data, size)));
  if (const auto description = read_description(text, 1)) {
    STARLING_CHECK(description->can(TrainerOperation::kFit) && description->layout);
  } else {
    check_error(description.error());
  }
  using enum TrainerOperation;
  for (const TrainerOperation operation : {kInitialize, kFit, kEvaluate, kGradient}) {
    const auto answer = read_answer(text, 1, operation);
    if (!answer) {
      check_error(answer.error());
      continue;
    }
    STARLING_CHECK(std::isfinite(answer->loss) && std::isfinite(answer->weight));
    const double accuracy = answer->accuracy.value_or(0);
    STARLING_CHECK(accuracy >= 0 && accuracy <= 1);
    STARLING_CHECK(answer->metrics.size() <= train::kMetricsMax);
    for (const auto& [name, value] : answer->metrics) {
      STARLING_CHECK(operation == kFit ? train::is_train_metric_name(name)
                                       : train::is_metric_name(name));
      STARLING_CHECK(std::isfinite(value));
    }
    STARLING_CHECK(operation == kInitialize || answer->weight > 0);
  }
  CheckingLog log;
  TrainerOutput output(log);
  output.add(text, TimePoint{});
  output.end(TimePoint{});
  return 0;
}
