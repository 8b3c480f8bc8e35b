// SPDX-License-Identifier: Apache-2.0
// Of CLI11, which takes seconds to compile: what all programs do alike, the binder's flags
// included. Only main.cpp and the commands' files include it besides (tests/architecture_test.cpp).
#include "core/config/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <csignal>
#include <new>
#include <ostream>
#include <stdexcept>

#include "core/base/check.h"
#include "core/base/escape_controls.h"
#include "core/base/nearest_name.h"
#include "core/base/word_wrap.h"
#include "core/config/binder.h"

namespace starling::config {
namespace {

// The innermost command that was named.
CLI::App* innermost(CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return app;
}

std::string path_of(const CLI::App* app) {
  std::string path = app->get_name();
  for (app = app->get_parent(); app != nullptr; app = app->get_parent()) {
    path = app->get_name() + " " + path;
  }
  return path;
}

std::vector<std::string> known_words(CLI::App* app, bool flags) {
  std::vector<std::string> words;
  if (!flags) {
    for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
      words.push_back(command->get_name());
    }
    return words;
  }
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  return words;
}

std::string unknown_argument(CLI::App* app, const std::string& argument) {
  const std::string word = argument.substr(0, argument.find('='));
  const bool flag = word.starts_with('-');
  const std::vector<std::string> words = known_words(app, flag);
  std::vector<std::string_view> candidates;  // "--section.key" of a short "--key"
  for (const std::string& known : words) {
    if (flag && word.starts_with("--") && known.ends_with("." + word.substr(2))) {
      candidates.push_back(known);
    }
  }
  if (!candidates.empty()) {
    return "the flag '" + printable(word) + "' of " + path_of(app) + " is ambiguous; write " +
           join_names(candidates, "or");
  }
  // A section of settings: "--section.key", best "--section.name", is what can be written.
  const auto inner = std::ranges::max_element(words, {}, [&](const std::string& known) {
    return known.starts_with(word + ".") ? (known == word + ".name" ? 2 : 1) : 0;
  });
  if (flag && inner != words.end() && inner->starts_with(word + ".")) {
    return "'" + printable(word) + "' of " + path_of(app) +
           " is a section of settings; write one of its keys, such as " + *inner;
  }
  const std::vector<std::string_view> known(words.begin(), words.end());
  const bool command = !flag && !known.empty();
  std::string text = "unknown ";
  text += flag ? "flag '" : command ? "command '" : "argument '";
  text += printable(word) + "' of " + path_of(app) + suggestion(word, known);
  const bool number = !word.empty() && word.find_first_not_of("0123456789") == word.npos;
  return number && !command ? text + "; a list is one argument, such as 200,100" : text;
}

std::string sentence(CLI::App& app, const CLI::ParseError& error) {
  CLI::App* command = innermost(&app);
  const std::vector<std::string> extra = app.remaining(true);
  std::string text = error.what();
  if (!extra.empty()) {
    text = unknown_argument(command, extra.front());
  } else if (error.get_name() == "RequiredError" && !known_words(command, false).empty()) {
    text = path_of(command) + " needs a command";
  } else if (error.get_name() == "ArgumentMismatch") {
    const bool repeated = text.find("received") != text.npos;
    text = "the flag " + text.substr(0, text.find(':')) +
           (repeated ? " is given more than once" : " needs one value");
  }
  while (!text.empty() && (text.back() == '.' || text.back() == '\n')) text.pop_back();
  return text + " (see " + path_of(command) + " --help)";
}

// Help in 80 columns, broken at blanks: words on the left, what they mean on the right.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option),
                 make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_display_name(true), command->get_description());
  }
  std::string make_description(const CLI::App* app) const override {
    return indented(CLI::Formatter::make_description(app), 0);
  }

 private:
  static constexpr std::size_t kColumns = 80;
  static constexpr std::size_t kLeft = 30;

  // Lines after the first go on `indent` columns in.
  static std::string indented(const std::string& text, std::size_t indent) {
    std::string lines;
    for (const std::string& line : break_at_blanks(text, kColumns - indent)) {
      if (!lines.empty()) lines += "\n" + std::string(indent, ' ');
      lines += line;
    }
    return lines;
  }
  static std::string entry(const std::string& words, const std::string& meaning) {
    std::string left = "  " + indented(words, 6);
    if (meaning.empty()) return left + "\n";
    left += left.size() < kLeft ? std::string(kLeft - left.size(), ' ')
                                : "\n" + std::string(kLeft, ' ');
    return left + indented(meaning, kLeft) + "\n";
  }
};

}  // namespace

ExitCode exit_code(const Error& error) {
  switch (error.category()) {
    case ErrorCategory::kFailed:
      return ExitCode::kFailed;
    case ErrorCategory::kUsage:
      return ExitCode::kUsage;
    case ErrorCategory::kTimedOut:
      return ExitCode::kTimedOut;
    case ErrorCategory::kNotConnected:
    case ErrorCategory::kNotAuthorised:
      return ExitCode::kNotConnected;
  }
  return ExitCode::kFailed;
}

Error usage_error(std::string message) { return wrong_setting("usage", std::move(message)); }

int report(const Error& error, std::ostream& err) {
  const std::string_view then = error.code() == "disk-full" ? " and run the command again" : "";
  err << "error: " << escape_controls(error.message()) << then << std::endl;
  return static_cast<int>(exit_code(error));
}

int report(const Result<void>& result, std::ostream& err) {
  return result ? static_cast<int>(ExitCode::kOk) : report(result.error(), err);
}

int run(const std::function<int()>& command, std::ostream& err) {
  const Error out_of_memory = rejected(
      "out-of-memory",
      "there is not enough memory for this; a smaller model, or less at a time, takes less");
  // A limit on the size of files is then an error like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return command();
  } catch (const std::bad_alloc&) {
    return report(out_of_memory, err);
  } catch (const std::length_error&) {  // of a vector beyond any memory
    return report(out_of_memory, err);
  }
}

void set_up(CLI::App& app, std::string_view version) {
  app.set_version_flag("--version", app.get_name() + " " + std::string(version));
  app.formatter(std::make_shared<HelpFormatter>());
}

void add_format(CLI::App& app, OutputFormat& format) {
  app.add_option_function<std::string>(
         "--format",
         [&format](const std::string& text) {
           format = text == "json" ? OutputFormat::kJson : OutputFormat::kText;
         },
         "how facts are printed")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json")
      ->default_str("text");
}

void add_study_flags(CLI::App& app, StudyFlags& flags) {
  app.add_option_function<std::string>(
         "--seeds", [&flags](const std::string& text) { flags.seeds = text; },
         "a study: a run for each of these seeds, as 1..5 or 1,3,7")
      ->type_name("FIRST..LAST|LIST");
  app.add_option("--sweep", flags.sweeps,
                 "a study: a run for each of these values of a key or flag, as "
                 "learning-rate=0.1,0.01; given more than once, for each combination; a value "
                 "with a comma stands in double quotes")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE,...");
}

std::optional<int> parse(CLI::App& app, std::span<char* const> arguments, std::ostream& out,
                         std::ostream& err) {
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error, out, err);
      return static_cast<int>(ExitCode::kOk);
    }
    return report(usage_error(sentence(app, error)), err);
  }
}

void Binder::add_config(CLI::App& app) {
  app.add_option("--config", config_file_, "read the settings of this TOML file first")
      ->type_name("FILE");
}

void Binder::add_flags(CLI::App& app,
                       std::span<const std::pair<std::string_view, std::string_view>> short_names) {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const Field& field = fields_[i];
    const KeyDocument& key = documents_[i];
    const auto given = std::ranges::find(short_names, field.key,
                                         &std::pair<std::string_view, std::string_view>::first);
    const std::string alias = given == short_names.end() ? alias_of(i) : std::string(given->second);
    std::string names = "--" + field.key;
    if (!alias.empty() && app.get_option_no_throw("--" + alias) == nullptr) {
      names += ",--" + alias;
      aliases_[i] = alias;
    }
    STARLING_CHECK(app.get_option_no_throw("--" + field.key) == nullptr);
    std::string help = key.help;
    if (!key.range.empty())
      help += " (" + key.range + (key.unit.empty() ? "" : " " + key.unit) + ")";
    const auto collect = [this, i](const std::string& text) { flags_.push_back({i, text}); };
    CLI::Option* const option = app.add_option_function<std::string>(names, collect, help);
    // A switch needs no value, which it would else take from the flag after it.
    if (field.type == FieldType::kBoolean) {
      option->expected(0, 1)->default_str("true")->option_text("[VALUE] [" + field.text() + "]");
    }
    option->type_name("VALUE [" + field.text() + "]")
        ->group(field.key.find('.') == std::string::npos
                    ? "Settings"
                    : "[" + field.key.substr(0, field.key.rfind('.')) + "]");
  }
}

}  // namespace starling::config
