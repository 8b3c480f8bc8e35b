// SPDX-License-Identifier: Apache-2.0
// A client's rows, and the same rows as the run at hand names their columns and classes, and scales
// them.
#pragma once

#include <mutex>
#include <optional>

#include "core/data/dataset.h"
#include "core/data/row_names.h"

namespace starling::client {

// What a client trains on, and what it holds out to evaluate models with.
struct ClientData {
  data::DatasetView training;
  std::optional<data::DatasetView> held_out = std::nullopt;
};

// Shared by all trainers of a client. Any thread. Reordered or scaled rows are a second copy, which
// is freed when no trainer uses it any more.
class RunData {
 public:
  explicit RunData(ClientData data) : own_(std::move(data)) {}

  // The rows themselves where they fit as they are; else as the names have them, kept until others
  // ask for other names. Errors: those of data::fit_to.
  [[nodiscard]] Result<ClientData> named(const data::RowNames& names);

 private:
  const ClientData own_;
  std::mutex mutex_;
  ClientData fitted_;  // to names_, where there is one
  data::RowNames names_;
};

}  // namespace starling::client
