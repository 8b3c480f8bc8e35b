// SPDX-License-Identifier: Apache-2.0
// g++ 12 compiles many ordinary uses of co_await into double destructions and crashes, without a
// warning. One plain shape is right everywhere, so the tree keeps to it: co_await stands first in
// its statement, as initialiser of one variable, as right side of a plain assignment, or after
// co_return; what is awaited holds no brace (aggregate, lambda) and no conditional operator.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/source_text.h"

namespace starling {
namespace {

using starling::testing::Violation;
using Offset = std::size_t;
constexpr Offset kNone = std::string_view::npos;

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view first_word(std::string_view text) {
  return {text.begin(), std::ranges::find_if_not(text, is_word)};
}

std::string_view last_word(std::string_view text) {
  Offset begin = text.size();
  while (begin > 0 && is_word(text[begin - 1])) --begin;
  return text.substr(begin);
}

// The offset just before the bracket that `text`'s last character closes, or kNone.
Offset before_group(std::string_view text, char open) {
  char close = text.back();
  int depth = 0;
  for (Offset i = text.size(); i-- > 0;) {
    if (text[i] == close) ++depth;
    if (text[i] == open && --depth == 0) return i;
  }
  return kNone;
}

// What stands before a '{'. `lambda_captures` is set where the brace opens a lambda's body.
struct Opener {
  bool is_block = true;  // otherwise a braced initialiser
  std::optional<std::string_view> lambda_captures;
};

// `text` less a trailing return type, specifiers and a parameter list.
std::string_view without_signature(std::string_view text) {
  constexpr std::array<std::string_view, 6> kSpecifiers = {"mutable",  "noexcept", "const",
                                                           "override", "final",    "constexpr"};
  if (Offset arrow = text.rfind("->"); arrow != kNone) {
    std::string_view type = text.substr(arrow + 2);
    if (type.find_first_of("();={}") == kNone) text = trimmed(text.substr(0, arrow));
  }
  while (std::ranges::count(kSpecifiers, last_word(text)) > 0) {
    text = trimmed(text.substr(0, text.size() - last_word(text).size()));
  }
  if (!text.empty() && text.back() == ')') {
    Offset open = before_group(text, '(');
    text = open == kNone ? "" : trimmed(text.substr(0, open));
  }
  return text;
}

Opener opener_of(std::string_view before) {
  before = trimmed(before);
  if (before.empty()) return {};
  std::string_view callee = without_signature(before);
  if (!callee.empty() && callee.back() == ']') {
    Offset open = before_group(callee, '[');
    bool index =
        open != kNone && open > 0 && (is_word(callee[open - 1]) || callee[open - 1] == '[');
    bool keyword = open != kNone && last_word(trimmed(callee.substr(0, open))) == "co_return";
    if (open != kNone && (!index || keyword)) {
      return {true, trimmed(callee.substr(open + 1, callee.size() - open - 2))};
    }
  }
  std::string_view word = last_word(before);
  bool block = callee.size() != before.size() || word == "else" || word == "do" || word == "try" ||
               std::string_view(";{}:)").find(before.back()) != kNone;
  return {block, {}};
}

// Removes from the front of a statement what may stand before a simple statement: labels,
// attributes, `else`, and the heads of if, for and while without braces.
std::string_view without_control(std::string_view head) {
  for (;;) {
    head = trimmed(head);
    std::string_view word = first_word(head);
    std::string_view rest = trimmed(head.substr(word.size()));
    if (word == "else" || word == "do") {
      head = rest;
    } else if (word == "case" || word == "default") {
      Offset colon = rest.find(':');
      while (colon != kNone && rest.substr(colon, 2) == "::") colon = rest.find(':', colon + 2);
      if (colon == kNone) return head;
      head = rest.substr(colon + 1);
    } else if (word == "if" || word == "for" || word == "while") {
      if (first_word(rest) == "constexpr") rest = trimmed(rest.substr(9));
      int depth = 0;
      Offset end = 0;
      for (; end < rest.size(); ++end) {
        if (rest[end] == '(') ++depth;
        if (rest[end] == ')' && --depth == 0) break;
      }
      if (end >= rest.size()) return head;
      head = rest.substr(end + 1);
    } else if (head.starts_with("[[") && head.find("]]") != kNone) {
      head = head.substr(head.find("]]") + 2);
    } else {
      return head;
    }
  }
}

// Whether `target =` declares one variable or binding, or assigns to one.
bool is_plain_target(std::string_view target) {
  std::string text(target);
  for (Offset at = text.find("->"); at != kNone; at = text.find("->")) text.replace(at, 2, ".");
  if (text.empty() || text.find_first_of("=+-/%^|!?(){};") != kNone) return false;
  int depth = 0;
  for (char c : text) {
    if (c == '<' || c == '[') ++depth;
    if (c == '>' || c == ']') --depth;
    if (c == ',' && depth == 0) return false;
  }
  return true;
}

// `head` is what stands between the start of the statement and co_await.
bool is_allowed_head(std::string_view head) {
  head = without_control(head);
  if (head.empty() || head == "co_return") return true;
  if (head.back() != '=') return false;
  return is_plain_target(trimmed(head.substr(0, head.size() - 1)));
}

// Where the statement that holds offset `at` begins: after a ';', a brace or an open parenthesis.
Offset statement_begin(std::string_view text, Offset at) {
  int depth = 0;
  for (Offset i = at; i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth < 0) return i + 1;
    if (depth == 0 && (text[i] == ';' || text[i] == '{' || text[i] == '}')) return i + 1;
  }
  return 0;
}

Offset expression_end(std::string_view text, Offset at) {
  int depth = 0;
  for (Offset i = at; i < text.size(); ++i) {
    if (std::string_view("([{").find(text[i]) != kNone) ++depth;
    if (std::string_view(")]}").find(text[i]) != kNone && --depth < 0) return i;
    if (text[i] == ';' && depth == 0) return i;
  }
  return text.size();
}

std::vector<std::string> faults_of_await(std::string_view text, Offset at) {
  std::vector<std::string> faults;
  Offset begin = statement_begin(text, at);
  char opener = begin == 0 ? ';' : text[begin - 1];
  if (opener == '(') {
    faults.emplace_back("co_await stands in a condition or an argument; name its result first");
  } else if (opener == '{' && !opener_of(text.substr(0, begin - 1)).is_block) {
    faults.emplace_back("co_await stands in a braced initialiser; name its result first");
  } else if (!is_allowed_head(text.substr(begin, at - begin))) {
    faults.emplace_back("co_await is not alone on the right side; name its result first");
  }
  std::string_view awaited = text.substr(at, expression_end(text, at) - at);
  if (awaited.find('{') != kNone) {
    faults.emplace_back("what is awaited holds a brace or a lambda; name that operand first");
  }
  if (awaited.find('?') != kNone) {
    faults.emplace_back("what is awaited holds a conditional operator; name the choice first");
  }
  return faults;
}

// Whether the function around `at` is a lambda that captures.
bool is_in_capturing_lambda(std::string_view text, Offset at) {
  int depth = 0;
  for (Offset i = at; i-- > 0;) {
    if (text[i] == '}') ++depth;
    if (text[i] != '{' || --depth >= 0) continue;
    depth = 0;
    Opener opener = opener_of(text.substr(0, i));
    if (opener.lambda_captures) return !opener.lambda_captures->empty();
  }
  return false;
}

std::vector<Offset> words(std::string_view text, std::string_view word) {
  std::vector<Offset> found;
  for (Offset at = text.find(word); at != kNone; at = text.find(word, at + 1)) {
    Offset end = at + word.size();
    bool whole = (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
    if (whole) found.push_back(at);
  }
  return found;
}

std::vector<Violation> lint(const testing::SourceFile& file) {
  std::string text = testing::without_literals(file.text);
  std::vector<Violation> violations;
  auto add = [&](Offset at, std::string rule) {
    violations.push_back({file.path, testing::line_of(text, at), std::move(rule)});
  };
  for (Offset at : words(text, "co_await")) {
    for (std::string& fault : faults_of_await(text, at)) add(at, std::move(fault));
  }
  for (std::string_view word : {"co_await", "co_return", "co_yield"}) {
    for (Offset at : words(text, word)) {
      if (is_in_capturing_lambda(text, at)) {
        add(at, "the coroutine is a lambda that captures; its captures die before it: name it");
      }
    }
  }
  return violations;
}

// `body` within a coroutine.
std::vector<Violation> lint_body(const std::string& body) {
  return lint({"a.cpp", "awaitable<int> f(int a) {\n" + body + "\n}\n"});
}

std::string sentences(const std::vector<Violation>& violations) {
  std::ostringstream text;
  for (const Violation& violation : violations) text << violation << '\n';
  return text.str();
}

TEST(CoroutineLint, BrokenFormsAreFound) {
  const std::vector<std::string> bodies = {
      // Aggregates among the operands.
      "auto n = co_await f(Options{.name = s});",
      "auto n = co_await f({a, b});",
      "co_await f(std::array<std::string, 2>{a, b});",
      "co_return co_await f(Options{s, t});",
      "n = co_await f(\n    Options{\n        .name = s});",
      // Lambdas among the operands.
      "co_await call([s] { return s; });",
      "co_await co_spawn(e, [x]() { g(x); }, token);",
      "auto n = co_await call([&]() mutable -> int { return 1; });",
      // The conditional operator.
      "auto n = c ? co_await f() : T{};",
      "auto n = co_await (c ? f() : g());",
      "co_await f(c ? make() : std::string(\"b\"));",
      "auto n = co_await f() ? 1 : 2;",
      "co_return c ? co_await f() : 0;",
      // Braced initialisers.
      "Pair p{co_await f(), co_await g()};",
      "Options o{.x = co_await f()};",
      "auto p = Pair{co_await f(), 1};",
      "co_return Pair{co_await f(), 1};",
      "g(Pair{co_await f(), 1});",
      "std::vector<int> v = {co_await f()};",
      // Conditions.
      "if (co_await f()) return;",
      "if ((co_await f()) > 0 || (co_await g()) > 0) co_return;",
      "while (co_await f()) { g(); }",
      "switch (co_await f()) { default: break; }",
      "for (;;) { if (co_await f()) co_return; }",
      "if (auto x = co_await f(); x) co_return;",
      "do { g(); } while (co_await f());",
      "for (int i = co_await f(); i > 0; --i) {}",
      // Not alone in its statement.
      "auto n = co_await f() + co_await g();",
      "auto n = 1 + co_await f();",
      "auto n = !co_await f();",
      "v.push_back(co_await f());",
      "g(co_await f());",
      "auto n = (co_await f()).value();",
      "int n(co_await f());",
      "n += co_await f();",
      "auto n = m = co_await f();",
      "int a = 1, b = co_await f();",
      "co_return 1 + co_await f();",
      "STARLING_ASSIGN(auto n, co_await f());",
      "co_yield co_await f();",
      "auto n = co_await f(co_await g());",
      "a && co_await f();",
  };
  for (const std::string& body : bodies) EXPECT_FALSE(lint_body(body).empty()) << body;
}

TEST(CoroutineLint, AllowedFormsPass) {
  const std::vector<std::string> bodies = {
      "co_await f();",
      "co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));",
      "auto n = co_await f(a, g(b), std::move(c));",
      "const auto n = co_await f();",
      "std::map<int, Pair<a, b>> m = co_await f();",
      "auto [error, n] = co_await f();",
      "[[maybe_unused]] auto n = co_await f();",
      "n = co_await f();",
      "state.items[i] = co_await f();",
      "this->n_ = co_await f();",
      "*n = co_await f();",
      "co_return co_await f();",
      "auto r = co_await (std::move(operation) || std::move(timeout));",
      "if (a) co_await f();",
      "if (a) {\n co_await f();\n} else {\n co_return co_await g();\n}",
      "if (a) co_return co_await f(); else co_await g();",
      "for (int i = 0; i < 3; ++i) co_await f();",
      "for (;;) {\n auto n = co_await f();\n}",
      "while (g(h(1))) { co_await f(); }",
      "do { co_await f(); } while (a);",
      "try { auto n = co_await f(); } catch (const E& e) { g(); }",
      "switch (a) { case State::kOpen: co_await f(); break; default: co_await g(); }",
      "switch (a) { case 1: { co_await f(); } }",
      "{ co_await f(); }",
      "Options o{.name = s};\n auto n = co_await f(std::move(o));",
      "auto n = c ? 1 : 2;\n co_await f(n);",
      "auto text = \"if (co_await f({1}))\";\n co_await g();  // if (co_await f()) {",
      "int i = 1'000; co_await f(); char c = '{';",
      "auto g = [](int x) -> awaitable<int> { co_return co_await f(x); };",
      "auto g = [] { return 1; };\n co_await f(g);",
      "auto g = [a] { return a; };\n co_await f(g);\n co_return;",
  };
  for (const std::string& body : bodies) EXPECT_EQ(sentences(lint_body(body)), "") << body;
}

TEST(CoroutineLint, CapturingLambdaCoroutinesAreFound) {
  for (std::string lambda :
       {"auto g = [a]() -> awaitable<void> { co_await f(a); };",
        "auto g = [&](int x) -> awaitable<int> { for (;;) { if (x) { co_return 1; } } };",
        "spawn(e, [this] -> awaitable<void> { co_return; }, token);",
        "auto g = [x = h(1)]() mutable -> gen { co_yield 1; };"}) {
    EXPECT_FALSE(lint_body(lambda).empty()) << lambda;
  }
}

TEST(CoroutineLint, SaysWhere) {
  EXPECT_EQ(sentences(lint(
                {"core/net/a.cpp", "awaitable<int> f() {\n  int a;\n\n  g(co_await h());\n}"})),
            "core/net/a.cpp:4: co_await stands in a condition or an argument; name its result "
            "first\n");
}

TEST(CoroutineLint, MemberFunctionsAndTrailingReturnTypesAreBlocks) {
  EXPECT_EQ(
      sentences(lint({"a.h",
                      "struct S {\n awaitable<void> f() const override { co_await g(); }\n"
                      " auto h() -> asio::awaitable<std::pair<int, int>> { co_await g(); }\n"
                      " awaitable<int> k(int a = 1) noexcept {\n co_return co_await g(); }\n};"})),
      "");
}

TEST(CoroutineLint, HoldsForTheWholeTree) {
  std::vector<Violation> violations;
  for (const testing::SourceFile& file : testing::read_source_tree(testing::source_root())) {
    if (testing::is_cpp(file.path)) std::ranges::move(lint(file), std::back_inserter(violations));
  }
  EXPECT_EQ(sentences(violations), "");
}

}  // namespace
}  // namespace starling
