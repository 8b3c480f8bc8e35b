// SPDX-License-Identifier: Apache-2.0
// An application that takes part in a federation with a model and a trainer of its own: a line
// through the measurements of this device.
#include <cstdio>
#include <fstream>
#include <random>

#include "core/client/training_settings.h"
#include "core/model/external_model.h"
#include "core/model/safetensors.h"
#include "core/train/local_trainer.h"
#include "edge_client/join_command.h"
#include "edge_client/start_command.h"

using namespace starling;

// y = offset + slope x, by gradient descent on half the mean squared error.
class LineTrainer final : public client::Trainer {
 public:
  explicit LineTrainer(const char* file) {
    std::ifstream in(file);
    for (double x = 0, y = 0; in >> x >> y;) points_.emplace_back(x, y);
  }
  static auto layout() {
    return *model::external_layout(
        {{.name = "offset", .shape = {1}}, {.name = "slope", .shape = {1}}});
  }
  client::TrainerDescription description() const {
    return {.name = "the line's trainer",
            .operations = {client::TrainerOperation::kFit},
            .rows = points_.size(),
            .layout = layout()};
  }

  Result<client::TrainingReport> train(const client::TrainingRequest& request,
                                       std::span<float> line, const train::TrainingHooks<float>&,
                                       const std::atomic<bool>& stop) override {
    STARLING_ASSIGN(const auto run, client::TrainingSettings::parse(
                                        {request.settings.begin(), request.settings.end()}));
    const double rate = run.train.learning_rate, rows = static_cast<double>(points_.size());
    client::TrainingReport report{.weight = rows, .rate = rate};
    for (; report.steps < train::local_steps(run.train, points_.size()); ++report.steps) {
      if (stop) return retry("stopped", "the task was stopped");
      double loss = 0, by_offset = 0, by_slope = 0;
      for (const auto& [x, y] : points_) {
        const double error = line[0] + line[1] * x - y;
        loss += error * error / 2, by_offset += error, by_slope += error * x;
      }
      line[0] -= static_cast<float>(rate * by_offset / rows);
      line[1] -= static_cast<float>(rate * by_slope / rows);
      report.train_loss = loss / rows;
    }
    return report;
  }

 private:
  std::vector<std::pair<double, double>> points_;
};

Result<void> run(std::span<char*> arguments) {
  if (arguments.size() < 3) return rejected("usage", "embedded_client DIR MEASUREMENTS [TOKEN]");
  if (std::string_view(arguments[1]) == "--initial") {
    return model::write_safetensors(arguments[2], model::Parameters(LineTrainer::layout()));
  }
  const edge_client::StateDirectory state{arguments[1]};
  const SystemClock clock;
  if (arguments.size() > 3) {
    net::EventLoop loop;
    STARLING_TRY(edge_client::join_federation(loop, {state, arguments[3]}, clock));
  }
  LineTrainer trainer(arguments[2]);
  const auto log = make_stderr_log(LogLevel::kInfo);
  edge_client::StartRequest request{.state = state, .version = "embedded_client 1.0"};
  request.backoff_seed = std::random_device()();
  request.own = {&trainer, trainer.description()};
  return edge_client::start(request, clock, *log);  // until SIGTERM, SIGINT or request.stop
}

int main(int argc, char** argv) {
  const auto ended = run({argv, static_cast<std::size_t>(argc)});
  if (!ended) std::fprintf(stderr, "error: %s\n", ended.error().message().c_str());
  return ended ? 0 : 1;
}
