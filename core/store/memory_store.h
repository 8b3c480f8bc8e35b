// SPDX-License-Identifier: Apache-2.0
// The Store of simulations and tests: the same rules, nothing on disk.
#pragma once

#include <memory>

#include "core/store/store.h"

namespace starling::store {

std::unique_ptr<Store> make_memory_store();

}  // namespace starling::store
