// SPDX-License-Identifier: Apache-2.0
// A coordinator that a test plays line by line, over real sockets and mutual TLS, and the job that
// it hands out: a softmax regression on a few synthetic rows.
#pragma once

#include <gtest/gtest.h>

#include "core/client/local_trainer.h"
#include "core/data/load.h"
#include "core/link/message_link.h"
#include "tests/net/loopback.h"

namespace starling::testing {

inline const char* const kRows = "synthetic:rows=40,features=6,classes=3";

inline data::DatasetView tiny_data() {
  return {*data::load_dataset(*data::DatasetSpec::parse(kRows))};
}

// A plan of a 6x3 softmax regression and the model that it starts from.
struct TinyRound {
  explicit TinyRound(TaskId task, Round round = 1) {
    client::TrainingSettings settings;
    settings.model.kind = "softmax-regression";
    settings.data = client::DataShape::of({.width = 6}, 3);
    settings.train.batch_size = 8;
    const auto made = *settings.make_model();
    std::vector<float> values(made->layout()->size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.01F * static_cast<float>(i + round);  // another model each round
    }
    model = SharedBytes::own(to_bytes(as_bytes(std::span<const float>(values))));
    plan = {.task = task,
            .run = RunId(1),
            .run_name = "tiny",
            .round = round,
            .rounds = 3,
            .attempt = 1,
            .seed = 5,
            .base = {.run = RunId(1), .round = round - 1, .sha256 = sha256(model.view())},
            .model_bytes = model.size(),
            .settings = settings.to_settings(),
            .schema = {.vectors = {{.name = "delta", .elements = values.size()}}},
            .deadline = std::chrono::seconds(60)};
  }
  // The same by SCAFFOLD, of which the client keeps a state.
  static TinyRound by_scaffold(TaskId task, Round round) {
    TinyRound made(task, round);
    protocol::RoundPlan& plan = made.plan;
    plan.settings.emplace_back("strategy.name", "scaffold");
    plan.schema.vectors.push_back({.name = "control", .elements = made.model.size() / 4});
    made.inputs = {SharedBytes::own(Bytes(made.model.size()))};
    plan.inputs = {{"control", sha256(made.inputs[0].view()), made.inputs[0].size()}};
    return made;
  }
  // What `client` must make of it.
  client::PendingUpdate expected(const std::string& client,
                                 client::StateSnapshot state = nullptr) const {
    client::TrainerCache cache;
    client::BuiltinTrainer trainer(client, {tiny_data()}, cache);
    const std::atomic<bool> stop = false;
    const client::Train task{plan, model, inputs, std::move(state)};
    return *client::make_update(task, trainer, {}, stop);
  }

  protocol::RoundPlan plan;
  SharedBytes model;
  std::vector<SharedBytes> inputs;  // as the plan's
};

class ScriptedCoordinator : public Loopback {
 public:
  ScriptedCoordinator() { listen(); }
  ~ScriptedCoordinator() { hang_up(); }

  // The next connection, an earlier one having been dropped.
  void accept() { connection_ = net::run_task(loop, connections.next()); }
  void hang_up() { connection_.reset(); }
  Connection& connection() { return *connection_; }

  void send(protocol::Message message, SharedBytes payload = {}) {
    const auto sent = link::send(*connection_, {std::move(message), std::move(payload)});
    ASSERT_TRUE(sent) << sent.error().message();
  }
  void send_chunk(const TinyRound& round, std::size_t offset, std::size_t bytes) {
    send(protocol::Chunk{round.plan.task, offset}, round.model.slice(offset, bytes));
  }
  // What the device says next, heartbeats and its question for a roster aside. Fails the test where
  // it is something else.
  template <class Message>
  Message expect(SharedBytes* payload = nullptr) {
    for (;;) {
      auto next = net::run_task(loop, receive());
      if (!next) {
        ADD_FAILURE() << "no message: " << next.error().message();
        return {};
      }
      if (std::holds_alternative<protocol::Ping>(next->message)) continue;
      if (std::holds_alternative<protocol::RosterAsk>(next->message)) continue;
      if (payload != nullptr) *payload = next->payload;
      const auto* message = std::get_if<Message>(&next->message);
      if (message != nullptr) return *message;
      ADD_FAILURE() << "message " << next->message.index() << " came instead";
      return {};
    }
  }
  // How the connection ends for this side.
  std::string end() {
    for (;;) {
      auto next = net::run_task(loop, receive());
      if (!next) return next.error().code();
    }
  }
  // Returns what the device said of itself.
  protocol::Hello welcome(WallTime wall = kNow, std::uint64_t rows = 40) {
    accept();
    protocol::Hello hello = expect<protocol::Hello>();
    EXPECT_EQ(hello.rows, rows);
    send(protocol::Welcome{
        .federation = "kitchen",
        .client = "cam-7",
        .heartbeat = std::chrono::seconds(10),
        .wall_time_ms = static_cast<std::uint64_t>(wall.time_since_epoch().count())});
    return hello;
  }
  // From the plan to the update's offer.
  protocol::UpdateOffer hand_out(const TinyRound& round) {
    send(round.plan);
    EXPECT_EQ(expect<protocol::ModelRequest>().offset, 0U);
    send_chunk(round, 0, 40);
    send_chunk(round, 40, round.model.size() - 40);
    return expect<protocol::UpdateOffer>();
  }
  // The same of one with inputs, of which the device holds the last one if `holds_last`.
  protocol::UpdateOffer hand_out_all(const TinyRound& round, bool holds_last) {
    send(round.plan);
    std::vector<SharedBytes> wanted = {round.model};
    wanted.insert(wanted.end(), round.inputs.begin(), round.inputs.end());
    if (holds_last) wanted.pop_back();
    const auto count = static_cast<std::uint16_t>(wanted.size());
    for (std::uint16_t i = 0; i < count; ++i) {
      EXPECT_EQ(expect<protocol::ModelRequest>().input, i);
      send(protocol::Chunk{round.plan.task, 0, i}, wanted[i]);
    }
    return expect<protocol::UpdateOffer>();
  }
  // The update's bytes from `offset`, all of them.
  Bytes collect(TaskId task, std::uint64_t offset, std::uint64_t total) {
    Bytes bytes;
    while (offset + bytes.size() < total && !::testing::Test::HasFailure()) {
      SharedBytes piece;
      const auto chunk = expect<protocol::Chunk>(&piece);
      EXPECT_EQ(chunk.task, task);
      EXPECT_EQ(chunk.offset, offset + bytes.size());
      bytes.insert(bytes.end(), piece.view().begin(), piece.view().end());
    }
    return bytes;
  }

 private:
  Async<Result<protocol::Envelope>> receive() {
    const OpenLimits limits;
    auto frame = co_await connection_->read_frame(limits);
    if (!frame) co_return frame.error();
    auto envelope = link::decode(*frame);
    if (envelope) envelope->payload = SharedBytes::own(to_bytes(envelope->payload.view()));
    co_return std::move(envelope);
  }

  std::unique_ptr<Connection> connection_;
};

}  // namespace starling::testing
