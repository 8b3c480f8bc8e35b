// SPDX-License-Identifier: Apache-2.0
// One self-contained HTML page, which is also well-formed XML: its style within it, no script, and
// a policy that forbids the browser to fetch anything. Text that is given is escaped here; `raw`
// takes what other parts of core/report have drawn.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace starling::report {

struct Fact {
  std::string label;
  std::string value;
  std::string detail = {};  // small, below the value
};

struct TableColumn {
  std::string title;
  bool number = false;  // aligned on the right
};
struct Table {
  std::vector<TableColumn> columns;
  std::vector<std::vector<std::string>> rows;  // a cell for each column
  std::vector<int> styles = {};                // of series, in front of the first cell; or empty
};

class Page {
 public:
  Page(std::string_view title, std::string_view subtitle);

  // Headline numbers as cards.
  void headlines(std::span<const Fact> facts);
  void section(std::string_view title, std::string_view introduction = "");
  // A heading within the section.
  void subsection(std::string_view title);
  // What is between them stands side by side where there is room.
  void begin_grid();
  void end_grid();
  void begin_panels();  // smaller; ends with end_grid()
  // `id` names the table for programs that read it.
  void table(const Table& table, std::string_view id = "");
  // Labels and values, two columns.
  void facts(std::span<const Fact> facts);
  // What is between them stands in a frame of the grid.
  void begin_card(std::string_view title);
  void end_card();
  // A card with a picture.
  void picture(std::string_view title, std::string_view svg, std::string_view note);
  // What follows until end_details() is folded away.
  void begin_details(std::string_view summary);
  void end_details();
  void paragraph(std::string_view text);
  void raw(std::string_view markup) { body_ += markup; }

  // The whole page; `footer` at its end.
  std::string html(std::string_view footer) const;

 private:
  void end_section();

  std::string title_;
  std::string body_;
  bool in_section_ = false;
};

}  // namespace starling::report
