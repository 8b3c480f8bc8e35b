// SPDX-License-Identifier: Apache-2.0
// For programs that hold private keys and the secrets of tokens.
#pragma once

namespace starling {

// No core dump of this process or of what it starts, and no other process of the same user may read
// its memory. The sanitizers need to, and keep it.
void forbid_core_dumps();

}  // namespace starling
