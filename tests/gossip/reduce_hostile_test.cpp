// SPDX-License-Identifier: Apache-2.0
// Notes and pieces that no honest member sends, in the middle of honest runs: they change nothing,
// crash nothing and are not kept.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/gossip/reduce_network.h"

namespace starling::collective {
namespace {

using testing::note;
using testing::sent_notes;

const std::vector<float> kInput = {1, 2, 3, 4, 5, 6, 7, 8};

AllReduceOptions ring() { return {.shape = {.choice = ShapeRule::Choice::kRing}}; }

PieceReceived piece(Member from, std::uint32_t attempt, std::uint64_t place, std::size_t floats) {
  return {from, 1, {}, attempt, place, share(std::vector<float>(floats, 1))};
}

// Of a mean that is this number everywhere.
Sha256Digest digest_of(std::uint64_t value) {
  const std::vector<float> values(kInput.size(), static_cast<float>(value));
  return sha256(as_bytes(std::span(values)));
}

// Member 1 of 4, which has joined attempt 1 and waits for member 0's first piece of 2 floats.
AllReduceMachine in_attempt() {
  AllReduceMachine machine(ring(), 1, 1, testing::member_names(4));
  (void)machine.on(Begin{testing::at(0), share(kInput)}, TimePoint{});
  const auto actions = machine.on(note(0, reduce::List{{0, 1, 2, 3}}, 0, 1), TimePoint{});
  EXPECT_EQ(actions.size(), 1U);  // its own first segment
  return machine;
}

TEST(AllReduceHostile, PiecesThatAreNotTheNextChangeNothing) {
  AllReduceMachine machine = in_attempt();
  const std::uint64_t next = place_of(Phase::kScatter, 0);
  PieceReceived other_exchange = piece(0, 1, next, 2);
  other_exchange.at = testing::at(7);
  PieceReceived other_epoch = piece(0, 1, next, 2);
  other_epoch.epoch = 2;
  const std::vector<PieceReceived> wrong = {
      piece(2, 1, next, 2),                          // not from the one before us
      piece(9, 1, next, 2),                          // no member
      piece(1, 1, next, 2),                          // ourselves
      piece(0, 2, next, 2),                          // another attempt
      piece(0, 0, next, 2),                          //
      piece(0, 1, next, 3),                          // another size
      piece(0, 1, next, 0),                          //
      piece(0, 1, place_of(Phase::kScatter, 1), 2),  // another step
      piece(0, 1, place_of(Phase::kGather, 0), 2),
      piece(0, 1, place_of(Phase::kDown, 0), 8),
      piece(0, 1, place_of(Phase::kResult, 0), 8),  // unasked
      piece(0, 1, ~std::uint64_t{0}, 2),
      other_exchange,
      other_epoch,
  };
  for (const PieceReceived& bad : wrong) {
    EXPECT_TRUE(machine.on(bad, TimePoint{}).empty()) << bad.place;
    EXPECT_EQ(machine.early_floats(), 0U);
  }
  EXPECT_EQ(machine.on(piece(0, 1, next, 2), TimePoint{}).size(), 1U);  // the right one still is
  EXPECT_TRUE(machine.on(piece(0, 1, next, 2), TimePoint{}).empty());   // once
}

TEST(AllReduceHostile, NotesThatNobodyMaySendChangeNothing) {
  AllReduceMachine machine = in_attempt();
  NoteReceived other_epoch = note(0, reduce::Ask{}, 0, 5);
  other_epoch.note.epoch = 2;
  const std::vector<NoteReceived> wrong = {
      note(0, reduce::List{{0, 1}}, 0, 1),                                // joined already
      note(2, reduce::List{{1, 2}}, 0, 3),                                // never promised
      note(2, reduce::List{{1, 2}}, 0, 1),                                // not its own number
      note(2, reduce::Standing{.mean = {1, {1, 2}}, .holder = 2}, 0, 1),  //
      note(0, reduce::Ask{}, 0, 4'000'000'001),                           // nobody is so far ahead
      note(7, reduce::Ask{}, 0, 8),                                       // no member
      note(1, reduce::Ask{}, 0, 6),                                       // ourselves
      note(0, reduce::Ask{}, 0, 0),                                       // no number
      note(0, reduce::Commit{.members = {1, 0}}, 0, 1),                   // no list of members
      note(0, reduce::Commit{}, 0, 1),                                    //
      note(0, reduce::Commit{.members = {0, 99}}, 0, 1),                  //
      note(0, reduce::Commit{.members = {0, 1}}, 0, 0),                   // no number
      note(0, reduce::Commit{.members = {0, 1}, .holder = 9}, 0, 1),      // no member
      note(3, reduce::Done{}, 0, 1),                                      // we do not gather
      note(3, reduce::Ahead{{9}}, 7, 0),                                  // no list of members
      note(2, reduce::Register{.held = NamedMean{1, {5, 1}}}, 0, 2),      // no list of members
      other_epoch,
  };
  for (const NoteReceived& bad : wrong) {
    EXPECT_TRUE(machine.on(bad, TimePoint{}).empty()) << bad.note.what.index();
  }
  EXPECT_EQ(machine.on(piece(0, 1, place_of(Phase::kScatter, 0), 2), TimePoint{}).size(), 1U);
}

TEST(AllReduceHostile, EarlyPiecesAreBounded) {
  AllReduceMachine machine(ring(), 1, 1, testing::member_names(4));
  (void)machine.on(Begin{testing::at(0), share(kInput)}, TimePoint{});
  for (Member from : {0U, 2U, 3U}) {
    for (std::uint64_t place = 0; place < 1000; ++place) {
      EXPECT_TRUE(machine.on(piece(from, 1, place, 1 + place % 9), TimePoint{}).empty());
    }
  }
  EXPECT_LE(machine.early_floats(), 3 * kInput.size());
  // What leaves the attempt behind leaves them too.
  EXPECT_FALSE(machine.on(note(0, reduce::Ask{}, 0, 5), TimePoint{}).empty());
  EXPECT_EQ(machine.early_floats(), 0U);
}

TEST(AllReduceHostile, AResultIsNotSentForEver) {
  AllReduceMachine machine(ring(), 1, 0, testing::member_names(2));
  (void)machine.on(LinkUp{1, {}}, TimePoint{});
  (void)machine.on(LinkDown{1}, TimePoint{});
  (void)machine.on(Begin{testing::at(0), share(kInput)}, TimePoint{} + std::chrono::seconds(1));
  ASSERT_FALSE(machine.busy());
  std::size_t sent = 0;
  for (int i = 0; i < 1000; ++i) {
    (void)machine.on(LinkUp{1, {}}, TimePoint{});  // a new link is no new exchange
    const reduce::Want want{sha256(as_bytes(std::span(kInput)))};
    sent += machine.on(note(1, want, 0, 1), TimePoint{}).size();
  }
  EXPECT_GT(sent, 0U);
  EXPECT_LE(sent, 16U);
}

// Of attempt 3, of the mean that piece() makes.
NoteReceived commit(Member from, std::uint32_t attempt, std::vector<Member> members,
                    Member holder) {
  return note(from,
              reduce::Commit{.members = std::move(members),
                             .sha256 = digest_of(attempt == 3 ? 1 : attempt),
                             .support = 3,
                             .holder = holder},
              0, attempt);
}

TEST(AllReduceHostile, WhoLacksAMeanSaysSo) {
  AllReduceMachine machine = in_attempt();
  const auto answer =
      sent_notes<reduce::NotYet>(machine.on(note(3, reduce::Want{}, 0, 9), TimePoint{}), 3);
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].attempt, 9U);
}

// It goes on with what it is at until a mean comes, and asks for one commit of each teller.
TEST(AllReduceHostile, ACommitOfAMeanThatNobodyHasCostsNothing) {
  AllReduceMachine machine = in_attempt();
  const auto not_yet = [&](Member from, std::uint32_t attempt) {
    return machine.on(note(from, reduce::NotYet{}, 0, attempt), TimePoint{});
  };
  EXPECT_EQ(
      sent_notes<reduce::Want>(machine.on(commit(3, 12, {0, 2, 3}, 3), TimePoint{}), 3).size(), 1U);
  EXPECT_TRUE(not_yet(0, 12).empty());  // it was not asked
  EXPECT_EQ(sent_notes<reduce::Want>(not_yet(3, 12), 0).size(), 1U);
  EXPECT_EQ(sent_notes<reduce::Want>(not_yet(0, 12), 2).size(), 1U);
  EXPECT_TRUE(not_yet(2, 12).empty());
  EXPECT_TRUE(machine.on(commit(3, 16, {0, 2, 3}, 0), TimePoint{}).empty());
  EXPECT_EQ(machine.on(piece(0, 1, place_of(Phase::kScatter, 0), 2), TimePoint{}).size(), 1U);
  // Of another it is believed, and then its mean comes.
  EXPECT_EQ(sent_notes<reduce::Want>(machine.on(commit(2, 3, {0, 2, 3}, 2), TimePoint{}), 2).size(),
            1U);
  PieceReceived mean = piece(2, 3, place_of(Phase::kResult, 0), kInput.size());
  EXPECT_TRUE(std::holds_alternative<Finished>(machine.on(mean, TimePoint{}).back()));
}

// Member 0 of 4 gathers, and trains still.
TEST(AllReduceHostile, ACommitOfOneMemberDoesNotTakeThePlaceOfRegistrations) {
  AllReduceMachine machine(ring(), 1, 0, testing::member_names(4));
  const auto tell = [&](const NoteReceived& told) { return machine.on(told, TimePoint{}); };
  EXPECT_TRUE(sent_notes<reduce::Commit>(tell(note(1, reduce::Register{}, 0, 1)), 1).empty());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(sent_notes<reduce::Commit>(tell(commit(3, 12, {0, 2, 3}, 3)), 1).empty());
  }
  EXPECT_TRUE(sent_notes<reduce::Commit>(tell(note(2, reduce::Register{}, 0, 1)), 2).empty());
  EXPECT_TRUE(sent_notes<reduce::Commit>(tell(commit(2, 3, {1, 2, 3}, 2)), 1).empty());
  // Of two it is believed.
  EXPECT_EQ(sent_notes<reduce::Commit>(tell(commit(1, 3, {1, 2, 3}, 2)), 2).size(), 1U);
  EXPECT_EQ(sent_notes<reduce::Commit>(tell(note(3, reduce::Register{}, 0, 1)), 3).size(), 1U);
}

// Member 1 of 4 waits for the list of gatherer 0, which tells it anything but a list.
TEST(AllReduceHostile, NothingButAListPutsOffTheWaitForOne) {
  for (const bool fetches : {false, true}) {
    AllReduceMachine machine(ring(), 1, 1, testing::member_names(4));
    TimePoint now{};
    (void)machine.on(Begin{testing::at(0), share(kInput)}, now);
    // The holder is a member, or nobody.
    const reduce::Standing standing{.mean = {1, {0, 1, 2, 3}},
                                    .holder = fetches ? 2 : Member{1} << 31};
    const NoteReceived list = note(0, standing, 0, 1);
    (void)machine.on(list, now);
    const TimePoint end = now + std::chrono::minutes(3);
    bool has_left = false;
    for (; now < end && !has_left; now += std::chrono::milliseconds(500)) {
      auto actions = machine.on(LinkUp{fetches ? 2U : 0U}, now);
      if (!fetches) (void)machine.on(list, now);
      for (const Action& action : machine.on(Tick{}, now)) actions.push_back(action);
      has_left = std::ranges::any_of(actions, [](const Action& action) {
        const auto* sent = std::get_if<SendNote>(&action);
        return sent != nullptr && sent->note.attempt > 1;  // registers again, or gathers
      });
    }
    EXPECT_TRUE(has_left) << fetches;
  }
}

TEST(AllReduceHostile, ANumberFarAheadIsFollowedWhereAMajorityIs) {
  AllReduceMachine machine = in_attempt();
  const std::uint32_t far = 1 + 3 + 100 * 4;  // of member 3
  EXPECT_TRUE(machine.on(note(2, reduce::Ask{}, 0, far), TimePoint{}).empty());
  EXPECT_TRUE(machine.on(note(3, reduce::Ask{}, 0, far), TimePoint{}).empty());
  EXPECT_EQ(sent_notes<reduce::Register>(machine.on(note(0, reduce::Ask{}, 0, far), TimePoint{}), 3)
                .size(),
            1U);
}

// It would be charged for leaving, and not the one that asked it to.
TEST(AllReduceHostile, WhoReducesLeavesForItsGathererOrAnotherAlone) {
  for (const Member from : {0U, 2U, 3U}) {
    AllReduceMachine machine = in_attempt();
    const auto sent = machine.on(note(from, reduce::Ask{}, 0, 1 + 4), TimePoint{});
    EXPECT_EQ(sent_notes<reduce::Register>(sent, 0).size(), from == 0 ? 1U : 0U) << from;
    EXPECT_EQ(sent_notes<reduce::Wait>(sent, from).size(), from == 0 ? 0U : 1U) << from;
  }
}

// The gatherer may list the two together on purpose.
TEST(AllReduceHostile, WhoGetsWrongNumbersInThreeListsOfAGathererRegistersWithAnother) {
  AllReduceMachine machine(ring(), 1, 2, testing::member_names(4));
  (void)machine.on(Begin{testing::at(0), share(kInput), 100}, TimePoint{});
  Attempt attempt = 1;  // of member 0
  for (int list = 1; list <= 3; ++list) {
    (void)machine.on(note(0, reduce::List{{0, 1, 2, 3}}, 0, attempt), TimePoint{});
    PieceReceived wrong = piece(1, attempt, place_of(Phase::kScatter, 0), 2);
    wrong.floats = share({1e30F, 1e30F});
    const auto sent = sent_notes<reduce::Register>(machine.on(wrong, TimePoint{}));
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].to, list <= 2 ? 0U : 1U) << list;
    EXPECT_EQ(sent[0].blame, (Blame{.member = 1, .pieces = 1, .wrong = true}));
    attempt = sent[0].attempt;
  }
}

TEST(AllReduceHostile, EarlyPiecesOfPlacesThatCannotBeEarlyAreNotKept) {
  AllReduceMachine machine(ring(), 1, 1, testing::member_names(4));
  (void)machine.on(Begin{testing::at(0), share(kInput)}, TimePoint{});
  for (const std::uint64_t place :
       {place_of(Phase::kScatter, 4), place_of(Phase::kGather, 0), place_of(Phase::kDown, 0),
        place_of(Phase::kResult, 1), ~std::uint64_t{0}}) {
    (void)machine.on(piece(0, 1, place, 2), TimePoint{});
    EXPECT_EQ(machine.early_floats(), 0U) << place;
  }
  (void)machine.on(piece(0, 1, place_of(Phase::kScatter, 0), 2), TimePoint{});
  EXPECT_EQ(machine.early_floats(), 2U);
}

reduce::What random_note(Rng& rng, Members list, Member other) {
  const Sha256Digest sha256 = digest_of(rng.below(3));
  const auto held = static_cast<Attempt>(1 + rng.below(2 * kInput.size()));
  const auto count = static_cast<std::uint16_t>(rng.below(4));
  const NamedMean mean{held, list, sha256, rng.below(2) == 0};
  switch (rng.below(std::variant_size_v<reduce::What>)) {
    case 0: {
      reduce::Register its{.fresh = rng.below(4) == 0};
      if (held % 2 == 0) {
        its.held = mean;
      } else {
        its.lost = std::move(list);
      }
      if (count != 0) its.blame = Blame{other, count, rng.below(3) == 0};
      return its;
    }
    case 1:
      return reduce::List{std::move(list), mean.weak,
                          count == 0 ? std::nullopt : std::optional(other)};
    case 2:
      return reduce::Standing{mean, other};
    case 3:
      return reduce::Done{sha256};
    case 4:
      return reduce::Commit{std::move(list), sha256, count, other};
    case 5:
      return reduce::Want{sha256};
    case 6:
      return reduce::NotYet{};
    case 7:
      return reduce::Ask{};
    case 8:
      return reduce::AskProgress{};
    case 9:
      return reduce::Wait{};
    default:
      return reduce::Ahead{std::move(list)};
  }
}

// Members that send nonsense with plausible numbers: no crash, bounded answers, bounded memory.
TEST(AllReduceHostile, RandomEvents) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    Rng rng({.seed = seed, .purpose = Purpose::kTest, .node = 9});
    const std::size_t members = 1 + rng.below(6);
    const auto self = static_cast<Member>(rng.below(members));
    AllReduceMachine machine({}, 1, self, testing::member_names(members));
    TimePoint now{};
    Progress next;
    for (int i = 0; i < 300; ++i) {
      now += std::chrono::milliseconds(rng.below(400));
      const auto from = static_cast<Member>(rng.below(members + 1));
      const auto attempt = static_cast<std::uint32_t>(
          rng.below(20) == 0 ? rng.next_u32() : rng.below(4 * members + 1));
      const Exchange exchange =
          rng.below(20) == 0 ? rng.next_u64() : next.exchange - rng.below(2) + rng.below(2);
      const Exchange backed = rng.below(2) == 0 ? exchange : next.backed + rng.below(2);
      std::vector<Member> list;
      for (Member m = 0; m <= members; ++m) {
        if (rng.below(3) != 0 && (m < members || rng.below(20) == 0)) list.push_back(m);
      }
      Event event = Tick{};
      switch (rng.below(8)) {
        case 0:
          if (!machine.busy() || rng.below(9) == 0) {
            event = Begin{next, share(kInput), static_cast<double>(1 + rng.below(40))};
          }
          break;
        case 1:
          event = LinkUp{from, {}};
          break;
        case 2:
          if (rng.below(3) == 0) event = LinkDown{from};
          break;
        case 3: {
          const std::size_t size = rng.below(2) == 0 ? kInput.size() : rng.below(10);
          PieceReceived received =
              piece(from, attempt, place_of(static_cast<Phase>(rng.below(6)), rng.below(4)), size);
          received.at = {backed, exchange};
          if (rng.below(4) == 0) received.floats = share(std::vector<float>(size, 1e30F));
          event = std::move(received);
          break;
        }
        default: {
          NoteReceived received =
              note(from, random_note(rng, std::move(list), from), exchange, attempt);
          received.note.at.backed = backed;
          event = std::move(received);
        }
      }
      const auto follow = [&](const std::vector<Action>& actions) {
        for (const Action& action : actions) {
          if (const auto* further = std::get_if<CatchUp>(&action)) next = further->next;
          if (const auto* finished = std::get_if<Finished>(&action)) next = finished->next;
        }
        return actions.size();
      };
      ASSERT_LE(follow(machine.on(std::move(event), now)), 8 * members + 8) << "seed " << seed;
      ASSERT_LE(machine.early_floats(), members * kInput.size()) << "seed " << seed;
      ASSERT_LT(machine.waiting_for().value_or(0), members);
      // A deadline that stays in the past would spin.
      for (int tick = 0; machine.next_deadline() && *machine.next_deadline() <= now; ++tick) {
        ASSERT_LT(tick, 4) << "seed " << seed;
        follow(machine.on(Tick{}, now));
      }
    }
  }
}

// --- one liar in a network -----------------------------------------------------------------------

using testing::ReduceNetwork;
using testing::World;

constexpr std::size_t kOfLiar = 5;

// Of a member that lies every 20 ms to everybody, whatever its machine does beside it.
struct Liar {
  const char* name;
  Member self;
  bool mute;
  std::function<Note(Member to, Progress at, std::uint32_t lie)> lie;
};

Note about(Progress at, std::size_t attempt, reduce::What what) {
  return {.at = at, .attempt = static_cast<Attempt>(attempt), .what = std::move(what)};
}

reduce::Commit commit_of_all(std::uint32_t lie, Member holder) {
  return {
      .members = {0, 1, 2, 3, 4}, .sha256 = digest_of(lie), .support = kOfLiar, .holder = holder};
}

std::vector<Liar> liars(Member self) {
  return {
      {"commits of means that nobody has", self, false,
       [self](Member, Progress at, std::uint32_t lie) {
         return about(at, 1 + lie % 40, commit_of_all(lie, self));
       }},
      {"the same, and its machine is mute", self, true,
       [self](Member to, Progress at, std::uint32_t lie) {
         const Member holder = lie % 2 == 0 ? self : (to + 1) % kOfLiar;
         return about(at, 1 + lie % 40, commit_of_all(lie, holder));
       }},
      {"asks of the next attempts", self, false,
       [](Member, Progress at, std::uint32_t lie) { return about(at, 1 + lie, reduce::Ask{}); }},
      {"asks of attempts of its own that it does not gather", self, true,
       [self](Member, Progress at, std::uint32_t lie) {
         return about(at, 1 + self + lie % 8 * kOfLiar, reduce::Ask{});
       }},
      {"asks of very high attempts", self, false,
       [](Member, Progress at, std::uint32_t lie) {
         return about(at, (1U << 30) + lie, reduce::Ask{});
       }},
      {"registrations of high attempts", self, false,
       [](Member to, Progress at, std::uint32_t lie) {
         return about(at, 1 + to + lie % 50 * kOfLiar, reduce::Register{});
       }},
      {"heartbeats without a list", self, true,
       [](Member, Progress at, std::uint32_t) { return about(at, 0, reduce::Wait{}); }},
      {"blame of all others in turn, and no pieces", self, true,
       [](Member to, Progress at, std::uint32_t lie) {
         return about(at, 1 + to + lie / 50 % 8 * kOfLiar,
                      reduce::Register{.blame = Blame{static_cast<Member>(lie % kOfLiar)}});
       }},
      {"that it is done, again and again", self, true,
       [](Member to, Progress at, std::uint32_t lie) {
         return lie % 2 == 0 ? about(at, 1 + to, reduce::Register{})
                             : about(at, 1 + to + lie / 50 % 8 * kOfLiar, reduce::Done{});
       }},
  };
}

// Seconds from exchange to exchange.
struct Pace {
  double mean = 0;
  double most = 0;
};

Pace pace_of(const ReduceNetwork& network) {
  Pace pace;
  const std::vector<double> all = network.exchange_seconds();
  for (const double seconds : all) {
    pace.mean += seconds / static_cast<double>(all.size());
    pace.most = std::max(pace.most, seconds);
  }
  return pace;
}

World liars_world(std::uint64_t seed) {
  World world{.seed = seed, .members = kOfLiar, .floats = 13, .exchanges = 60};
  world.spread = 0.2;
  world.options.stragglers = {.initial = std::chrono::seconds(2), .min = std::chrono::seconds(2)};
  return world;
}

bool is_named(const ReduceNetwork& network, Member member, std::string_view why) {
  const std::string name = testing::member_names(kOfLiar)[member];
  return std::ranges::any_of(network.said(), [&](const std::string& line) {
    return line.find(name, 3) != std::string::npos && line.find(why) != std::string::npos;
  });
}

// Learned deadlines are 2 and 3 s here. An exchange of the others takes a few of them at the
// most, and one of them on average, however long it goes on.
TEST(AllReduceHostile, OneLiarHoldsNobodyUpForLong) {
  for (const Member self : {0U, 2U}) {
    for (const Liar& liar : liars(self)) {
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        SCOPED_TRACE(::testing::Message() << liar.name << ", member " << self << ", seed " << seed);
        ReduceNetwork network(liars_world(seed));
        std::uint32_t lie = 0;
        std::function<void()> go_on = [&] {
          if (liar.mute) network.mute(self);
          for (Member m = 0; m < kOfLiar; ++m) {
            if (m != self) network.tell(self, m, liar.lie(m, network.place(m), lie));
          }
          ++lie;
          network.after(0.02, go_on);
        };
        network.after(2, go_on);
        network.do_not_await(self);
        EXPECT_EQ(network.run(), "");
        EXPECT_GT(network.exchange_seconds().size(), 50U);
        EXPECT_LT(pace_of(network).mean, 4);
        EXPECT_LT(pace_of(network).most, 40);
      }
    }
  }
}

template <class What>
bool says(const Note& note) {
  return std::holds_alternative<What>(note.what);
}

// What a liar makes of the notes of its own machine; false: it does not send it.
struct Forger {
  const char* name;
  const char* named_for;
  bool claims;  // in each attempt that it holds a mean of a majority
  std::function<bool(Note&, std::uint32_t lie)> forge;
};

std::vector<Forger> forgers() {
  return {
      {"a mean of a majority in each attempt, which it never sends", "sent it to no member", true,
       [](Note&, std::uint32_t) { return false; }},
      {"the same, and it says that it does not have it", "sent it to no member", true,
       [](Note& note, std::uint32_t) { return says<reduce::NotYet>(note); }},
      {"that it is done with a mean that nobody holds", "another mean", false,
       [](Note& note, std::uint32_t lie) {
         if (says<reduce::Done>(note)) note.what = reduce::Done{digest_of(lie)};
         return true;
       }},
      {"never that it is done", "", false,
       [](Note& note, std::uint32_t) { return !says<reduce::Done>(note); }},
  };
}

// Where a majority is left without it, and where it is one of two that are left of five.
TEST(AllReduceHostile, WhoClaimsMeansHoldsNobodyUpForLong) {
  for (const bool are_few : {false, true}) {
    for (const Member self : {0U, 2U}) {
      for (const Forger& forger : forgers()) {
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          SCOPED_TRACE(::testing::Message() << forger.name << ", member " << self << ", seed "
                                            << seed << (are_few ? ", few" : ""));
          World world = liars_world(seed);
          if (are_few) world.exchanges = 12;
          ReduceNetwork network(world);
          std::uint32_t lie = 0;
          std::map<Member, Note> registered;  // with whom, last
          network.forge = [&](Member from, Member to, Note& note) {
            if (from != self && says<reduce::Register>(note)) registered[to] = note;
            return from != self || forger.forge(note, ++lie);
          };
          std::function<void()> claim = [&] {
            for (auto& [to, note] : registered) {
              note.what = reduce::Register{
                  .held = NamedMean{note.attempt, {0, 1, 2, 3, 4}, digest_of(++lie)}};
              if (to != self) network.tell(self, to, note);
            }
            network.after(0.02, claim);
          };
          if (forger.claims) network.after(0.5, claim);
          if (are_few) {
            for (const Member m : {1U, 3U, 4U})
              network.after(1, [&network, m] { network.kill(m); });
          }
          network.do_not_await(self);
          ASSERT_EQ(network.run(), "") << network.trace();
          EXPECT_EQ(network.wrong_results(), "");
          if (are_few) {
            EXPECT_EQ(network.finished(self == 0 ? 2 : 0).size(), 12U);
          } else {
            EXPECT_EQ(network.disagreement(), "") << network.trace();
            EXPECT_LT(pace_of(network).mean, 12);
            EXPECT_LT(pace_of(network).most, 40);
          }
          const std::string_view why = forger.named_for;
          if (why.empty() || are_few || self == 0) continue;  // as a gatherer it says none of it
          EXPECT_TRUE(is_named(network, self, why))
              << fmt::format("{}", fmt::join(network.said(), "\n"));
        }
      }
    }
  }
}

// Of one that gives no model each lie costs the wait for one, and is believed ever less often.
TEST(AllReduceHostile, WhoLeadsOthersAwayIsBelievedLessAndLess) {
  for (const Member self : {0U, 2U}) {
    for (const Exchange further : {1U, 2U}) {
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(::testing::Message() << "member " << self << ", seed " << seed);
        World world = liars_world(seed);
        world.copy_seconds = 18;
        ReduceNetwork network(world);
        network.give_no_model(self);
        std::function<void()> go_on = [&] {
          for (Member m = 0; m < kOfLiar; ++m) {
            const Progress at = network.place(m);
            const Progress claimed = testing::at(at.exchange + further);
            if (m != self) network.tell(self, m, about(claimed, 0, reduce::Ahead{{self}}));
          }
          network.after(0.02, go_on);
        };
        network.after(2, go_on);
        network.do_not_await(self);
        ASSERT_EQ(network.run(), "") << network.trace();
        EXPECT_LT(pace_of(network).mean, 4);
        EXPECT_LT(pace_of(network).most, 75);
      }
    }
  }
}

// As all that a link held back, when it comes at last.
TEST(AllReduceHostile, WhoAsksAboutExchangesLongPastHoldsNobodyUp) {
  constexpr Member kSelf = 4;
  World world = liars_world(1);
  world.exchanges = 60;
  ReduceNetwork network(world);
  network.forge = [&](Member from, Member, Note&) {
    return from != kSelf || network.place(0).exchange < 20;
  };
  network.do_not_await(kSelf);
  std::function<void()> go_on = [&] {
    for (Member m = 0; m < kSelf && network.place(m).exchange > 20; ++m) {
      network.tell(kSelf, m, about(testing::at(0), 0, reduce::AskProgress{}));
    }
    network.after(0.02, go_on);
  };
  network.after(0.02, go_on);
  ASSERT_EQ(network.run(), "");
  EXPECT_LT(pace_of(network).mean, 0.5);
}

// What a member withholds in each exchange, for as long as the run goes on.
struct Withholder {
  const char* name;
  bool pieces;
  bool is_named;  // where it does not gather
  std::function<bool(Note&)> sends;
  double late = 0;  // seconds: what is not sent comes then
};

std::vector<Withholder> withholders() {
  const auto all = [](Note&) { return true; };
  return {
      {"nothing", false, false, all},
      {"pieces", true, true, all},
      {"that it is done", false, true, [](Note& note) { return !says<reduce::Done>(note); }},
      {"registrations, and is there all the same", false, true,
       [](Note& note) {
         if (says<reduce::Register>(note)) note = about(note.at, 0, reduce::Wait{});
         return true;
       }},
      {"lists", false, false,
       [](Note& note) { return !says<reduce::List>(note) && !says<reduce::Standing>(note); }},
      {"that it is done, for 2 s", false, true,
       [](Note& note) { return !says<reduce::Done>(note); }, 2},
      {"commits", false, false, [](Note& note) { return !says<reduce::Commit>(note); }},
  };
}

// It holds them up for its budget, and for a tenth of the time afterwards.
TEST(AllReduceHostile, WhoHoldsOthersUpInEachExchangeIsSeldomWaitedFor) {
  constexpr double kBudget = 30;
  for (const Member self : {0U, 2U}) {
    std::map<std::uint64_t, double> undisturbed;  // by seed, seconds for half of the exchanges
    for (const Withholder& of : withholders()) {
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        SCOPED_TRACE(::testing::Message() << of.name << ", member " << self << ", seed " << seed);
        World world = liars_world(seed);
        world.exchanges = 600;
        world.seconds_max = 3000;
        ReduceNetwork network(world);
        network.forge = [&](Member from, Member to, Note& note) {
          if (from != self || of.sends(note)) return true;
          if (of.late > 0) network.after(of.late, [&, to, note] { network.tell(self, to, note); });
          return false;
        };
        if (of.pieces) network.give_no_pieces(self);
        network.do_not_await(self);
        ASSERT_EQ(network.run(), "");
        EXPECT_EQ(network.disagreement(self), "");
        const auto seconds = network.exchange_seconds();
        const auto half = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
        const double first = std::accumulate(seconds.begin(), half, 0.0);
        const double second = std::accumulate(half, seconds.end(), 0.0);
        const double usual = undisturbed.try_emplace(seed, second).first->second;
        EXPECT_LT(first, 1.1 * usual + 2 * kBudget);
        EXPECT_LT(second, 1.25 * usual);
        for (Member m = 0; m < kOfLiar; ++m) {
          EXPECT_FALSE(m != self && is_named(network, m, "has held up the others")) << m;
        }
        if (self == 0) continue;  // it gathers at first, and is left for another soon
        EXPECT_EQ(is_named(network, self, "has held up the others"), of.is_named);
      }
    }
  }
}

// It is mute but for one registration, after the first list of each exchange: with a mean that it
// does not have. A complaint with it hides nothing.
TEST(AllReduceHostile, WhoClaimsAMeanAfterTheFirstListHoldsNobodyUp) {
  constexpr Member kSelf = 4;
  for (const bool complains : {false, true}) {
    World world = liars_world(1);
    world.exchanges = 120;
    world.seconds_max = 3000;
    ReduceNetwork network(world);
    network.do_not_await(kSelf);
    network.give_no_pieces(kSelf);
    std::map<Exchange, NamedMean> claims;
    const auto claim = [&](Member gatherer, const Note& note, Attempt attempt) {
      reduce::Register its{.held = claims.at(note.at.exchange)};
      if (complains) its.blame = protocol::Blame{1, 1, true};
      network.tell(kSelf, gatherer, about(note.at, attempt, its));
    };
    network.forge = [&](Member from, Member to, Note& note) {
      if (from == kSelf) return false;
      const auto* const list = std::get_if<reduce::List>(&note.what);
      const Exchange exchange = note.at.exchange;
      const bool is_without = list != nullptr && std::ranges::count(list->members, kSelf) == 0;
      if (is_without && exchange > 3 && !claims.contains(exchange)) {
        claims[exchange] = {note.attempt, {0, 1, 2, 3, 4}, digest_of(exchange)};
        claim(from, note, note.attempt + kOfLiar);
      }
      if (says<reduce::Ask>(note) && to == kSelf && claims.contains(exchange)) {
        claim(from, note, note.attempt);
      }
      return true;
    };
    ASSERT_EQ(network.run(), "") << network.trace();
    EXPECT_EQ(network.disagreement(kSelf), "");
    const auto seconds = network.exchange_seconds();
    const auto half = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    EXPECT_LT(std::accumulate(seconds.begin(), half, 0.0) / 60, 0.5) << complains;
    EXPECT_LT(std::accumulate(half, seconds.end(), 0.0) / 60, 0.5) << complains;
  }
}

// What it keeps back when a list comes, before it registers again.
struct Leaver {
  bool pieces;  // or that it is done
  bool fresh;   // as if it had been started again
  double after;
  std::optional<Member> blames = {};  // 2: itself; 3: dead, in no list; 1: a listed one
  bool wrong = false;                 // and complains of its numbers
  bool twice = false;                 // and registers once more, without the blame
  bool done = false;                  // it says first that it is done
};

TEST(AllReduceHostile, WhoLeavesAttemptsAgainAndAgainIsSeldomWaitedFor) {
  for (const Leaver& its : {Leaver{false, false, 2.1},
                            {true, false, 1.4},
                            {false, true, 0.05},
                            {false, true, 2.1},
                            {true, true, 1.4},
                            {true, false, 1.4, 2},
                            {false, true, 0.05, 2},
                            {true, false, 1.4, 3},
                            {false, true, 0.05, 3},
                            {true, false, 1.4, 1, false, true},
                            {true, false, 1.4, 1, true},
                            {true, false, 1.4, 1, true, true},
                            {.pieces = true, .fresh = false, .after = 1.4, .done = true},
                            {.pieces = true, .fresh = true, .after = 0.05, .done = true}}) {
    for (const Member self : {2U, 4U}) {
      SCOPED_TRACE(::testing::Message()
                   << its.pieces << its.fresh << its.after << ", " << its.blames.value_or(9)
                   << its.wrong << its.twice << its.done << ", " << self);
      World world = liars_world(1);
      world.exchanges = 120;
      world.seconds_max = 3000;
      ReduceNetwork network(world);
      network.do_not_await(self);
      if (its.blames == 3) network.kill(3);
      std::map<Exchange, std::set<Attempt>> left;
      network.forge = [&](Member from, Member to, Note& note) {
        const Exchange exchange = note.at.exchange;
        std::set<Attempt>& attempts = left[exchange];
        if (from == self) return !(says<reduce::Done>(note) && attempts.contains(note.attempt));
        const bool is_list = says<reduce::List>(note) || says<reduce::Standing>(note);
        if (to != self || !is_list || exchange == 0) return true;
        const bool leaves = its.fresh || attempts.size() < 4;
        if (its.pieces) network.delay_pieces(self, leaves ? 1e6 : 0);
        if (!leaves || !attempts.insert(note.attempt).second) return true;
        network.after(its.after, [&, from, note] {
          reduce::Register again{.fresh = its.fresh};
          if (its.blames) {
            again.blame = protocol::Blame{.member = *its.blames == 2 ? self : *its.blames,
                                          .wrong = its.wrong};
          }
          const auto next = static_cast<Attempt>(note.attempt + (its.fresh ? 0 : kOfLiar));
          if (its.done) {
            network.tell(self, from, about(note.at, note.attempt, reduce::Done{digest_of(7)}));
          }
          network.tell(self, from, about(note.at, next, again));
          if (its.twice) network.tell(self, from, about(note.at, next, reduce::Register{}));
        });
        return true;
      };
      ASSERT_EQ(network.run(), "") << network.trace();
      EXPECT_EQ(network.disagreement(self), "");
      const auto seconds = network.exchange_seconds();
      const auto half = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
      EXPECT_LT(std::accumulate(half, seconds.end(), 0.0) / 60, 1.2);
      for (Member m = 0; m < kOfLiar; ++m) {
        const bool is_accused = its.blames == m;  // of one wait the one that was waited for
        if (m != self && !is_accused) {
          EXPECT_FALSE(is_named(network, m, "has held up the others")) << m;
        }
      }
      EXPECT_TRUE(is_named(network, self, "has held up the others") ||
                  is_named(network, self, "leaves one attempt after the other"));
    }
  }
}

// It asks others to leave the attempts in which they are waited for: those of its gatherer, when it
// has a list, for its own one and perhaps back, or before they have begun.
TEST(AllReduceHostile, WhoHasOthersLeaveIsSeldomWaitedFor) {
  enum class Asks { kAway, kAwayAndBack, kBeforeTheyBegin, kItsGatherer };
  for (const Asks asks :
       {Asks::kAway, Asks::kAwayAndBack, Asks::kBeforeTheyBegin, Asks::kItsGatherer}) {
    SCOPED_TRACE(static_cast<int>(asks));
    static constexpr Member kSelf = 2;
    World world = liars_world(1);
    world.exchanges = 300;
    world.seconds_max = 3000;
    ReduceNetwork network(world);
    network.do_not_await(kSelf);
    const auto own_after = [](Attempt attempt) {
      return static_cast<Attempt>(attempt + 1 + (kSelf + kOfLiar - attempt % kOfLiar) % kOfLiar);
    };
    std::map<Exchange, std::set<Attempt>> lied;
    network.forge = [&](Member from, Member to, Note& note) {
      std::set<Attempt>& attempts = lied[note.at.exchange];
      if (to == kSelf && says<reduce::Register>(note)) return false;  // it gathers nothing
      const auto* const list = std::get_if<reduce::List>(&note.what);
      const bool lies = asks != Asks::kBeforeTheyBegin && attempts.size() < 3;
      if (from == kSelf || to != kSelf || list == nullptr || note.at.exchange == 0) return true;
      const bool withholds = asks == Asks::kAwayAndBack || asks == Asks::kItsGatherer;
      if (withholds) network.delay_pieces(kSelf, lies ? 1e6 : 0);
      if (!lies || !attempts.insert(note.attempt).second) return true;
      Members others = list->members;
      std::erase_if(others, [&](Member m) { return m == kSelf || m == from; });
      if (others.empty()) return true;
      const Member victim = asks == Asks::kItsGatherer ? from : others.back();
      const double after = asks == Asks::kAway ? 0.001 : 1.3;
      const auto ask_after = [&](double seconds, Attempt attempt) {
        network.after(seconds, [&network, victim, at = note.at, attempt] {
          network.tell(kSelf, victim, about(at, attempt, reduce::Ask{}));
        });
      };
      ask_after(after, own_after(note.attempt));
      if (asks == Asks::kAwayAndBack) ask_after(after + 0.01, note.attempt + kOfLiar);
      return true;
    };
    std::function<void()> ask_ahead = [&] {
      for (const Member victim : {1U, 3U}) {
        if (network.machine(victim).busy()) continue;
        network.tell(kSelf, victim, about(network.place(victim), kSelf + 1, reduce::Ask{}));
      }
      network.after(0.02, ask_ahead);
    };
    if (asks == Asks::kBeforeTheyBegin) network.after(3, ask_ahead);
    ASSERT_EQ(network.run(), "");
    EXPECT_EQ(network.disagreement(kSelf), "");
    const auto seconds = network.exchange_seconds();
    EXPECT_LT(std::accumulate(seconds.end() - 100, seconds.end(), 0.0) / 100, 0.7);
    for (Member m = 0; m < kOfLiar; ++m) {
      if (m == kSelf) continue;
      EXPECT_FALSE(is_named(network, m, "has held up the others")) << m;
    }
  }
}

// All others are done when the last piece of one member comes to another. That one waited for it,
// and is not charged for being the last.
TEST(AllReduceHostile, WhoWithholdsItsLastPieceIsChargedAndNotTheMemberThatWaitsForIt) {
  constexpr std::uint64_t kLastOfRing = place_of(Phase::kGather, kOfLiar - 2);
  for (const std::size_t floats : {13U, 60'000U}) {  // a tree, a ring
    const bool is_ring = floats > 1000;
    const Member self = 2;    // sends the mean to member 3, and in a ring its last segment
    const Member victim = 3;  // sends the mean to nobody
    SCOPED_TRACE(::testing::Message() << floats << " floats");
    World world = liars_world(1);
    world.floats = floats;
    world.exchanges = 60;
    ReduceNetwork network(world);
    network.delay_pieces(self, 2, is_ring ? kLastOfRing : place_of(Phase::kDown, 0));
    ASSERT_EQ(network.run(), "") << network.trace();
    EXPECT_EQ(network.disagreement(), "");
    EXPECT_FALSE(is_named(network, victim, "has held up the others"));
    EXPECT_TRUE(is_named(network, self, "has held up the others"));
    const auto seconds = network.exchange_seconds();
    const auto half = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    EXPECT_LT(std::accumulate(half, seconds.end(), 0.0) / 30, 0.6);
    std::size_t with_victim = 0;
    for (const Finished& result : network.finished(4)) {
      with_victim += std::ranges::binary_search(result.members, victim) ? 1 : 0;
    }
    EXPECT_EQ(with_victim, world.exchanges);
  }
}

// A complaint in the registration that follows does not hide that all waited for it.
TEST(AllReduceHostile, WhoComplainsAfterItHeldOthersUpIsSeldomWaitedFor) {
  std::map<bool, double> seconds;
  for (const bool complains : {false, true}) {
    constexpr Member kSelf = 2;
    World world = liars_world(1);
    world.exchanges = 100;
    ReduceNetwork network(world);
    network.do_not_await(kSelf);
    std::set<Exchange> listed;
    network.forge = [&](Member from, Member to, Note& note) {
      const bool is_list = says<reduce::List>(note) || says<reduce::Standing>(note);
      if (from != kSelf && to == kSelf && is_list) listed.insert(note.at.exchange);
      if (from != kSelf) return true;
      auto* const its = std::get_if<reduce::Register>(&note.what);
      const bool is_again = its != nullptr && listed.contains(note.at.exchange);
      if (is_again && complains) its->blame = protocol::Blame{3, 1, true};
      return !says<reduce::Done>(note);
    };
    ASSERT_EQ(network.run(), "") << network.trace();
    EXPECT_TRUE(is_named(network, kSelf, "has held up the others"));
    const auto each = network.exchange_seconds();
    seconds[complains] = std::accumulate(each.begin(), each.end(), 0.0);
  }
  EXPECT_LT(seconds[true], 1.2 * seconds[false]);
}

// The gatherer is still training when the only two that registered leave each other nothing.
TEST(AllReduceHostile, WhoLeavesAGathererWithNobodyDoesNotMakeItSpin) {
  constexpr Member kSelf = 2;
  World world = liars_world(1);
  world.members = 3;
  world.exchanges = 6;
  ReduceNetwork network(world);
  for (Exchange e = 1; e < 6; ++e) network.delay_begin(0, e, 30);
  network.give_no_pieces(kSelf);
  network.do_not_await(kSelf);
  std::uint64_t lie = 0;
  network.forge = [&](Member from, Member, Note& note) {
    auto* const its = std::get_if<reduce::Register>(&note.what);
    if (from != kSelf || its == nullptr || note.at.exchange == 0) return true;
    *its = {.held = NamedMean{note.attempt, {0, 1, 2}, digest_of(++lie)}};
    return true;
  };
  EXPECT_EQ(network.run(), "");
}

// Below all deadlines, in each exchange: it is waited for, like one that is slow, and is named.
TEST(AllReduceHostile, WhoIsLateBelowTheDeadlinesIsNamed) {
  enum class Late { kNothing, kBeginning, kPieces, kDone, kLists, kCommits };
  using enum Late;
  constexpr double kLate = 1.5;
  for (const auto& [late, self] : {std::pair(kNothing, 0U),
                                   {kBeginning, 0U},
                                   {kBeginning, 2U},
                                   {kPieces, 0U},
                                   {kPieces, 2U},
                                   {kDone, 2U},
                                   {kLists, 0U},
                                   {kCommits, 0U}}) {
    SCOPED_TRACE(::testing::Message() << static_cast<int>(late) << ", member " << self);
    World world = liars_world(1);
    world.exchanges = 20;
    ReduceNetwork network(world);
    if (late == kPieces) network.delay_pieces(self, kLate);
    for (Exchange e = 1; e < world.exchanges; ++e) {
      if (late == kBeginning) network.delay_begin(self, e, kLate);
    }
    network.forge = [&](Member from, Member to, Note& note) {
      // Nobody has waited for so long.
      auto* const done = std::get_if<reduce::Done>(&note.what);
      if (done != nullptr && from == self) done->waited = {4, 1, 4'000'000'000};
      const bool is_late = from == self && ((late == kLists && says<reduce::List>(note)) ||
                                            (late == kDone && done != nullptr) ||
                                            (late == kCommits && says<reduce::Commit>(note)));
      if (is_late) network.after(kLate, [&, from, to, note] { network.tell(from, to, note); });
      return !is_late;
    };
    ASSERT_EQ(network.run(), "") << network.trace();
    EXPECT_EQ(network.disagreement(), "");
    std::string lines;  // of the others
    for (const std::string& line : network.said()) {
      if (!line.starts_with(std::to_string(self))) lines += line + "\n";
    }
    for (Member m = 0; m < kOfLiar; ++m) {
      const std::string name = testing::member_names(kOfLiar)[m];
      const auto is_said = [&](const std::string& words) {
        return lines.find(words) != std::string::npos;
      };
      const bool is_late = late != kNothing && m == self;
      const bool is_late_gatherer = is_late && self == 0 && late != kPieces;
      EXPECT_EQ(is_said(name + " was ready 1."), is_late && late == kBeginning && self != 0)
          << lines;
      EXPECT_EQ(is_said(name + " was done 1."), is_late && late == kDone) << lines;
      if (self != 0) {
        EXPECT_EQ(is_said("for numbers of " + name), is_late && late == kPieces) << lines;
      }
      if (late == kNothing || m != 0) {
        EXPECT_FALSE(is_said(name + " gathers it")) << lines;
      }
      if (is_late_gatherer) {
        EXPECT_TRUE(is_said(name + " gathers it")) << lines;
      }
    }
  }
}

TEST(AllReduceHostile, AGathererThatKeepsTheEndFromOthersIsNamed) {
  World world = liars_world(1);
  world.exchanges = 20;
  ReduceNetwork network(world);
  network.forge = [](Member from, Member, Note& note) {
    return from != 0 || note.at.exchange == 0 || !says<reduce::Commit>(note);
  };
  network.do_not_await(0);
  ASSERT_EQ(network.run(), "") << network.trace();
  for (Member m = 0; m < kOfLiar; ++m) {
    EXPECT_EQ(is_named(network, m, "does not say that it has ended"), m == 0) << m;
  }
}

// They stay with their gatherer as long as its list is not late.
TEST(AllReduceHostile, WhoAsksOthersToItselfBeforeTheyBeginDelaysNobody) {
  for (const Member self : {2U, 4U}) {
    for (const bool in_run : {false, true}) {
      SCOPED_TRACE(::testing::Message() << self << (in_run ? " in a reduction" : " before"));
      ReduceNetwork network(liars_world(1));
      network.do_not_await(self);
      network.forge = [self](Member, Member to, Note& note) {
        const bool is_its_own = note.attempt % kOfLiar == (self + 1) % kOfLiar;
        return to != self || !says<reduce::Register>(note) || !is_its_own;
      };
      std::function<void()> lie = [&] {
        for (Member m = 0; m < kOfLiar; ++m) {
          if (m == self || m == 0) continue;
          const auto at = network.place(m);
          if (network.machine(m).busy()) network.tell(self, m, about(at, 0, reduce::Wait{}));
          if (network.machine(m).busy() == in_run) {
            network.tell(self, m, about(at, 1 + self + (in_run ? kOfLiar : 0), reduce::Ask{}));
          }
        }
        network.after(0.02, lie);
      };
      network.after(3, lie);
      ASSERT_EQ(network.run(), "") << network.trace();
      EXPECT_EQ(network.disagreement(self), "");
      EXPECT_LT(pace_of(network).most, 2);
      for (Member m = 0; m < kOfLiar; ++m) {
        EXPECT_FALSE(is_named(network, m, "has held up the others")) << m;
      }
    }
  }
}

// The exchange goes on without it at once, and after a few it is not listed any more.
TEST(AllReduceHostile, WhoSendsWrongNumbersIsLeftOut) {
  for (const bool spoils : {false, true}) {
    for (const Member self : {0U, 2U}) {
      for (const std::size_t floats : {13U, 60'000U}) {  // a tree, a ring
        SCOPED_TRACE(::testing::Message() << "member " << self << ", " << floats << " floats");
        World world = liars_world(1);
        world.floats = floats;
        world.exchanges = floats > 1000 ? 30 : 200;
        world.distance_max = 1e9;
        ReduceNetwork network(world);
        if (spoils) network.spoil_numbers(self, 1e30F);
        network.do_not_await(self);
        ASSERT_EQ(network.run(), "") << network.trace();
        EXPECT_EQ(network.wrong_results(), "");
        EXPECT_EQ(network.disagreement(self), "");
        EXPECT_LT(pace_of(network).mean, 0.5);
        EXPECT_LT(pace_of(network).most, 2);
        for (Member m = 0; m < kOfLiar; ++m) {
          EXPECT_EQ(is_named(network, m, "sent numbers"), spoils && m == self) << m;
          EXPECT_FALSE(m != self && is_named(network, m, "has held up the others")) << m;
        }
        EXPECT_EQ(is_named(network, self, "sends wrong numbers again and again"), spoils);
      }
    }
  }
}

// To one member alone, whose word stands against its own: both are left out in turn, so the liar
// loses as much.
TEST(AllReduceHostile, WhoSendsWrongNumbersToOneIsLeftOutAsOftenAsThatOne) {
  for (const std::size_t floats : {13U, 60'000U}) {  // a tree, a ring
    for (const auto& [self, victim] : {std::pair{2U, 3U}, {1U, 2U}, {0U, 2U}, {3U, 2U}}) {
      SCOPED_TRACE(::testing::Message() << self << " to " << victim << ", " << floats);
      World world = liars_world(1);
      world.floats = floats;
      world.exchanges = floats > 1000 ? 30 : 100;
      world.distance_max = 1e9;
      ReduceNetwork network(world);
      network.spoil_numbers(self, 1e30F, victim);
      ASSERT_EQ(network.run(), "") << network.trace();
      EXPECT_EQ(network.disagreement(), "");
      EXPECT_LT(pace_of(network).mean, 0.5);
      std::map<Member, std::size_t> in;
      for (const Finished& result : network.finished(4)) {
        for (const Member m : result.members) ++in[m];
      }
      EXPECT_GE(in[victim], 4 * world.exchanges / 10);
      EXPECT_GE(in[victim] + world.exchanges / 10, in[self]);
      EXPECT_FALSE(is_named(network, victim, "sends wrong numbers again and again"));
    }
  }
}

// Blames a member that is in no list, or none at all, so that nobody looks at what others say of
// it.
TEST(AllReduceHostile, WhoBlamesThoseThatAreNotThereHidesNothing) {
  for (const Member blamed : {1000U, 3U}) {
    for (const bool wrong : {false, true}) {
      for (Member self = 1; self < kOfLiar; ++self) {
        SCOPED_TRACE(::testing::Message() << "member " << self << " blames " << blamed);
        World world = liars_world(1);
        world.seconds_max = 3000;
        ReduceNetwork network(world);
        network.give_no_pieces(self);
        network.forge = [&](Member from, Member, protocol::ReduceNote& note) {
          auto* const its = std::get_if<reduce::Register>(&note.what);
          if (from == self && its != nullptr) {
            its->lost.clear();
            its->blame = protocol::Blame{blamed, 1, wrong};
          }
          return true;
        };
        network.do_not_await(self);
        ASSERT_EQ(network.run(), "");
        EXPECT_EQ(network.disagreement(self), "");
        EXPECT_LT(pace_of(network).most, 40);
      }
    }
  }
}

// In every other exchange only, of the same member or of each in turn.
TEST(AllReduceHostile, WhoSaysNowAndThenThatOthersSendWrongNumbersLosesAsMuch) {
  for (const Member self : {1U, 2U}) {
    for (const bool of_one : {true, false}) {
      for (const Exchange odd : {0U, 1U}) {
        SCOPED_TRACE(::testing::Message() << "member " << self << ", of one " << of_one << odd);
        World world = liars_world(1);
        world.exchanges = 200;
        world.distance_max = 1e9;
        ReduceNetwork network(world);
        std::set<Exchange> lied;
        network.forge = [&](Member from, Member, Note& note) {
          auto* const its = std::get_if<reduce::Register>(&note.what);
          const Exchange exchange = note.at.exchange;
          if (from != self || its == nullptr || exchange % 2 != odd) return true;
          const Member victim = of_one ? 3 : static_cast<Member>(exchange / 2 % kOfLiar);
          its->blame.reset();
          if (lied.insert(exchange).second) its->blame = protocol::Blame{victim, 1, true};
          return true;
        };
        ASSERT_EQ(network.run(), "") << network.trace();
        std::map<Member, std::size_t> in;
        for (const Finished& result : network.finished(4)) {
          for (const Member m : result.members) ++in[m];
        }
        for (Member m = 0; m < kOfLiar; ++m) EXPECT_GE(in[m] + 5, in[self]) << m;
        EXPECT_EQ(is_named(network, self, "sends wrong numbers again and again"), !of_one);
      }
    }
  }
}

// That others send wrong numbers: it is itself left out.
TEST(AllReduceHostile, WhoSaysThatOthersSendWrongNumbersHarmsNobody) {
  for (const Member self : {0U, 2U}) {
    for (const bool of_one : {true, false}) {
      SCOPED_TRACE(::testing::Message() << "member " << self << (of_one ? ", of one" : ", of all"));
      World world = liars_world(1);
      world.exchanges = 200;
      world.distance_max = 1e9;
      ReduceNetwork network(world);
      std::uint32_t lie = 0;
      network.forge = [&](Member from, Member, protocol::ReduceNote& note) {
        auto* const its = std::get_if<reduce::Register>(&note.what);
        if (from == self && its != nullptr) {
          its->held.reset();
          its->blame = protocol::Blame{of_one ? 3U : static_cast<Member>(++lie % kOfLiar), 1, true};
        }
        return true;
      };
      network.do_not_await(self);
      ASSERT_EQ(network.run(), "") << network.trace();
      EXPECT_EQ(network.disagreement(self), "");
      EXPECT_LT(pace_of(network).mean, 2);
      for (Member m = 0; m < kOfLiar; ++m) {
        EXPECT_FALSE(m != self && is_named(network, m, "has held up the others")) << m;
        EXPECT_FALSE(is_named(network, m, "sent numbers"));
      }
    }
  }
}

// It is late by a little less than what the others have learned to wait, and from time to time not
// at all, of which they learn the longest deadlines.
TEST(AllReduceHostile, WhoIsLateEachTimeDoesNotStretchTheDeadline) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    World world = liars_world(seed);
    ReduceNetwork network(world);
    ArrivalDeadline learned(world.options.stragglers);
    for (Exchange e = 0; e < world.exchanges; ++e) {
      const Duration late = e % 2 == 0 ? Duration{} : 9 * learned.duration() / 10;
      learned.learn(late);
      network.delay_begin(2, e, to_seconds(late));
    }
    ASSERT_GT(learned.duration(), std::chrono::seconds(30));
    network.do_not_await(2);
    ASSERT_EQ(network.run(), "") << network.trace();
    EXPECT_LT(pace_of(network).most, 5);
  }
}

// Who always takes three times as long as the others is waited for all the same.
TEST(AllReduceHostile, WhoIsSlowTakesPart) {
  World world = liars_world(1);
  world.exchanges = 20;
  world.spread = 1;
  world.options.stragglers.initial = std::chrono::seconds(60);  // it takes part in the first one
  ReduceNetwork network(world);
  for (Exchange e = 0; e < world.exchanges; ++e) {
    for (Member m = 0; m < kOfLiar; ++m) network.delay_begin(m, e, m == 2 ? 24 : 8);
  }
  ASSERT_EQ(network.run(), "") << network.trace();
  std::size_t with_it = 0;
  for (const Finished& result : network.finished(0)) with_it += result.members.size() == 5 ? 1 : 0;
  EXPECT_GT(with_it, 15U);
}

// It is heard, and takes part in nothing: those who are left with it are no majority, and go on.
TEST(AllReduceHostile, WhoOnlyTalksDoesNotHoldAMinorityUp) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    World world{.seed = seed, .members = kOfLiar, .floats = 13, .exchanges = 30};
    world.options.stragglers.min = std::chrono::seconds(2);
    ReduceNetwork network(world);
    for (const Member m : {3U, 4U}) network.after(1, [&network, m] { network.kill(m); });
    std::function<void()> talk = [&] {
      network.mute(2);
      for (const Member m : {0U, 1U}) {
        network.tell(2, m, about(network.place(m), 1, reduce::NotYet{}));
      }
      network.after(0.02, talk);
    };
    network.after(1, talk);
    network.do_not_await(2);
    ASSERT_EQ(network.run(), "") << "seed " << seed;
    EXPECT_EQ(network.finished(0).back().members, (std::vector<Member>{0, 1}));
  }
}

}  // namespace
}  // namespace starling::collective
