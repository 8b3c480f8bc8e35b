// SPDX-License-Identifier: Apache-2.0
#include "core/client/run_data.h"

namespace starling::client {

Result<ClientData> RunData::named(const data::RowNames& names) {
  STARLING_ASSIGN(const bool fits, data::fits(*own_.training.dataset, names));
  if (fits) return own_;
  const std::lock_guard lock(mutex_);
  if (fitted_.training.dataset && names_ == names) return fitted_;
  fitted_ = {};  // before another copy is made
  ClientData fitted = own_;
  STARLING_TRY(data::fit_to(fitted.training.dataset, names));
  if (fitted.held_out) fitted.held_out->dataset = fitted.training.dataset;
  fitted_ = fitted;
  names_ = names;
  return fitted;
}

}  // namespace starling::client
