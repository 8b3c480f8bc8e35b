// SPDX-License-Identifier: Apache-2.0
// A strategy of one's own beside the built-in ones: the server keeps an exponential average of the
// clients' mean step and follows its sign, so that every parameter moves by the same amount.
#include <cmath>
#include <cstdio>

#include "coordinator/machine/job_warnings.h"
#include "coordinator/simulation/simulate.h"
#include "core/strategy/catalogue.h"

using namespace starling;

class SignServer final : public strategy::ServerStrategy<float> {
 public:
  explicit SignServer(const strategy::ServerOptions& options)
      : rate_(options.learning_rate.value_or(0.002)), beta_(options.momentum.value_or(0.5)) {}

  // What is remembered between rounds is committed with the model, and survives any crash.
  strategy::State<float> initial_state(std::size_t elements) const override {
    return {.vectors = {{"average", linalg::AlignedVector<float>(elements)}}, .scalars = {}};
  }

  // average <- beta average + (1 - beta) mean;  x <- x + rate sign(average)
  Result<void> apply(std::span<const float> model, linalg::AlignedVector<float>& next,
                     strategy::State<float>& state,
                     const strategy::ServerRound& round) const override {
    linalg::AlignedVector<float>& average = state.vectors.at("average");
    round.report.vectors[0].consume([&](std::size_t begin, std::span<const double> mean) {
      for (std::size_t j = 0; j < mean.size(); ++j) {
        float& a = average[begin + j];
        a = static_cast<float>(beta_ * a + (1 - beta_) * mean[j]);
        const double step = a > 0 ? rate_ : a < 0 ? -rate_ : 0;
        next.push_back(static_cast<float>(model[begin + j] + step));
      }
    });
    return {};
  }

 private:
  double rate_;
  double beta_;
};

int main() {
  strategy::Catalogue strategies = strategy::builtin_strategies();
  // Its clients do what those of federated averaging do.
  strategy::Catalogue::Server sign;
  sign.make = [](const strategy::StrategyOptions&, const strategy::ServerOptions& server) {
    return std::make_unique<SignServer>(server);
  };
  sign.server_keys = {"server-learning-rate", "server-momentum"};
  strategies.add("sign", sign);
  const auto job = coordinator::parse_job(
      "rounds = 30\n[model]\nkind = \"softmax-regression\"\n[strategy]\nname = \"sign\"\n"
      "server-learning-rate = 0.01\n[evaluate]\ndataset = \"synthetic::test\"\n"
      "[data]\ndataset = \"synthetic\"\n",
      "job", strategies);
  if (!job) return std::printf("%s\n", job.error().message().c_str()), 1;
  for (const std::string& warning : coordinator::warnings_of_keys(*job, strategies)) {
    std::printf("warning: %s\n", warning.c_str());
  }
  const SystemClock clock;
  const auto print = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  const auto result = coordinator::simulate(*job, {.clients = 20, .strategies = &strategies}, clock,
                                            {.on_line = print, .on_round = {}});
  if (!result) return std::printf("%s\n", result.error().message().c_str()), 1;
  return result->error ? 1 : 0;
}
