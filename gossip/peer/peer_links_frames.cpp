// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/net/deadline.h"
#include "gossip/peer/frame_work.h"
#include "gossip/peer/link_rules.h"
#include "gossip/peer/peer_links.h"
#include "gossip/peer/shut_out.h"

namespace starling::gossip {

using protocol::Bye;
using protocol::Envelope;
using protocol::PeerHello;

namespace {

void add(PeerLinks::Counters& sum, const PeerChannel::Traffic& traffic) {
  sum.wire_bytes_in += traffic.bytes_in;
  sum.wire_bytes_out += traffic.bytes_out;
}

// Its announcement and a chunk; what follows in a longer one is bulk.
constexpr double kFramesOfAVector = 2;
// Who stays within its budget for so long and then exceeds it again begins anew.
constexpr Duration kBelow = std::chrono::seconds(1);

bool is_of_vector(const net::Frame& frame) {
  const auto type = static_cast<wire::FrameType>(frame.type);
  return type == wire::FrameType::kVectorTransfer || type == wire::FrameType::kChunk;
}

}  // namespace

PeerLinks::Link::Link(std::string its_name, std::shared_ptr<PeerChannel> its_channel, bool we_began,
                      TimePoint its_begin, TransferFlow its_flow)
    : name(std::move(its_name)),
      channel(std::move(its_channel)),
      began(we_began),
      since(its_begin),
      used(its_begin),
      limits(wire::from_peer(false)),
      flow(std::move(its_flow)) {}

// --- links --------------------------------------------------------------------------------------

void PeerLinks::adopt(std::unique_ptr<net::Connection> connection, bool dialled) {
  const std::shared_ptr<net::Connection> shared = std::move(connection);
  const auto channel = std::make_shared<ConnectionChannel>(shared, options_.queue_low);
  const identity::VerifiedPeer& peer = *shared->peer();
  const std::string& name = peer.identity.name;
  const Sha256Digest key = peer.certificate.public_key_digest();
  if (const auto admitted = admit(name, key); !admitted) {
    (void)channel->send({Bye{admitted.error().code(), admitted.error().message()}, {}});
    tasks_.spawn(close(channel));
    return;
  }
  const LinkPtr link = begin(name, channel, dialled, TransferFlow::Options().window_bytes);
  link->key = key;
  handshakes_.know(name, shared->remote_address());
  shared->set_drain_handler([this, weak = std::weak_ptr(link)] {
    if (const LinkPtr drained = weak.lock()) pump(drained);
  });
  tasks_.spawn(serve(link, shared));
}

PeerLinks::LinkPtr PeerLinks::begin(const std::string& name, std::shared_ptr<PeerChannel> channel,
                                    bool by_us, std::uint64_t window_bytes) {
  const auto check = [this, name](const protocol::VectorTransfer& transfer) -> Result<void> {
    const auto member = member_of(name);
    if (!member) return rejected("not-a-member", name + " is no longer a member");
    return handlers_.check(*member, transfer);
  };
  auto link = std::make_shared<Link>(
      name, std::move(channel), by_us, world_.loop.now(),
      TransferFlow({.window_bytes = window_bytes, .messages_max = messages_max_}, check));
  greeting_.insert(link);
  send_on(link, {handlers_.hello(), {}});
  return link;
}

net::Async<void> PeerLinks::expect_hello(LinkPtr link,
                                         std::shared_ptr<net::Connection> connection) {
  while (!link->hello && !link->closed) {
    auto frame = co_await connection->read_frame(link->limits);
    if (link->closed) break;
    if (!frame) {
      const Error why = as_shut_out(link->name, frame.error());
      end(link, why, why.kind() == ErrorKind::kRejected && why.code() != "shut-out");
      break;
    }
    // Before it is taken: a member that dials anew for each of them is no faster.
    const Duration pause = charge(link->name, *frame);
    if (pause > Duration::zero()) {
      auto slept = co_await net::sleep_until(world_.loop, world_.loop.now() + pause);
      if (!slept || link->closed) break;
    }
    take_frame(link, *frame);
  }
}

net::Async<void> PeerLinks::serve(LinkPtr link, std::shared_ptr<net::Connection> connection) {
  const TimePoint deadline = world_.loop.now() + options_.greeting_deadline;
  auto greeting = expect_hello(link, connection);
  const bool greeted = co_await net::run_until(world_.loop, deadline, std::move(greeting));
  if (!greeted) end(link, timed_out("deadline", link->name + " did not greet"), true);
  while (!link->closed) {
    auto frame = co_await connection->read_frame(link->limits);
    if (link->closed) break;
    if (!frame) {
      end(link, frame.error(), frame.error().kind() == ErrorKind::kRejected);
      break;
    }
    if (!take_frame(link, *frame)) break;
    const Duration pause = charge(link->name, *frame);
    if (pause > Duration::zero()) {
      auto slept = co_await net::sleep_until(world_.loop, world_.loop.now() + pause);
      if (!slept) break;
    }
  }
}

// The budget outlives the link: who dials again goes on with what it had left.
Duration PeerLinks::charge(const std::string& name, const net::Frame& frame) {
  const TimePoint now = world_.loop.now();
  const net::FrameBudget fresh({.per_second = options_.frames_per_second});
  Budget& budget = budgets_.try_emplace(name, Budget{.frames = fresh}).first->second;
  const std::uint64_t due = vectors_due_ - std::exchange(budget.vectors, vectors_due_);
  budget.frames.grant(kFramesOfAVector * static_cast<double>(due));
  const Duration pause = is_of_vector(frame) ? budget.frames.take_granted(frame, now)
                                             : budget.frames.take(frame, now, work_of(frame));
  if (pause == Duration::zero()) return pause;
  if (now > budget.over_until + kBelow) budget.over_since = now;
  budget.over_until = now + pause;
  if (now >= budget.over_since + options_.named_after && !std::exchange(budget.said, true)) {
    world_.log.warning(
        "{} sends more than {:.0f} frames a second beside what exchanges call for: no more of it "
        "are read",
        name, options_.frames_per_second);
  }
  return pause;
}

bool PeerLinks::take_frame(const LinkPtr& link, const net::Frame& frame) {
  const auto envelope = link::decode(frame);
  if (envelope) return take(link, *envelope);
  end(link, envelope.error(), true);
  return false;
}

bool PeerLinks::take(const LinkPtr& link, const Envelope& envelope) {
  const auto member = member_of(link->name);
  if (!member) {
    end(link, rejected("not-a-member", link->name + " is no longer a member"), true);
    return false;
  }
  if (const auto* bye = std::get_if<Bye>(&envelope.message)) {
    end(link, as_shut_out(link->name, retry(bye->code, bye->message)), false);
    return false;
  }
  if (!link->hello) return take_hello(link, std::get<PeerHello>(envelope.message));
  if (is_use(envelope.message)) link->used = world_.loop.now();
  if (const auto* hello = std::get_if<PeerHello>(&envelope.message)) link->hello = *hello;
  if (!is_for_flow(envelope.message)) {
    handlers_.on_message(*member, envelope);
    return !link->closed;
  }
  auto whole = link->flow.take(envelope);
  if (!whole) {
    end(link, whole.error(), true);
    return false;
  }
  pump(link);
  if (const auto* transfer = link->flow.under_way(envelope); transfer && handlers_.on_piece) {
    handlers_.on_piece(*member, protocol::VectorTransfer(*transfer));
  }
  if (*whole) handlers_.on_transfer(*member, std::move(**whole));
  return !link->closed;
}

// Of two links with the same member.
bool PeerLinks::prevails(const Link& fresh, const Link& present) const {
  const bool we_are_lower = member_of(world_.identity.identity().name) < member_of(fresh.name);
  return replaces_link(fresh.began, present.began, world_.loop.now() - present.since, we_are_lower);
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
    end(old, retry("duplicate", "there is another link with " + link->name), true);
  }
  greeting_.erase(link);
  links_[link->name] = link;
  if (const auto dialling = diallings_.find(link->name); dialling != diallings_.end()) {
    dialling->second.backoff.reset();
  }
  if (link->relay && told_.insert(link->name).second) {
    world_.log.info("the link with {} is relayed by the issuer: neither can be dialled",
                    link->name);
  }
  consider();  // when to end it, where it is idle
  handlers_.on_up(*member_of(link->name), hello);
  return !link->closed;
}

void PeerLinks::end(const LinkPtr& link, const Error& reason, bool say_bye) {
  if (std::exchange(link->closed, true)) return;
  // A link whose greeting came is logged as lost, below.
  if (say_bye && !link->hello && reason.kind() == ErrorKind::kRejected) {
    refusals_.say(link->name, reason);
  }
  add(gone_, link->channel->traffic());
  const auto present = links_.find(link->name);
  const bool was_up = present != links_.end() && present->second == link;
  if (was_up) links_.erase(present);
  greeting_.erase(link);
  if (say_bye) {
    (void)link->channel->send({Bye{reason.code(), reason.message()}, {}});
    tasks_.spawn(close(link->channel));
  } else {
    link->channel->abort();
  }
  if (stopping_) return;
  const auto member = member_of(link->name);
  const bool shut_out = reason.code() == "shut-out" && !links_.contains(link->name);
  const bool not_reached = link->began && !link->hello && (link->relay || shut_out);
  if (was_up || not_reached) {
    const bool is_news = was_up && reason.code() != "not-needed";
    const LogLevel level = is_news ? LogLevel::kInfo : LogLevel::kDebug;
    world_.log.write(level, fmt::format("{} {} ({}): {}", was_up ? "lost" : "cannot reach",
                                        link->name, reason.code(), reason.message()));
    if (member) {
      if (link->relay) put_off(link->name);
      handlers_.on_down(*member, reason);
    }
  }
  consider();
}

net::Async<void> PeerLinks::close(std::shared_ptr<PeerChannel> channel) {
  const TimePoint deadline = world_.loop.now() + options_.goodbye;
  co_await channel->close(deadline);
}

std::vector<PeerLinks::LinkPtr> PeerLinks::all_links() const {
  std::vector<LinkPtr> all(greeting_.begin(), greeting_.end());
  for (const auto& [name, link] : links_) all.push_back(link);
  return all;
}

// --- messages -----------------------------------------------------------------------------------

PeerLinks::LinkPtr PeerLinks::up(Member member) const {
  if (!roster_ || member >= roster().members.size()) return nullptr;
  const auto found = links_.find(roster().members[member].name);
  return found == links_.end() ? nullptr : found->second;
}

bool PeerLinks::is_up(Member member) const { return up(member) != nullptr; }

std::vector<std::pair<Member, PeerHello>> PeerLinks::all_up() const {
  std::vector<std::pair<Member, PeerHello>> all;
  for (const auto& [name, link] : links_) {
    if (const auto member = member_of(name)) all.emplace_back(*member, *link->hello);
  }
  return all;
}

void PeerLinks::send_on(const LinkPtr& link, const Envelope& envelope) {
  if (is_use(envelope.message)) link->used = world_.loop.now();
  if (const auto sent = link->channel->send(envelope); !sent) break_off(link, sent.error());
}

// In a later turn: whoever sends does not expect to lose the link meanwhile.
void PeerLinks::break_off(const LinkPtr& link, const Error& reason) {
  world_.log.debug("cannot send to {}: {}", link->name, reason.message());
  link->channel->abort();
  world_.loop.post([this, weak = std::weak_ptr(link), reason] {
    if (const LinkPtr broken = weak.lock()) end(broken, reason, broken->relay != nullptr);
  });
}

void PeerLinks::send(Member to, const protocol::Message& message, SharedBytes payload) {
  if (const LinkPtr link = up(to)) send_on(link, {message, std::move(payload)});
}

void PeerLinks::send_transfer(Member to, const protocol::VectorTransfer& transfer, SharedBytes data,
                              TransferFlow::Urgency urgency) {
  const LinkPtr link = up(to);
  if (!link) return;
  if (const auto queued = link->flow.send(transfer, std::move(data), urgency); !queued) {
    world_.log.debug("not sent to {}: {}", link->name, queued.error().message());
    return;
  }
  ++gone_.transfers_out;
  if (const auto* const mixed = std::get_if<protocol::MixMessage>(&transfer.content)) {
    if (std::exchange(mixed_, mixed->exchange) != mixed->exchange) ++vectors_due_;
  } else if (std::holds_alternative<protocol::ReducePiece>(transfer.content) ||
             std::holds_alternative<protocol::PairMessage>(transfer.content)) {
    ++vectors_due_;
  }
  pump(link);
}

void PeerLinks::pump(const LinkPtr& link) {
  if (link->relay) return pump_relayed();
  if (link->closed || std::exchange(link->pumping, true)) return;
  while (link->channel->has_room()) {
    const auto envelope = link->flow.next();
    if (!envelope) break;
    send_on(link, *envelope);
  }
  link->pumping = false;
}

PeerLinks::Counters PeerLinks::counters() const {
  Counters sum = gone_;
  for (const auto& [name, link] : links_) add(sum, link->channel->traffic());
  return sum;
}

}  // namespace starling::gossip
