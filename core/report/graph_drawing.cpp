// SPDX-License-Identifier: Apache-2.0
#include "core/report/graph_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "core/base/check.h"

namespace starling::report {
namespace {

using graph::Graph;
using graph::Node;

constexpr Node kLabelledNodes = 32;
constexpr Node kForceNodesMax = 500;
constexpr Node kNodesMax = 2000;
constexpr std::uint64_t kEdgesMax = 20'000;
constexpr Node kNodesShown = 12;  // whose edges stand for all, beyond the limits
constexpr std::size_t kPanelsInARow = 4;
constexpr double kSideAlone = 480;
constexpr double kSideOfPanel = 220;
constexpr double kPanelGap = 22;  // between panels
constexpr double kLine = 22;      // height of a line of text

constexpr std::string_view kStyle =
    "<style>"
    ".sg-e{fill:none;stroke:#8b929c;stroke-linecap:round}"
    ".sg-n{fill:#3b7dc0}"
    ".sg-a{fill:#8b929c}"
    ".sg-i{fill:#fff;text-anchor:middle}"
    ".sg-t{fill:#7d848e;text-anchor:middle}"
    ".sg-i,.sg-t{font-family:Helvetica,Arial,sans-serif}"
    "</style>";

constexpr std::string_view kFilled = R"(class="sg-n")";
constexpr std::string_view kHollow = R"(fill="none" stroke="#8b929c" stroke-width="1.4")";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      // XML has no way to write control characters.
      default:
        result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return result;
}

// "12.3", without a tail of zeros.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

struct Figure {
  double side = kSideAlone;  // of the square that holds a panel
  double radius = 4;         // of a node
  double stroke = 1;         // of an edge
  double opacity = 1;        // of an edge
  bool labels = false;
  bool few = false;  // only the edges of a few nodes
  bool grid = false;
  double left = 0, top = 0, width = 0, height = 0;  // of what is drawn of the square
  std::vector<Position> points;                     // in it

  double margin() const { return radius + 6; }
};

bool too_large(std::span<const Panel> panels) {
  std::uint64_t edges = 0;
  for (const Panel& panel : panels) edges = std::max(edges, panel.graph.edges());
  return panels[0].graph.nodes() > kNodesMax || edges > kEdgesMax;
}

double edge_opacity(std::uint64_t edges, bool few) {
  if (few || edges <= 200) return 1;
  return std::clamp(14 / std::sqrt(static_cast<double>(edges)), 0.12, 1.0);
}

Figure plan(std::span<const Panel> panels, const GraphDrawing& options) {
  const Graph& graph = panels[0].graph;
  const Node n = graph.nodes();
  Figure figure;
  figure.side = panels.size() == 1 ? kSideAlone : kSideOfPanel;
  figure.few = too_large(panels);
  figure.labels = n <= kLabelledNodes;
  // As large as neighbours on a circle leave room for.
  const double room = figure.side * 3.14 / (2.8 * std::max<Node>(n, 3));
  const double largest = panels.size() == 1 ? 13 : 8.5;
  figure.radius = std::clamp(room / 2, figure.few ? 0.6 : 1.2, largest);
  if (figure.labels) figure.radius = std::max(figure.radius, panels.size() == 1 ? 10.0 : 6.5);
  figure.stroke = n <= 64 ? 1.1 : 0.7;
  figure.opacity = edge_opacity(graph.edges() * panels.size(), figure.few);
  if (panels.size() > 1) figure.stroke *= 0.8;
  LayoutOptions nodes = options.nodes;
  if (figure.few || (nodes.layout == Layout::kForce && n > kForceNodesMax)) {
    nodes.layout = Layout::kCircle;
  }
  figure.grid = nodes.layout == Layout::kGrid;
  figure.points = layout_nodes(graph, nodes);
  const double span = figure.side - 2 * figure.margin();
  for (Position& point : figure.points) {
    point = {figure.margin() + span * point.x, figure.margin() + span * point.y};
  }
  return figure;
}

// Cuts what the points leave empty above and below, or beside.
void crop(Figure& figure) {
  // Ends of edges around a grid, and half a character of a label.
  const double around = figure.margin() + (figure.grid ? figure.radius + 8 : 0);
  const auto [left, right] = std::ranges::minmax(figure.points, {}, &Position::x);
  const auto [top, bottom] = std::ranges::minmax(figure.points, {}, &Position::y);
  figure.left = left.x - around;
  figure.top = top.y - around;
  figure.width = right.x - left.x + 2 * around;
  figure.height = bottom.y - top.y + 2 * around;
}

class Writer {
 public:
  Writer(const Figure& figure, const GraphDrawing& options) : figure_(figure), options_(options) {}

  void open(double width, double height) {
    out(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img">)",
        number(width), number(height));
    if (!options_.title.empty()) out("<title>{}</title>", escaped(options_.title));
    out("{}", kStyle);
  }
  void panel(const Panel& panel, double x, double y) {
    out("<g transform=\"translate({} {})\">", number(x - figure_.left), number(y - figure_.top));
    edges(panel.graph);
    nodes();
    text(panel.label, figure_.left + figure_.width / 2, figure_.top + figure_.height + kLine * 0.6,
         13);
    out("</g>");
  }
  void text(std::string_view words, double x, double y, double size) {
    if (words.empty()) return;
    out(R"(<text class="sg-t" x="{}" y="{}" font-size="{}">{}</text>)", number(x), number(y),
        number(size), escaped(words));
  }
  std::string close() && { return std::move(svg_) + "</svg>\n"; }

 private:
  template <class... Arguments>
  void out(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Arguments>(arguments)...);
    svg_ += '\n';
  }

  bool shown(Node from) const {
    if (!figure_.few) return true;
    const Node n = static_cast<Node>(figure_.points.size());
    const Node every = std::max<Node>(1, n / kNodesShown);
    return from % every == 0 && from / every < kNodesShown;
  }

  void edges(const Graph& graph) {
    lines_.clear();
    heads_.clear();
    for (Node from = 0; from < graph.nodes(); ++from) {
      if (!shown(from)) continue;
      for (const Node to : graph.successors(from)) {
        if (graph.directed() || from < to || !shown(to)) edge(from, to, graph.directed());
      }
    }
    out(R"(<path class="sg-e" stroke-width="{}" stroke-opacity="{}" d="{}"/>)",
        number(figure_.stroke), number(figure_.opacity), lines_);
    if (!heads_.empty()) {
      out(R"(<path class="sg-a" fill-opacity="{}" d="{}"/>)", number(figure_.opacity), heads_);
    }
  }

  void edge(Node from, Node to, bool directed) {
    if (figure_.grid && around_the_grid(from, to)) return;
    const Position a = figure_.points[from];
    const Position b = figure_.points[to];
    const double dx = b.x - a.x;
    const double dy = b.y - a.y;
    const double length = std::sqrt(dx * dx + dy * dy);
    if (length <= 2 * figure_.radius) return;
    const double size = std::clamp(figure_.radius, 2.5, 6.0);  // of the arrow's head
    const double end = 1 - (figure_.radius + (directed ? size * 0.8 : 0)) / length;
    fmt::format_to(
        std::back_inserter(lines_), "M{} {}L{} {}", number(a.x + dx * figure_.radius / length),
        number(a.y + dy * figure_.radius / length), number(a.x + dx * end), number(a.y + dy * end));
    if (directed) head(b, dx / length, dy / length, size);
  }

  // A triangle that touches the node at `at`.
  void head(Position at, double dx, double dy, double size) {
    const double x = at.x - dx * figure_.radius;
    const double y = at.y - dy * figure_.radius;
    const double back_x = x - dx * size;
    const double back_y = y - dy * size;
    const double half = size * 0.38;
    fmt::format_to(std::back_inserter(heads_), "M{} {}L{} {}L{} {}Z", number(x), number(y),
                   number(back_x - dy * half), number(back_y + dx * half),
                   number(back_x + dy * half), number(back_y - dx * half));
  }

  // An edge that leaves the grid on one side and comes back on the other: its two ends.
  bool around_the_grid(Node from, Node to) {
    const int columns = static_cast<int>(options_.nodes.columns);
    const int rows = static_cast<int>(to) / columns - static_cast<int>(from) / columns;
    const int across = static_cast<int>(to) % columns - static_cast<int>(from) % columns;
    if (std::abs(rows) <= 1 && std::abs(across) <= 1) return false;
    const double x = across == 0 ? 0 : (across > 0 ? -1 : 1);
    const double y = rows == 0 ? 0 : (rows > 0 ? -1 : 1);
    end_of_edge(figure_.points[from], x, y);
    end_of_edge(figure_.points[to], -x, -y);
    return true;
  }
  void end_of_edge(Position at, double x, double y) {
    const double near = figure_.radius;
    const double far = 2 * figure_.radius + 8;
    fmt::format_to(std::back_inserter(lines_), "M{} {}L{} {}", number(at.x + x * near),
                   number(at.y + y * near), number(at.x + x * far), number(at.y + y * far));
  }

  void nodes() {
    if (figure_.few && figure_.points.size() > kNodesMax) {
      return ring();
    }
    for (std::size_t i = 0; i < figure_.points.size(); ++i) {
      const Position& point = figure_.points[i];
      const bool hollow = !options_.hollow.empty() && options_.hollow[i];
      out(R"(<circle {} cx="{}" cy="{}" r="{}"/>)", hollow ? kHollow : kFilled, number(point.x),
          number(point.y), number(figure_.radius));
      if (!figure_.labels) continue;
      const double size = std::min(figure_.radius * 1.1, 12.0);
      out(R"(<text class="{}" x="{}" y="{}" font-size="{}">{}</text>)", hollow ? "sg-t" : "sg-i",
          number(point.x), number(point.y + size * 0.35), number(size), i);
    }
  }
  // So many nodes that they make a line; those whose edges are drawn stand out.
  void ring() {
    const double middle = figure_.side / 2;
    out(R"(<circle fill="none" stroke="#3b7dc0" stroke-width="1.4" cx="{0}" cy="{0}" r="{1}"/>)",
        number(middle), number(middle - figure_.margin()));
    for (Node i = 0; i < figure_.points.size(); ++i) {
      if (!shown(i)) continue;
      out(R"(<circle class="sg-n" cx="{}" cy="{}" r="3.2"/>)", number(figure_.points[i].x),
          number(figure_.points[i].y));
    }
  }

  const Figure& figure_;
  const GraphDrawing& options_;
  std::string svg_;
  std::string lines_;
  std::string heads_;
};

std::string caption_of(const Figure& figure, const GraphDrawing& options) {
  if (!figure.few) return options.caption;
  const std::size_t n = figure.points.size();
  return fmt::format("{}{}edges of {} of {} nodes", options.caption,
                     options.caption.empty() ? "" : "; ", std::min<std::size_t>(kNodesShown, n), n);
}

}  // namespace

std::string draw_graph(const Graph& graph, const GraphDrawing& options) {
  const Panel alone{graph, ""};
  return draw_graphs({&alone, 1}, options);
}

std::string draw_graphs(std::span<const Panel> panels, const GraphDrawing& options) {
  STARLING_CHECK(!panels.empty());
  for (const Panel& panel : panels) STARLING_CHECK(panel.graph.nodes() == panels[0].graph.nodes());
  Figure figure = plan(panels, options);
  crop(figure);
  const bool labelled =
      std::ranges::any_of(panels, [](auto& panel) { return !panel.label.empty(); });
  const double row = figure.height + (labelled ? kLine : 0);
  const std::size_t columns = std::min(panels.size(), kPanelsInARow);
  const std::size_t rows = (panels.size() + columns - 1) / columns;
  const std::string caption = caption_of(figure, options);
  const double across = static_cast<double>(columns) * (figure.width + kPanelGap) - kPanelGap;
  // Wide enough for the caption too: about 6.3 units a character.
  const double width = std::max(across, 6.3 * static_cast<double>(caption.size()) + 12);
  const double height = static_cast<double>(rows) * row + (caption.empty() ? 0 : kLine);
  Writer writer(figure, options);
  writer.open(width, height);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const std::size_t above = i / columns;
    writer.panel(
        panels[i],
        (width - across) / 2 + static_cast<double>(i % columns) * (figure.width + kPanelGap),
        static_cast<double>(above) * row);
  }
  writer.text(caption, width / 2, height - kLine * 0.35, 12);
  return std::move(writer).close();
}

}  // namespace starling::report
