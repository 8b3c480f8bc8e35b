// SPDX-License-Identifier: Apache-2.0
// A coordinator's machine behind the wire codec: frames in, frames out. What the service's shell
// does with files and threads happens at once and in memory; sums and models are the real ones.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/machine/coordinator_machine.h"
#include "coordinator/rounds/round_aggregate.h"
#include "core/base/bytes.h"

namespace starling::testing {

// A frame as it travels: payload bytes (4), header words (2), type (2), header, payload.
Bytes to_frame(const protocol::Envelope& envelope);
protocol::Envelope from_frame(ByteView frame);

class FramedCoordinator {
 public:
  struct Sent {
    std::uint64_t session;
    Bytes frame;
  };

  // Two rounds of FedAvg with 3 clients, of which 2 must answer, and a model of 28 parameters. The
  // job must stay as it is: the frames in recorded/ were recorded with it.
  FramedCoordinator();
  static constexpr protocol::TransferOptions kTransfer{.chunk_bytes_max = 32, .window_bytes = 64};

  void admit(const std::string& client) { feed(coordinator::ClientAdmitted{client}); }
  void submit();
  void open(std::uint64_t session, const std::string& client) {
    feed(coordinator::SessionOpened{SessionId(session), client});
  }
  void close(std::uint64_t session) { feed(coordinator::SessionClosed{SessionId(session)}); }
  void receive(std::uint64_t session, ByteView frame) {
    feed(coordinator::MessageReceived{SessionId(session), from_frame(frame)});
  }
  void advance(Duration duration);
  void drain() { feed(coordinator::Drain{}); }

  // What was sent since the last call, oldest first.
  std::vector<Sent> take_sent() { return std::exchange(sent_, {}); }

 private:
  struct Upload {
    Bytes bytes;
    std::uint64_t received = 0;
  };
  void feed(coordinator::Event event);
  void perform(coordinator::Action& action);
  void commit(const coordinator::CommitRound& commit);

  TimePoint now_{};
  coordinator::RunContext context_;
  coordinator::CoordinatorMachine machine_;
  std::unique_ptr<coordinator::RoundAggregate> aggregate_;
  std::map<TaskId, Upload> uploads_;
  std::vector<coordinator::Event> answers_;
  std::vector<Sent> sent_;
};

}  // namespace starling::testing
