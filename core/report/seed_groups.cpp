// SPDX-License-Identifier: Apache-2.0
#include "core/report/seed_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/base/counted.h"

namespace starling::report {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

bool is_seed(const Pairs::value_type& setting) { return setting.first == "seed"; }

std::optional<std::string> seed_of(const Run& run) {
  const auto found = std::ranges::find_if(run.told(), is_seed);
  if (found == run.told().end()) return std::nullopt;
  return found->second;
}

Pairs without_seed(Pairs settings) {
  std::erase_if(settings, is_seed);
  return settings;
}

// The last evaluation at each step that all members have.
std::vector<std::vector<const Evaluation*>> aligned(std::span<const Run> runs,
                                                    const std::vector<std::size_t>& members) {
  std::map<double, std::vector<const Evaluation*>> by_step;
  for (std::size_t m = 0; m < members.size(); ++m) {
    for (const Evaluation& evaluation : runs[members[m]].evaluations) {
      auto& found = by_step[evaluation.at(Measure::kStep)];
      if (found.size() < m) continue;  // an earlier member lacks it
      found.resize(m);
      found.push_back(&evaluation);
    }
  }
  std::vector<std::vector<const Evaluation*>> all;
  for (const auto& [step, found] : by_step) {
    if (found.size() == members.size()) all.push_back(found);
  }
  return all;
}

std::optional<double> mean_of(std::span<const Run> runs, const std::vector<std::size_t>& members,
                              std::optional<double> Run::*fact) {
  double sum = 0;
  for (const std::size_t i : members) {
    if (!(runs[i].*fact)) return std::nullopt;
    sum += *(runs[i].*fact);
  }
  return sum / static_cast<double>(members.size());
}

// What the members have in common, and the means of what they do not.
Run common_facts(std::span<const Run> runs, const std::vector<std::size_t>& members) {
  Run run = runs[members.front()];
  run.evaluations.clear();
  run.settings = without_seed(std::move(run.settings));
  run.asked = without_seed(std::move(run.asked));
  run.seed.reset();
  run.trace_sha256.clear();
  run.stopped_early.clear();
  // Only a federated run's job has a name, and the directory is that of the first seed.
  if (run.name.empty()) run.name = fmt::format("mean of {}", counted(members.size(), "seed"));
  run.best.reset();
  for (const std::size_t i : members) {  // random graphs have one a seed
    if (runs[i].topology && run.topology && runs[i].topology->slem != run.topology->slem) {
      run.topology->slem.reset();
      run.topology->spectral_gap.reset();
    }
  }
  for (const auto fact : {&Run::virtual_seconds, &Run::wall_seconds, &Run::bytes_sent,
                          &Run::messages, &Run::node_steps_per_second, &Run::steps}) {
    run.*fact = mean_of(runs, members, fact);
  }
  return run;
}

// A custom trainer's metrics, of which each member has all.
void add_metrics_of(const std::vector<const Evaluation*>& evaluations, Evaluation& mean,
                    Evaluation& lowest, Evaluation& highest) {
  for (const auto& [key, first] : evaluations.front()->metrics) {
    double sum = 0;  // not finite where a member does not say it
    double low = first;
    double high = first;
    for (const Evaluation* evaluation : evaluations) {
      const double value = evaluation->at(key);
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    if (!std::isfinite(sum)) continue;
    mean.metrics[key] = sum / static_cast<double>(evaluations.size());
    lowest.metrics[key] = low;
    highest.metrics[key] = high;
  }
}

void add_group(std::span<const Run> runs, const std::vector<std::size_t>& members,
               SeedGroups& groups) {
  Run mean = common_facts(runs, members);
  Run lowest;
  Run highest;
  for (const std::vector<const Evaluation*>& evaluations : aligned(runs, members)) {
    Evaluation& middle = mean.evaluations.emplace_back();
    Evaluation& low = lowest.evaluations.emplace_back();
    Evaluation& high = highest.evaluations.emplace_back();
    for (std::size_t k = 0; k < kMeasures.size(); ++k) {
      low.values[k] = high.values[k] = evaluations.front()->values[k];
      double sum = 0;  // not finite where a member did not measure it
      for (const Evaluation* evaluation : evaluations) {
        const double value = evaluation->values[k];
        sum += value;
        if (value < low.values[k]) low.values[k] = value;
        if (value > high.values[k]) high.values[k] = value;
      }
      middle.values[k] = sum / static_cast<double>(evaluations.size());
      if (!std::isfinite(sum)) low.values[k] = high.values[k] = kNotMeasured;
    }
    add_metrics_of(evaluations, middle, low, high);
  }
  groups.means.push_back(std::move(mean));
  groups.lowest.push_back(std::move(lowest));
  groups.highest.push_back(std::move(highest));
}

SeedRange range_of(std::span<const Run> runs, const std::vector<std::size_t>& members) {
  SeedRange range;
  for (const std::size_t i : members) range.seeds.push_back(&runs[i]);
  double sum = 0;
  for (const std::size_t i : members) {
    const auto last = runs[i].last(Measure::kEvalAccuracy);
    if (!last) return {.seeds = range.seeds};
    sum += *last;
    range.lowest = std::min(range.lowest.value_or(*last), *last);
    range.highest = std::max(range.highest.value_or(*last), *last);
  }
  if (!members.empty()) range.mean = sum / static_cast<double>(members.size());
  return range;
}

}  // namespace

std::vector<std::vector<std::size_t>> group_by_seed(std::span<const Run> runs) {
  std::vector<std::vector<std::size_t>> groups;
  std::vector<std::set<std::string>> seeds;
  std::map<std::pair<RunKind, Pairs>, std::size_t> group_of;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    // What an unfinished or failed run has measured is no sample of what the others ended with.
    const bool has_end = !runs[i].unfinished && !runs[i].failed;
    const auto seed = has_end ? seed_of(runs[i]) : std::nullopt;
    const std::pair key(runs[i].kind, without_seed(runs[i].told()));
    const auto found = group_of.find(key);
    // A seed that is there already would be the same run once more.
    if (seed && found != group_of.end() && seeds[found->second].insert(*seed).second) {
      groups[found->second].push_back(i);
      continue;
    }
    if (seed && found == group_of.end()) group_of.emplace(key, groups.size());
    groups.push_back({i});
    seeds.push_back({seed.value_or("")});
  }
  return groups;
}

SeedGroups make_seed_groups(std::span<const Run> runs) {
  SeedGroups groups{.members = group_by_seed(runs), .runs = runs.size()};
  for (const std::vector<std::size_t>& members : groups.members) {
    groups.ranges.push_back(range_of(runs, members));
    if (members.size() > 1) {
      add_group(runs, members, groups);
      continue;
    }
    groups.means.push_back(runs[members.front()]);
    groups.lowest.emplace_back();
    groups.highest.emplace_back();
  }
  if (!groups.several()) return groups;
  // Beside means over seeds, the seed of a single run is no name for it.
  for (Run& run : groups.means) {
    run.settings = without_seed(std::move(run.settings));
    run.asked = without_seed(std::move(run.asked));
  }
  return groups;
}

}  // namespace starling::report
