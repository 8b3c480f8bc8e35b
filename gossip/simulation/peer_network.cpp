// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/peer_network.h"

#include <algorithm>

#include "gossip/peer/link_rules.h"
#include "gossip/peer/shut_out.h"

namespace starling::gossip {

using protocol::Envelope;
using protocol::PeerHello;

namespace {

// Of a frame without its payload: roughly what a small message takes on the wire.
constexpr std::size_t kFrameBytes = 96;
}  // namespace

struct PeerNetwork::Connection {
  struct Frame {
    std::optional<Envelope> envelope;  // none: the connection ends
    std::size_t bytes = 0;
    TimePoint sent{};
    TimePoint arrival{};
  };
  struct Side {
    Side(Links* its_links, std::string its_name, bool by_it, TimePoint now, TransferFlow its_flow)
        : links(its_links),
          name(std::move(its_name)),
          dialled(by_it),
          since(now),
          used_at(now),
          heard_at(now),
          flow(std::move(its_flow)) {}
    Links* links;  // valid while open
    std::string name;
    bool dialled;
    TimePoint since;
    TimePoint used_at;
    TimePoint heard_at;
    TransferFlow flow;
    bool open = true;
    std::optional<PeerHello> hello;  // of the other
    std::deque<Frame> coming;        // to this side, in order
    std::size_t coming_bytes = 0;
    bool delivering = false;  // an event will deliver the first of them
    bool pumping = false;
    bool full = false;  // it waits until less is under way to the other side
  };

  Connection(std::uint64_t its_number, Side dialling, Side dialled)
      : number(its_number), sides{std::move(dialling), std::move(dialled)} {}
  const std::uint64_t number;
  std::array<Side, 2> sides;
};

class PeerNetwork::Links final : public PeerTransport {
  struct Link {
    ConnectionPtr connection;
    int side = 0;
  };

 public:
  Links(PeerNetwork& network, std::string name, Handlers handlers, const Rng& rng)
      : network_(network),
        number_(++network.processes_attached_),
        name_(std::move(name)),
        handlers_(std::move(handlers)),
        rng_(rng),
        timer_(network.scheduler_.make_timer([this] { on_time(); })) {}
  ~Links() override {
    network_.processes_.erase(name_);
    network_.frozen_.erase(name_);
    for (const auto& [connection, side] : all()) {
      connection->sides[side].open = false;
      network_.carry(connection, side, std::nullopt);
    }
  }

  void set_roster(std::shared_ptr<const identity::SignedRoster> roster) override {
    roster_ = std::move(roster);
    kept_.clear();
    ends_idle_ = false;
    std::erase_if(diallings_, [](const auto& entry) { return !entry.second.active; });
    end_all_unless([this](const std::string& other) { return admits(other); },
                   rejected("not-a-member", "not in the roster any more"));
  }
  void set_messages_max(std::size_t messages_max) override {
    messages_max_ = messages_max;
    for (const auto& [connection, side] : all()) {
      connection->sides[side].flow.set_messages_max(messages_max);
    }
  }
  void keep(std::set<Member> members) override {
    kept_ = std::move(members);
    consider();
  }
  void end_idle_links(bool ends) override {
    ends_idle_ = ends;
    consider();
  }
  void reach(Member member) override {
    if (!roster_ || is_up(member)) return;
    dialling_of(roster().members[member].name).once = true;
    consider();
  }
  bool is_up(Member member) const override { return up(member) != nullptr; }
  std::vector<std::pair<Member, PeerHello>> all_up() const override {
    std::vector<std::pair<Member, PeerHello>> all;
    for (const auto& [name, link] : links_) {
      if (const auto member = member_of(name)) {
        all.emplace_back(*member, *link.connection->sides[link.side].hello);
      }
    }
    return all;
  }
  void send(Member to, const protocol::Message& message, SharedBytes payload) override {
    if (const Link* link = up(to)) {
      counters_.wire_bytes_out += kFrameBytes + payload.size();
      if (is_use(message)) link->connection->sides[link->side].used_at = now();
      network_.carry(link->connection, link->side, Envelope{message, std::move(payload)});
    }
  }
  void send_transfer(Member to, const protocol::VectorTransfer& transfer, SharedBytes data,
                     TransferFlow::Urgency urgency) override {
    const Link* link = up(to);
    if (link == nullptr) return;
    if (!link->connection->sides[link->side].flow.send(transfer, std::move(data), urgency)) return;
    ++counters_.transfers_out;
    pump(link->connection, link->side);
  }
  Counters counters() const override { return counters_; }

  std::uint64_t number() const { return number_; }

  // --- what the network brings ------------------------------------------------------------------

  bool admits(const std::string& other) const {
    return !stopping_ && roster_ && other != name_ && member_of(other);
  }
  // By a TLS alert.
  bool shuts_out(const std::string& other) const {
    return !stopping_ && roster_ && !member_of(other);
  }
  Connection::Side make_side(const std::string& other, bool dialled) {
    const auto check = [this, other](const protocol::VectorTransfer& transfer) -> Result<void> {
      const auto member = member_of(other);
      if (!member) return rejected("not-a-member", other + " is no longer a member");
      return handlers_.check(*member, transfer);
    };
    return {this, name_, dialled, now(), TransferFlow({.messages_max = messages_max_}, check)};
  }
  void opened(const ConnectionPtr& connection, int side) {
    open_.emplace(connection->sides[1 - side].name, Link{connection, side});
  }
  Envelope greeting() const { return {handlers_.hello(), {}}; }

  void dialled(const std::string& other, const std::optional<Error>& failure) {
    if (stopping_) return;
    Dialling& dialling = dialling_of(other);
    dialling.active = false;
    const auto member = member_of(other);
    if (!member) return;
    dialling.once = false;
    dialling.not_before = now() + dialling.backoff.next();
    if (failure && !is_up(*member)) handlers_.on_down(*member, as_not_dialled(other, *failure));
    consider();
  }

  void take(const ConnectionPtr& connection, int side, const Envelope& envelope) {
    Connection::Side& own = connection->sides[side];
    const std::string other = connection->sides[1 - side].name;
    counters_.wire_bytes_in += kFrameBytes + envelope.payload.size();
    const auto member = member_of(other);
    if (!member) {
      return end(connection, side, rejected("not-a-member", other + " is no longer a member"));
    }
    if (const auto* bye = std::get_if<protocol::Bye>(&envelope.message)) {
      return end(connection, side, as_shut_out(other, retry(bye->code, bye->message)));
    }
    if (!own.hello) return take_hello(connection, side, std::get<PeerHello>(envelope.message));
    if (is_use(envelope.message)) own.used_at = now();
    if (const auto* hello = std::get_if<PeerHello>(&envelope.message)) own.hello = *hello;
    if (!is_for_flow(envelope.message)) return handlers_.on_message(*member, envelope);
    auto whole = own.flow.take(envelope);
    if (!whole) return end(connection, side, whole.error());
    pump(connection, side);
    if (const auto* transfer = own.flow.under_way(envelope); transfer && handlers_.on_piece) {
      handlers_.on_piece(*member, protocol::VectorTransfer(*transfer));
    }
    if (*whole) handlers_.on_transfer(*member, std::move(**whole));
  }

  void pump(const ConnectionPtr& connection, int side) {
    Connection::Side& own = connection->sides[side];
    if (!own.open || std::exchange(own.pumping, true)) return;
    own.full = false;
    while (own.open) {
      own.full = network_.is_full(connection, 1 - side);
      if (own.full) break;
      auto envelope = own.flow.next();
      if (!envelope) break;
      counters_.wire_bytes_out += kFrameBytes + envelope->payload.size();
      own.used_at = now();
      network_.carry(connection, side, std::move(*envelope));
    }
    own.pumping = false;
  }

  // Tells the other side, which hears of it in order.
  void end(const ConnectionPtr& connection, int side, const Error& reason) {
    Connection::Side& own = connection->sides[side];
    if (!std::exchange(own.open, false)) return;
    const std::string other = connection->sides[1 - side].name;
    const auto [first, last] = open_.equal_range(other);
    open_.erase(std::find_if(
        first, last, [&](const auto& entry) { return entry.second.connection == connection; }));
    std::optional<Envelope> goodbye;
    if (reason.kind() == ErrorKind::kRejected) {
      goodbye = Envelope{protocol::Bye{reason.code(), reason.message()}, {}};
    }
    network_.carry(connection, side, std::move(goodbye));
    const auto present = links_.find(other);
    const bool was_up = present != links_.end() && present->second.connection == connection;
    if (was_up) links_.erase(present);
    if (stopping_) return;
    const auto member = member_of(other);
    const bool shut_out = reason.code() == "shut-out" && !own.hello && !links_.contains(other);
    if ((was_up || shut_out) && member) handlers_.on_down(*member, reason);
    consider();
  }

  // Its timer is due, or was while it was frozen.
  void on_time() {
    if (network_.is_frozen(name_)) return;
    expire_idle();
    consider();
  }

  void leave() {
    stopping_ = true;
    timer_->clear();
    end_all_unless([](const std::string&) { return false; },
                   retry("stopping", "this peer is stopping"));
  }

 private:
  struct Dialling {
    explicit Dialling(const Backoff& with) : backoff(with) {}
    Backoff backoff;
    bool active = false;
    bool once = false;
    TimePoint not_before{};
  };

  TimePoint now() const { return network_.scheduler_.now(); }
  const identity::Roster& roster() const { return roster_->roster(); }
  std::optional<Member> member_of(const std::string& name) const {
    if (!roster_) return std::nullopt;
    const auto place = roster().find(name);
    return place ? std::optional(static_cast<Member>(*place)) : std::nullopt;
  }
  const Link* up(Member member) const {
    if (!roster_ || member >= roster().members.size()) return nullptr;
    const auto found = links_.find(roster().members[member].name);
    return found == links_.end() ? nullptr : &found->second;
  }
  // In the order in which they were made.
  std::vector<Link> all() const {
    std::vector<Link> all;
    for (const auto& [other, link] : open_) all.push_back(link);
    std::ranges::sort(all, {}, [](const Link& link) { return link.connection->number; });
    return all;
  }
  template <class Stays>
  void end_all_unless(const Stays& stays, const Error& reason) {
    for (const auto& [connection, side] : all()) {
      if (!stays(connection->sides[1 - side].name)) end(connection, side, reason);
    }
  }

  void take_hello(const ConnectionPtr& connection, int side, const PeerHello& hello) {
    Connection::Side& own = connection->sides[side];
    const std::string other = connection->sides[1 - side].name;
    own.hello = hello;
    const Error duplicate = retry("duplicate", "there is another link with " + other);
    if (const auto present = links_.find(other); present != links_.end()) {
      const Link old = present->second;
      if (!prevails(own, old.connection->sides[old.side], other)) {
        return end(connection, side, duplicate);
      }
      end(old.connection, old.side, duplicate);
      if (!own.open) return;
    }
    links_[other] = Link{connection, side};
    if (const auto dialling = diallings_.find(other); dialling != diallings_.end()) {
      dialling->second.backoff.reset();
    }
    consider();  // when to end it, where it is idle
    handlers_.on_up(*member_of(other), hello);
  }
  bool prevails(const Connection::Side& fresh, const Connection::Side& present,
                const std::string& other) const {
    return replaces_link(fresh.dialled, present.dialled, now() - present.since,
                         member_of(name_) < member_of(other));
  }

  Dialling& dialling_of(const std::string& name) {
    const auto found = diallings_.find(name);
    if (found != diallings_.end()) return found->second;
    const Backoff backoff(network_.options_.backoff, rng_);
    return diallings_.emplace(name, Dialling(backoff)).first->second;
  }
  bool wants_dial(Member member, const Dialling& dialling) const {
    const identity::RosterMember& who = roster().members[member];
    if (dialling.active || who.address.empty() || (!dialling.once && !kept_.contains(member))) {
      return false;
    }
    return !open_.contains(who.name);
  }
  bool ends_when_idle(const std::string& other, const Link& link) const {
    if (!ends_idle_ || !link.connection->sides[link.side].dialled) return false;
    const auto member = member_of(other);
    return member && !kept_.contains(*member);
  }
  void expire_idle() {
    std::vector<Link> idle;
    for (const auto& [name, link] : links_) {
      const bool is_idle = link.connection->sides[link.side].used_at + kIdleLink <= now();
      if (is_idle && ends_when_idle(name, link)) idle.push_back(link);
    }
    for (const Link& link : idle) {
      end(link.connection, link.side, retry("not-needed", "the link was not used"));
    }
  }
  void consider() {
    if (stopping_ || !roster_) return;
    const auto self = member_of(name_);
    for (const Member member : kept_) {
      const std::string& name = roster().members[member].name;
      const bool is_new = !diallings_.contains(name);
      Dialling& dialling = dialling_of(name);
      const bool is_dialled_by = self && member < *self && !roster().members[*self].address.empty();
      if (is_new && is_dialled_by) dialling.not_before = now() + kDialGrace;
    }
    std::optional<TimePoint> next;
    for (auto& [name, dialling] : diallings_) {
      const auto member = member_of(name);
      if (!member || !wants_dial(*member, dialling)) continue;
      if (dialling.not_before > now()) {
        next = std::min(next.value_or(dialling.not_before), dialling.not_before);
        continue;
      }
      dialling.active = true;
      network_.dial(name_, name);
    }
    for (const auto& [name, link] : links_) {
      const TimePoint idle = link.connection->sides[link.side].used_at + kIdleLink;
      if (ends_when_idle(name, link)) next = std::min(next.value_or(idle), idle);
    }
    if (next) timer_->set(*next);
  }

  PeerNetwork& network_;
  const std::uint64_t number_;  // of the process
  const std::string name_;
  Handlers handlers_;
  Rng rng_;
  std::shared_ptr<const identity::SignedRoster> roster_;
  std::set<Member> kept_;
  bool ends_idle_ = false;
  std::map<std::string, Dialling> diallings_;
  std::multimap<std::string, Link> open_;  // by name of the other, greeted or not
  std::map<std::string, Link> links_;      // greeted, by name
  std::size_t messages_max_ = TransferFlow::Options().messages_max;
  PeerTransport::Counters counters_;
  bool stopping_ = false;
  const std::unique_ptr<Timer> timer_;
};

PeerNetwork::PeerNetwork(sim::VirtualScheduler& scheduler, Options options)
    : scheduler_(scheduler), options_(std::move(options)) {}

PeerNetwork::~PeerNetwork() = default;

std::unique_ptr<PeerTransport> PeerNetwork::attach(const std::string& name,
                                                   PeerTransport::Handlers handlers, Rng backoff) {
  auto links = std::make_unique<Links>(*this, name, std::move(handlers), backoff);
  processes_[name] = links.get();
  return links;
}

void PeerNetwork::leave(const std::string& name) {
  if (Links* links = process(name)) links->leave();
}

PeerNetwork::Links* PeerNetwork::process(const std::string& name) const {
  const auto found = processes_.find(name);
  return found == processes_.end() ? nullptr : found->second;
}

// A TCP handshake and one of TLS: two round trips. Nothing listens: refused after one.
void PeerNetwork::dial(const std::string& from, const std::string& to) {
  const std::uint64_t dialler = process(from)->number();
  const auto still_runs = [this, dialler, from] {
    const Links* links = process(from);
    return links != nullptr && links->number() == dialler;
  };
  const auto failed = [this, still_runs, from, to](const Error& error) {
    on_turn(from, [this, still_runs, from, to, error] {
      if (still_runs()) process(from)->dialled(to, error);
    });
  };
  const auto time_out = [this, failed] {
    scheduler_.schedule(scheduler_.now() + options_.connect_deadline,
                        [failed] { failed(timed_out("connect-timeout", "no answer")); });
  };
  if (is_cut(from, to) || is_cut(to, from)) return time_out();
  const Duration round =
      options_.passage(from, to, kFrameBytes) + options_.passage(to, from, kFrameBytes);
  if (process(to) == nullptr) {
    return scheduler_.schedule(scheduler_.now() + round, [failed] {
      failed(not_connected("connection-refused", "nothing listens"));
    });
  }
  const auto greet = [this, failed, time_out, still_runs, from, to] {
    if (is_cut(from, to) || is_cut(to, from) || process(to) == nullptr) {
      return failed(not_connected("connection-reset", "the connection broke"));
    }
    if (is_frozen(to)) return time_out();
    if (still_runs()) connect(from, to);
  };
  scheduler_.schedule(scheduler_.now() + 2 * round, [this, from, greet] { on_turn(from, greet); });
}

void PeerNetwork::connect(const std::string& from, const std::string& to) {
  Links& dialler = *process(from);
  Links& dialled = *process(to);
  if (dialler.admits(to) && dialled.admits(from)) {
    const auto connection = std::make_shared<Connection>(
        ++connections_made_, dialler.make_side(to, true), dialled.make_side(from, false));
    dialler.opened(connection, 0);
    dialled.opened(connection, 1);
    std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
    connections_.push_back(connection);
    carry(connection, 0, dialler.greeting());
    carry(connection, 1, dialled.greeting());
    // Holds the connection until then.
    scheduler_.schedule(scheduler_.now() + options_.greeting_deadline, [this, connection] {
      for (int side = 0; side < 2; ++side) {
        on_turn(connection->sides[side].name, [connection, side] {
          Connection::Side& own = connection->sides[side];
          if (!own.open || own.hello) return;
          own.links->end(connection, side, timed_out("deadline", "the other did not greet"));
        });
      }
    });
  }
  std::optional<Error> refusal;
  if (dialled.shuts_out(from)) {
    refusal = not_authorised("refused-wrong-federation", "the other side has no such member");
  }
  dialler.dialled(to, refusal);
}

void PeerNetwork::carry(const ConnectionPtr& connection, int side, std::optional<Envelope> frame) {
  const std::string& from = connection->sides[side].name;
  Connection::Side& to = connection->sides[1 - side];
  const std::size_t bytes = kFrameBytes + (frame ? frame->payload.size() : 0);
  const TimePoint now = scheduler_.now();
  to.coming_bytes += bytes;
  to.coming.push_back({std::move(frame), bytes, now, now});
  if (!is_cut(from, to.name)) {
    TimePoint& arrival = to.coming.back().arrival;
    arrival = now + options_.passage(from, to.name, bytes);
    if (to.coming.size() > 1) arrival = std::max(arrival, (to.coming.end() - 2)->arrival);
    return schedule_delivery(connection, 1 - side);
  }
  scheduler_.schedule(now + options_.stall_max, [this, connection, side, now, from] {
    on_turn(from, [connection, side, now] {
      Connection::Side& sender = connection->sides[side];
      const auto& waiting = connection->sides[1 - side].coming;
      if (!sender.open || waiting.empty() || waiting.front().sent > now) return;
      sender.links->end(connection, side, timed_out("stalled", "nothing that is sent leaves"));
    });
  });
}

void PeerNetwork::schedule_delivery(const ConnectionPtr& connection, int to) {
  Connection::Side& side = connection->sides[to];
  if (side.delivering || side.coming.empty()) return;
  if (is_cut(connection->sides[1 - to].name, side.name) || is_frozen(side.name)) return;
  side.delivering = true;
  scheduler_.schedule(side.coming.front().arrival, [this, connection, to] {
    connection->sides[to].delivering = false;
    deliver(connection, to);
  });
}

// Of the way to this side. What is overdue waits for a cut to end.
bool PeerNetwork::is_full(const ConnectionPtr& connection, int to) const {
  const Connection::Side& side = connection->sides[to];
  if (side.coming_bytes < options_.queue_low) return false;
  const TimePoint now = scheduler_.now();
  return side.coming.front().arrival < now ||
         side.coming.back().arrival > now + options_.sent_ahead;
}

// A process may be killed in its handler: what the others see of it is arranged before.
void PeerNetwork::deliver(const ConnectionPtr& connection, int to) {
  Connection::Side& side = connection->sides[to];
  const Connection::Side& sender = connection->sides[1 - to];
  if (side.coming.empty() || is_cut(sender.name, side.name) || is_frozen(side.name)) return;
  const Connection::Frame frame = std::move(side.coming.front());
  side.coming.pop_front();
  side.coming_bytes -= frame.bytes;
  side.heard_at = scheduler_.now();
  schedule_delivery(connection, to);
  if (sender.full && !is_full(connection, to)) {
    scheduler_.post([this, connection, to] {
      on_turn(connection->sides[1 - to].name, [connection, to] {
        const Connection::Side& drained = connection->sides[1 - to];
        if (drained.open) drained.links->pump(connection, 1 - to);
      });
    });
  }
  if (!side.open) return;
  if (!frame.envelope) {
    return side.links->end(connection, to, not_connected("connection-reset", "the other ended it"));
  }
  if (side.open) side.links->take(connection, to, *frame.envelope);
}

void PeerNetwork::cut(const std::string& from, const std::string& to) {
  cuts_.insert({from, to});
  for (const auto& weak : connections_) {
    const ConnectionPtr connection = weak.lock();
    if (!connection) continue;
    for (int side = 0; side < 2; ++side) {
      if (connection->sides[side].name != to || connection->sides[1 - side].name != from) continue;
      end_if_idle(connection, side);
    }
  }
}

// Where nothing comes for so long from now on.
void PeerNetwork::end_if_idle(const ConnectionPtr& connection, int side) {
  const std::weak_ptr<Connection> weak = connection;
  const auto look = [this, weak, side] {
    const ConnectionPtr idle = weak.lock();
    if (!idle || !idle->sides[side].open) return;
    if (scheduler_.now() - idle->sides[side].heard_at < options_.idle_max) return;
    idle->sides[side].links->end(idle, side, timed_out("idle", "nothing comes"));
  };
  scheduler_.schedule(scheduler_.now() + options_.idle_max,
                      [this, name = connection->sides[side].name, look] { on_turn(name, look); });
}

void PeerNetwork::mend(const std::string& from, const std::string& to) {
  if (cuts_.erase({from, to}) == 0) return;
  const TimePoint again = scheduler_.now() + options_.retransmission;
  for (const auto& weak : connections_) {
    const ConnectionPtr connection = weak.lock();
    if (!connection) continue;
    for (int side = 0; side < 2; ++side) {
      Connection::Side& receiver = connection->sides[side];
      if (receiver.name != to || connection->sides[1 - side].name != from) continue;
      TimePoint after = again;
      for (Connection::Frame& frame : receiver.coming) {
        frame.arrival = std::max(after, again + options_.passage(from, to, frame.bytes));
        after = frame.arrival;
      }
      schedule_delivery(connection, side);
    }
  }
}

void PeerNetwork::freeze(const std::string& name) {
  if (process(name) == nullptr || !frozen_.try_emplace(name).second) return;
  for (const auto& weak : connections_) {
    const ConnectionPtr connection = weak.lock();
    if (!connection) continue;
    for (int side = 0; side < 2; ++side) {
      if (connection->sides[1 - side].name == name) end_if_idle(connection, side);
    }
  }
}

void PeerNetwork::thaw(const std::string& name) {
  auto frozen = frozen_.extract(name);
  if (!frozen) return;
  for (auto& work : frozen.mapped()) {
    scheduler_.post([this, name, work = std::move(work)] { on_turn(name, work); });
  }
  scheduler_.post([this, name] {
    if (Links* links = process(name)) links->on_time();
  });
  for (const auto& weak : connections_) {
    const ConnectionPtr connection = weak.lock();
    if (!connection) continue;
    for (int side = 0; side < 2; ++side) {
      if (connection->sides[side].name == name) schedule_delivery(connection, side);
    }
  }
}

void PeerNetwork::on_turn(const std::string& name, std::function<void()> work) {
  const auto frozen = frozen_.find(name);
  if (frozen == frozen_.end()) return work();
  frozen->second.push_back(std::move(work));
}

void PeerNetwork::reset(const std::string& a, const std::string& b) {
  for (const auto& weak : std::vector(connections_)) {
    const ConnectionPtr connection = weak.lock();
    if (!connection) continue;
    const auto& sides = connection->sides;
    const bool between =
        (sides[0].name == a && sides[1].name == b) || (sides[0].name == b && sides[1].name == a);
    if (!between) continue;
    for (int side = 0; side < 2; ++side) {
      on_turn(sides[side].name, [connection, side] {
        Connection::Side& own = connection->sides[side];
        if (own.open) own.links->end(connection, side, not_connected("connection-reset", "reset"));
      });
    }
  }
}

}  // namespace starling::gossip
