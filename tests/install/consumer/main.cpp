// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "core/base/digest.h"
#include "core/base/rng.h"

int main() {
  starling::Rng rng({.seed = 1, .purpose = starling::Purpose::kTest});
  std::string text = std::to_string(rng.next_u64());
  std::cout << "starling::base says " << starling::sha256(starling::as_bytes(text)).hex() << '\n';
}
