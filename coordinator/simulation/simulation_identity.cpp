// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/simulation_identity.h"

#include <fmt/format.h>

#include "coordinator/job/job_text.h"
#include "core/base/durable_file.h"
#include "core/data/data_identity.h"
#include "core/linalg/kernels.h"

namespace starling::coordinator {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;

void add_text(Sha256& identity, std::string_view text) {
  identity.update(as_bytes(fmt::format("{}\n", text.size())));
  identity.update(as_bytes(text));
}

void add_file(Sha256& identity, const std::filesystem::path& file) {
  if (file.empty()) return;
  const auto text = read_text_file(file, kFileBytesMax);
  add_text(identity, text ? *text : file.string());
}

}  // namespace

Sha256Digest identity_of(const RunContext& context, const SimulateOptions& options,
                         std::span<const client::ClientData> holdings) {
  Sha256 identity;
  add_text(identity, STARLING_VERSION);
  add_text(identity, linalg::default_kernels().name);
  add_text(identity, fmt::format("clients {}", options.clients));
  add_text(identity, job_to_toml(context.job));
  for (const auto& [key, value] : options.asked) add_text(identity, key + "=" + value);
  if (options.replay) add_file(identity, *options.replay);
  const RunPosition initial = context.initial_position(RunId(1), context.job.job.seed);
  identity.update(initial.version.sha256.bytes());
  if (!holdings.empty()) data::add_dataset(identity, holdings.front().training);
  for (const client::ClientData& holding : holdings) {
    data::add_rows(identity, holding.training);
    if (holding.held_out) data::add_rows(identity, *holding.held_out);
  }
  if (context.evaluation) {
    data::add_dataset(identity, *context.evaluation);
    data::add_rows(identity, *context.evaluation);
  }
  if (options.world) {
    add_file(identity, options.world->network.links);
    add_file(identity, options.world->nodes.speeds);
    add_file(identity, options.world->nodes.presence);
  }
  return std::move(identity).finish();
}

}  // namespace starling::coordinator
