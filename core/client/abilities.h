// SPDX-License-Identifier: Apache-2.0
// What a client can do, as words of its greeting, so that a coordinator asks those that can. A
// client of the first version sends none: it knows federated averaging of the built-in models. One
// that names no model is of an earlier version, and knows all that there were then.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/client/trainer_host.h"
#include "core/strategy/catalogue.h"

namespace starling::client {

inline constexpr const char* kEvaluateAbility = "evaluate";
inline constexpr std::string_view kModelPrefix = "model-";       // before the kind of a model
inline constexpr const char* kSparseAbility = "sparse-float32";  // to send vectors in sparse form
inline constexpr const char* kNamesAbility = "names";  // matches rows by the names of a run
inline constexpr const char* kScaleAbility = "scale";  // scales rows by the numbers of a run

// The client halves of the strategies, the built-in trainer's models, the encodings beside dense
// float32, "names", "scale", and "evaluate" where rows are held out. Sorted.
std::vector<std::string> abilities_of(const strategy::Catalogue& strategies, bool holds_rows_out);

// Of a custom trainer: "model-external", the sparse encoding, "evaluate" where it does, and
// the strategies other than federated averaging where it offers gradients.
std::vector<std::string> abilities_of(const strategy::Catalogue& strategies,
                                      const TrainerDescription& trainer);

}  // namespace starling::client
