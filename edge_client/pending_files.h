// SPDX-License-Identifier: Apache-2.0
// Where a device keeps its pending updates.
#pragma once

#include "core/client/pending_store.h"
#include "core/wire/update_head.h"
#include "edge_client/state_directory.h"

namespace starling::edge_client {

// The disk must outlive it.
inline client::PendingStore pending_files(Disk& disk, const StateDirectory& state,
                                          client::PendingStore::Options options = {}) {
  return client::PendingStore(disk, state.pending(), wire::kUpdateHeads, options);
}

}  // namespace starling::edge_client
