// SPDX-License-Identifier: Apache-2.0
#include "core/report/page.h"

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/report/chart.h"
#include "core/report/markup.h"
#include "core/report/page_style.h"

namespace starling::report {
namespace {

// The policy allows the page's own
// style and pictures within the page, nothing else.
constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"/>
)";

}  // namespace

Page::Page(std::string_view title, std::string_view subtitle) : title_(title) {
  body_ =
      fmt::format("<header>\n<h1>{}</h1>\n<p>{}</p>\n</header>\n", escape(title), escape(subtitle));
}

void Page::headlines(std::span<const Fact> facts) {
  body_ += "<dl class=\"headlines\">\n";
  for (const Fact& fact : facts) {
    body_ += fmt::format("<div><dt>{}</dt><dd>{}", escape(fact.label), escape(fact.value));
    if (!fact.detail.empty()) body_ += fmt::format("<small>{}</small>", escape(fact.detail));
    body_ += "</dd></div>\n";
  }
  body_ += "</dl>\n";
}

void Page::end_section() {
  if (in_section_) body_ += "</section>\n";
  in_section_ = false;
}

void Page::section(std::string_view title, std::string_view introduction) {
  end_section();
  in_section_ = true;
  body_ += fmt::format("<section>\n<h2>{}</h2>\n", escape(title));
  if (!introduction.empty()) paragraph(introduction);
}

void Page::subsection(std::string_view title) {
  body_ += fmt::format("<h3>{}</h3>\n", escape(title));
}

void Page::begin_panels() { body_ += "<div class=\"panels\">\n"; }
void Page::begin_grid() { body_ += "<div class=\"grid\">\n"; }
void Page::end_grid() { body_ += "</div>\n"; }

void Page::table(const Table& table, std::string_view id) {
  const std::string name = id.empty() ? "" : fmt::format(" id=\"{}\"", escape(id));
  const auto kind = [&](std::size_t column) {
    return table.columns[column].number ? " class=\"number\"" : "";
  };
  body_ += fmt::format("<div class=\"scroll\" tabindex=\"0\">\n<table{}>\n<thead><tr>", name);
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    body_ += fmt::format("<th scope=\"col\"{}>{}</th>", kind(i), escape(table.columns[i].title));
  }
  body_ += "</tr></thead>\n<tbody>\n";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    STARLING_CHECK(table.rows[r].size() == table.columns.size());
    body_ += "<tr>";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const std::string& cell = table.rows[r][i];
      const bool named = i == 0 && !table.columns[i].number;
      std::string text = named ? escape_name(cell) : escape(cell);
      if (i == 0 && r < table.styles.size()) {
        text = fmt::format("<div class=\"marked\">{}<span>{}</span></div>", swatch(table.styles[r]),
                           text);
      }
      body_ += fmt::format("<td{}>{}</td>", kind(i), text);
    }
    body_ += "</tr>\n";
  }
  body_ += "</tbody>\n</table>\n</div>\n";
}

void Page::facts(std::span<const Fact> facts) {
  body_ += "<dl class=\"facts\">\n";
  for (const Fact& fact : facts) {
    body_ += fmt::format(
        "<dt>{}</dt><dd>{}{}</dd>\n", escape(fact.label), escape(fact.value),
        fact.detail.empty() ? "" : fmt::format(" <small>{}</small>", escape(fact.detail)));
  }
  body_ += "</dl>\n";
}

void Page::begin_card(std::string_view title) {
  body_ += fmt::format("<figure>\n<figcaption>{}</figcaption>\n", escape(title));
}
void Page::end_card() { body_ += "</figure>\n"; }

void Page::picture(std::string_view title, std::string_view svg, std::string_view note) {
  // As an image nothing in it can run or be fetched, and its ids cannot meet the page's.
  body_ += fmt::format(
      "<figure class=\"chart\">\n<figcaption>{}</figcaption>\n<img class=\"picture\" alt=\"{}\" "
      "src=\"{}\"/>\n",
      escape_name(title), escape(title), data_uri("image/svg+xml", svg));
  if (!note.empty()) body_ += fmt::format("<p class=\"note\">{}</p>\n", escape(note));
  body_ += "</figure>\n";
}

void Page::begin_details(std::string_view summary) {
  body_ += fmt::format("<details>\n<summary>{}</summary>\n", escape(summary));
}
void Page::end_details() { body_ += "</details>\n"; }

void Page::paragraph(std::string_view text) {
  body_ += fmt::format("<p class=\"prose\">{}</p>\n", escape(text));
}

std::string Page::html(std::string_view footer) const {
  return fmt::format(
      "{}<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{}{}"
      "<footer>{}</footer>\n</main>\n</body>\n</html>\n",
      kHead, escape(title_), page_style(), body_, in_section_ ? "</section>\n" : "",
      escape(footer));
}

}  // namespace starling::report
