// SPDX-License-Identifier: Apache-2.0
#include "topologies/edge_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/base/nearest_name.h"
#include "topologies/family.h"

namespace starling::topologies {
namespace {

constexpr std::uintmax_t kFileBytesMax = 1'000'000'000;
constexpr std::size_t kEdgesMax = 10'000'000;
constexpr std::size_t kColumnsMax = 3;

Error bad_line(std::size_t line, const std::string& why) {
  return rejected("edge-list", fmt::format("line {}: {}", line, why));
}

bool is_separator(char c) { return c == ' ' || c == '\t' || c == ',' || c == ';' || c == '\r'; }

// One more than kColumnsMax at most, so that too many are seen as such.
std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  line = line.substr(0, line.find('#'));
  while (columns.size() <= kColumnsMax) {
    while (!line.empty() && is_separator(line.front())) line.remove_prefix(1);
    if (line.empty()) break;
    const auto end = std::ranges::find_if(line, is_separator) - line.begin();
    columns.push_back(line.substr(0, static_cast<std::size_t>(end)));
    line.remove_prefix(static_cast<std::size_t>(end));
  }
  return columns;
}

template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

Result<Node> parse_node(std::string_view text, std::size_t line) {
  Node node = 0;
  if (!parse_number(text, node) || node >= kNodesMax) {
    return bad_line(line, fmt::format("'{}' is not the number of a node, 0 to {}", printable(text),
                                      kNodesMax - 1));
  }
  return node;
}

class Parser {
 public:
  explicit Parser(bool directed) : directed_(directed) {}

  Result<void> take(std::string_view text) {
    ++line_;
    const auto columns = columns_of(text);
    if (columns.empty() || is_header(columns)) return {};
    if (columns.size() < 2 || columns.size() > kColumnsMax) {
      return bad_line(line_, "an edge is two node numbers, and a weight if any has one");
    }
    if (list_.edges.size() == kEdgesMax) {
      return bad_line(line_, fmt::format("there are more than {} edges", kEdgesMax));
    }
    STARLING_ASSIGN(const Node from, parse_node(columns[0], line_));
    STARLING_ASSIGN(const Node to, parse_node(columns[1], line_));
    if (from == to) return bad_line(line_, fmt::format("node {} is joined to itself", from));
    if (columns.size() == kColumnsMax) STARLING_TRY(take_weight(columns[2]));
    list_.edges.push_back({from, to});
    lines_.push_back(line_);
    if (!list_.weights.empty() && list_.weights.size() != list_.edges.size()) {
      return bad_line(line_, "some edges have a weight and some have none");
    }
    list_.nodes = std::max({list_.nodes, from + 1, to + 1});
    return {};
  }

  Result<EdgeList> finish() && {
    if (list_.edges.empty()) return rejected("edge-list", "it has no edge");
    STARLING_TRY(check_distinct());
    return std::move(list_);
  }

 private:
  bool is_header(const std::vector<std::string_view>& columns) {
    const bool first = !seen_content_;
    seen_content_ = true;
    return first && std::ranges::none_of(columns, [](std::string_view column) {
             return column.find_first_of("0123456789") != column.npos;
           });
  }

  Result<void> take_weight(std::string_view text) {
    double weight = 0;
    if (!parse_number(text, weight) || !(weight > 0 && weight <= 1)) {
      return bad_line(line_, fmt::format("the weight '{}' is not a number above 0, at most 1",
                                         printable(text)));
    }
    list_.weights.push_back(weight);
    return {};
  }

  Edge key(std::size_t i) const {
    const Edge& edge = list_.edges[i];
    return directed_ || edge.from < edge.to ? edge : Edge{edge.to, edge.from};
  }

  Result<void> check_distinct() const {
    std::vector<std::uint32_t> order(list_.edges.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order,
                      [&](auto a, auto b) { return std::pair(key(a), a) < std::pair(key(b), b); });
    const auto twice =
        std::ranges::adjacent_find(order, [&](auto a, auto b) { return key(a) == key(b); });
    if (twice == order.end()) return {};
    return bad_line(
        lines_[*(twice + 1)],
        fmt::format("the edge {}-{} stood on line {} already; give each once{}", key(*twice).from,
                    key(*twice).to, lines_[*twice], directed_ ? "" : ", or say directed=true"));
  }

  bool directed_;
  bool seen_content_ = false;
  std::size_t line_ = 0;
  EdgeList list_;
  std::vector<std::size_t> lines_;  // where each edge stood
};

// Weights of the file; each node keeps what is left.
Result<Step> weighted_step(const Request& request, Node nodes, const EdgeList& list,
                           bool directed) {
  Step step = Step::idle(nodes);
  for (std::size_t i = 0; i < list.edges.size(); ++i) {
    const auto [from, to] = list.edges[i];
    if (directed) {
      step.entries.push_back({to, from, list.weights[i]});
      step.diagonal[to] -= list.weights[i];
    } else {
      step.exchange(from, to, list.weights[i]);
    }
  }
  for (Node i = 0; i < nodes; ++i) {
    constexpr double kRounding = 1e-13;
    if (step.diagonal[i] < -kRounding) {
      return request.wrong(
          fmt::format("gives node {} more than 1 to mix, {:.6g}", i, 1 - step.diagonal[i]));
    }
    step.diagonal[i] = std::max(step.diagonal[i], 0.0);
  }
  return step;
}

// What arrives counts alike with one's own: 1 / (1 + in-degree).
Step uniform_step(Node nodes, const std::vector<Edge>& edges) {
  Step step = Step::idle(nodes);
  std::vector<Node> heard(nodes);
  for (const Edge& edge : edges) ++heard[edge.to];
  for (const Edge& edge : edges) {
    step.entries.push_back({edge.to, edge.from, 1.0 / (1.0 + heard[edge.to])});
  }
  for (Node i = 0; i < nodes; ++i) step.diagonal[i] = 1.0 / (1.0 + heard[i]);
  return step;
}

struct FileSpec {
  std::string path;
  bool directed = false;
};

// "PATH[,directed=true|false]": a path may have commas, so only this end is a parameter.
FileSpec file_spec(std::string_view parameters) {
  for (const auto& [end, directed] : {std::pair(std::string_view(",directed=true"), true),
                                      std::pair(std::string_view(",directed=false"), false)}) {
    if (!parameters.ends_with(end)) continue;
    return {std::string(parameters.substr(0, parameters.size() - end.size())), directed};
  }
  return {std::string(parameters), false};
}

}  // namespace

Result<EdgeList> parse_edge_list(std::string_view text, bool directed) {
  Parser parser(directed);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    STARLING_TRY(parser.take(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(parser).finish();
}

Result<EdgeList> read_edge_list(const std::string& path, bool directed) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) {
    return rejected("edge-list", "there is no file of this name");
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, code);
  if (!code && bytes > kFileBytesMax) {
    return rejected("edge-list", fmt::format("the file is larger than {} bytes", kFileBytesMax));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(code ? 0 : bytes, '\0');
  if (code || !file.read(text.data(), static_cast<std::streamsize>(bytes))) {
    return rejected("edge-list", "the file cannot be read");
  }
  return parse_edge_list(text, directed);
}

// Undirected: Metropolis-Hastings unless the file has weights; directed: uniform.
Result<Blueprint> file_graph(const Request& request) {
  const FileSpec file = file_spec(request.parameters);
  if (file.path.empty()) return request.wrong("names no file; write file:PATH");
  const auto list = read_edge_list(file.path, file.directed);
  if (!list) return request.wrong("is no edge list: " + list.error().message());
  const Node nodes = request.nodes() == 0 ? list->nodes : request.nodes();
  if (list->nodes > nodes) {
    return request.impossible(
        fmt::format("its file has a node {}; it needs {} nodes", list->nodes - 1, list->nodes));
  }
  std::string name = "file:" + file.path + (file.directed ? ",directed=true" : "");
  if (!list->weights.empty()) {
    STARLING_ASSIGN(Step step, weighted_step(request, nodes, *list, file.directed));
    return Blueprint::fixed(std::move(name), std::move(step));
  }
  return Blueprint::fixed(std::move(name), file.directed ? uniform_step(nodes, list->edges)
                                                         : metropolis(nodes, list->edges));
}

}  // namespace starling::topologies
