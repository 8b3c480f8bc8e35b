// SPDX-License-Identifier: Apache-2.0
// Who of a roster is reachable: SWIM (Das, Gupta, Motivala, DSN 2002) with Lifeguard (Dadgar et
// al., DSN-W 2018) as a deterministic machine. The roster says who is a member; this only marks
// them alive, suspect or dead, and never lets go of one: the dead are probed now and then for ever.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/protocol/peer_messages.h"
#include "gossip/membership/deadlines.h"
#include "gossip/membership/heartbeats.h"
#include "gossip/membership/news_queue.h"
#include "gossip/membership/overlay.h"
#include "gossip/membership/round_trip.h"
#include "gossip/membership/suspicion.h"
#include "gossip/membership/swim_options.h"

namespace starling::gossip::membership {

// How it works. n members, P = probe_period, T = probe timeout, h = health in 0..health_max.
//   Every P the next of a shuffled order is pinged. No answer within T (1 + h): k others are asked
//   to ping it. Nothing within F = (1 + h) max(P, 3 T): it is suspect. S_min and S_max (see
//   swim_options.h) bound for how long, before it is dead.
//   What is known of a member is (incarnation, alive < suspect < dead), and the larger wins; only
//   the member itself raises its incarnation, when it hears itself called suspect or dead.
//   Every message bears the speaker's own incarnation, what it holds against the one it speaks to,
//   and other news. Deviations from SWIM:
//   - Nobody is dead by hearsay: that another calls it dead makes it suspect, and confirms. So
//     everybody waits S_min at least after a suspicion, which the accused can use to refute it; a
//     liar can do no more, but falsify the finders, so that all wait only S_min; or say that a dead
//     one lives, until the next probe of it fails, or with an overlay for as long as it goes on,
//     but not to the neighbours of the dead one.
//   - Any message from a suspect postpones its death, and makes it be pinged at once.
//   - Unless from itself, an incarnation more than kIncarnationJumpMax above the known one is
//     not believed. At kIncarnationMax (where only lies lead) accusations by others are not heard,
//     and a direct answer clears one's own.
//   - Health (Lifeguard's, there by missed nacks) worsens when this machine is called late, must
//     refute, or fails in a probe and hears nobody meanwhile; it recovers with each answer. It
//     slows the judgement, not the period: a lone survivor still finds all others dead in time.
//   - Where not everybody watches everybody (see Overlay), all whom a member watches are pinged
//     every P, at most kProbesMax at a time, nobody is asked to ping for it, and every message
//     bears the heartbeats of all. A member whose heartbeat does not rise for kSilence P is
//     suspect, as if a probe had failed. A rising heartbeat postpones a suspect's death, and lets a
//     member that is called dead hear of it, so that it can refute that. But of a neighbour in the
//     graph that left a probe unanswered only its own messages count from then on: no heartbeat,
//     and no news of a higher incarnation that others tell.
//   - Time in which the process did not run (see late_min) does not count, and P more is granted
//     after it, to hear what waits to be read.
// Bounds, with h = 0, once a member stops:
//   first suspicion  P e/(e - 1) + F on average over the group; a given member comes to it by
//                    itself, though all gossip were lost, within (2 n - 3) P + F
//   spread           O(log n) periods to all: each tells a news ceil(lambda ln(n + 1)) times
//   death            S_min to S_max after that; for each member at most (2 n - 3) P + F + S_max
//   return           each one is probed by each of m members that call it dead, of d such, within
//                    1.5 d dead_probe_period, thus by one of them in about 1/m of that; once a
//                    dead one answers, the next is probed at once
//   cost             2 messages a period and node, with an overlay 2 for each member that it
//                    watches, of 8 n bytes; while there are dead, a ping more every
//                    dead_probe_period (the shell dials for it)
// Memory is O(n); an event costs O(news + log n), with an overlay O(n), a tick at most O(n).

inline constexpr std::uint32_t kIncarnationMax = (1U << 30) - 1;
inline constexpr std::uint32_t kIncarnationJumpMax = 64;
inline constexpr std::uint32_t kRelaysMax = 16;  // ping-requests at work for one member
inline constexpr std::size_t kProbesMax = 16;
inline constexpr int kSilence = 5;

using protocol::Member;
using State = protocol::SwimNews::State;

// --- events -------------------------------------------------------------------------------------
struct Tick {};  // next_deadline() has passed
struct Received {
  Member from = 0;  // as its certificate says
  protocol::Swim swim;
};
struct Heard {  // any other message came from it
  Member member = 0;
};
struct LinkLost {  // the connection broke and it cannot be dialled
  Member member = 0;
};
using Event = std::variant<Tick, Received, Heard, LinkLost>;

// --- actions ------------------------------------------------------------------------------------
struct Send {
  Member to = 0;
  protocol::Swim swim;
  friend bool operator==(const Send&, const Send&) = default;
};
struct Changed {
  Member member = 0;
  State state = State::kAlive;
  friend bool operator==(const Changed&, const Changed&) = default;
};
using Action = std::variant<Send, Changed>;

class SwimMachine {
 public:
  // All begin alive, at incarnation 0. Requires: validate(options), self < members. `overlay`: whom
  // to watch, of this member; none: all, as do all others then.
  SwimMachine(const SwimOptions& options, protocol::Epoch epoch, Member self, Member members,
              Rng rng, TimePoint now, std::optional<Overlay> overlay = {});

  // What names no other member of this epoch's roster is ignored.
  std::vector<Action> on(const Event& event, TimePoint now);
  // When Tick is due; nothing only if there is no other member.
  std::optional<TimePoint> next_deadline() const;

  State state(Member member) const { return peers_[member].state; }
  std::uint32_t incarnation(Member member) const { return peers_[member].incarnation; }
  std::uint32_t incarnation() const { return incarnation(self_); }
  // Members that are not dead, oneself included.
  std::size_t reachable() const { return peers_.size() - dead_; }
  unsigned health() const { return health_; }  // 0 is well
  // How long `member` is given to answer now.
  Duration probe_timeout(Member member) const;
  // Everything that grows with what is heard, for tests: bounded by O(n).
  std::size_t entries() const;

 private:
  struct Probe {
    enum class Stage : std::uint8_t { kNone, kDirect, kIndirect };
    Stage stage = Stage::kNone;
    bool of_dead = false;
    bool unanswered = false;  // by the member itself, though its answer may come
    std::uint64_t sequence = 0;
    TimePoint began{};
    TimePoint fails{};
    std::vector<Member> helpers;  // who was asked
  };
  struct Peer {
    State state = State::kAlive;
    std::uint32_t incarnation = 0;
    Member by = 0;             // of its news
    std::uint32_t relays = 0;  // for it
    std::optional<TimePoint> heard;
    std::optional<Suspicion> suspicion;  // while suspect
    bool silent = false;  // a neighbour that left a probe unanswered and was not heard since
    Probe probe;
    RoundTrip round_trip;
  };
  struct Relay {  // a ping for another one
    Member requester = 0;
    Member target = 0;
    std::uint64_t sequence = 0;  // the requester's
    TimePoint ends{};
  };

  void handle(const Tick&);
  void handle(const Received&);
  void handle(const Heard&);
  void handle(const LinkLost&);
  void notice_lateness(TimePoint now);
  std::optional<TimePoint> next_due() const;  // in the machine's own time
  bool is_other(Member member) const { return member < peers_.size() && member != self_; }

  // swim_probes.cpp
  void probe_next();
  void probe_next_dead();
  void probe(Member member, bool directly = true);
  void advance_probe(Member member);
  void ask_helpers(Member member);
  void end_probe(Member member);
  void answered(Member member);
  void relay_ping(Member requester, const protocol::Swim& request);
  void receive_ack(Member from, const protocol::Swim& ack);
  void hear(Member member);
  bool is_neighbour(Member member) const { return overlay_ && overlay_->is_neighbour(member); }
  void hear_beats(const std::vector<std::uint64_t>& beats);
  void suspect_the_silent();
  void choose_watched();
  void worsen() { health_ = std::min(health_ + 1, options_.health_max); }
  Duration slowed(Duration duration) const { return (1 + health_) * duration; }
  TimePoint next_dead_probe();

  // swim_news.cpp
  void learn(Member from, const protocol::SwimNews& news);
  void learn_of_self(const protocol::SwimNews& news);
  void learn_alive(Member from, const protocol::SwimNews& news);
  void learn_accusation(const protocol::SwimNews& news);
  void accuse(Member member, Member by);
  void suspicion_ends(Member member);
  void set_state(Member member, State state, Member by);
  protocol::SwimNews news_of(Member member) const;
  void send(Member to, protocol::Swim::Kind kind, std::uint64_t sequence, Member target);

  SwimOptions options_;
  protocol::Epoch epoch_;
  Member self_;
  SuspicionTimes suspicion_times_;
  Rng rng_;
  TimePoint now_;    // the machine's own time: now - lost_
  Duration lost_{};  // in which the process did not run
  std::vector<Action> actions_;

  std::optional<Overlay> overlay_;
  std::optional<Heartbeats> beats_;  // with the overlay
  std::vector<Peer> peers_;
  std::size_t dead_ = 0;
  NewsQueue news_;
  unsigned health_ = 0;
  std::optional<TimePoint> heard_;  // anybody

  std::vector<Member> order_;  // of those who are watched, shuffled anew for each round
  std::size_t place_ = 0;
  std::vector<Member> dead_order_;  // shuffled once
  std::size_t dead_place_ = 0;
  TimePoint probe_at_;
  TimePoint dead_probe_at_{};  // while there are dead
  std::uint64_t sequence_;
  std::uint64_t sequence_measured_;  // pings before it span a pause
  Deadlines probes_;
  Deadlines suspicions_;
  std::map<std::uint64_t, Relay> relays_;  // by the sequence of the ping, thus by `ends`
};

}  // namespace starling::gossip::membership
