// SPDX-License-Identifier: Apache-2.0
// What an update of a phase may claim. Nothing proves a weight, nor the rows that a client
// announces. So no weight exceeds the client's own rows (of an evaluation those that it holds out,
// where it says so), nor a multiple of what its round's clients have, nor the run's bound. A client
// of an earlier version, which announces no rows, counts as the median at most.
#pragma once

#include <string>
#include <vector>

#include "coordinator/machine/client_table.h"
#include "coordinator/machine/coordinator_events.h"

namespace starling::coordinator {

class ClaimBounds {
 public:
  // Of a phase with these participants. `run` must outlive the bounds.
  ClaimBounds(const RunStart& run, protocol::TaskKind kind,
              const std::vector<Participant>& participants, const ClientTable& clients);

  // The head as it counts, its weight and scalars lowered to the bounds; refuses one that does not
  // fit the schema or claims more than is possible.
  Result<update::ContributionHead> apply(update::ContributionHead head,
                                         const update::Schema& schema,
                                         const Greeting& greeting) const;
  // The bound that lowered a weight to this one.
  std::string describe_bound(double weight) const;

 private:
  std::uint64_t announced_rows(const Greeting& greeting) const;
  double median_rows(const std::vector<Participant>& participants,
                     const ClientTable& clients) const;
  double rows_max(double announced) const;
  Result<double> counted_weight(double weight, double rows) const;
  Result<void> bound_scalars(double rows, update::ContributionHead& head) const;

  const RunStart& run_;
  bool trains_;
  double median_rows_;  // of the clients that announced any, the lower median; 0: none did
};

}  // namespace starling::coordinator
