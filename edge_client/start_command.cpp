// SPDX-License-Identifier: Apache-2.0
#include "edge_client/start_command.h"

#include <atomic>
#include <functional>
#include <optional>

#include "core/net/signals.h"
#include "edge_client/client_data.h"
#include "edge_client/edge_session.h"
#include "edge_client/fallback_session.h"
#include "edge_client/gossip_session.h"
#include "edge_client/pending_files.h"

namespace starling::edge_client {
namespace {

// The largest file of an update: strategies send up to two vectors and remember up to two.
constexpr std::uint64_t kVectorsInAFile = 4;

// Keyed by the name too: devices that start together must not dial together.
Rng backoff_rng(const StartRequest& request, const std::string& client) {
  return Rng(
      {.seed = request.backoff_seed, .purpose = Purpose::kBackoff, .node = hash_name(client)});
}

EdgeSession::Options session_options(const EdgeOptions& options, client::ClientOptions client,
                                     std::uint64_t data_bytes) {
  EdgeSession::Options session;
  session.updates.memory_bytes_max = bytes_beside(data_bytes, options.limits);
  session.updates.pending_updates = client.pending_updates_max;
  session.client = std::move(client);
  session.client.check = [updates = session.updates](const protocol::RoundPlan& plan,
                                                     std::uint64_t other_states_bytes) {
    return client::check_memory(plan, other_states_bytes, updates);
  };
  session.connect.deadline = options.connection.connect_deadline;
  // The client's machine ends a silent connection, and says why.
  Duration& idle_max = session.connect.connection.idle_max;
  idle_max = std::max(idle_max, 2 * options.connection.silence_max);
  session.stop_deadline = options.connection.stop_deadline;
  return session;
}

// What ends a start: a signal, or the application. From the first moment, for a trainer may take
// long to describe itself.
class Stopping {
 public:
  // `loop` must outlive it.
  Stopping(const StartRequest& request, net::EventLoop& loop, Log& log)
      : loop_(loop), log_(log), on_stop_(request.stop, [this] { stop(); }) {
    if (!request.takes_signals) return;
    const bool on_hang_up = request.stops_on_hang_up;
    signals_.emplace([this, on_hang_up](net::Signal signal) {
      if (signal != net::Signal::kHangUp || on_hang_up) stop();
    });
  }

  const std::atomic<bool>& asked() const { return asked_; }
  // Stops `session` once its loop runs, where that was asked for or will be.
  void give(EdgeSession& session) { session_ = &session; }

 private:
  void stop() {  // any thread
    asked_ = true;
    loop_.post([this] {
      log_.info("stopping; what is pending is offered at the next start");
      session_->request_stop();
    });
  }

  net::EventLoop& loop_;
  Log& log_;
  std::atomic<bool> asked_ = false;
  EdgeSession* session_ = nullptr;  // before the loop runs
  std::stop_callback<std::function<void()>> on_stop_;
  std::optional<net::SignalThread> signals_;
};

Result<DeviceTraining> make_training(const StartRequest& request, const std::string& client,
                                     const client::ClientData& data, const std::atomic<bool>& stop,
                                     Log& log) {
  if (request.own.trainer != nullptr) {
    if (request.own.description.layout == nullptr) {
      return wrong_setting("bad-description",
                           "the description of the application's trainer has no layout");
    }
    log.info("{}", client::summarize(request.own.description));
    return train_by_application(*request.own.trainer, request.own.description);
  }
  const EdgeOptions& options = request.options;
  if (!options.trainer.command.empty()) {
    return train_by_program({.trainer = options.trainer,
                             .directory = request.state.trainer(),
                             .client = client,
                             .threads = options.limits.threads},
                            stop, log);
  }
  log.info("data: {}", summarize(data.training));
  if (data.held_out) log.info("held out to evaluate models: {}", summarize(*data.held_out));
  return train_on_data(client, data, options.limits.threads);
}

Result<void> run_session(EdgeSession& session, GossipSession& gossip, net::EventLoop& loop) {
  net::TaskGroup peers(loop);
  peers.spawn(gossip.run());
  auto result = net::run_task(loop, session.run());
  gossip.request_stop();
  loop.run_task(peers.wait());
  return result;
}

}  // namespace

Result<void> start(const StartRequest& request, const Clock& clock, Log& log) {
  STARLING_TRY(request.state.expect_no_coordinator());
  STARLING_ASSIGN(auto identity, identity::IdentityDirectory::load(request.state.identity()));
  STARLING_ASSIGN(const StateLock lock, StateLock::acquire(request.state));
  const std::string& name = identity.identity().name;
  log.info("starling-edge {}: {} of federation {}, coordinator {}", request.version, name,
           identity.identity().federation, identity.coordinator().text());
  client::ClientData data;
  if (request.own.trainer == nullptr) {
    STARLING_ASSIGN(data, load_client_data(request.options));
  }
  net::EventLoop loop;
  Stopping stopping(request, loop, log);
  auto made = make_training(request, name, data, stopping.asked(), log);
  if (!made && made.error().code() == "stopped") {
    log.info("stopped while the trainer described itself");
    return {};
  }
  STARLING_ASSIGN(DeviceTraining training, std::move(made));
  STARLING_ASSIGN(auto peer,
                  node_options(request.options, request.state, "starling-edge " + request.version,
                               request.backoff_seed));
  // Parts of one file number its texts alike.
  peer.own_classes = data.training.dataset && request.options.data.partition.empty() &&
                     !data.training.dataset->class_names().empty();
  STARLING_ASSIGN(auto client,
                  client_options(request.options, training, bytes_of(data), request.version));
  SystemDisk disk;
  const client::PendingStore store =
      pending_files(disk, request.state,
                    {.file_bytes_max = kVectorsInAFile * client.model_bytes_max,
                     .updates_max = client.pending_updates_max,
                     .log = &log});
  STARLING_ASSIGN(auto leftovers, store.load(log));
  for (const client::PendingUpdate& update : leftovers.pending) {
    const update::ModelVersion& base = update.head.base;
    log.info("the finished update of run {}, from its model of round {}, will be offered again",
             base.run.value(), base.round);
  }
  EdgeSession session({loop, clock, log, request.state, identity, store},
                      session_options(request.options, std::move(client), bytes_of(data)),
                      backoff_rng(request, name), std::move(leftovers),
                      std::move(training.trainers));
  GossipSession gossip(
      {loop, clock, log, request.state, identity}, std::move(peer),
      gossip::PeerData{.rows = data.training, .trainer = training.program.get()},
      {.send = [&session](const protocol::Envelope& e) { session.send_as_peer(e); },
       .queued_bytes = [&session] { return session.queued_bytes(); }});
  FallbackSession fallback(loop, clock, log, gossip.peer(), data.training.size(),
                           request.state.gossip() / "fallback");
  join_up(session, gossip, fallback);
  STARLING_TRY(gossip.start());
  stopping.give(session);
  auto result = run_session(session, gossip, loop);
  fallback.stop();
  return result;
}

}  // namespace starling::edge_client
