// SPDX-License-Identifier: Apache-2.0
#include "coordinator/commands/run_follow.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <ostream>

#include "coordinator/commands/run_view.h"
#include "coordinator/commands/text_table.h"
#include "core/telemetry/terminal.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

// A piece holds whole lines.
Result<void> read_lines(std::string_view piece, const std::function<void(const json::value&)>& on) {
  while (!piece.empty()) {
    const std::size_t end = std::min(piece.find('\n'), piece.size());
    boost::system::error_code code;
    const json::value line = json::parse(json::string_view(piece.data(), end), code);
    if (code) return rejected("bad-answer", "a line of the log is not JSON: " + code.message());
    on(line);
    piece.remove_prefix(std::min(end + 1, piece.size()));
  }
  return {};
}

// A run whose turn has not come says nothing itself. Whether the run has ended.
Result<bool> say_what_it_waits_for(OperatorClient& client, const std::string& run,
                                   std::ostream& progress) {
  STARLING_ASSIGN(const json::value state, client.ask("run-state", {{"id", run}}));
  const std::string waits_for = cell(state, "waits_for");
  if (waits_for != "-") progress << fmt::format("run {} waits for {}", run, waits_for) << std::endl;
  const std::string name = cell(state, "state");
  return name != "pending" && name != "running";
}

// Of a log that broke off before the run had ended.
Error not_ended(const Error& error, const std::string& run) {
  if (error.code() == "deadline") {
    return timed_out("deadline", fmt::format("run {} goes on; it had not ended in time", run));
  }
  if (error.category() != ErrorCategory::kNotConnected) return error;
  return error.with_message(fmt::format(
      "{}; run {} goes on when the coordinator is back: then 'starling-coordinator run wait {}'",
      error.message(), run, run));
}

}  // namespace

Result<void> follow_log(OperatorClient& client, const std::string& run,
                        const FollowOptions& options,
                        const std::function<void(const json::value&)>& on_line) {
  const auto word = [](bool value) { return value ? "true" : "false"; };
  const Settings arguments = {
      {"id", run}, {"follow", word(options.until_end)}, {"new", word(options.only_new)}};
  return client.stream(
      "run-log", arguments, {},
      [&on_line](ByteView piece) { return read_lines(as_text(piece), on_line); }, options.deadline);
}

Result<int> wait_for_run(OperatorClient& client, const std::string& run,
                         const FollowOptions& options, config::OutputFormat format,
                         CommandContext& context) {
  const bool is_json = format == config::OutputFormat::kJson;
  std::ostream& progress = is_json ? context.err : context.out;
  STARLING_ASSIGN(const bool ended, say_what_it_waits_for(client, run, progress));
  if (!ended || !options.only_new) {
    const std::size_t columns = is_json ? SIZE_MAX : context.terminal.line_max;
    const auto followed = follow_log(client, run, options, [&](const json::value& line) {
      progress << telemetry::leading_facts(cell(line, "text"), columns) << std::endl;
    });
    if (!followed) return not_ended(followed.error(), run);
  }
  STARLING_ASSIGN(const json::value state, client.ask("run-state", {{"id", run}}));
  if (is_json) {
    const json::object& members = state.get_object();
    context.out << json::serialize(json::object{{"id", members.at("id")},
                                                {"state", members.at("state")},
                                                {"error", members.at("error")}})
                << '\n';
  } else {
    context.out << describe_end(state);
  }
  return cell(state, "state") == "completed" ? 0 : 1;
}

}  // namespace starling::coordinator
