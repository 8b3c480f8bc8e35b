// SPDX-License-Identifier: Apache-2.0
// A life of a coordinator as a list of calls, and everything that a Store remembers as one value:
// whatever happens to a disk, a store must be at the end of one of its calls.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/store/store.h"

namespace starling::store {

struct Step {
  std::function<Result<void>(Store&)> call;
  bool durable = true;
};

// Joins, revokes, runs two jobs of a few rounds, some abandoned; every changing call of Store.
std::vector<Step> store_script();

struct StoreContent {
  std::string federation;
  std::optional<std::string> fact;
  std::vector<Client> clients;
  std::vector<std::optional<Certificate>> certificates;
  std::vector<Revocation> revocations;
  std::vector<Token> tokens;
  std::vector<Run> runs;
  std::map<RunId, std::vector<RoundRecord>> rounds;
  std::map<RunId, std::vector<RoundRecord>> evaluations;
  std::map<RunId, std::vector<ModelRecord>> models;
  std::map<RunId, std::vector<LogLine>> logs;
  std::vector<std::optional<TaskRecord>> tasks;
  std::vector<std::optional<TaskEnd>> task_ends;
  friend bool operator==(const StoreContent&, const StoreContent&) = default;
};

// Reads certificates of the serials "00" .. "0f" and tasks 1 .. tasks_max.
StoreContent content_of(Store& store, std::uint64_t tasks_max);

}  // namespace starling::store
