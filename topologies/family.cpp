// SPDX-License-Identifier: Apache-2.0
#include "topologies/family.h"

#include <fmt/format.h>

#include "core/base/nearest_name.h"
#include "core/base/parameter_list.h"

namespace starling::topologies {
namespace {

// 640 MB of a matrix that is not symmetric.
constexpr double kMessagesMax = 20e6;

}  // namespace

Rng Draws::operator()(std::uint64_t step, std::uint32_t attempt) const {
  return Rng({.seed = seed,
              .purpose = Purpose::kTopology,
              .node = hash_name(family) + (step >> 32),
              .round = static_cast<std::uint32_t>(step),
              .attempt = attempt});
}

std::string Request::spec() const { return printable(options.spec); }

Error Request::wrong(const std::string& why) const {
  return wrong_setting("topology-spec", "the topology '" + spec() + "' " + why);
}

Error Request::impossible(const std::string& why) const {
  return wrong_setting("topology-impossible",
                       fmt::format("the topology '{}' is not possible with {} "
                                   "node{}: {}",
                                   spec(), nodes(), nodes() == 1 ? "" : "s", why));
}

Result<std::string> Request::read(const std::vector<Field>& fields) const {
  if (fields.empty()) {
    if (!parameters.empty()) return wrong("takes no parameters; write " + std::string(family));
    return std::string(family);
  }
  if (const auto read = read_parameters(parameters, fields); !read) {
    return wrong(read.error().message());
  }
  return std::string(family) + ":" + write_parameters(fields);
}

Result<void> Request::check_messages(double messages) const {
  if (messages <= kMessagesMax) return {};
  return impossible(
      fmt::format("it would send about {:.2g} messages a step, and {:.2g} are the "
                  "most; take a sparser graph or fewer nodes",
                  messages, kMessagesMax));
}

Blueprint Blueprint::fixed(std::string name, Step step) {
  return {std::move(name), 1, false, [step = std::move(step)](std::uint64_t) { return step; }};
}

unsigned ceil_log(std::uint64_t n, std::uint64_t base) {
  unsigned count = 0;
  for (std::uint64_t power = 1; power < n; power *= base) ++count;
  return count;
}

}  // namespace starling::topologies
