// SPDX-License-Identifier: Apache-2.0
// The links of a device's peer: at most one a pair, mutually authenticated, with members of the
// roster only. Dials who is wanted until they are there, takes in who dials; where neither can be
// dialled, the roster's issuer relays. Carries messages and transfers; decides nothing about
// training.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/base/backoff.h"
#include "core/base/log.h"
#include "core/identity/identity_directory.h"
#include "core/identity/roster.h"
#include "core/link/message_link.h"
#include "core/net/alarm.h"
#include "core/net/connect.h"
#include "core/net/frame_budget.h"
#include "core/net/handshake_budget.h"
#include "core/net/listener.h"
#include "core/net/refusal_log.h"
#include "core/net/task_group.h"
#include "gossip/peer/link_rules.h"
#include "gossip/peer/peer_channel.h"
#include "gossip/peer/peer_transport.h"

namespace starling::gossip {

class PeerLinks final : public PeerTransport {
 public:
  // All of it must outlive the links.
  struct World {
    net::EventLoop& loop;
    const Clock& clock;
    Log& log;
    const identity::IdentityDirectory& identity;
  };
  struct Options {
    std::optional<identity::HostPort> listen;  // port 0: any; none: nobody can dial this peer
    std::string bind;  // numeric local address that dialling begins from; empty: any
    net::ConnectOptions connect;
    Backoff::Options backoff{.minimum = std::chrono::milliseconds(100),
                             .maximum = std::chrono::seconds(5)};
    Duration greeting_deadline = std::chrono::seconds(10);
    Duration goodbye = std::chrono::seconds(1);
    Duration idle_max = kIdleLink;
    // That are read of one member, counted as work_of() says; see net/frame_budget.h. Beside them
    // the vectors that this peer's own exchanges call for.
    double frames_per_second = 4000;
    // A member that exceeds it for so long is named. Not sooner: when a cut link is back, all that
    // it held up comes at once, from honest members too.
    Duration named_after = std::chrono::seconds(5);
    net::HandshakeBudget::Options handshakes;  // of those who dial this peer
    std::size_t queue_low = 256 * 1024;        // bytes under way to the socket before more is taken
    std::size_t relay_waiting_max = 1024 * 1024;  // bytes that wait for the link with the issuer
    // Of a relayed transfer before its receiver gives credit: a constant of the protocol, so small
    // that several senders at once do not fill the issuer's queue for one receiver.
    std::uint64_t relay_window_bytes = 256 * 1024;
  };
  // `issuer`: its link, over which others are relayed; without functions none are.
  PeerLinks(World world, Options options, Handlers handlers, RelayLine::Carrier issuer,
            Rng backoff);
  // Requires: stop() has been awaited.
  ~PeerLinks() override;
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // Opens the listener, where there is to be one. Errors as of net::Listener::open.
  [[nodiscard]] Result<void> listen();
  std::uint16_t port() const { return listener_ ? listener_->port() : 0; }

  void set_roster(std::shared_ptr<const identity::SignedRoster> roster) override;
  void set_messages_max(std::size_t messages_max) override;
  void keep(std::set<Member> members) override;
  void end_idle_links(bool ends) override;
  void reach(Member member) override;
  bool is_up(Member member) const override;
  std::vector<std::pair<Member, protocol::PeerHello>> all_up() const override;
  using PeerTransport::send;
  void send(Member to, const protocol::Message& message, SharedBytes payload) override;
  void send_transfer(Member to, const protocol::VectorTransfer& transfer, SharedBytes data,
                     TransferFlow::Urgency urgency) override;
  Counters counters() const override;

  // The issuer of the roster, over which links are relayed: its link is there, or is gone; less
  // waits there; it brought a frame. The payload need hold for the call only.
  void issuer_up();
  void issuer_down();
  void issuer_drained();
  void take_relayed(const protocol::Relay& relay, const SharedBytes& payload);

  // Says goodbye to all; resumes when nothing of it runs any more.
  net::Async<void> stop();

 private:
  struct Link {
    Link(std::string its_name, std::shared_ptr<PeerChannel> its_channel, bool we_began,
         TimePoint its_begin, TransferFlow its_flow);
    std::string name;
    std::shared_ptr<PeerChannel> channel;
    RelayChannel* relay = nullptr;    // the channel, where it is one
    std::optional<Sha256Digest> key;  // of a connection's other side; none where it is relayed
    bool began;                       // by us: dialled, or greeted first
    TimePoint since;
    TimePoint used;
    link::MessageLimits limits;
    TransferFlow flow;
    std::optional<protocol::PeerHello> hello;
    bool pumping = false;
    bool closed = false;
  };
  using LinkPtr = std::shared_ptr<Link>;
  struct Dialling {
    explicit Dialling(const Backoff& with) : backoff(with) {}
    Backoff backoff;
    bool active = false;
    bool once = false;
    TimePoint not_before{};
  };

  [[nodiscard]] Result<std::shared_ptr<const net::TlsContext>> server_tls() const;
  [[nodiscard]] Result<std::shared_ptr<const net::TlsContext>> client_tls(
      const std::string& name) const;
  identity::PeerPolicy policy() const;
  bool is_relayed(Member member) const;  // neither can be dialled
  std::optional<Member> member_of(const std::string& name) const;
  const identity::Roster& roster() const;

  void on_alarm();
  void consider();
  bool wants_dial(Member member, const Dialling& dialling) const;
  Dialling& dialling_of(const std::string& name);
  bool is_dialled_by(Member member) const;  // rather than dialling it
  net::Async<void> dial(std::string name, std::string address);
  void adopt(std::unique_ptr<net::Connection> connection, bool dialled);
  Result<void> admit(const std::string& name, const std::optional<Sha256Digest>& key) const;
  LinkPtr begin(const std::string& name, std::shared_ptr<PeerChannel> channel, bool by_us,
                std::uint64_t window_bytes);
  net::Async<void> serve(LinkPtr link, std::shared_ptr<net::Connection> connection);
  // How long to read nothing more of this member.
  Duration charge(const std::string& name, const net::Frame& frame);
  net::Async<void> expect_hello(LinkPtr link, std::shared_ptr<net::Connection> connection);

  LinkPtr begin_relayed(const std::string& name, bool by_us);
  LinkPtr relayed_with(const std::string& name) const;
  void take_on(const LinkPtr& link, const protocol::Relay& relay, const SharedBytes& payload);
  void refuse_relayed(const std::string& name, const Error& reason);
  void expire_greetings();
  bool ends_when_idle(const Link& link) const;
  void expire_idle();
  void put_off(const std::string& name);
  void pump_relayed();
  std::vector<LinkPtr> all_links() const;

  // False: the link is over.
  bool take_frame(const LinkPtr& link, const net::Frame& frame);
  bool take(const LinkPtr& link, const protocol::Envelope& envelope);
  bool take_hello(const LinkPtr& link, const protocol::PeerHello& hello);
  bool prevails(const Link& fresh, const Link& present) const;
  void pump(const LinkPtr& link);
  void send_on(const LinkPtr& link, const protocol::Envelope& envelope);
  void break_off(const LinkPtr& link, const Error& reason);
  void end(const LinkPtr& link, const Error& reason, bool say_bye);
  net::Async<void> close(std::shared_ptr<PeerChannel> channel);
  LinkPtr up(Member member) const;

  World world_;
  Options options_;
  Handlers handlers_;
  Rng rng_;
  std::shared_ptr<const identity::SignedRoster> roster_;
  std::unique_ptr<net::Listener> listener_;
  std::set<Member> kept_;
  bool ends_idle_ = false;
  std::map<std::string, Dialling> diallings_;
  std::map<std::string, LinkPtr> links_;  // greeted, by name
  std::set<LinkPtr> greeting_;
  struct Budget {
    net::FrameBudget frames;
    std::uint64_t vectors = 0;  // of vectors_due_: granted already
    TimePoint over_since{};     // it was exceeded
    TimePoint over_until{};
    bool said = false;
  };
  std::map<std::string, Budget> budgets_;  // of those that were members, by name
  // Vectors that any member may send beside its budget, since this peer has sent as many: one for
  // each piece of an all-reduce, each message of a pair, and each exchange with neighbours.
  std::uint64_t vectors_due_ = 0;
  std::optional<protocol::Exchange> mixed_;  // of the last message to a neighbour
  net::HandshakeBudget handshakes_;
  RelayLine line_;
  std::string last_pumped_;     // of the relayed links, which take turns
  std::set<std::string> told_;  // who is known, and said, to be relayed
  Counters gone_;               // of links that ended
  std::size_t messages_max_ = TransferFlow::Options().messages_max;
  bool stopping_ = false;
  net::Alarm alarm_;
  net::RefusalLog refusals_;
  net::TaskGroup tasks_;
};

}  // namespace starling::gossip
