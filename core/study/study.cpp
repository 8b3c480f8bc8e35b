// SPDX-License-Identifier: Apache-2.0
#include "core/study/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <map>
#include <new>
#include <ostream>
#include <set>

#include "core/base/counted.h"
#include "core/base/directory_lock.h"
#include "core/base/durable_file.h"
#include "core/base/escape_controls.h"
#include "core/config/settings_json.h"
#include "core/report/comparison_text.h"
#include "core/report/study_directory.h"
#include "core/study/input_digests.h"
#include "core/telemetry/interrupt_note.h"

namespace starling::study {
namespace {

namespace json = boost::json;

constexpr const char* kStudyFile = "study.json";
constexpr std::uint64_t kShares = 1000;  // that the progress of a run is counted in

enum class State { kOpen, kFinished, kFailed };

// What a directory holds of a run.
enum class Held { kFinished, kUnfinished, kNothing };

struct Found {
  Held held = Held::kNothing;
  std::string version = {};  // of Starling, that finished it
};

struct Entry {
  const PlannedRun* run;
  State state = State::kOpen;
  std::string reason = {};   // why it failed
  std::string version = {};  // that finished it before
};

std::string_view to_string(State state) {
  switch (state) {
    case State::kOpen:
      return "open";
    case State::kFinished:
      return "finished";
    case State::kFailed:
      break;
  }
  return "failed";
}

// --- before anything runs ------------------------------------------------------------------------

Settings without_seed(const Settings& settings) {
  Settings others = settings;
  std::erase_if(others, [](const auto& setting) { return setting.first == "seed"; });
  return others;
}

// For each run the error that check() reports, if any. Runs that differ in the seed alone are
// checked until one is accepted: a random graph may suit some seeds only, and such a run fails by
// itself.
Result<std::vector<std::optional<Error>>> refusals(const Plan& plan, const Program& program) {
  std::map<Settings, std::optional<Error>> found;
  for (const PlannedRun& run : plan.runs) {
    const Settings others = without_seed(run.settings);
    const auto earlier = found.find(others);
    if (earlier != found.end() && !earlier->second) continue;
    STARLING_TRY(program.configure(run.settings));
    const Result<void> checked = program.check();
    if (checked) {
      found[others] = std::nullopt;
    } else {
      found.try_emplace(others, checked.error());
    }
  }
  std::vector<std::optional<Error>> all;
  for (const PlannedRun& run : plan.runs) all.push_back(found[without_seed(run.settings)]);
  return all;
}

bool has(const PlannedRun& run, const std::string& key, const std::string& value) {
  return std::ranges::find(run.settings, Settings::value_type(key, value)) != run.settings.end();
}

Error with_quotes_advised(const Error& error) {
  return error.with_message(
      fmt::format("{}; a value with a comma stands in double quotes, as in --sweep "
                  "'KEY=\"lognormal:20ms,0.5\",1ms'",
                  error.message()));
}

// Whether a value reads like the rest of the one before it: "0.5" after "lognormal:20ms".
bool looks_cut(const Axis& axis) {
  bool open = false;  // parameters were begun
  for (const std::string& value : axis.values) {
    const bool begins = value.find(':') != value.npos;
    const bool is_rest = value.find('=') != value.npos || (value[0] >= '0' && value[0] <= '9');
    if (open && !begins && is_rest) return true;
    open = open || begins;
  }
  return false;
}

Error wrong_value(const Axis& axis, const std::string& value, const Error& why) {
  const Error error = why.within(fmt::format("--sweep {}={}", axis.key, value));
  const bool cut = value.find_first_of("=,") != value.npos && axis.values.size() > 1;
  return cut || looks_cut(axis) ? with_quotes_advised(error) : error;
}

// A value that no run can have is a mistake. One that only some combinations refuse is not.
Result<void> check_values(const Plan& plan, const std::vector<std::optional<Error>>& refused) {
  const auto is_refused = [](const std::optional<Error>& why) { return why.has_value(); };
  if (std::ranges::all_of(refused, is_refused)) {
    const Error& why = *refused.front();
    return std::ranges::any_of(plan.axes, looks_cut) ? with_quotes_advised(why) : why;
  }
  for (const Axis& axis : plan.axes) {
    for (const std::string& value : axis.values) {
      const Error* why = nullptr;
      bool some = false;
      for (std::size_t i = 0; i < plan.runs.size() && !some; ++i) {
        if (!has(plan.runs[i], axis.key, value)) continue;
        some = !refused[i];
        if (refused[i] && why == nullptr) why = &*refused[i];
      }
      if (!some && why != nullptr) return wrong_value(axis, value, *why);
    }
  }
  return {};
}

bool holds(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A new directory, or that of a study.
Result<void> check_directory(const std::filesystem::path& out) {
  std::error_code ignored;
  if (!holds(out) || holds(out / kStudyFile) || std::filesystem::is_empty(out, ignored)) return {};
  return rejected("out-not-empty",
                  fmt::format("{} is not empty and holds no study: name a new directory with --out",
                              out.string()));
}

Result<void> check_no_file(const std::filesystem::path& run) {
  std::error_code ignored;
  if (std::filesystem::is_directory(run, ignored)) return {};
  // A link is one too, wherever it leads.
  if (!std::filesystem::exists(std::filesystem::symlink_status(run, ignored))) return {};
  return rejected("out-not-empty",
                  fmt::format("{} is a file, and a run is to be written into a directory of this "
                              "name: remove the file, or name another directory with --out",
                              run.string()));
}

// A command that runs it alone may be at work in the directory.
Result<void> check_not_in_use(const std::filesystem::path& run) {
  if (!DirectoryLock(run).held_elsewhere()) return {};
  return rejected("out-in-use", fmt::format("another command writes a run into {}: wait for its "
                                            "end, or name another directory with --out",
                                            run.string()));
}

// Another command would take the current run for an interrupted one and remove it.
Result<DirectoryLock> lock(const std::filesystem::path& out) {
  DirectoryLock lock(out);
  if (!lock.held_elsewhere()) return lock;
  return rejected("study-in-use",
                  fmt::format("another command runs a study in {}: wait for its end, or name "
                              "another directory with --out",
                              out.string()));
}

std::string value_of(const Settings& settings, const std::string& key) {
  const auto found = std::ranges::find(settings, key, &Settings::value_type::first);
  return found == settings.end() || found->second.empty() ? "not set" : found->second;
}

Error other_settings(const std::filesystem::path& directory, std::string_view run,
                     const std::string& difference) {
  return rejected("out-not-empty",
                  fmt::format("{} holds {} with other settings ({}): name a new directory with "
                              "--out, or remove that run",
                              directory.string(), run, difference));
}

std::string unfinished_words(const report::Run& run) {
  if (!run.failed) return "an unfinished run";
  return run.failure.empty() ? "a failed run" : fmt::format("a failed run ({})", run.failure);
}

// Of what both runs have read.
std::optional<std::string> changed_input(const Settings& recorded, const Settings& now) {
  for (const auto& [key, digest] : now) {
    const auto there = std::ranges::find(recorded, key, &Settings::value_type::first);
    if (there == recorded.end() || there->second == digest) continue;
    return fmt::format("what {} names has changed since", key);
  }
  return std::nullopt;
}

// "out-not-empty" where a run of `settings` is not the finished `run`.
Result<void> check_same_finished(const report::Run& run, const std::filesystem::path& directory,
                                 const Settings& settings, InputDigests& digests) {
  const char* words = run.real_time ? "a finished run of launch" : "a finished run";
  if (const auto differs = difference(run.told(), settings)) {
    return other_settings(directory, words, *differs);
  }
  if (run.inputs.empty()) return {};
  const auto changed = changed_input(run.inputs, digests.of(settings));
  return changed ? other_settings(directory, words, *changed) : Result<void>();
}

// Files that are of no run are not removed.
Result<void> check_no_strangers(const std::filesystem::path& directory, const Program& program) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (is_temporary(name) || std::ranges::find(program.files, name) != program.files.end())
      continue;
    return rejected("out-not-empty",
                    fmt::format("{} holds {}, which is not of a run: name a new directory with "
                                "--out, or remove it",
                                directory.string(), name));
  }
  return {};
}

// What the directory holds of the run that was configured last. kUnfinished: it goes on there.
// kNothing: the directory may be removed. A record that is there and cannot be read is an error: it
// is written last, so that it is none of an interrupted run.
Result<Found> find_run(const std::filesystem::path& directory, const Program& program,
                       InputDigests& digests) {
  STARLING_TRY(check_no_file(directory));
  STARLING_TRY(check_not_in_use(directory));
  const auto run = report::read_run(directory);
  if (!run && run.error().code() != "no-run") return run.error();
  if (run && report::is_whole(*run)) {
    STARLING_TRY(check_same_finished(*run, directory, program.settings(), digests));
    return Found{Held::kFinished, run->version};
  }
  if (run) {
    const Settings settings = program.settings();
    const std::string differs =
        run->unfinished
            ? difference_to_unfinished(*run, program.name, settings, digests.of(settings))
            : difference(run->told(), settings).value_or("");  // it failed
    if (!differs.empty()) return other_settings(directory, unfinished_words(*run), differs);
  }
  STARLING_TRY(check_no_strangers(directory, program));
  return Found{run && run->unfinished ? Held::kUnfinished : Held::kNothing};
}

Result<std::vector<Entry>> find_entries(const Plan& plan, const Program& program,
                                        const std::filesystem::path& out) {
  std::vector<Entry> entries;
  InputDigests digests;
  for (const PlannedRun& run : plan.runs) {
    STARLING_TRY(program.configure(run.settings));
    STARLING_ASSIGN(const Found found, find_run(out / run.name, program, digests));
    const bool finished = found.held == Held::kFinished;
    entries.push_back({.run = &run,
                       .state = finished ? State::kFinished : State::kOpen,
                       .version = found.version});
  }
  return entries;
}

std::size_t count(const std::vector<Entry>& entries, State state) {
  return static_cast<std::size_t>(std::ranges::count(entries, state, &Entry::state));
}

// Whether a finished run may have come out otherwise here; where no version stands in it, nothing
// is said.
bool is_other_version(const std::string& version) {
  return !version.empty() && version != STARLING_VERSION;
}

void print_versions(const std::vector<Entry>& entries, std::ostream& err) {
  std::set<std::string> versions;
  std::size_t runs = 0;
  for (const Entry& entry : entries) {
    if (!is_other_version(entry.version)) continue;
    versions.insert(entry.version);
    ++runs;
  }
  if (runs == 0) return;
  err << fmt::format(
             "{} of these by Starling {}, and this is {}: remove their directories to run "
             "them again",
             runs, fmt::join(versions, ", "), STARLING_VERSION)
      << std::endl;
}

// Runs of commands with other axes, or of one run alone.
std::size_t count_others(const Plan& plan, const std::filesystem::path& out) {
  std::size_t others = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(out, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool planned = std::ranges::find(plan.runs, name, &PlannedRun::name) != plan.runs.end();
    if (!planned && report::holds_run(entry.path())) ++others;
  }
  return others;
}

void print_plan(const Plan& plan, const std::vector<Entry>& entries, const Options& options,
                std::ostream& err) {
  err << describe(plan) << "\n";
  const std::size_t finished = count(entries, State::kFinished);
  if (finished == 0) {
    err << "one after the other, in " << options.out.string() << std::endl;
  } else {
    err << fmt::format("{} of them finished before, {} to do, in {}", finished,
                       entries.size() - finished, options.out.string())
        << std::endl;
    print_versions(entries, err);
  }
  const std::size_t others = count_others(plan, options.out);
  if (others > 0) {
    err << fmt::format(
               "note: {} holds {} that {} not of this grid, and the report shows {} too: name "
               "another directory with --out for a study of its own",
               options.out.string(), counted(others, "run"), others == 1 ? "is" : "are",
               others == 1 ? "it" : "them")
        << std::endl;
  }
}

// --- running -------------------------------------------------------------------------------------

json::object to_json(const Plan& plan, const Program& program, const std::vector<Entry>& entries) {
  json::array axes;
  for (const Axis& axis : plan.axes) {
    json::array values;
    for (const std::string& value : axis.values) values.push_back(json::value(value));
    axes.push_back({{"key", axis.key}, {"values", std::move(values)}});
  }
  json::array runs;
  for (const Entry& entry : entries) {
    runs.push_back(
        {{"directory", entry.run->name},
         {"settings", config::to_json(entry.run->settings)},
         {"state", to_string(entry.state)},
         {"reason", entry.reason.empty() ? json::value(nullptr) : json::value(entry.reason)}});
  }
  return {{"program", program.name}, {"axes", std::move(axes)}, {"runs", std::move(runs)}};
}

Result<void> write_study(const std::filesystem::path& out, const json::object& study) {
  return write_durably(out / kStudyFile, as_bytes(json::serialize(study) + "\n"));
}

std::string note_of(const std::vector<Entry>& entries, const telemetry::Terminal& terminal) {
  return fmt::format("{}stopped: {} of {} finished; the same command goes on with the others\n",
                     terminal.interactive ? "\r\x1b[K" : "", count(entries, State::kFinished),
                     counted(entries.size(), "run"));
}

Result<std::string> begin(const PlannedRun& run, const Program& program,
                          const std::filesystem::path& directory, RunDisplay& display) {
  STARLING_TRY(program.configure(run.settings));
  InputDigests digests;
  // Others may have been here.
  STARLING_ASSIGN(const Found found, find_run(directory, program, digests));
  if (found.held == Held::kFinished) return "finished by another command";
  if (found.held == Held::kNothing) {
    std::error_code error;
    std::filesystem::remove_all(directory, error);
    if (error) return file_error("remove", directory);
  }
  try {
    return program.run(directory, display);
  } catch (const std::bad_alloc&) {
    return rejected("out-of-memory", "there is not enough memory for this run");
  }
}

Result<void> run_all(const Plan& plan, std::vector<Entry>& entries, const Program& program,
                     const Options& options, const Surroundings& around) {
  const std::size_t todo = count(entries, State::kOpen);
  using Note = telemetry::InterruptNote;
  Note note(program.saves ? Note::On::kAsk : Note::On::kEnd);
  if (!program.stopping.empty()) note.set_asking(program.stopping);
  telemetry::Progress progress(around.err, around.clock, around.err_terminal, todo * kShares,
                               {.unit = "runs", .per_unit = kShares});
  telemetry::ProgressLog log(progress);
  std::size_t done = 0;
  for (Entry& entry : entries) {
    if (entry.state != State::kOpen) continue;
    note.set(note_of(entries, around.err_terminal));
    const std::string& name = entry.run->name;
    RunDisplay display(progress, log, note, done, name);
    display.update(0);
    const TimePoint started = around.clock.now();
    const auto ended = begin(*entry.run, program, options.out / name, display);
    if (!ended && ended.error().code() == "stopped" && note.asked()) note.end();
    const std::string took = telemetry::format_elapsed(around.clock.now() - started);
    ++done;
    entry.state = ended ? State::kFinished : State::kFailed;
    if (!ended) entry.reason = escape_controls(ended.error().message());
    // Now, as Ctrl-C and kill leave no later time.
    STARLING_TRY(write_study(options.out, to_json(plan, program, entries)));
    const std::string line =
        ended ? fmt::format("[{}/{}] {}  {}  {}", done, todo, name, *ended, took)
              : fmt::format("[{}/{}] {}  failed: {}", done, todo, name, entry.reason);
    const std::lock_guard lock(log.mutex());
    progress.update(done * kShares);
    progress.print(line);
  }
  return {};
}

// --- what is said at the end ---------------------------------------------------------------------

Result<void> write_reports(const Options& options, json::object& study,
                           const Surroundings& around) {
  const auto found = report::read_study(options.out);
  if (!found && found.error().code() == "no-run") return {};  // none has ended
  if (!found) return found.error();
  for (const report::LeftOut& run : found->left_out) {
    if (!run.reason.starts_with(report::kUnreadable)) continue;
    around.err << fmt::format("note: {} {}; it is left out\n", escape_controls(run.name),
                              escape_controls(run.reason));
  }
  for (const report::LeftOut& run : found->damaged) {
    around.err << fmt::format("note: {}: {}\n", escape_controls(run.name),
                              escape_controls(run.reason));
  }
  const std::filesystem::path page = options.out / "report.html";
  STARLING_TRY(
      report::write_comparison(found->runs, page, {.csv = true, .svg = true}, found->left_out));
  study["report"] = page.string();
  if (options.format == config::OutputFormat::kJson) return {};
  around.out << report::comparison_text(found->runs, around.out_terminal.line_max)
             << "written: " << page.string() << ", its curves as CSV and SVG in "
             << report::curves_beside(page).string() << "/\n";
  return {};
}

// One run that failed says why; of several the first.
Error failure(const std::vector<Entry>& entries) {
  const std::size_t failed = count(entries, State::kFailed);
  const auto first = std::ranges::find(entries, State::kFailed, &Entry::state);
  return rejected(
      "study-incomplete",
      fmt::format("{} of {} failed: {}: {}{}", failed, counted(entries.size(), "run"),
                  first->run->name, first->reason, failed > 1 ? "; study.json has them all" : ""));
}

}  // namespace

// A key that only one side has counts too: what a flag decides is recorded where it was given.
std::optional<std::string> difference(const Settings& recorded, const Settings& wanted) {
  for (const Settings* side : {&wanted, &recorded}) {
    for (const auto& [key, ignored] : *side) {
      const std::string there = value_of(recorded, key);
      const std::string here = value_of(wanted, key);
      if (there != here) return fmt::format("{} is {} there and {} here", key, there, here);
    }
  }
  return std::nullopt;
}

std::string difference_to_unfinished(const report::Run& run, std::string_view program,
                                     const Settings& settings, const Settings& inputs) {
  const std::string here = fmt::format("{} {}", program, STARLING_VERSION);
  if (run.version.empty()) return "it is of an earlier version";
  if (run.program != here) return fmt::format("it is of {}, and this is {}", run.program, here);
  const bool resolves = run.kind == report::RunKind::kFederated;
  const auto differs = difference(resolves ? run.asked : run.settings, settings);
  return differs ? *differs : changed_input(run.inputs, inputs).value_or("");
}

std::optional<std::string> difference_to_unfinished(const std::filesystem::path& directory,
                                                    std::string_view program,
                                                    const Settings& settings,
                                                    const Settings& inputs) {
  const auto run = report::read_run(directory);
  if (run) {
    if (!run->unfinished) return std::nullopt;
    return difference_to_unfinished(*run, program, settings, inputs);
  }
  if (!holds(directory / report::kUnfinishedFile)) return std::nullopt;
  return std::string("unfinished.json cannot be read");
}

std::string unfinished_words(const std::filesystem::path& directory) {
  const auto run = report::read_run(directory);
  return unfinished_words(run ? *run : report::Run());
}

Result<bool> skip_finished(const std::filesystem::path& directory, const Settings& settings,
                           config::OutputFormat format, std::ostream& out, std::ostream& err) {
  const auto run = report::read_run(directory);
  if (!run && run.error().code() == "no-run") return false;
  if (!run) return run.error();
  if (!report::is_whole(*run)) return false;
  InputDigests digests;
  STARLING_TRY(check_same_finished(*run, directory, settings, digests));
  const auto damage = report::check_unchanged(directory);
  if (!damage) return damage.error().within(directory.string());
  if (!damage->empty()) {
    err << fmt::format("note: {}: {}\n", escape_controls(directory.string()),
                       escape_controls(*damage));
  }
  const std::filesystem::path page = directory / "report.html";
  if (format == config::OutputFormat::kJson) {
    json::object answer{{"finished", true}, {"report", page.string()}};
    if (!run->version.empty()) answer["version"] = run->version;
    out << json::serialize(answer) << "\n";
  } else {
    const std::string by =
        is_other_version(run->version)
            ? fmt::format(" by Starling {} (this is {})", run->version, STARLING_VERSION)
            : "";
    out << fmt::format("{} holds this run, finished{}: {}\n", directory.string(), by,
                       page.string());
  }
  return true;
}

void RunDisplay::update(double share) {
  const double inside = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0;
  const auto shares = static_cast<std::uint64_t>(inside * static_cast<double>(kShares));
  const std::lock_guard lock(log_.mutex());
  // The last share is the study's, once all is written.
  progress_.update(runs_before_ * kShares + std::min(shares, kShares - 1),
                   fmt::format("{}  {:.0f} %", name_, 100 * inside));
}

Result<config::ExitCode> run_study(const Plan& plan, const Program& program, const Options& options,
                                   const Surroundings& around) {
  if (options.out.empty()) {
    return config::usage_error(
        "a study (--seeds, --sweep) writes a directory for each run: say where with --out DIR");
  }
  STARLING_TRY(check_directory(options.out));
  STARLING_ASSIGN(const auto refused, refusals(plan, program));
  STARLING_TRY(check_values(plan, refused));
  STARLING_TRY(make_directory(options.out));
  STARLING_ASSIGN(const DirectoryLock locked, lock(options.out));
  for (const auto& written : {options.out, options.out / "curves"}) sweep_temporaries(written);
  STARLING_ASSIGN(std::vector<Entry> entries, find_entries(plan, program, options.out));
  STARLING_TRY(write_study(options.out, to_json(plan, program, entries)));
  print_plan(plan, entries, options, around.err);
  STARLING_TRY(run_all(plan, entries, program, options, around));
  json::object study = to_json(plan, program, entries);
  STARLING_TRY(write_reports(options, study, around));
  if (options.format == config::OutputFormat::kJson) {
    around.out << json::serialize(study) << "\n";
  }
  if (count(entries, State::kFailed) == 0) return config::ExitCode::kOk;
  config::report(failure(entries), around.err);
  return config::ExitCode::kFailed;
}

}  // namespace starling::study
