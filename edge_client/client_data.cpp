// SPDX-License-Identifier: Apache-2.0
#include "edge_client/client_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "core/base/nearest_name.h"
#include "core/data/hold_out.h"
#include "core/data/load.h"

namespace starling::edge_client {
namespace {

constexpr std::uint64_t kMegabyte = 1'000'000;
constexpr std::size_t kClassesShown = 20;

std::string describe_shape(const data::Shape& shape) {
  if (shape.channels == 1 && shape.height == 1) return fmt::format("{} features", shape.width);
  if (shape.channels == 1) return fmt::format("{}x{}", shape.height, shape.width);
  return fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width);
}

Result<data::PartitionSpec> parse_part(const std::string& text) {
  STARLING_ASSIGN(data::PartitionSpec spec, data::PartitionSpec::parse(text));
  if (spec.index == 0) {
    return wrong_setting("partition-spec",
                         fmt::format("data.partition = \"{}\" does not say which part this device "
                                     "holds; add index=K,of=N",
                                     text));
  }
  return spec;
}

Result<data::DatasetView> load_rows(const EdgeOptions& options) {
  if (options.data.dataset.empty()) {
    return wrong_setting("setting-invalid",
                         "edge.toml does not say where this device's data is; add a line such as "
                         "dataset = \"csv:/path/to/rows.csv\" under [data], or the command of a "
                         "trainer of your own under [trainer]");
  }
  STARLING_ASSIGN(const data::DatasetSpec spec, data::DatasetSpec::parse(options.data.dataset));
  data::LoadOptions load;
  load.bytes_max = memory_bytes(options.limits);
  if (options.data.partition.empty()) {
    STARLING_ASSIGN(auto all, data::load_dataset(spec, load));
    return data::DatasetView{std::move(all)};
  }
  STARLING_ASSIGN(const data::PartitionSpec part, parse_part(options.data.partition));
  STARLING_ASSIGN(auto rows, data::load_part(spec, part, std::move(load)));
  return data::DatasetView{std::move(rows)};
}

}  // namespace

std::uint64_t memory_bytes(const LimitOptions& limits) {
  if (limits.memory > 0) return limits.memory * kMegabyte;
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE)) / 2;
}

std::uint64_t bytes_of(const client::ClientData& data) {
  const auto& dataset = data.training.dataset;
  return dataset ? dataset->features().size_bytes() + dataset->labels().size_bytes() : 0;
}

Result<client::ClientData> load_client_data(const EdgeOptions& options) {
  if (!options.trainer.command.empty()) return client::ClientData{};
  const auto rows = load_rows(options);
  if (!rows && rows.error().code() == "dataset-too-large") {
    return rows.error()
        .with_message(rows.error().message() + " (limits.memory)")
        .as(ErrorCategory::kUsage);
  }
  if (!rows) return rows.error();
  data::Divided divided = data::hold_out(*rows, options.data.hold_out);
  return client::ClientData{std::move(divided.training), std::move(divided.held_out)};
}

std::string summarize(const data::DatasetView& view) {
  const data::Dataset& dataset = *view.dataset;
  std::vector<std::size_t> counts(static_cast<std::size_t>(dataset.classes()));
  for (std::size_t i = 0; i < view.size(); ++i) ++counts[static_cast<std::size_t>(view.label(i))];
  std::string text = fmt::format("{} rows of {}, {} classes", view.size(),
                                 describe_shape(dataset.shape()), dataset.classes());
  if (!dataset.class_column().empty()) {
    text += fmt::format(" in column '{}'", printable(dataset.class_column()));
  }
  text += "; rows by class:";
  for (std::size_t c = 0; c < std::min(counts.size(), kClassesShown); ++c) {
    text += fmt::format(" {}", counts[c]);
  }
  return text + (counts.size() > kClassesShown ? " ..." : "");
}

std::uint64_t bytes_beside(std::uint64_t data_bytes, const LimitOptions& limits) {
  return memory_bytes(limits) - std::min(memory_bytes(limits), data_bytes);
}

Result<std::uint64_t> model_bytes_max(const LimitOptions& limits, std::uint64_t data_bytes) {
  const std::uint64_t largest =
      bytes_beside(data_bytes, limits) / (client::kModelsWhileTraining + limits.pending_updates);
  if (largest >= kMegabyte) return largest;
  return wrong_setting(
      "memory-too-small",
      fmt::format("the data takes {} of the {} that limits.memory allows, which leaves "
                  "too little for a model; raise limits.memory or hold fewer rows",
                  format_byte_count(data_bytes), format_byte_count(memory_bytes(limits))));
}

Result<client::ClientOptions> client_options(const EdgeOptions& options,
                                             const DeviceTraining& training,
                                             std::uint64_t data_bytes, std::string_view version) {
  client::ClientOptions client;
  client.software = fmt::format("starling-edge {}", version);
  client.rows = training.rows;
  client.abilities = training.abilities;
  client.input = training.input;
  client.classes = training.classes;
  client.held_out = training.held_out;
  STARLING_ASSIGN(client.model_bytes_max, model_bytes_max(options.limits, data_bytes));
  client.pending_updates_max = options.limits.pending_updates;
  client.greeting_deadline = options.connection.greeting_deadline;
  client.silence_max = options.connection.silence_max;
  client.backoff = {options.connection.backoff_min, options.connection.backoff_max};
  return client;
}

}  // namespace starling::edge_client
