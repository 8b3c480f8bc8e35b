// SPDX-License-Identifier: Apache-2.0
// What of this machine's processor decides about TLS. For sources of this folder only.
#pragma once

namespace starling::net {

bool has_aes_instructions();

}  // namespace starling::net
