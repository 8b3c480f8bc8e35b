// SPDX-License-Identifier: Apache-2.0
// What a schema asks for as a client sends it that leaves nothing out.
#pragma once

#include "core/update/contribution.h"

namespace starling::testing {

inline std::vector<update::VectorSpec> dense_vectors(const update::Schema& schema) {
  std::vector<update::VectorSpec> vectors = schema.vectors;
  for (update::VectorSpec& vector : vectors) {
    vector.encoding = update::dense_of(vector.encoding);
  }
  return vectors;
}

}  // namespace starling::testing
