// SPDX-License-Identifier: Apache-2.0
// What a device keeps of its fallback across restarts: the model that it came to, and how much of
// what it may train is used. A process that begins again goes on from it and trains no step of it a
// second time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/ids.h"
#include "core/base/shared_bytes.h"

namespace starling::gossip::fallback {

// What gossip has made of the model that it began with.
struct Trained {
  SharedBytes model;            // [d] floats
  std::uint64_t exchanges = 0;  // 0: nothing became of it
  std::uint64_t steps = 0;
  double loss = 0;  // mean over the steps
};

struct Kept {
  std::uint64_t run = 0;             // of the coordinator
  std::uint32_t run_key = 0;         // as of its models' versions
  Round round = 0;                   // whose model the gossip began with
  Round rounds = 0;                  // of the run
  std::uint64_t steps_in_round = 0;  // of this device
  Duration per_round{};              // what a round usually took
  // As of FallbackPace, without `trained` while the gossip goes on.
  std::uint64_t earlier = 0;
  std::uint64_t spent = 0;
  std::uint64_t steps = 0;  // by gossip, ever
  Duration away{};          // since the coordinator was lost
  bool ended = false;       // the gossip: `trained` waits for a round that it can be merged into
  std::optional<Duration> returned = {};  // since the coordinator's return
  std::uint64_t task = 0;                 // that bears it; 0: none
  Round base = 0;                         // of that task, and its digest in hexadecimal
  std::string base_digest = {};
  Trained trained;
};

template <class V>
void describe(V& visit, Kept& o) {
  visit("run", o.run, FieldInfo{.help = "of the coordinator", .min = 1});
  visit("run-key", o.run_key, FieldInfo{.help = "tells runs of one number apart; 0: not known"});
  visit("round", o.round, FieldInfo{.help = "whose model the gossip began with"});
  visit("rounds", o.rounds, FieldInfo{.help = "of the run"});
  visit("steps-in-round", o.steps_in_round, FieldInfo{.help = "of this device", .min = 1});
  visit("per-round", o.per_round, FieldInfo{.help = "what a round usually took", .min = 0});
  visit("earlier", o.earlier, FieldInfo{.help = "steps by gossip since that round"});
  visit("spent", o.spent, FieldInfo{.help = "of those, in this absence"});
  visit("steps", o.steps, FieldInfo{.help = "by gossip, ever"});
  visit("away", o.away, FieldInfo{.help = "since the coordinator was lost", .min = 0});
  visit("ended", o.ended, FieldInfo{.help = "what was trained waits for a round"});
  visit("returned", o.returned, FieldInfo{.help = "since the coordinator's return", .min = 0});
  visit("task", o.task, FieldInfo{.help = "that bears it; 0: none"});
  visit("base", o.base, FieldInfo{.help = "of that task"});
  visit("base-digest", o.base_digest, FieldInfo{.help = "of that task"});
  visit("trained.exchanges", o.trained.exchanges, FieldInfo{.help = "by this gossip"});
  visit("trained.steps", o.trained.steps, FieldInfo{.help = "by this gossip"});
  visit("trained.loss", o.trained.loss, FieldInfo{.help = "mean over these steps"});
}

// Whole or as before after a crash. `now` by the wall clock.
[[nodiscard]] Result<void> save_fallback(const std::filesystem::path& path, const Kept& kept,
                                         WallTime now);

struct Loaded {
  Kept kept;
  WallTime at{};  // when it was kept
};
// Nothing where none was kept; "fallback-damaged", "fallback-version".
[[nodiscard]] Result<std::optional<Loaded>> load_fallback(const std::filesystem::path& path);

}  // namespace starling::gossip::fallback
