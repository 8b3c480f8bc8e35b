// SPDX-License-Identifier: Apache-2.0
// Described options (fields.h) as text, one field at a time: for flags and files, and as (key,
// text) pairs that travel in a round's plan and are stored with a run. The text is canonical and
// lossless: doubles in the shortest form that reads back as the same bits.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fields.h"

namespace starling {

enum class FieldType {
  kBoolean,
  kInteger,
  kNumber,
  kText,
  kDuration,
  kIntegerList,
  kNumberList,
  kTextList
};

// One option behind text. Borrows the Options object that it was collected from.
struct Field {
  std::string key;  // "section.name"
  FieldInfo info;
  FieldType type;
  bool optional;  // takes "none"
  std::function<std::string()> text;
  // Fails with "setting-invalid" and a whole sentence where the text is not of the type, out of
  // range or not a choice; the option keeps its value then.
  std::function<Result<void>(std::string_view)> set;
};

// "an integer", as in "'x' is not an integer".
std::string_view describe_type(FieldType type);
// "1 to 100", "at least 1", "0s to 1h", "sgd, momentum or adam"; empty where anything goes.
std::string describe_range(const FieldInfo& info, FieldType type);

// How a value of each supported type is written and read. `read` fails with the end of a sentence:
// "is not an integer", "is out of range; it must be ...".
template <class T>
struct FieldText;

template <>
struct FieldText<bool> {
  static constexpr FieldType kType = FieldType::kBoolean;
  static std::string write(bool value) { return value ? "true" : "false"; }
  static Result<bool> read(std::string_view text, const FieldInfo& info);
};

template <>
struct FieldText<std::int64_t> {
  static constexpr FieldType kType = FieldType::kInteger;
  static std::string write(std::int64_t value) { return std::to_string(value); }
  static Result<std::int64_t> read(std::string_view text, const FieldInfo& info);
};

template <>
struct FieldText<std::uint64_t> {
  static constexpr FieldType kType = FieldType::kInteger;
  static std::string write(std::uint64_t value) { return std::to_string(value); }
  static Result<std::uint64_t> read(std::string_view text, const FieldInfo& info);
};

template <std::integral T>
  requires(sizeof(T) < 8)
struct FieldText<T> {
  static constexpr FieldType kType = FieldType::kInteger;
  static std::string write(T value) { return std::to_string(value); }
  static Result<T> read(std::string_view text, FieldInfo info) {
    STARLING_ASSIGN(const std::int64_t value, FieldText<std::int64_t>::read(text, info));
    if (std::in_range<T>(value)) return static_cast<T>(value);
    info.min = std::max(info.min, static_cast<double>(std::numeric_limits<T>::min()));
    info.max = std::min(info.max, static_cast<double>(std::numeric_limits<T>::max()));
    return FieldText<std::int64_t>::read(text, info).error();
  }
};

template <>
struct FieldText<double> {
  static constexpr FieldType kType = FieldType::kNumber;
  static std::string write(double value);
  static Result<double> read(std::string_view text, const FieldInfo& info);  // finite
};

template <>
struct FieldText<std::string> {
  static constexpr FieldType kType = FieldType::kText;
  static std::string write(const std::string& value) { return value; }
  static Result<std::string> read(std::string_view text, const FieldInfo& info);
};

template <>
struct FieldText<Duration> {
  static constexpr FieldType kType = FieldType::kDuration;
  static std::string write(Duration value) { return format_duration(value); }
  static Result<Duration> read(std::string_view text, const FieldInfo& info);
};

template <>
struct FieldText<std::vector<int>> {  // "200,200"; empty: no element
  static constexpr FieldType kType = FieldType::kIntegerList;
  static std::string write(const std::vector<int>& value);
  static Result<std::vector<int>> read(std::string_view text, const FieldInfo& info);
};

template <>
struct FieldText<std::vector<float>> {  // "0.5,12"; empty: no element
  static constexpr FieldType kType = FieldType::kNumberList;
  static std::string write(const std::vector<float>& value);
  static Result<std::vector<float>> read(std::string_view text, const FieldInfo& info);  // finite
};

// "a,b": a text that is empty, begins or ends with a blank, or holds a comma or a quote is quoted,
// and its quotes are doubled; empty: no element.
template <>
struct FieldText<std::vector<std::string>> {
  static constexpr FieldType kType = FieldType::kTextList;
  static std::string write(const std::vector<std::string>& value);
  static Result<std::vector<std::string>> read(std::string_view text, const FieldInfo& info);
};

// "none" stands for no value, so a text could not be told from it.
template <class T>
  requires(!std::same_as<T, std::string>)
struct FieldText<std::optional<T>> {
  static constexpr FieldType kType = FieldText<T>::kType;
  static std::string write(const std::optional<T>& value) {
    return value ? FieldText<T>::write(*value) : "none";
  }
  static Result<std::optional<T>> read(std::string_view text, const FieldInfo& info) {
    if (text == "none") return std::optional<T>();
    STARLING_ASSIGN(T value, FieldText<T>::read(text, info));
    return std::optional<T>(std::move(value));
  }
};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// The sentence of a field that refuses a text: `why` is what FieldText::read said.
Error invalid_setting(std::string_view key, std::string_view text, const Error& why);

// The visitor that describe() meets: collects a Field for each option.
class FieldCollector {
 public:
  explicit FieldCollector(std::string_view prefix)
      : prefix_(prefix.empty() ? "" : std::string(prefix) + ".") {}

  template <class T>
  void operator()(std::string_view name, T& value, const FieldInfo& info) {
    std::string key = prefix_ + std::string(name);
    auto set = [key, info, &value](std::string_view text) -> Result<void> {
      auto read = FieldText<T>::read(text, info);
      if (!read) return invalid_setting(key, text, read.error());
      value = std::move(*read);
      return {};
    };
    fields_.push_back({std::move(key), info, FieldText<T>::kType, kIsOptional<T>,
                       [&value] { return FieldText<T>::write(value); }, std::move(set)});
  }
  std::vector<Field> take() && { return std::move(fields_); }

 private:
  std::string prefix_;
  std::vector<Field> fields_;
};

// Every option of `options`, which must outlive the fields. An empty prefix adds nothing to names.
template <class Options>
std::vector<Field> fields_of(std::string_view prefix, Options& options) {
  FieldCollector collect(prefix);
  describe(collect, options);
  return std::move(collect).take();
}

using Settings = std::vector<std::pair<std::string, std::string>>;

Settings to_settings(const std::vector<Field>& fields);
// Sets the fields that `settings` names with the prefix ("": every key); other keys are left to
// others. Some fields may be set even where it fails.
[[nodiscard]] Result<void> set_fields(const std::vector<Field>& fields, std::string_view prefix,
                                      const Settings& settings);

template <class Options>
Settings to_settings(std::string_view prefix, Options options) {
  return to_settings(fields_of(prefix, options));
}

// Only those that differ from what `Options{}` has.
template <class Options>
Settings changed_settings(std::string_view prefix, Options options) {
  Options defaults;
  const Settings before = to_settings(fields_of(prefix, defaults));
  Settings changed = to_settings(fields_of(prefix, options));
  std::size_t i = 0;
  std::erase_if(changed, [&](const auto& setting) { return setting == before[i++]; });
  return changed;
}

// Options not named keep their value. Fails with "unknown-setting" (kUnsupported: a newer program
// may know it), "setting-repeated" or "setting-invalid", and then changes nothing.
template <class Options>
[[nodiscard]] Result<void> from_settings(std::string_view prefix, const Settings& settings,
                                         Options& options) {
  Options changed = options;
  STARLING_TRY(set_fields(fields_of(prefix, changed), prefix, settings));
  options = std::move(changed);
  return {};
}

// Fails with "unknown-setting" where a key has none of the prefixes.
[[nodiscard]] Result<void> expect_prefixes(const Settings& settings,
                                           std::span<const std::string_view> prefixes);

}  // namespace starling
