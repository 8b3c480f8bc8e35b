// SPDX-License-Identifier: Apache-2.0
// All updates of a phase at once, read in tiles, for rules to which a sum is not enough. The order
// is that of the clients' names, so that nothing depends on which update arrived first.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/update/contribution.h"

namespace starling::update {

class UpdateSource {
 public:
  virtual ~UpdateSource() = default;

  // One an update; valid as long as the source is not changed.
  virtual std::vector<const ContributionHead*> heads() const = 0;
  // Row k of `out`, [updates, elements], becomes [first, first + elements) of the i-th vector of
  // the k-th update. "upload-unreadable" (kInternal). Requires: the range lies within the vector;
  // the sizes fit.
  [[nodiscard]] virtual Result<void> read(std::size_t i, std::size_t first, std::size_t elements,
                                          std::span<float> out) const = 0;
};

// Updates whose payloads stay where they were received, in memory or in the spool's files.
class KeptUpdates final : public UpdateSource {
 public:
  // Requires: no update of this client is kept; all are of one schema; the payload stays where it
  // is as long as this object.
  void keep(std::string client, Contribution update);
  std::size_t size() const { return updates_.size(); }

  std::vector<const ContributionHead*> heads() const override;
  Result<void> read(std::size_t i, std::size_t first, std::size_t elements,
                    std::span<float> out) const override;

 private:
  std::map<std::string, Contribution> updates_;
};

}  // namespace starling::update
