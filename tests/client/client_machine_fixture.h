// SPDX-License-Identifier: Apache-2.0
// The client's machine driven by hand.
#pragma once

#include <gtest/gtest.h>

#include "core/client/client_machine.h"

namespace starling::client {

using namespace std::chrono_literals;
using protocol::Message;

class ClientMachineTest : public ::testing::Test {
 protected:
  ClientMachineTest() : machine(options(), Rng({.seed = 1}), {}) {}

  static ClientOptions options() {
    return {.software = "test",
            .rows = 100,
            .model_bytes_max = 4096,
            .pending_updates_max = 2,
            .transfer = {.chunk_bytes_max = 100, .window_bytes = 250}};
  }

  std::vector<Action> feed(Event event) {
    actions = machine.on(std::move(event), now);
    return actions;
  }
  std::vector<Action> hear(Message message, SharedBytes payload = {}) {
    return feed(Received{{std::move(message), std::move(payload)}});
  }
  template <class T>
  std::vector<T> sent() const {
    std::vector<T> found;
    for (const Action& action : actions) {
      const auto* send = std::get_if<Send>(&action);
      if (!send) continue;
      if (const auto* message = std::get_if<T>(&send->envelope.message)) found.push_back(*message);
    }
    return found;
  }
  template <class T>
  const T* did() const {
    for (const Action& action : actions) {
      if (const auto* found = std::get_if<T>(&action)) return found;
    }
    return nullptr;
  }

  void connect() {
    if (const auto due = machine.next_deadline()) now = std::max(now, *due);
    feed(Tick{});
    ASSERT_TRUE(did<Dial>());
    feed(Connected{});
    ASSERT_EQ(sent<protocol::Hello>().size(), 1U);
    hear(protocol::Welcome{
        .federation = "f", .client = "c", .heartbeat = 10s, .reads_sparse = reads_sparse});
    ASSERT_EQ(machine.link(), ClientMachine::Link::kUp);
  }
  protocol::RoundPlan plan(std::uint64_t task, Round round = 1) const {
    return {.task = TaskId(task),
            .run = RunId(1),
            .round = round,
            .rounds = 9,
            .attempt = 1,
            .base = {RunId(1), round - 1, sha256(base.view())},
            .model_bytes = base.size(),
            .schema = {.vectors = {{.name = "model", .elements = base.size() / 4}}}};
  }
  // Sends the model in pieces as the machine asks for it.
  void serve_model(TaskId task) {
    const auto requests = sent<protocol::ModelRequest>();
    ASSERT_EQ(requests.size(), 1U);
    std::uint64_t limit = requests[0].limit;
    for (std::uint64_t offset = requests[0].offset; offset < base.size();) {
      const std::uint64_t count = std::min<std::uint64_t>(100, base.size() - offset);
      ASSERT_LE(offset + count, limit) << "the machine gave too little credit";
      hear(protocol::Chunk{task, offset}, base.slice(offset, count));
      for (const auto& credit : sent<protocol::Credit>()) limit = credit.limit;
      offset += count;
    }
  }
  PendingUpdate update(std::uint64_t task, Round round = 1) const {
    return {{.task = TaskId(task),
             .base = plan(task, round).base,
             .weight = 100,
             .vectors = plan(task).schema.vectors,
             .payload_bytes = base.size()},
            base};
  }
  // Until the update of `task` is stored and offered.
  void train(std::uint64_t task, Round round = 1) {
    hear(plan(task, round));
    if (!did<Train>()) serve_model(TaskId(task));
    ASSERT_TRUE(did<Train>());
    feed(TrainingFinished{TaskId(task), update(task, round)});
    ASSERT_TRUE(did<StoreUpdate>());
    feed(UpdateStored{TaskId(task), Result<void>()});
  }

  SharedBytes base = SharedBytes::own(Bytes(600, std::byte{7}));
  TimePoint now{};
  bool reads_sparse = true;  // the coordinator
  ClientMachine machine;
  std::vector<Action> actions;
};

}  // namespace starling::client
