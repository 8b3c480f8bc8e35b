// SPDX-License-Identifier: Apache-2.0
#include "core/study/study_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "core/base/counted.h"
#include "core/base/digest.h"
#include "core/base/nearest_name.h"

namespace starling::study {
namespace {

Error plan_error(std::string message) { return wrong_setting("study-plan", std::move(message)); }

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

// "1..5", "7" or "1,3,7"; ranges may stand in lists.
Result<std::vector<std::string>> parse_seeds(const std::string& text) {
  const std::string flag = fmt::format("--seeds {}", printable(text));
  std::vector<std::string> seeds;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::size_t dots = part.find("..");
    const auto first = number_in(part.substr(0, dots));
    const auto last = dots == part.npos ? first : number_in(part.substr(dots + 2));
    if (!first || !last) {
      return plan_error(flag + ": write a range such as 1..5, or a list such as 1,3,7");
    }
    if (*last < *first) {
      return plan_error(
          fmt::format("{}: the range runs backwards; write {}..{}", flag, *last, *first));
    }
    if (*last - *first >= kRunsMax - seeds.size()) {
      return plan_error(fmt::format("{}: a study has at most {} runs", flag, kRunsMax));
    }
    for (std::uint64_t seed = *first;; ++seed) {
      seeds.push_back(std::to_string(seed));
      if (seed == *last) break;
    }
  }
  return seeds;
}

struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

Result<Sweep> parse_sweep(const std::string& text, const config::Binder& binder) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos) {
    return plan_error(fmt::format(
        "--sweep {}: write KEY=VALUE,VALUE,..., such as learning-rate=0.1,0.01", printable(text)));
  }
  const auto key = binder.key_of(text.substr(0, equals));
  if (!key) return key.error().within("--sweep");
  const std::string list = text.substr(equals + 1);
  auto values = FieldText<std::vector<std::string>>::read(list, {});
  if (!values) {
    return plan_error(
        fmt::format("--sweep {}: '{}' {}", *key, printable(list), values.error().message()));
  }
  if (values->empty()) return plan_error(fmt::format("--sweep {}: it names no value", *key));
  return Sweep{*key, std::move(*values)};
}

// The values as settings have them, so that 0.10 is 0.1 in names.
Result<Axis> make_axis(Sweep sweep, std::string_view flag, config::Binder& binder) {
  Axis axis{std::move(sweep.key), {}};
  for (const std::string& value : sweep.values) {
    auto said = binder.say(axis.key, value);
    if (!said) return said.error().within(flag);
    if (std::ranges::find(axis.values, *said) != axis.values.end()) {
      return plan_error(
          fmt::format("{}: {} has the value {} twice", flag, axis.key, printable(*said)));
    }
    axis.values.push_back(std::move(*said));
  }
  return axis;
}

std::string file_text(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += plain || std::string_view("._=,+-").find(c) != std::string_view::npos ? c : '-';
  }
  constexpr std::size_t kNameMax = 180;  // of 255 that file systems take
  if (name.size() <= kNameMax) return name;
  return name.substr(0, kNameMax) + "-" + sha256(as_bytes(text)).hex().substr(0, 12);
}

std::string text_of(const Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  }
  return text;
}

std::vector<PlannedRun> combine(const std::vector<Axis>& axes) {
  std::vector<PlannedRun> runs(1);
  for (const Axis& axis : axes) {
    std::vector<PlannedRun> longer;
    for (const PlannedRun& run : runs) {
      for (const std::string& value : axis.values) {
        longer.push_back(run);
        longer.back().settings.emplace_back(axis.key, value);
      }
    }
    runs = std::move(longer);
  }
  std::vector<std::string> texts;
  for (const PlannedRun& run : runs) texts.push_back(text_of(run.settings));
  const std::vector<std::string> names = directory_names(texts);
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].name = names[i];
  return runs;
}

Result<std::vector<Axis>> parse_axes(const config::StudyFlags& flags, config::Binder& binder) {
  std::vector<Axis> axes;
  const auto add = [&](Sweep sweep, const std::string& flag) -> Result<void> {
    if (std::ranges::find(axes, sweep.key, &Axis::key) != axes.end()) {
      return plan_error(flag + ": " + sweep.key + " is swept twice; name all its values at once");
    }
    if (binder.says_by_flag(sweep.key)) {
      return plan_error(fmt::format(
          "{} says the values of {}, and so does its own flag: leave one of the two out", flag,
          sweep.key));
    }
    STARLING_ASSIGN(Axis axis, make_axis(std::move(sweep), flag, binder));
    axes.push_back(std::move(axis));
    return {};
  };
  for (const std::string& text : flags.sweeps) {
    STARLING_ASSIGN(Sweep sweep, parse_sweep(text, binder));
    STARLING_TRY(add(std::move(sweep), "--sweep"));
  }
  if (flags.seeds) {
    STARLING_ASSIGN(auto seeds, parse_seeds(*flags.seeds));
    STARLING_TRY(add({"seed", std::move(seeds)}, "--seeds"));
  }
  return axes;
}

}  // namespace

std::vector<std::string> directory_names(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  std::map<std::string, int> seen;
  for (const std::string& text : texts) {
    std::string name = file_text(text);
    const int number = ++seen[name];
    names.push_back(number == 1 ? name : fmt::format("{}~{}", name, number));
  }
  return names;
}

Result<Plan> make_plan(const config::StudyFlags& flags, config::Binder& binder) {
  const Settings before = binder.settings();
  auto axes = parse_axes(flags, binder);
  STARLING_TRY(binder.set(before));
  if (!axes) return axes.error();
  std::size_t runs = 1;
  for (const Axis& axis : *axes) {
    runs *= axis.values.size();
    if (runs > kRunsMax) {
      return plan_error(fmt::format(
          "all combinations of --sweep and --seeds are more than the {} runs that a study may "
          "have: name fewer values",
          kRunsMax));
    }
  }
  std::vector<PlannedRun> combined = combine(*axes);
  return Plan{std::move(*axes), std::move(combined)};
}

std::string describe(const Plan& plan) {
  std::string axes;
  for (const Axis& axis : plan.axes) {
    axes += fmt::format("{}{} ({})", axes.empty() ? "" : " x ", axis.key, axis.values.size());
  }
  return fmt::format("{}: {}", counted(plan.runs.size(), "run"), axes);
}

}  // namespace starling::study
