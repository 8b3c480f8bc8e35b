// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/checkpoint.h"

#include <algorithm>
#include <charconv>

#include "core/model/safetensors.h"

namespace starling::gossip {
namespace {

constexpr const char* kRun = "run";
constexpr const char* kExchange = "exchange";

Error damaged(const std::filesystem::path& path) {
  return rejected("checkpoint-damaged",
                  path.string() + " was not written by this program; the peer begins without it");
}

}  // namespace

Result<void> save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint,
                             std::shared_ptr<const model::Layout> layout) {
  model::Parameters parameters(std::move(layout));
  std::ranges::copy(checkpoint.model, parameters.values().begin());
  return model::write_safetensors(
      path, parameters, {{kRun, checkpoint.run}, {kExchange, std::to_string(checkpoint.exchange)}});
}

Result<Checkpoint> load_checkpoint(const std::filesystem::path& path,
                                   std::shared_ptr<const model::Layout> layout) {
  STARLING_ASSIGN(const model::SafetensorsFile file,
                  model::load_safetensors(path, {.expected = std::move(layout)}));
  const auto run = file.metadata.find(kRun);
  const auto exchange = file.metadata.find(kExchange);
  if (run == file.metadata.end() || exchange == file.metadata.end()) return damaged(path);
  Checkpoint checkpoint{.run = run->second};
  const std::string& digits = exchange->second;
  const auto [end, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), checkpoint.exchange);
  if (code != std::errc() || end != digits.data() + digits.size()) return damaged(path);
  const auto values = file.parameters.values();
  checkpoint.model.assign(values.begin(), values.end());
  return checkpoint;
}

}  // namespace starling::gossip
