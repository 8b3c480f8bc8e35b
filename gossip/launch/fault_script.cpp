// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/fault_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <numeric>

#include "core/base/bytes.h"
#include "core/base/nearest_name.h"
#include "core/base/rng.h"
#include "core/config/binder.h"
#include "core/config/toml_reader.h"
#include "core/sim/distribution.h"

namespace starling::gossip {
namespace {

Error bad(const std::string& what) { return wrong_setting("bad-events", what); }

std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(mark, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<Node> read_number(std::string_view text, Node most) {
  Node value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (value < 1 || value > most) return std::nullopt;
  return value;
}

std::vector<Node> everybody(Node nodes) {
  std::vector<Node> all(nodes);
  std::iota(all.begin(), all.end(), Node{0});
  return all;
}

// As people write nodes: from 1.
Result<std::vector<Node>> read_nodes(std::string_view text, Node nodes, Rng& rng) {
  const auto refuse = [&] {
    return bad(
        fmt::format("'{}' names no nodes; write 3, 2-5, 1,4-6, all or random:K, with numbers "
                    "from 1 to {}",
                    printable(text), nodes));
  };
  std::vector<Node> chosen;
  if (text == "all") return everybody(nodes);
  if (text.starts_with("random:")) {
    const auto count = read_number(text.substr(7), nodes);
    if (!count) return refuse();
    chosen = everybody(nodes);
    rng.shuffle(std::span(chosen));
    chosen.resize(*count);
  } else {
    for (const std::string_view part : split(text, ',')) {
      const std::size_t dash = std::min(part.find('-'), part.size());
      const auto first = read_number(part.substr(0, dash), nodes);
      const auto last = dash == part.size() ? first : read_number(part.substr(dash + 1), nodes);
      if (!first || !last || *first > *last) return refuse();
      for (Node node = *first; node <= *last; ++node) chosen.push_back(node - 1);
    }
  }
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

Result<std::vector<Node>> read_others(const FaultOptions& options, const std::vector<Node>& nodes,
                                      Node count, Rng& rng) {
  if (options.others != "rest") return read_nodes(options.others, count, rng);
  std::vector<Node> all = everybody(count);
  if (nodes.size() == all.size()) return all;
  std::vector<Node> rest;
  std::ranges::set_difference(all, nodes, std::back_inserter(rest));
  return rest;
}

std::vector<std::pair<Node, Node>> links_between(const FaultOptions& options, FaultKind kind,
                                                 const std::vector<Node>& nodes,
                                                 const std::vector<Node>& others) {
  std::vector<std::pair<Node, Node>> links;
  for (const Node a : nodes) {
    for (const Node b : others) {
      if (a == b) continue;
      if (kind == FaultKind::kReset) {
        links.push_back(std::minmax(a, b));
        continue;
      }
      if (options.direction != "in") links.emplace_back(a, b);
      if (options.direction != "out") links.emplace_back(b, a);
    }
  }
  std::ranges::sort(links);
  links.erase(std::unique(links.begin(), links.end()), links.end());
  return links;
}

// Keys that say nothing for this kind are refused rather than ignored.
Result<void> check_keys(const FaultOptions& options, FaultKind kind) {
  const FaultOptions standard;
  const auto is = [kind](std::initializer_list<FaultKind> kinds) {
    return std::ranges::find(kinds, kind) != kinds.end();
  };
  const bool on_links = kind >= FaultKind::kPartition;
  const auto refuse = [&](std::string_view key) {
    return bad(fmt::format("`{}` means nothing for kind = \"{}\"; remove it", key, options.kind));
  };
  if (options.at.has_value() == options.step.has_value()) {
    return bad("an event has either `at` (a time, as \"30s\") or `step`");
  }
  if (options.lasts != standard.lasts && is({FaultKind::kKill, FaultKind::kReset})) {
    return refuse("for");
  }
  if (options.others != standard.others && !on_links) return refuse("others");
  if (options.direction != standard.direction && (!on_links || kind == FaultKind::kReset)) {
    return refuse("direction");
  }
  if (kind != FaultKind::kDelay) {
    if (options.delay != standard.delay) return refuse("delay");
    if (options.jitter != standard.jitter) return refuse("jitter");
  } else if (options.delay == Duration::zero() && options.jitter == Duration::zero()) {
    return bad("kind = \"delay\" needs `delay`, as \"50ms\", or `jitter`");
  }
  if (kind != FaultKind::kBandwidth) {
    if (!options.bandwidth.empty()) return refuse("bandwidth");
  } else if (options.bandwidth.empty()) {
    return bad("kind = \"bandwidth\" needs `bandwidth`, as \"10Mbit/s\"");
  }
  return {};
}

Result<LinkCondition> condition_of(const FaultOptions& options, FaultKind kind) {
  LinkCondition condition{.delay = options.delay, .jitter = options.jitter};
  condition.held = kind == FaultKind::kPartition || kind == FaultKind::kStall;
  if (kind != FaultKind::kBandwidth) return condition;
  STARLING_ASSIGN(const auto rate, sim::Distribution::parse(options.bandwidth, sim::Unit::kRate));
  if (!rate.constant()) return bad("`bandwidth` is one rate, as 10Mbit/s");
  condition.bytes_per_second = rate.least();
  return condition;
}

Result<FaultEvent> resolve(const std::string& name, FaultOptions options, Node nodes,
                           std::uint64_t seed) {
  if (options.kind.empty()) {
    return bad("an event has a `kind`: " + join_names(kFaultKinds, "or"));
  }
  const auto kind =
      static_cast<FaultKind>(std::ranges::find(kFaultKinds, options.kind) - kFaultKinds.begin());
  // A stall is of all links of its nodes, also among them.
  if (kind == FaultKind::kStall && options.others == "rest") options.others = "all";
  STARLING_TRY(check_keys(options, kind));
  Rng rng({.seed = seed, .purpose = Purpose::kNodes, .node = hash_name("fault " + name)});
  FaultEvent event{.name = name, .kind = kind, .at = options.at, .lasts = options.lasts};
  event.step = options.step.value_or(0);
  STARLING_ASSIGN(event.nodes, read_nodes(options.nodes, nodes, rng));
  if (!event.on_links()) return event;
  STARLING_ASSIGN(const auto others, read_others(options, event.nodes, nodes, rng));
  event.links = links_between(options, kind, event.nodes, others);
  if (event.links.empty()) return bad("there is no link between `nodes` and `others`");
  STARLING_ASSIGN(event.condition, condition_of(options, kind));
  return event;
}

void sort_by_time(FaultScript& script) {
  std::ranges::stable_sort(script, [](const FaultEvent& a, const FaultEvent& b) {
    if (a.at.has_value() != b.at.has_value()) return a.at.has_value();
    return a.at ? *a.at < *b.at : a.step < b.step;
  });
}

std::string numbers(const std::vector<Node>& nodes) {
  std::string text = nodes.size() == 1 ? "node " : "nodes ";
  for (std::size_t i = 0; i < nodes.size();) {
    std::size_t last = i;
    while (last + 1 < nodes.size() && nodes[last + 1] == nodes[last] + 1) ++last;
    if (i > 0) text += ',';
    text += std::to_string(nodes[i] + 1);
    if (last > i) text += fmt::format("-{}", nodes[last] + 1);
    i = last + 1;
  }
  return text;
}

FaultOptions draw_one(const ChaosOptions& options, std::string_view kind, Node nodes, Rng& rng) {
  FaultOptions drawn;
  drawn.kind = kind;
  const auto milliseconds = [](double seconds) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(from_seconds(seconds));
  };
  drawn.at = milliseconds(rng.uniform(to_seconds(options.from), to_seconds(options.until)));
  const double lasts = to_seconds(options.lasts) * rng.uniform(0.5, 1.5);
  if (kind != "kill" && kind != "reset") drawn.lasts = milliseconds(lasts);
  if (kind == "partition") drawn.nodes = fmt::format("random:{}", std::max<Node>(1, nodes / 2));
  if (kind == "delay") {
    drawn.delay = milliseconds(rng.uniform(0.01, 0.2));
    drawn.jitter = drawn.delay / 4;
  }
  if (kind == "bandwidth") drawn.bandwidth = fmt::format("{}kB/s", 100 + rng.below(9'901));
  return drawn;
}

// "21.5ms", where format_duration counts microseconds.
std::string readable(Duration duration) {
  if (duration % std::chrono::milliseconds(1) == Duration::zero()) return format_duration(duration);
  return fmt::format("{:.4g}ms", 1e3 * to_seconds(duration));
}

std::string format_rate(double bytes_per_second) {
  return format_byte_count(static_cast<std::uint64_t>(bytes_per_second)) + "/s";
}

}  // namespace

Result<FaultScript> read_fault_script(std::string_view text, std::string_view file_name, Node nodes,
                                      std::uint64_t seed) {
  STARLING_ASSIGN(const auto entries, config::read_toml_entries(text, file_name));
  std::vector<std::pair<std::string, std::size_t>> names;  // with the line of their first key
  for (const config::TomlEntry& entry : entries) {
    const std::string name = entry.key.substr(0, entry.key.find('.'));
    if (name == entry.key) {
      return bad(
          fmt::format("{}:{}: an event is a table under a name of its own, as [{}], with the "
                      "keys at, kind and others of gossip/README.md",
                      file_name, entry.line, "first-kill"));
    }
    const auto same = [&](const auto& known) { return known.first == name; };
    if (std::ranges::none_of(names, same)) names.emplace_back(name, entry.line);
  }
  std::deque<FaultOptions> options;  // bound by address
  config::Binder binder;
  for (const auto& [name, line] : names) binder.bind(name, options.emplace_back());
  STARLING_TRY(binder.read_toml(text, file_name));
  FaultScript script;
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto event = resolve(names[i].first, options[i], nodes, seed);
    if (!event) {
      return event.error().within(
          fmt::format("{}:{}: [{}]", file_name, names[i].second, names[i].first));
    }
    script.push_back(std::move(*event));
  }
  sort_by_time(script);
  return script;
}

Result<FaultScript> draw_faults(const ChaosOptions& options, Node nodes, std::uint64_t seed) {
  if (options.until < options.from) return bad("chaos.until lies before chaos.from");
  const auto kinds = split(options.kinds, ',');
  for (const std::string_view kind : kinds) {
    if (std::ranges::find(kFaultKinds, kind) != kFaultKinds.end()) continue;
    return bad(fmt::format("chaos.kinds: '{}' is not a kind; the kinds are {}", printable(kind),
                           join_names(kFaultKinds)));
  }
  Rng rng({.seed = seed, .purpose = Purpose::kNodes, .node = hash_name("chaos")});
  FaultScript script;
  for (std::uint32_t i = 0; i < options.count; ++i) {
    const std::string_view kind = kinds[static_cast<std::size_t>(rng.below(kinds.size()))];
    const std::string name = fmt::format("chaos-{}", i + 1);
    auto event = resolve(name, draw_one(options, kind, nodes, rng), nodes, seed);
    if (!event) return event.error().within(fmt::format("{}, a {}", name, kind));
    script.push_back(std::move(*event));
  }
  sort_by_time(script);
  return script;
}

FaultScript merge(FaultScript a, FaultScript b) {
  std::ranges::move(b, std::back_inserter(a));
  sort_by_time(a);
  return a;
}

std::string to_text(const FaultEvent& event) {
  std::string text =
      event.at ? "at " + format_duration(*event.at) : fmt::format("at step {}", event.step);
  text += fmt::format(" {} of {}", kFaultKinds[static_cast<std::size_t>(event.kind)],
                      numbers(event.nodes));
  const LinkCondition& link = event.condition;
  if (event.on_links()) {
    text += fmt::format(", {} {}", event.links.size(), event.links.size() == 1 ? "link" : "links");
  }
  if (event.kind == FaultKind::kDelay) {
    text += fmt::format(", {} and up to {} more", readable(link.delay), readable(link.jitter));
  }
  if (link.bytes_per_second > 0) text += ", " + format_rate(link.bytes_per_second);
  if (event.lasts > Duration::zero()) text += " for " + format_duration(event.lasts);
  return text + " (" + event.name + ")";
}

std::vector<config::KeyDocument> fault_documents() {
  FaultOptions options;
  config::Binder binder;
  binder.bind("", options);
  return binder.documents();
}

}  // namespace starling::gossip
