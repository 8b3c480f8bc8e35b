// SPDX-License-Identifier: Apache-2.0
// What a device does while its coordinator is gone: after the stated time it trains on by gossip
// from the model that it holds, and when the coordinator is back it merges what came of that as one
// contribution. It owns no socket, clock, thread or randomness: events come in with the time,
// actions go out for the device (or the simulator) to perform in order.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/shared_bytes.h"
#include "core/update/contribution.h"
#include "gossip/fallback/fallback_pace.h"
#include "gossip/fallback/fallback_terms.h"
#include "gossip/fallback/kept_fallback.h"

namespace starling::gossip {

namespace fallback {

// --- events -------------------------------------------------------------------------------------
struct CoordinatorConnected {};  // the coordinator welcomed this device
struct CoordinatorLost {};       // no link to it any more
struct TermsChanged {  // the terms of the roster in force; none: there is none for this device
  std::optional<FallbackTerms> terms;
};
struct TaskOffered {  // a round wants a training, not an evaluation, from this base
  TaskId task;
  update::ModelVersion base;
  SharedBytes model;
  Round rounds = 0;         // of the run
  std::uint64_t steps = 0;  // that this device trains in a round; 0: not known
};
struct TaskSettled {  // the coordinator counted a task, or ended it otherwise
  TaskId task;
  bool counted = false;
};
struct Paused {  // answers Pause
  std::optional<Trained> trained;
};
struct Progress {  // answers ReadProgress
  std::optional<Trained> trained;
};
struct Restored {  // before all others: what an earlier process kept, so long ago
  Kept kept;
  Duration since{};
};
struct Tick {};
using Event = std::variant<CoordinatorConnected, CoordinatorLost, TermsChanged, TaskOffered,
                           TaskSettled, Paused, Progress, Restored, Tick>;

// --- actions ------------------------------------------------------------------------------------
struct Begin {  // train on by gossip; what an earlier process trained in it counts as its own
  Trained from;
  std::uint64_t steps_before = 0;  // of earlier absences: batches go on behind them
  FallbackPace pace;
};
struct Pause {};         // end it, then Paused
struct ReadProgress {};  // say what it has come to, then Progress
struct Keep {            // durably, in place of what was kept before
  Kept kept;
};
struct Forget {};  // what was kept
struct Merge {     // answers TaskOffered: contribute this model instead of a training
  TaskId task;
  Trained trained;
};
struct Say {
  LogLevel level;
  std::string line;
};
using Action = std::variant<Begin, Pause, ReadProgress, Keep, Forget, Merge, Say>;

}  // namespace fallback

class FallbackMachine {
 public:
  // The coordinator counts as lost from `now` on.
  explicit FallbackMachine(TimePoint now) : missed_since_(now), lost_at_(now) {}

  std::vector<fallback::Action> on(fallback::Event event, TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  enum class State { kConnected, kAway, kGossiping };
  State state() const { return state_; }
  // A model waits for a round that it can be merged into.
  bool holds_contribution() const { return gained_.has_value(); }

 private:
  struct Held {
    RunId run;
    std::uint32_t run_key = 0;
    SharedBytes model;
    Round round = 0;            // whose model it was before the gossip
    std::uint64_t earlier = 0;  // steps by gossip since
  };
  struct Seen {  // the round that asked last, in this presence of the coordinator
    TaskId task;
    Round round = 0;
    TimePoint at{};
  };
  struct Gained {
    RunId run;
    std::uint32_t run_key = 0;
    fallback::Trained trained;
    std::optional<TimePoint> returned_at;  // the coordinator; none: it is still away
    // The task that bears it; a later attempt from the same base asks for the same.
    std::optional<TaskId> task = {};
    update::ModelVersion base = {};
  };

  void handle(fallback::CoordinatorConnected&);
  void handle(fallback::CoordinatorLost&);
  void handle(fallback::TermsChanged&);
  void handle(fallback::TaskOffered&);
  void handle(fallback::TaskSettled&);
  void handle(fallback::Paused&);
  void handle(fallback::Progress&);
  void handle(fallback::Restored&);
  void handle(fallback::Tick&);
  void begin();
  void pause(State next);
  void keep(const fallback::Trained& trained, bool ended);
  void forget();
  bool concerns(RunId run) const;
  bool may_merge(const fallback::TaskOffered& asked);
  void learn_pace(const fallback::TaskOffered& asked);
  void learn(Duration round);
  // What the gossip would be bound by if it began now; none: nobody can say yet.
  std::optional<FallbackPace> pace() const;
  void say(LogLevel level, std::string line);

  State state_ = State::kAway;
  TimePoint now_{};
  TimePoint missed_since_;  // the coordinator, by this process
  TimePoint lost_at_;       // by any process of this device
  std::optional<FallbackTerms> terms_;
  std::optional<Held> held_;      // the newest model of the run that this device knows
  std::optional<Gained> gained_;  // not merged yet
  // Of a gossip that an earlier process did not end.
  std::optional<fallback::Trained> interrupted_;
  bool kept_ = false;  // something is
  TimePoint keep_at_{};
  std::uint64_t steps_ = 0;  // by gossip, ever
  std::uint64_t spent_ = 0;  // ... in this absence
  RunId paced_run_;          // what the following three are of
  Round rounds_ = 0;
  std::uint64_t steps_in_round_ = 0;
  std::deque<Duration> took_;  // the last rounds
  std::optional<Seen> seen_;
  std::vector<fallback::Action> actions_;
};

}  // namespace starling::gossip
