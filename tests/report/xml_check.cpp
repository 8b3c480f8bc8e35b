// SPDX-License-Identifier: Apache-2.0
#include "tests/report/xml_check.h"

#include <array>
#include <cctype>
#include <utility>

namespace starling::testing {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kEntities = {
    {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}}};

std::string fault_in_text(std::string_view text) {
  for (std::size_t at = text.find('&'); at != text.npos; at = text.find('&', at + 1)) {
    bool known = false;
    for (const auto& [entity, meaning] : kEntities) known |= text.substr(at).starts_with(entity);
    if (!known) return "unknown entity at: " + std::string(text.substr(at, 30));
  }
  for (const unsigned char c : text) {
    if (c < 0x20 && c != '\n' && c != '\t') return "a control byte";
  }
  return {};
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-'; }

// What follows the name in a tag: attributes in double quotes, each separated by blanks.
std::string fault_in_attributes(std::string_view text) {
  while (!text.empty()) {
    if (!std::isspace(static_cast<unsigned char>(text.front()))) {
      return "no blank before: " + std::string(text);
    }
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
      text.remove_prefix(1);
    }
    std::size_t name = 0;
    while (name < text.size() && is_name(text[name])) ++name;
    if (name == 0 || text.substr(name, 2) != "=\"") return "attribute: " + std::string(text);
    const std::size_t end = text.find('"', name + 2);
    if (end == text.npos) return "open quote: " + std::string(text);
    const std::string fault = fault_in_text(text.substr(name + 2, end - name - 2));
    if (!fault.empty()) return fault;
    text.remove_prefix(end + 1);
  }
  return {};
}

std::string unescaped(std::string text) {
  for (const auto& [entity, meaning] : kEntities) {
    for (std::size_t at = text.find(entity); at != text.npos; at = text.find(entity, at + 1)) {
      text.replace(at, entity.size(), meaning);
    }
  }
  return text;
}

// The end of the tag that begins at `at`, quotes respected; npos where it has none.
std::size_t tag_end(std::string_view page, std::size_t at) {
  bool quoted = false;
  for (; at < page.size(); ++at) {
    if (page[at] == '"') quoted = !quoted;
    if (page[at] == '>' && !quoted) return at;
  }
  return page.npos;
}

}  // namespace

std::string find_fault(std::string_view page) {
  constexpr std::string_view kDoctype = "<!DOCTYPE html>\n";
  if (page.starts_with(kDoctype)) page.remove_prefix(kDoctype.size());
  std::vector<std::string> open;
  while (!page.empty()) {
    const std::size_t at = page.find('<');
    const bool in_style = !open.empty() && open.back() == "style";
    const std::string fault = in_style ? "" : fault_in_text(page.substr(0, at));
    if (!fault.empty()) return fault;
    if (at == page.npos) break;
    const std::size_t end = tag_end(page, at);
    if (end == page.npos) return "open tag";
    std::string_view tag = page.substr(at + 1, end - at - 1);
    page.remove_prefix(end + 1);
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return "closes " + std::string(tag);
      open.pop_back();
      continue;
    }
    const bool closed = tag.ends_with('/');
    if (closed) tag.remove_suffix(1);
    std::size_t name = 0;
    while (name < tag.size() && is_name(tag[name])) ++name;
    if (name == 0) return "tag: " + std::string(tag);
    const std::string wrong = fault_in_attributes(tag.substr(name));
    if (!wrong.empty()) return wrong;
    if (!closed) open.emplace_back(tag.substr(0, name));
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

std::vector<std::vector<std::string>> read_table(std::string_view page, std::string_view id) {
  std::vector<std::vector<std::string>> rows;
  const std::string head = "<table id=\"" + std::string(id) + "\">";
  const std::size_t begin = page.find(head);
  if (begin == page.npos) return rows;
  page = page.substr(begin, page.find("</table>", begin) - begin);
  std::string cell;
  bool in_cell = false;
  while (!page.empty()) {
    if (page.front() != '<') {
      const std::size_t end = std::min(page.find('<'), page.size());
      if (in_cell) cell += page.substr(0, end);
      page.remove_prefix(end);
      continue;
    }
    if (page.starts_with("<tr")) rows.emplace_back();
    if (page.starts_with("<td") || page.starts_with("<th ")) in_cell = true;
    if (page.starts_with("</td") || page.starts_with("</th>")) {
      rows.back().push_back(unescaped(std::exchange(cell, {})));
      in_cell = false;
    }
    page.remove_prefix(tag_end(page, 0) + 1);
  }
  return rows;
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace starling::testing
