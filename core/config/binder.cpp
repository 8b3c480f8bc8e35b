// SPDX-License-Identifier: Apache-2.0
#include "core/config/binder.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/durable_file.h"
#include "core/base/nearest_name.h"
#include "core/config/toml_reader.h"

namespace starling::config {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;

std::string_view last_word(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  return dot == key.npos ? key : key.substr(dot + 1);
}

bool takes(const Field& field, const TomlEntry& entry) {
  if (!entry.type) return false;
  if (*entry.type == field.type) return true;
  if (*entry.type == FieldType::kInteger) return field.type == FieldType::kNumber;
  if (*entry.type == FieldType::kIntegerList) {
    if (field.type == FieldType::kNumberList) return true;
    return field.type == FieldType::kTextList && entry.text.empty();  // []
  }
  return *entry.type == FieldType::kText &&
         (field.type == FieldType::kDuration || (field.optional && entry.text == "none"));
}

// Beyond this one word is no misspelling of the other.
bool is_near(std::size_t distance, std::string_view word) {
  return distance <= std::max<std::size_t>(1, word.size() / 3);
}

Error wrong_type(const Field& field, const TomlEntry& entry) {
  std::string is =
      entry.type == FieldType::kText ? "\"" + printable(entry.text) + "\"" : printable(entry.text);
  const bool is_list = entry.type == FieldType::kIntegerList ||
                       entry.type == FieldType::kNumberList || entry.type == FieldType::kTextList;
  if (is_list) is = "[" + is + "]";
  std::string hint;
  if (field.type == FieldType::kDuration && entry.type == FieldType::kInteger) {
    hint = "; write \"" + printable(entry.text) + "s\" with the unit and in quotes";
  } else if (field.type == FieldType::kText && entry.type) {
    hint = "; write it in quotes: \"" + printable(entry.text) + "\"";
  } else if (field.type == FieldType::kInteger && entry.type == FieldType::kNumber) {
    const auto value = FieldText<double>::read(entry.text, FieldInfo{.help = ""});
    if (value && *value == std::rint(*value) && std::abs(*value) < 1e15) {
      hint = "; write it without a point and an exponent, as " +
             std::to_string(static_cast<std::int64_t>(*value));
    }
  } else if (field.type == FieldType::kIntegerList) {
    hint = " such as [200, 100]";
  } else if (field.type == FieldType::kNumberList) {
    hint = " such as [0.5, 12]";
  } else if (field.type == FieldType::kTextList) {
    hint = " such as [\"red\", \"green\"]";
  }
  return wrong_setting("setting-invalid", field.key + " = " + is + " is not " +
                                              std::string(describe_type(field.type)) + hint);
}

}  // namespace

void Binder::add(std::vector<Field> fields) {
  for (Field& field : fields) {
    STARLING_CHECK(std::ranges::find(fields_, field.key, &Field::key) == fields_.end());
    documents_.push_back(document(field));
    fields_.push_back(std::move(field));
  }
  said_.resize(fields_.size());
  flagged_.resize(fields_.size());
  aliases_.resize(fields_.size());
}

bool Binder::says_by_flag(std::string_view key) const {
  const auto field = std::ranges::find(fields_, key, &Field::key);
  return field != fields_.end() && flagged_[static_cast<std::size_t>(field - fields_.begin())];
}

void Binder::note_flag(std::string_view key) {
  const auto field = std::ranges::find(fields_, key, &Field::key);
  STARLING_CHECK(field != fields_.end());
  flagged_[static_cast<std::size_t>(field - fields_.begin())] = true;
}

std::optional<std::string> Binder::first_said(std::string_view section,
                                              std::string_view except) const {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const std::string_view key = fields_[i].key;
    const std::size_t dot = key.rfind('.');
    if (key == except) continue;
    if (said_[i] && key.substr(0, dot == key.npos ? 0 : dot) == section) {
      return std::string(key);
    }
  }
  return std::nullopt;
}

std::string Binder::alias_of(std::size_t field) const {
  const std::string_view word = last_word(fields_[field].key);
  const auto ends_so = [&](const Field& other) { return last_word(other.key) == word; };
  const bool unique = std::ranges::count_if(fields_, ends_so) == 1;
  return unique && word != fields_[field].key ? std::string(word) : std::string();
}

// The known key of the least edit distance, of whole keys, of short flags or of last words; of
// several the one whose whole key is nearest. Empty where none is near.
std::string Binder::nearest_key(std::string_view key) const {
  const Field* nearest = nullptr;
  std::pair<std::size_t, std::size_t> least;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const std::size_t whole = edit_distance(key, fields_[i].key);
    const std::size_t words = edit_distance(last_word(key), last_word(fields_[i].key));
    std::size_t best = std::min(words + 1, whole);
    const std::size_t alias = aliases_[i].empty() ? whole : edit_distance(key, aliases_[i]);
    best = std::min(best, alias);
    if (!is_near(words, last_word(key)) && !is_near(std::min(whole, alias), key)) continue;
    if (nearest != nullptr && std::pair(best, whole) >= least) continue;
    nearest = &fields_[i];
    least = {best, whole};
  }
  return nearest == nullptr ? "" : nearest->key;
}

Error Binder::unknown_key(std::string_view key) const {
  const std::string nearest = nearest_key(key);
  return wrong_setting("unknown-key",
                       "unknown key '" + printable(key) + "'" +
                           (nearest.empty() ? "" : "; the nearest known key is '" + nearest + "'"));
}

Result<std::string> Binder::key_of(std::string_view word) const {
  if (std::ranges::find(fields_, word, &Field::key) != fields_.end()) return std::string(word);
  const auto alias = std::ranges::find(aliases_, word);
  if (word.empty() || alias == aliases_.end()) return unknown_key(word);
  return fields_[static_cast<std::size_t>(alias - aliases_.begin())].key;
}

Result<std::string> Binder::say(std::string_view key, std::string_view text) {
  const auto field = std::ranges::find(fields_, key, &Field::key);
  if (field == fields_.end()) return unknown_key(key);
  STARLING_TRY(field->set(text));
  said_[static_cast<std::size_t>(field - fields_.begin())] = true;
  return field->text();
}

Result<void> Binder::read_toml(std::string_view text, std::string_view file_name) {
  STARLING_ASSIGN(const auto entries, read_toml_entries(text, file_name, free_tables_));
  for (const TomlEntry& entry : entries) {
    const std::string where = std::string(file_name) + ":" + std::to_string(entry.line);
    const auto field = std::ranges::find(fields_, entry.key, &Field::key);
    const auto in_section = [&](const Field& f) { return f.key.starts_with(entry.key + "."); };
    if (field == fields_.end()) {
      if (entry.text == "a table" && std::ranges::any_of(fields_, in_section)) continue;
      if (const auto inner = std::ranges::find_if(fields_, in_section); inner != fields_.end()) {
        return wrong_setting("unknown-key", where + ": '" + entry.key +
                                                "' is a section; write its keys below a line [" +
                                                entry.key + "], or in full, such as " + inner->key);
      }
      return unknown_key(entry.key).within(where);
    }
    if (!takes(*field, entry)) return wrong_type(*field, entry).within(where);
    if (auto set = field->set(entry.text); !set) return set.error().within(where);
    said_[static_cast<std::size_t>(field - fields_.begin())] = true;
  }
  return {};
}

Result<void> Binder::read_file(const std::filesystem::path& file) {
  const auto text = read_text_file(file, kFileBytesMax);
  if (text) return read_toml(*text, file.string());
  // The user named a wrong file, unless the disk or the memory failed.
  const bool is_wrong = text.error().kind() == ErrorKind::kRejected;
  return is_wrong ? text.error().as(ErrorCategory::kUsage) : text.error();
}

Result<void> Binder::apply_flags() {
  for (const Flag& flag : flags_) {
    const auto set = fields_[flag.field].set(flag.text);
    if (!set) return set.error().with_message("--" + set.error().message());
    said_[flag.field] = flagged_[flag.field] = true;
  }
  return {};
}

Result<void> Binder::apply(const std::filesystem::path& file) {
  const std::filesystem::path chosen =
      config_file_.empty() ? file : std::filesystem::path(config_file_);
  if (!chosen.empty()) STARLING_TRY(read_file(chosen));
  return apply_flags();
}

}  // namespace starling::config
