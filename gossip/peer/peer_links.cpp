// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/peer_links.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/net/deadline.h"
#include "gossip/peer/shut_out.h"

namespace starling::gossip {

PeerLinks::PeerLinks(World world, Options options, Handlers handlers, RelayLine::Carrier issuer,
                     Rng backoff)
    : world_(world),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      rng_(backoff),
      handshakes_(options_.handshakes),
      line_({.busy_bytes = options_.queue_low, .waiting_bytes_max = options_.relay_waiting_max},
            std::move(issuer)),
      alarm_(world.loop, [this] { on_alarm(); }),
      refusals_(world.loop, world.log, "refused"),
      tasks_(world.loop) {
  boost::system::error_code ignored;  // an empty text is no address
  options_.connect.bind = boost::asio::ip::make_address(options_.bind, ignored);
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

bool PeerLinks::is_relayed(Member member) const {
  const auto self = member_of(world_.identity.identity().name);
  return self && *self != member && roster().members[*self].address.empty() &&
         roster().members[member].address.empty();
}

identity::PeerPolicy PeerLinks::policy() const {
  identity::PeerPolicy policy;
  policy.federation = world_.identity.identity().federation;
  policy.time = [this] {
    return identity::VerificationTime{world_.clock.wall_now(),
                                      world_.identity.last_authenticated()};
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

Result<void> PeerLinks::admit(const std::string& name,
                              const std::optional<Sha256Digest>& key) const {
  if (stopping_) return retry("stopping", "this peer is stopping");
  if (!roster_) return retry("no-roster", "this peer has no roster yet, or no more");
  const auto member = member_of(name);
  if (!member || name == world_.identity.identity().name) {
    return rejected("not-a-member", name + " is not in the roster");
  }
  if (key && roster().members[*member].key != *key) {
    return rejected("not-a-member", name + " is not in the roster with this key");
  }
  if (!key && !is_relayed(*member)) {
    return rejected("not-relayed", "one of us can be dialled by the other");
  }
  return {};
}

void PeerLinks::set_roster(std::shared_ptr<const identity::SignedRoster> roster) {
  roster_ = std::move(roster);
  kept_.clear();
  ends_idle_ = false;  // until it is known again whom to keep
  std::erase_if(diallings_, [](const auto& entry) { return !entry.second.active; });
  for (const LinkPtr& link : all_links()) {
    if (const auto still = admit(link->name, link->key); !still) end(link, still.error(), true);
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
  handlers.may_connect = [this](const std::string& address) {
    return handshakes_.allow(address, world_.loop.now());
  };
  handlers.on_refused = [this](const net::Refusal& refusal) {
    // Who dials while we have no roster comes again: nothing to be told of.
    if (refusal.error.code() == "no-roster") return;
    refusals_.say(refusal.remote_address, refusal.error);
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

void PeerLinks::set_messages_max(std::size_t messages_max) {
  messages_max_ = messages_max;
  for (const LinkPtr& link : all_links()) link->flow.set_messages_max(messages_max);
}

void PeerLinks::keep(std::set<Member> members) {
  kept_ = std::move(members);
  consider();
}

void PeerLinks::end_idle_links(bool ends) {
  ends_idle_ = ends;
  consider();
}

bool PeerLinks::ends_when_idle(const Link& link) const {
  if (!ends_idle_ || !link.began) return false;
  const auto member = member_of(link.name);
  return member && !kept_.contains(*member);
}

void PeerLinks::expire_idle() {
  std::vector<LinkPtr> idle;
  for (const auto& [name, link] : links_) {
    const bool is_idle = link->used + options_.idle_max <= world_.loop.now();
    if (is_idle && ends_when_idle(*link)) idle.push_back(link);
  }
  for (const LinkPtr& link : idle) {
    end(link, retry("not-needed", "the link with " + link->name + " was not used"), true);
  }
}

void PeerLinks::reach(Member member) {
  if (!roster_ || is_up(member)) return;
  dialling_of(roster().members[member].name).once = true;
  consider();
}

bool PeerLinks::wants_dial(Member member, const Dialling& dialling) const {
  const identity::RosterMember& who = roster().members[member];
  if (dialling.active || links_.contains(who.name)) return false;
  const auto is_greeting = [&](const LinkPtr& link) { return link->name == who.name; };
  if (std::ranges::any_of(greeting_, is_greeting)) return false;
  if (!dialling.once && !kept_.contains(member)) return false;
  if (!who.address.empty()) return true;
  return is_relayed(member) && line_.has_room() && !relayed_with(who.name);
}

void PeerLinks::on_alarm() {
  expire_greetings();
  expire_idle();
  consider();
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
    const std::string& address = roster().members[*member].address;
    if (address.empty()) {
      dialling.once = false;
      dialling.not_before = world_.loop.now() + dialling.backoff.next();
      begin_relayed(name, true);
    } else {
      dialling.active = true;
      tasks_.spawn(dial(name, address));
    }
  }
  for (const LinkPtr& link : greeting_) {
    const TimePoint deadline = link->since + options_.greeting_deadline;
    if (link->relay) next = std::min(next.value_or(deadline), deadline);
  }
  for (const auto& [name, link] : links_) {
    const TimePoint idle = link->used + options_.idle_max;
    if (ends_when_idle(*link)) next = std::min(next.value_or(idle), idle);
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
  if (stopping_) co_return;
  Dialling& dialling = dialling_of(name);
  dialling.active = false;
  const auto member = member_of(name);
  if (!member) co_return;
  dialling.once = false;
  dialling.not_before = world_.loop.now() + dialling.backoff.next();
  if (connected) {
    adopt(std::move(*connected), true);
  } else {
    world_.log.debug("cannot reach {}: {}", name, connected.error().message());
    // It may have dialled us meanwhile.
    if (!is_up(*member)) handlers_.on_down(*member, as_not_dialled(name, connected.error()));
  }
  consider();
}

// --- the end ------------------------------------------------------------------------------------

net::Async<void> PeerLinks::stop() {
  stopping_ = true;
  alarm_.clear();
  for (const LinkPtr& link : all_links())
    end(link, retry("stopping", "this peer is stopping"), true);
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
