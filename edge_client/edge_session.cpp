// SPDX-License-Identifier: Apache-2.0
#include "edge_client/edge_session.h"

#include <algorithm>
#include <array>

#include "core/link/message_link.h"

namespace starling::edge_client {
namespace {

constexpr std::uint64_t kLastMillisecond = 253'402'300'799'999;  // of the year 9999

std::string_view to_string(client::ClientMachine::Link link) {
  constexpr std::array<std::string_view, 5> kWords = {"down", "dialing", "greeting", "up",
                                                      "stopped"};
  return kWords[static_cast<std::size_t>(link)];
}

// A switch, so that the compiler names the activity that has no word.
std::string_view to_string(client::ClientMachine::Activity activity) {
  switch (activity) {
    using enum client::ClientMachine::Activity;
    case kIdle:
      return "idle";
    case kFetching:
      return "fetching";
    case kTraining:
      return "training";
    case kStoring:
      return "storing";
    case kSettling:
      return "settling";
  }
  return "idle";
}

// Room for what the client's machine queues of every pending update: two windows when the
// coordinator gives credit, and two more when the link has little left to send.
net::ConnectOptions with_room(net::ConnectOptions options, const client::ClientOptions& client) {
  const std::size_t windows = (client.pending_updates_max + 1) * client.transfer.window_bytes;
  net::ConnectionOptions& connection = options.connection;
  connection.queue_bytes_max = std::max(connection.queue_bytes_max, 4 * windows);
  return options;
}

}  // namespace

EdgeSession::EdgeSession(World world, Options options, Rng backoff, client::Leftovers leftovers,
                         Trainers trainers)
    : world_(world),
      options_(std::move(options)),
      status_writer_(world.loop, world.state.status_file(), world.log),
      links_(world.loop),
      closing_(world.loop),
      alive_(world.loop),
      self_(std::make_shared<EdgeSession*>(this)),
      trainers_(std::move(trainers)),
      training_(world.loop, static_cast<unsigned>(trainers_.size())),
      disk_(world.loop, 1),
      shell_({world.loop, *this, world.pending, disk_, training_,
              train_with(trainers_, options_.updates)},
             options_.client, backoff, std::move(leftovers), shell_handlers()) {
  options_.connect = with_room(options_.connect, options_.client);
  status_.federation = world_.identity.identity().federation;
  status_.client = world_.identity.identity().name;
  status_.coordinator = world_.identity.coordinator().text();
  status_.started = world_.clock.wall_now();
  if (const auto before = read_status(world_.state.status_file())) {
    status_.last_connected = before->last_connected;
    status_.last_error = before->last_error;
    status_.last_error_at = before->last_error_at;
  }
}

EdgeSession::~EdgeSession() = default;

net::Async<Result<void>> EdgeSession::run() {
  alive_.spawn(sleep_until_stopped());
  shell_.handle(client::Tick{});
  co_await alive_.wait();
  shell_.handle(client::Stop{});
  co_await closing_.wait();
  co_await links_.stop();
  co_await closing_.wait();  // of a link that had ended by itself meanwhile
  disk_.drain();             // what was to be stored is stored
  status_writer_.flush();
  if (fatal_) co_return *fatal_;
  co_return Result<void>();
}

void EdgeSession::request_stop() {
  stop_requested_ = true;
  alive_.cancel();
}

net::Async<void> EdgeSession::sleep_until_stopped() {
  while (!stop_requested_) {
    const TimePoint tomorrow = world_.loop.now() + std::chrono::hours(24);
    co_await net::sleep_until(world_.loop, tomorrow);
  }
}

void EdgeSession::post(std::function<void(EdgeSession&)> work) {
  world_.loop.post([self = std::weak_ptr(self_), work = std::move(work)] {
    if (const auto session = self.lock()) work(**session);
  });
}

// --- around the shell ---------------------------------------------------------------------------

client::ClientShell::Handlers EdgeSession::shell_handlers() {
  return {.on_hang_up = [this](const Error& reason) { note_failure(as_refusal(reason)); },
          .on_say = [this](const client::Say& line) { say(line); },
          .on_train = [this](const client::Train& train) { return peer_.on_train(train); },
          .on_disk_broken = [this](const Error& error) { stop_if_broken(error); },
          .on_handled = [this] { finish_event(); }};
}

void EdgeSession::say(const client::Say& say) {
  const bool repeated = quiet_ && say.level == LogLevel::kWarning;
  world_.log.write(repeated ? LogLevel::kDebug : say.level, say.line);
}

void EdgeSession::finish_event() {
  if (!advice_.empty()) world_.log.error("{}", advice_);
  advice_.clear();
  quiet_ = false;
  publish_status();
}

void EdgeSession::send_as_peer(const protocol::Envelope& envelope) {
  if (welcomed_) send(envelope);
}

void EdgeSession::send(const protocol::Envelope& envelope) {
  if (!link_ || link_failure_) return;
  const auto sent = link::send(*link_, envelope);
  if (sent) return;
  link_failure_ = sent.error();
  link_->abort();  // the reading task then tells the machine
}

void EdgeSession::stop_if_broken(const Error& error) {
  if (error.kind() != ErrorKind::kInternal) return;
  fatal_ = error;
  request_stop();
}

// --- the link -----------------------------------------------------------------------------------

net::Async<void> EdgeSession::serve_link() {
  auto connected =
      co_await connect_to_coordinator(world_.loop, world_.identity, world_.clock, options_.connect);
  if (!connected) {
    lose_link(connected.error());
    co_return;
  }
  const std::shared_ptr<net::Connection> connection = std::move(*connected);
  link::MessageLimits limits(wire::from_coordinator(false));
  link_ = connection;
  link_failure_.reset();
  connection->set_drain_handler([this] {
    shell_.handle(client::Drained{});
    if (welcomed_) peer_.on_drained();
  });
  shell_.handle(client::Connected{});
  while (link_ == connection) {
    auto frame = co_await connection->read_frame(limits);
    if (link_ == connection) take(frame);
    limits.expect(wire::from_coordinator(machine().link() == client::ClientMachine::Link::kUp));
  }
}

void EdgeSession::take(const Result<net::Frame>& frame) {
  if (!frame) return lose_link(link_failure_ ? *link_failure_ : frame.error());
  auto envelope = link::decode(*frame);
  if (!envelope) return lose_link(envelope.error().within("the coordinator sent nonsense"));
  if (const auto* welcome = std::get_if<protocol::Welcome>(&envelope->message)) {
    record_welcome(*welcome);
  }
  if (welcomed_ && peer_.take(*envelope)) return;
  shell_.handle(client::Received{std::move(*envelope)});
  const bool up = machine().link() == client::ClientMachine::Link::kUp;
  if (link_ && up && !std::exchange(welcomed_, true)) peer_.on_link_up();
}

// Whoever spoke showed the coordinator's certificate: its clock serves where ours is wrong. A time
// at which that certificate was not valid is of a clock that is wrong itself.
void EdgeSession::record_welcome(const protocol::Welcome& welcome) {
  revoked_ = false;
  status_.last_connected = world_.clock.wall_now();
  if (welcome.wall_time_ms > kLastMillisecond) return;
  const WallTime told{std::chrono::milliseconds(welcome.wall_time_ms)};
  if (!link_ || !link_->peer()->certificate.validity().contains(told)) return;
  if (const auto kept = world_.identity.record_authenticated(told); !kept) {
    world_.log.warning("the coordinator's time is not kept: {}", kept.error().message());
    stop_if_broken(kept.error());
  }
  const std::string expiry = expiry_warning(world_.identity, world_.state, told);
  if (!expiry.empty() && reasons_.worth_saying("expiry", world_.loop.now())) {
    world_.log.warning("{}", expiry);
  }
}

void EdgeSession::drop_link() {
  if (std::exchange(welcomed_, false)) peer_.on_link_down();
  if (!link_) return;
  link_->set_drain_handler(nullptr);
  closing_.spawn(close_link(std::exchange(link_, nullptr)));
}

net::Async<void> EdgeSession::close_link(std::shared_ptr<net::Connection> connection) {
  const TimePoint deadline = world_.loop.now() + options_.stop_deadline;
  co_await connection->close(deadline);
}

void EdgeSession::lose_link(const Error& error) {
  drop_link();
  note_failure(error);
  shell_.handle(client::Disconnected{error});
}

void EdgeSession::note_failure(const Error& error) {
  revoked_ |= error.code() == "refused-certificate-revoked";
  quiet_ = stop_requested_ || !reasons_.worth_saying(error.code(), world_.loop.now());
  if (!stop_requested_) {
    status_.last_error = error.message();
    status_.last_error_at = world_.clock.wall_now();
  }
  if (!quiet_) advice_ = advice_for(error, world_.identity, world_.state);
}

// --- status -------------------------------------------------------------------------------------

void EdgeSession::publish_status() {
  status_.link = to_string(machine().link());
  status_.activity = to_string(machine().activity());
  status_.pending_updates = machine().pending_updates();
  status_.updates_counted = machine().updates_counted();
  status_.task.reset();
  if (const protocol::RoundPlan* plan = machine().plan()) {
    status_.task = EdgeStatus::Task{plan->run.value(), plan->run_name, plan->round, plan->rounds};
  }
  status_.gossip = peer_.status();
  if (revoked_ && status_.gossip) say_revoked(*status_.gossip);
  status_writer_.set(status_);
}

// Members may know nothing of it, as where their roster was signed by hand.
void EdgeSession::say_revoked(EdgeStatus::Gossip& gossip) const {
  if (gossip.links > 0) return;
  constexpr std::array<std::string_view, 4> kTraining = {"training", "waiting", "catching-up",
                                                         "alone"};
  const bool trains = std::ranges::find(kTraining, gossip.state) != kTraining.end();
  if (trains) gossip.state = "revoked";
  const std::string beside = gossip.problem.empty() ? "" : "; " + gossip.problem;
  gossip.problem = revoked_peer_advice(world_.state, trains) + beside;
}

}  // namespace starling::edge_client
