// SPDX-License-Identifier: Apache-2.0
// Configuration files and flags onto Options structs, each described once (core/base/fields.h).
// Every key of a file is also a flag, and the flag wins; what is unknown or out of range is refused
// with the place, the value and what would be right.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/settings.h"
#include "core/config/documentation.h"
#include "core/config/toml_reader.h"

namespace CLI {
class App;
}

namespace starling::config {

class Binder {
 public:
  Binder() = default;
  Binder(const Binder&) = delete;
  Binder& operator=(const Binder&) = delete;

  // Binds every described option as "section.name", or "name" for the section "". What stands in
  // `options` now is the default. `options` must outlive the binder. Requires: no key twice.
  template <class Options>
  void bind(std::string_view section, Options& options) {
    add(fields_of(section, options));
  }

  // What a file has in the table `section`, whatever its keys, becomes the text of the bound key
  // "section.key", as a JSON object.
  void take_table(std::string section, std::string key) {
    free_tables_.push_back({std::move(section), std::move(key)});
  }

  // Adds --config FILE to `app`. Not for a command whose file is a required argument.
  void add_config(CLI::App& app);
  // Adds to `app` a flag per key, "--section.key VALUE", with the alias "--key VALUE" where no
  // other key ends so and no other flag has the name; of a boolean, "--key" alone means true.
  // Values are only collected while the app parses; apply() checks them. The binder must outlive
  // the app's parsing. `short_names`: (key, flag) pairs for keys that people know by another name
  // than their last word.
  void add_flags(CLI::App& app,
                 std::span<const std::pair<std::string_view, std::string_view>> short_names = {});

  // The file of --config (else `file`, else none), then the flags.
  [[nodiscard]] Result<void> apply(const std::filesystem::path& file = {});

  // Sets what `text` says, in the order of its lines. Fails with "toml-malformed", "unknown-key" or
  // "setting-invalid"; options before the faulty line may be set then.
  [[nodiscard]] Result<void> read_toml(std::string_view text, std::string_view file_name);
  [[nodiscard]] Result<void> read_file(const std::filesystem::path& file);

  // What these pairs say, as settings() writes them. Errors as of starling::set_fields.
  [[nodiscard]] Result<void> set(const Settings& settings) {
    return set_fields(fields_, "", settings);
  }

  // The key that "--word" sets: `word` itself, or the key whose short flag it is. "unknown-key".
  [[nodiscard]] Result<std::string> key_of(std::string_view word) const;
  // As the flag "--key text" does; to be called after apply(). Returns the value as settings()
  // writes it.
  [[nodiscard]] Result<std::string> say(std::string_view key, std::string_view text);

  // Every key in the order of binding, with the defaults as they were then.
  const std::vector<KeyDocument>& documents() const { return documents_; }
  // Whether a flag says this key.
  bool says_by_flag(std::string_view key) const;
  // The key's flag belongs to the command itself, and was given.
  void note_flag(std::string_view key);
  // Whether a file or a flag that was applied says a key of this section, other than `except`.
  bool says(std::string_view section, std::string_view except = {}) const {
    return first_said(section, except).has_value();
  }
  // The first such key, in the order of binding.
  std::optional<std::string> first_said(std::string_view section,
                                        std::string_view except = {}) const;
  // The value of every key now.
  Settings settings() const { return to_settings(fields_); }

 private:
  struct Flag {
    std::size_t field;
    std::string text;
  };

  void add(std::vector<Field> fields);
  [[nodiscard]] Result<void> apply_flags();
  std::string alias_of(std::size_t field) const;
  std::string nearest_key(std::string_view key) const;
  Error unknown_key(std::string_view key) const;

  std::vector<Field> fields_;
  std::vector<KeyDocument> documents_;
  std::vector<Flag> flags_;           // as given
  std::vector<bool> said_;            // [fields]
  std::vector<bool> flagged_;         // [fields]: by a flag
  std::vector<std::string> aliases_;  // [fields]: the short flags of add_flags()
  std::vector<FreeTable> free_tables_;
  std::string config_file_;
};

}  // namespace starling::config
