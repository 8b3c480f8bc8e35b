// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/claim_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/train/local_trainer.h"

namespace starling::coordinator {
namespace {

// More than any client holds.
constexpr double kRowsMax = 0x1p40;

// Of sums of as many terms as there are local steps, relative.
constexpr double kRounding = 1e-6;

}  // namespace

ClaimBounds::ClaimBounds(const RunStart& run, protocol::TaskKind kind,
                         const std::vector<Participant>& participants, const ClientTable& clients)
    : run_(run),
      trains_(kind == protocol::TaskKind::kTrain),
      median_rows_(median_rows(participants, clients)) {}

Result<update::ContributionHead> ClaimBounds::apply(update::ContributionHead head,
                                                    const update::Schema& schema,
                                                    const Greeting& greeting) const {
  const double claimed = head.weight;
  // A client that counts as 1: the sums do not bound its rows.
  if (run_.uniform_weights && trains_) head.weight = std::min(claimed, schema.bounds.weight_max);
  STARLING_TRY(update::validate_head(head, schema));
  const auto rows = static_cast<double>(announced_rows(greeting));
  STARLING_ASSIGN(head.weight, counted_weight(claimed, rows));
  STARLING_TRY(bound_scalars(rows, head));
  return head;
}

std::string ClaimBounds::describe_bound(double weight) const {
  if (weight == run_.job.aggregation.weight_max) return "aggregation.weight-max";
  return fmt::format(
      "aggregation.weight-ratio-max; the clients of the round hold {} rows in the median",
      median_rows_);
}

Result<double> ClaimBounds::counted_weight(double weight, double rows) const {
  if (rows > 0 && weight > rows) {
    return rejected("weight-above-rows",
                    fmt::format("the {} claims the weight of {} rows; the client announced {}",
                                trains_ ? "update" : "evaluation", weight, rows));
  }
  if (trains_ && run_.uniform_weights) return 1.0;
  return std::min({weight, run_.job.aggregation.weight_max, rows_max(rows)});
}

// Of a client that announced so many, by what the others of its round announced.
double ClaimBounds::rows_max(double announced) const {
  const double ratio = run_.job.aggregation.weight_ratio_max;
  if (ratio == 0 || median_rows_ == 0) return std::numeric_limits<double>::infinity();
  return (announced > 0 ? ratio : 1) * median_rows_;
}

// What a strategy divides or multiplies by is no more than the local steps over the client's own
// rows give, and counts as no more than those over the rows that its weight may be.
Result<void> ClaimBounds::bound_scalars(double rows, update::ContributionHead& head) const {
  if (!trains_) return {};
  const train::TrainOptions& training = run_.job.training.train;
  const auto largest = [&](double of_rows) {
    const auto counted = static_cast<std::size_t>(std::clamp(of_rows, 1.0, kRowsMax));
    return run_.strategy->scalar_max(training, train::local_steps(training, counted));
  };
  const double possible = largest(rows > 0 ? rows : rows_max(0));
  const double counting = std::min(possible, largest(rows_max(rows)));
  for (const std::string& name : run_.strategy->scalars()) {
    const auto scalar = head.scalars.find(name);
    if (scalar == head.scalars.end()) continue;  // refused when it is summed
    if (scalar->second > possible * (1 + kRounding)) {
      return rejected("bad-scalars",
                      fmt::format("the update's scalar '{}' is {:g}; its local steps give at most "
                                  "{:g}",
                                  name, scalar->second, possible));
    }
    scalar->second = std::min(scalar->second, counting);
  }
  return {};
}

// Of the phase's kind; clients of earlier versions only say their training rows.
std::uint64_t ClaimBounds::announced_rows(const Greeting& greeting) const {
  return !trains_ && greeting.held_out > 0 ? greeting.held_out : greeting.rows;
}

// The lower of the two in the middle: of two clients, one alone cannot raise it.
double ClaimBounds::median_rows(const std::vector<Participant>& participants,
                                const ClientTable& clients) const {
  std::vector<std::uint64_t> announced;
  for (const Participant& participant : participants) {
    const ClientTable::Client* client = clients.find(participant.client);
    const std::uint64_t rows = client ? announced_rows(client->greeting) : 0;
    if (rows > 0) announced.push_back(rows);
  }
  if (announced.empty()) return 0;
  const auto middle = announced.begin() + static_cast<std::ptrdiff_t>((announced.size() - 1) / 2);
  std::ranges::nth_element(announced, middle);
  return static_cast<double>(*middle);
}

}  // namespace starling::coordinator
