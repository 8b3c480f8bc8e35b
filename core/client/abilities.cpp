// SPDX-License-Identifier: Apache-2.0
#include "core/client/abilities.h"

#include <algorithm>

#include "core/model/model_spec.h"

namespace starling::client {

std::vector<std::string> abilities_of(const strategy::Catalogue& strategies, bool holds_rows_out) {
  std::vector<std::string> words = strategies.client_names();
  for (const std::string_view kind : model::kModelKinds) {
    if (kind == model::kExternalKind) continue;
    words.push_back(std::string(kModelPrefix).append(kind));
  }
  words.emplace_back(kSparseAbility);
  words.emplace_back(kNamesAbility);
  words.emplace_back(kScaleAbility);
  if (holds_rows_out) words.emplace_back(kEvaluateAbility);
  std::ranges::sort(words);
  return words;
}

std::vector<std::string> abilities_of(const strategy::Catalogue& strategies,
                                      const TrainerDescription& trainer) {
  std::vector<std::string> words;
  if (trainer.can(TrainerOperation::kGradient)) words = strategies.client_names();
  words.push_back(std::string(kModelPrefix).append(model::kExternalKind));
  words.emplace_back(kSparseAbility);
  if (trainer.can(TrainerOperation::kEvaluate)) words.emplace_back(kEvaluateAbility);
  std::ranges::sort(words);
  return words;
}

}  // namespace starling::client
