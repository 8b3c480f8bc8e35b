// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/member_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "coordinator/machine/client_fit.h"
#include "core/base/counted.h"
#include "core/base/list_some.h"
#include "core/client/abilities.h"

namespace starling::coordinator {
namespace {

constexpr std::size_t kShown = 5;

// Of a row, and the number of classes: with another of either the model has another size.
using Shape = std::pair<std::vector<std::uint32_t>, std::uint32_t>;
using Holders = std::map<Shape, std::vector<std::string>>;

Shape announced_by(const store::Greeting& greeting) { return {greeting.input, greeting.classes}; }

std::string describe(const Holders::value_type& entry) {
  const auto& [shape, names] = entry;
  return fmt::format("[{}], {} classes ({})", fmt::join(shape.first, ", "), shape.second,
                     list_some(names, kShown, std::identity()));
}

// Rows of images have no columns.
std::string why_unfit_columns(std::size_t columns, const store::Greeting& greeting) {
  const bool fits = columns == 0 || greeting.input.size() != 1 || greeting.input.front() == columns;
  if (fits) return "";
  return fmt::format("its rows have {}, and data.columns names {}",
                     counted(greeting.input.front(), "column"), columns);
}

Error shapes_differ(const Holders& holders, std::size_t count) {
  const std::vector<Holders::value_type> all(holders.begin(), holders.end());
  return rejected("shapes-differ",
                  fmt::format("no shape of data is that of more than half of the {} that say "
                              "theirs, and devices with other shapes cannot exchange models: {}",
                              counted(count, "client"), list_some(all, kShown, describe)));
}

}  // namespace

MemberFit judge_members(const MemberNeeds& needs, std::span<const store::Client> clients,
                        const std::function<bool(const std::string& name)>& counts) {
  const std::vector<std::string> abilities = {
      std::string(client::kModelPrefix).append(needs.model_kind)};
  MemberFit fit;
  Holders holders;
  std::size_t count = 0;
  for (const store::Client& client : clients) {
    const ClientTable::Client as_client{.greeting = client.greeting};
    std::string why = why_unfit(as_client, abilities, {}, protocol::TaskKind::kTrain);
    if (why.empty()) why = why_unfit_columns(needs.columns, client.greeting);
    if (!why.empty()) {
      fit.unfit.emplace(client.name, std::move(why));
    } else if (!client.greeting.input.empty() && counts(client.name)) {
      holders[announced_by(client.greeting)].push_back(client.name);
      ++count;
    }
  }
  if (holders.empty() || needs.model_kind == model::kExternalKind) return fit;
  const auto most =
      std::ranges::max_element(holders, {}, [](const auto& entry) { return entry.second.size(); });
  if (2 * most->second.size() <= count) {
    fit.disagreement = shapes_differ(holders, count);
    return fit;
  }
  for (const store::Client& client : clients) {
    const auto [input, classes] = announced_by(client.greeting);
    if (input.empty() || fit.unfit.contains(client.name)) continue;
    if (input != most->first.first) {
      fit.unfit.emplace(client.name, "its rows have another shape");
    } else if (classes != most->first.second) {
      fit.unfit.emplace(client.name, classes > most->first.second ? "it has more classes"
                                                                  : "it has fewer classes");
    }
  }
  return fit;
}

}  // namespace starling::coordinator
