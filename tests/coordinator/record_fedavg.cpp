// SPDX-License-Identifier: Apache-2.0
// What recorded/fedavg_v1.frames was made with.
#include <gtest/gtest.h>

#include <deque>

#include "core/client/local_trainer.h"
#include "tests/coordinator/framed_coordinator.h"
#include "tests/coordinator/recording.h"

namespace starling::testing {
namespace {

using namespace std::chrono_literals;

// A training whose result is the same on every machine.
class SteppingTrainer final : public client::Trainer {
 public:
  explicit SteppingTrainer(std::uint64_t rows) : rows_(rows) {}
  Result<client::TrainingReport> train(const client::TrainingRequest& request,
                                       std::span<float> parameters,
                                       const train::TrainingHooks<float>&,
                                       const std::atomic<bool>&) override {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] += static_cast<float>((i + request.round + rows_) % 9) / 64 - 0.0625F;
    }
    return client::TrainingReport{
        .weight = static_cast<double>(rows_), .train_loss = 1.0 / request.round, .steps = 1};
  }

 private:
  std::uint64_t rows_;
};

class Recorder {
 public:
  void add_client(const std::string& name, std::uint64_t rows) {
    const Rng backoff({.seed = 1, .purpose = Purpose::kBackoff, .node = hash_name(name)});
    nodes_.emplace_back(Node{name, rows,
                             std::make_unique<client::ClientMachine>(
                                 client::ClientOptions{.software = "starling-edge 0.1.0",
                                                       .rows = rows,
                                                       .transfer = FramedCoordinator::kTransfer},
                                 backoff, client::Leftovers())});
    coordinator_.admit(name);
    steps_.push_back({.kind = "admit", .client = name});
  }
  void submit() {
    coordinator_.submit();
    steps_.push_back({.kind = "submit"});
  }
  void advance(std::chrono::milliseconds duration) {
    now_ += duration;
    steps_.push_back({.kind = "advance", .number = static_cast<std::uint64_t>(duration.count())});
    coordinator_.advance(duration);
    deliver();
    for (std::size_t i = 0; i < nodes_.size(); ++i) tell(i, client::Tick{});
    settle();
  }
  void drain() {
    coordinator_.drain();
    steps_.push_back({.kind = "drain"});
    deliver();
    settle();
  }
  void stop(std::size_t node) {
    tell(node, client::Stop{});
    settle();
  }
  // The training that the client was asked for ends; well, unless it is told otherwise.
  void finish_training(std::size_t node, std::optional<Error> failure = std::nullopt) {
    ASSERT_TRUE(nodes_[node].training);
    const client::Train work = *std::exchange(nodes_[node].training, std::nullopt);
    SteppingTrainer trainer(nodes_[node].rows);
    auto update = client::make_update(work, trainer, {}, false);
    if (failure) update = *failure;
    tell(node, client::TrainingFinished{work.plan.task, std::move(update)});
    settle();
  }
  void break_disk(std::size_t node) { nodes_[node].disk_broken = true; }
  // The connection breaks behind the next piece that the client sends or gets.
  void break_next_upload(std::size_t node) { nodes_[node].break_upload = true; }
  void break_next_download(std::size_t node) { nodes_[node].break_download = true; }

  std::vector<RecordedStep> take_steps() { return std::move(steps_); }

 private:
  struct Node {
    std::string name;
    std::uint64_t rows;
    std::unique_ptr<client::ClientMachine> machine;
    std::uint64_t session = 0;  // 0: not connected
    std::optional<client::Train> training;
    bool disk_broken = false;
    bool break_upload = false;
    bool break_download = false;
  };
  struct Arrival {
    std::size_t node;
    std::uint64_t session;
    Bytes frame;
  };

  void tell(std::size_t node, client::Event event) {
    for (client::Action& action : nodes_[node].machine->on(std::move(event), now_)) {
      perform(node, action);
    }
  }

  void perform(std::size_t index, client::Action& action) {
    Node& node = nodes_[index];
    if (std::holds_alternative<client::Dial>(action)) {
      node.session = ++last_session_;
      node_of_session_[node.session] = index;
      coordinator_.open(node.session, node.name);
      steps_.push_back({.kind = "open", .number = node.session, .client = node.name});
      tell(index, client::Connected{});
    } else if (std::holds_alternative<client::HangUp>(action)) {
      hang_up(index);
    } else if (auto* send = std::get_if<client::Send>(&action)) {
      this->send(index, send->envelope);
    } else if (auto* train = std::get_if<client::Train>(&action)) {
      node.training = std::move(*train);
    } else if (auto* store = std::get_if<client::StoreUpdate>(&action)) {
      Result<void> result;
      if (std::exchange(node.disk_broken, false)) result = internal("disk", "the disk failed");
      tell(index, client::UpdateStored{store->update.head.task, result});
    }
  }

  void send(std::size_t index, const protocol::Envelope& envelope) {
    Node& node = nodes_[index];
    if (node.session == 0) return;
    const Bytes frame = to_frame(envelope);
    steps_.push_back({.kind = "client", .number = node.session, .frame = frame});
    coordinator_.receive(node.session, frame);
    deliver();
    const bool piece = std::holds_alternative<protocol::Chunk>(envelope.message);
    if (piece && std::exchange(node.break_upload, false)) break_off(index);
  }

  void deliver() {
    for (FramedCoordinator::Sent& sent : coordinator_.take_sent()) {
      steps_.push_back({.kind = "coordinator", .number = sent.session, .frame = sent.frame});
      arrivals_.push_back({node_of_session_.at(sent.session), sent.session, sent.frame});
    }
  }

  void settle() {
    while (!arrivals_.empty()) {
      const Arrival arrival = std::move(arrivals_.front());
      arrivals_.pop_front();
      Node& node = nodes_[arrival.node];
      if (node.session != arrival.session) continue;
      protocol::Envelope envelope = from_frame(arrival.frame);
      const bool piece = std::holds_alternative<protocol::Chunk>(envelope.message);
      tell(arrival.node, client::Received{std::move(envelope)});
      if (piece && std::exchange(node.break_download, false)) break_off(arrival.node);
    }
  }

  void hang_up(std::size_t index) {
    const std::uint64_t session = std::exchange(nodes_[index].session, 0);
    if (session == 0) return;
    coordinator_.close(session);
    steps_.push_back({.kind = "close", .number = session});
    deliver();
  }
  void break_off(std::size_t index) {
    hang_up(index);
    tell(index, client::Disconnected{retry("closed", "the connection broke")});
  }

  TimePoint now_{};
  FramedCoordinator coordinator_;
  std::vector<Node> nodes_;
  std::map<std::uint64_t, std::size_t> node_of_session_;
  std::uint64_t last_session_ = 0;
  std::deque<Arrival> arrivals_;
  std::vector<RecordedStep> steps_;
};

}  // namespace

Recording record_fedavg() {
  Recorder recorder;
  recorder.add_client("cam-1", 20);
  recorder.add_client("cam-2", 30);
  recorder.add_client("cam-3", 40);
  recorder.submit();
  recorder.advance(1s);  // they connect and fetch the model

  recorder.finish_training(2);
  recorder.break_disk(0);
  recorder.finish_training(0);
  recorder.finish_training(1, rejected("not-finite", "the training diverged"));
  recorder.advance(1s);  // the second attempt: cam-1 holds the model, cam-3 a finished update

  recorder.finish_training(0);
  recorder.break_next_upload(1);
  recorder.finish_training(1);
  recorder.break_next_download(2);
  recorder.advance(1s);  // cam-2 goes on with its upload, which ends the round
  recorder.advance(1s);  // cam-3 goes on with its download

  for (std::size_t node = 0; node < 3; ++node) recorder.finish_training(node);
  recorder.advance(12s);  // pings
  recorder.stop(0);
  recorder.drain();
  return {client::TrainingSettings().to_settings(), recorder.take_steps()};
}

}  // namespace starling::testing
