// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/peer_links.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/net/deadline.h"

namespace starling::gossip {

using protocol::Bye;
using protocol::Envelope;
using protocol::PeerHello;

namespace {

// Of two that could dial each other the lower member does; the higher one only if nothing comes of
// it within this.
constexpr Duration kDialGrace = std::chrono::seconds(2);

// Two that dial each other at the same moment keep the link that the lower member dialled. A link
// that is older than this gives way to a new one: the other side knows that it is dead.
constexpr Duration kSameMoment = std::chrono::seconds(5);

bool is_bulk(const protocol::Message& message) {
  return std::holds_alternative<protocol::Parcel>(message) ||
         std::holds_alternative<protocol::Chunk>(message) ||
         std::holds_alternative<protocol::Credit>(message) ||
         std::holds_alternative<protocol::TaskEnded>(message);
}

void add(PeerLinks::Counters& sum, const net::ConnectionCounters& counters) {
  sum.wire_bytes_in += counters.wire_bytes_in;
  sum.wire_bytes_out += counters.wire_bytes_out;
}

}  // namespace

PeerLinks::Link::Link(std::string its_name, std::shared_ptr<net::Connection> its_connection,
                      bool we_dialled, TimePoint its_begin, ParcelFlow its_flow)
    : name(std::move(its_name)),
      connection(std::move(its_connection)),
      dialled(we_dialled),
      since(its_begin),
      limits(wire::from_peer(false)),
      flow(std::move(its_flow)) {}

PeerLinks::PeerLinks(World world, Options options, Handlers handlers, Rng backoff)
    : world_(world),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      rng_(backoff),
      alarm_(world.loop, [this] { consider(); }),
      tasks_(world.loop) {
  options_.connect.bind = options_.bind;
}

PeerLinks::~PeerLinks() = default;

// --- who is a member ----------------------------------------------------------------------------

const identity::Roster& PeerLinks::roster() const { return roster_->roster(); }

std::optional<Member> PeerLinks::member_of(const std::string& name) const {
  if (!roster_) return std::nullopt;
  const auto index = roster().find(name);
  if (!index) return std::nullopt;
  return static_cast<Member>(*index);
}

identity::PeerPolicy PeerLinks::policy() const {
  identity::PeerPolicy policy;
  policy.federation = world_.identity.identity().federation;
  policy.time = [this] {
    return identity::JudgementTime{world_.clock.wall_now(), world_.identity.last_authenticated()};
  };
  policy.admit = [this](const identity::Identity& who, const Sha256Digest& key) {
    return admit(who.name, key);
  };
  return policy;
}

Result<std::shared_ptr<const net::TlsContext>> PeerLinks::server_tls() const {
  identity::PeerPolicy clients = policy();
  clients.roles = {identity::Role::kPeer, identity::Role::kDevice};
  return net::TlsContext::make_server(world_.identity.credentials(),
                                      {{net::Protocol::kPeer, std::move(clients)}});
}

Result<std::shared_ptr<const net::TlsContext>> PeerLinks::client_tls(
    const std::string& name) const {
  identity::PeerPolicy server = policy();
  server.roles = {identity::Role::kPeer};
  server.name = name;
  return net::TlsContext::make_client(net::Protocol::kPeer, world_.identity.credentials(),
                                      std::move(server));
}

Result<void> PeerLinks::admit(const std::string& name, const Sha256Digest& key) const {
  if (stopping_) return retry("stopping", "this peer is stopping");
  if (!roster_) return retry("no-roster", "this peer has no roster yet, or no more");
  if (roster().is_member(name, key) && name != world_.identity.identity().name) return {};
  return rejected("not-a-member", name + " is not in the roster with this key");
}

Result<void> PeerLinks::admit(const net::Connection& connection) const {
  const identity::VerifiedPeer& peer = *connection.peer();
  return admit(peer.identity.name, peer.certificate.public_key_digest());
}

void PeerLinks::set_roster(std::shared_ptr<const identity::SignedRoster> roster) {
  roster_ = std::move(roster);
  kept_.clear();
  diallings_.clear();
  std::vector<LinkPtr> all(greeting_.begin(), greeting_.end());
  for (const auto& [name, link] : links_) all.push_back(link);
  for (const LinkPtr& link : all) {
    if (const auto still = admit(*link->connection); !still) end(link, still.error(), true);
  }
}

Result<void> PeerLinks::listen() {
  if (!options_.listen) return {};
  STARLING_ASSIGN(auto tls, server_tls());
  net::ListenerOptions options;
  options.host = options_.listen->host;
  options.port = options_.listen->port;
  options.connection = options_.connect.connection;
  net::ListenerHandlers handlers;
  handlers.on_connection = [this](std::unique_ptr<net::Connection> connection) {
    adopt(std::move(connection), false);
  };
  handlers.on_refused = [this](const net::Refusal& refusal) {
    world_.log.info("refused a peer at {}: {}", refusal.remote_address, refusal.error.message());
  };
  STARLING_ASSIGN(listener_, net::Listener::open(world_.loop, tls, options, std::move(handlers)));
  return {};
}

// --- dialling -----------------------------------------------------------------------------------

PeerLinks::Dialling& PeerLinks::dialling_of(const std::string& name) {
  const auto found = diallings_.find(name);
  if (found != diallings_.end()) return found->second;
  return diallings_.emplace(name, Dialling(Backoff(options_.backoff, rng_))).first->second;
}

bool PeerLinks::is_dialled_by(Member member) const {
  const auto self = member_of(world_.identity.identity().name);
  return self && member < *self && !roster().members[*self].address.empty();
}

void PeerLinks::keep(std::set<Member> members) {
  kept_ = std::move(members);
  consider();
}

void PeerLinks::reach(Member member) {
  if (!roster_ || is_up(member)) return;
  dialling_of(roster().members[member].name).once = true;
  consider();
}

bool PeerLinks::wants_dial(Member member, const Dialling& dialling) const {
  const identity::RosterMember& who = roster().members[member];
  if (dialling.active || who.address.empty() || links_.contains(who.name)) return false;
  const auto is_greeting = [&](const LinkPtr& link) { return link->name == who.name; };
  if (std::ranges::any_of(greeting_, is_greeting)) return false;
  return dialling.once || kept_.contains(member);
}

void PeerLinks::consider() {
  if (stopping_ || !roster_) return;
  for (const Member member : kept_) {
    const std::string& name = roster().members[member].name;
    const bool is_new = !diallings_.contains(name);
    Dialling& dialling = dialling_of(name);
    if (is_new && is_dialled_by(member)) dialling.not_before = world_.loop.now() + kDialGrace;
  }
  std::optional<TimePoint> next;
  for (auto& [name, dialling] : diallings_) {
    const auto member = member_of(name);
    if (!member || !wants_dial(*member, dialling)) continue;
    if (dialling.not_before > world_.loop.now()) {
      next = std::min(next.value_or(dialling.not_before), dialling.not_before);
      continue;
    }
    dialling.active = true;
    tasks_.spawn(dial(name, roster().members[*member].address));
  }
  if (next) alarm_.set(*next);
}

net::Async<void> PeerLinks::dial(std::string name, std::string address) {
  const auto where = identity::parse_host_port(address);
  STARLING_CHECK(where.has_value());  // the roster was validated
  auto tls = client_tls(name);
  Result<std::unique_ptr<net::Connection>> connected = retry("cancelled", "not dialled");
  if (tls) {
    connected =
        co_await net::connect(world_.loop, where->host, where->port, *tls, options_.connect);
  } else {
    connected = tls.error();
  }
  const auto member = member_of(name);
  if (stopping_ || !member) co_return;
  Dialling& dialling = dialling_of(name);
  dialling.active = false;
  dialling.once = false;
  dialling.not_before = world_.loop.now() + dialling.backoff.next();
  if (connected) {
    adopt(std::move(*connected), true);
  } else {
    world_.log.debug("cannot reach {}: {}", name, connected.error().message());
    handlers_.on_down(*member, connected.error());
  }
  consider();
}

// --- links --------------------------------------------------------------------------------------

void PeerLinks::adopt(std::unique_ptr<net::Connection> connection, bool dialled) {
  std::shared_ptr<net::Connection> shared = std::move(connection);
  if (const auto admitted = admit(*shared); !admitted) {
    (void)link::send(*shared, {Bye{admitted.error().code(), admitted.error().message()}, {}});
    tasks_.spawn(close(shared));
    return;
  }
  const std::string name = shared->peer()->identity.name;
  const auto judge = [this, name](const protocol::Parcel& parcel) -> Result<void> {
    const auto member = member_of(name);
    if (!member) return rejected("not-a-member", name + " is no longer a member");
    return handlers_.judge(*member, parcel);
  };
  const auto link =
      std::make_shared<Link>(name, shared, dialled, world_.loop.now(), ParcelFlow({}, judge));
  greeting_.insert(link);
  send_on(*link, {handlers_.hello(), {}});
  tasks_.spawn(serve(link));
}

net::Async<void> PeerLinks::expect_hello(LinkPtr link) {
  while (!link->hello && !link->closed) {
    auto frame = co_await link->connection->read_frame(link->limits);
    if (link->closed) break;
    if (!frame) {
      end(link, frame.error(), false);
    } else {
      take(link, *frame);
    }
  }
}

net::Async<void> PeerLinks::serve(LinkPtr link) {
  const TimePoint deadline = world_.loop.now() + options_.greeting_deadline;
  auto greeting = expect_hello(link);
  const bool greeted = co_await net::run_until(world_.loop, deadline, std::move(greeting));
  if (!greeted) end(link, retry("deadline", link->name + " did not greet"), true);
  while (!link->closed) {
    auto frame = co_await link->connection->read_frame(link->limits);
    if (link->closed) break;
    if (!frame) {
      end(link, frame.error(), frame.error().kind() == ErrorKind::kRejected);
      break;
    }
    if (!take(link, *frame)) break;
  }
}

bool PeerLinks::take(const LinkPtr& link, const net::Frame& frame) {
  const auto envelope = link::decode(frame);
  if (!envelope) {
    end(link, envelope.error(), true);
    return false;
  }
  const auto member = member_of(link->name);
  if (!member) {
    end(link, rejected("not-a-member", link->name + " is no longer a member"), true);
    return false;
  }
  if (const auto* bye = std::get_if<Bye>(&envelope->message)) {
    end(link, retry(bye->code, bye->message), false);
    return false;
  }
  if (!link->hello) return take_hello(link, std::get<PeerHello>(envelope->message));
  if (!is_bulk(envelope->message)) {
    handlers_.on_message(*member, *envelope);
    return !link->closed;
  }
  auto whole = link->flow.take(*envelope);
  if (!whole) {
    end(link, whole.error(), true);
    return false;
  }
  pump(*link);
  if (*whole) handlers_.on_parcel(*member, std::move(**whole));
  return !link->closed;
}

// Of two links with the same member.
bool PeerLinks::prevails(const Link& fresh, const Link& present) const {
  if (fresh.dialled == present.dialled) return true;
  if (world_.loop.now() - present.since > kSameMoment) return true;
  const bool we_are_lower = member_of(world_.identity.identity().name) < member_of(fresh.name);
  return fresh.dialled == we_are_lower;
}

bool PeerLinks::take_hello(const LinkPtr& link, const PeerHello& hello) {
  if (hello.version_min > protocol::kVersion || hello.version_max < protocol::kVersion) {
    end(link, unsupported("version", link->name + " speaks no version that this peer knows"), true);
    return false;
  }
  link->hello = hello;
  link->limits.expect(wire::from_peer(true));
  const auto present = links_.find(link->name);
  if (present != links_.end()) {
    if (!prevails(*link, *present->second)) {
      end(link, retry("duplicate", "there is another link with " + link->name), true);
      return false;
    }
    const LinkPtr old = present->second;
    links_.erase(present);
    end(old, retry("duplicate", "there is another link with " + link->name), true);
  }
  greeting_.erase(link);
  links_[link->name] = link;
  if (const auto dialling = diallings_.find(link->name); dialling != diallings_.end()) {
    dialling->second.backoff.reset();
  }
  Link* const raw = link.get();
  link->connection->set_drain_handler([this, raw] { pump(*raw); });
  handlers_.on_up(*member_of(link->name), hello);
  return !link->closed;
}

void PeerLinks::end(const LinkPtr& link, const Error& reason, bool say_bye) {
  if (std::exchange(link->closed, true)) return;
  link->connection->set_drain_handler(nullptr);
  add(gone_, link->connection->counters());
  const bool was_up = links_.contains(link->name) && links_[link->name] == link;
  if (was_up) links_.erase(link->name);
  greeting_.erase(link);
  if (say_bye) {
    (void)link::send(*link->connection, {Bye{reason.code(), reason.message()}, {}});
    tasks_.spawn(close(link->connection));
  } else {
    link->connection->abort();
  }
  if (stopping_) return;
  const auto member = member_of(link->name);
  if (was_up && member) {
    world_.log.debug("lost {} ({}): {}", link->name, reason.code(), reason.message());
    handlers_.on_down(*member, reason);
  }
  consider();
}

net::Async<void> PeerLinks::close(std::shared_ptr<net::Connection> connection) {
  const TimePoint deadline = world_.loop.now() + options_.goodbye;
  co_await connection->close(deadline);
}

// --- messages -----------------------------------------------------------------------------------

PeerLinks::Link* PeerLinks::up(Member member) const {
  if (!roster_ || member >= roster().members.size()) return nullptr;
  const auto found = links_.find(roster().members[member].name);
  return found == links_.end() ? nullptr : found->second.get();
}

bool PeerLinks::is_up(Member member) const { return up(member) != nullptr; }

std::vector<std::pair<Member, PeerHello>> PeerLinks::all_up() const {
  std::vector<std::pair<Member, PeerHello>> all;
  for (const auto& [name, link] : links_) {
    if (const auto member = member_of(name)) all.emplace_back(*member, *link->hello);
  }
  return all;
}

// A link that cannot take it is broken off by its reading side.
void PeerLinks::send_on(Link& link, const Envelope& envelope) {
  if (const auto sent = link::send(*link.connection, envelope); !sent) {
    world_.log.debug("cannot send to {}: {}", link.name, sent.error().message());
    link.connection->abort();
  }
}

void PeerLinks::send(Member to, const protocol::Message& message, SharedBytes payload) {
  if (Link* link = up(to)) send_on(*link, {message, std::move(payload)});
}

void PeerLinks::send_parcel(Member to, const protocol::Parcel& parcel, SharedBytes data,
                            ParcelFlow::Urgency urgency) {
  Link* const link = up(to);
  if (link == nullptr) return;
  if (const auto queued = link->flow.send(parcel, std::move(data), urgency); !queued) {
    world_.log.debug("not sent to {}: {}", link->name, queued.error().message());
    return;
  }
  ++gone_.parcels_out;
  pump(*link);
}

void PeerLinks::pump(Link& link) {
  if (link.closed || std::exchange(link.pumping, true)) return;
  while (link.connection->queued_bytes() < options_.queue_low) {
    const auto envelope = link.flow.next();
    if (!envelope) break;
    send_on(link, *envelope);
  }
  link.pumping = false;
}

PeerLinks::Counters PeerLinks::counters() const {
  Counters sum = gone_;
  for (const auto& [name, link] : links_) add(sum, link->connection->counters());
  return sum;
}

net::Async<void> PeerLinks::stop() {
  stopping_ = true;
  alarm_.clear();
  std::vector<LinkPtr> all(greeting_.begin(), greeting_.end());
  for (const auto& [name, link] : links_) all.push_back(link);
  for (const LinkPtr& link : all) end(link, retry("stopping", "this peer is stopping"), true);
  if (listener_) {
    co_await listener_->close();
  }
  tasks_.refuse();
  const TimePoint deadline = world_.loop.now() + 2 * options_.goodbye;
  auto goodbye = tasks_.wait();
  co_await net::run_until(world_.loop, deadline, std::move(goodbye));
  co_await tasks_.stop();
}

}  // namespace starling::gossip
