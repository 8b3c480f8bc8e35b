// SPDX-License-Identifier: Apache-2.0
#include "edge_client/status_command.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <ostream>

#include "core/base/counted.h"
#include "core/base/word_wrap.h"
#include "core/identity/identity_directory.h"
#include "edge_client/status_file.h"

namespace starling::edge_client {
namespace {

struct Facts {
  identity::Identity who;
  std::string coordinator;
  WallTime certificate_expires;
  std::optional<long> process;
  std::optional<EdgeStatus> status;  // of the process that runs, or of the last one
  std::optional<WallTime> held_at;   // when `status` last held
};

std::optional<WallTime> time_of(const std::filesystem::path& file) {
  std::error_code code;
  const auto time = std::filesystem::last_write_time(file, code);
  if (code) return std::nullopt;
  return std::chrono::floor<std::chrono::milliseconds>(
      std::filesystem::file_time_type::clock::to_sys(time));
}

Result<Facts> gather(const StateDirectory& state) {
  STARLING_ASSIGN(const auto identity, identity::IdentityDirectory::load(state.identity()));
  Facts facts{.who = identity.identity(),
              .coordinator = identity.coordinator().text(),
              .certificate_expires = identity.credentials().certificate.validity().not_after,
              .process = StateLock::holder(state)};
  if (const auto status = read_status(state.status_file())) {
    facts.status = *status;
    facts.held_at = time_of(state.status_file());
  }
  return facts;
}

std::string describe_work(const EdgeStatus& status) {
  if (!status.task) return status.activity;
  return fmt::format("{}, run {} '{}' round {}/{}", status.activity, status.task->run,
                     status.task->run_name, status.task->round, status.task->rounds);
}

void print_gossip(const EdgeStatus::Gossip& gossip, std::size_t columns, std::ostream& out) {
  const std::string label = "gossip         ";
  // Without an exchange in this epoch, as after the end of the run, no neighbours were expected.
  const std::string heard = gossip.expected > 0 ? fmt::format(", {} of {} neighbours heard",
                                                              gossip.neighbours, gossip.expected)
                                                : "";
  const std::string facts =
      fmt::format("{}, run '{}' step {}{}, linked with {}", gossip.state, gossip.run_name,
                  gossip.step, heard, counted(gossip.links, "other member"));
  out << wrap_beside(label, facts, columns) << "\n";
  if (!gossip.problem.empty()) {
    out << wrap_beside(std::string(label.size(), ' '), gossip.problem, columns) << "\n";
  }
  if (!gossip.model.empty()) out << "model          " << gossip.model << "\n";
}

// What to know of the file that the rest is read from; nothing where it is of now.
std::string describe_file(const Facts& facts, const StateDirectory& state, WallTime now) {
  if (!facts.process) return "";
  const std::string file = state.status_file().string();
  if (!facts.status) return fmt::format("not known: there is no {} of this version", file);
  if (!facts.held_at || now - *facts.held_at < StatusWriter::kAgeMax) return "";
  return fmt::format(
      "as of {}, {:.0f} s ago: the process cannot write {}, as on a full disk, or stands still; "
      "see its log",
      format_rfc3339(*facts.held_at), to_seconds(now - *facts.held_at), file);
}

void print_text(const Facts& facts, const StateDirectory& state, WallTime now, std::size_t columns,
                std::ostream& out) {
  out << fmt::format("{} of federation {}, coordinator {}\n", facts.who.name, facts.who.federation,
                     facts.coordinator);
  out << fmt::format("certificate    until {}{}\n", format_rfc3339(facts.certificate_expires),
                     facts.certificate_expires < now ? " (expired)" : "");
  if (facts.process) {
    out << fmt::format("process        {}\n", *facts.process);
  } else {
    out << fmt::format("process        none; run: {}\n", state.command("start"));
  }
  const std::string about_file = describe_file(facts, state, now);
  if (!about_file.empty()) out << wrap_beside("status         ", about_file, columns) << "\n";
  if (!facts.status) return;
  const EdgeStatus& status = *facts.status;
  if (facts.process) {
    out << fmt::format("link           {}\n", status.link);
    out << fmt::format("work           {}\n", describe_work(status));
  }
  if (facts.process && status.gossip) print_gossip(*status.gossip, columns, out);
  out << fmt::format("updates        {} counted, {} pending\n", status.updates_counted,
                     status.pending_updates);
  out << fmt::format("last connected {}\n",
                     status.last_connected ? format_rfc3339(*status.last_connected) : "never");
  if (!status.last_error.empty()) {
    const std::string at = status.last_error_at ? format_rfc3339(*status.last_error_at) : "earlier";
    out << wrap_beside("last error     ", at + ": " + status.last_error, columns) << "\n";
  }
}

void print_json(const Facts& facts, std::ostream& out) {
  using boost::json::value;
  boost::json::object object{
      {"client", facts.who.name},
      {"federation", facts.who.federation},
      {"coordinator", facts.coordinator},
      {"certificate_expires", format_rfc3339(facts.certificate_expires)},
      {"running", facts.process.has_value()},
      {"process", facts.process ? value(*facts.process) : value(nullptr)},
      {"status_time", facts.held_at ? value(format_rfc3339(*facts.held_at)) : value(nullptr)},
      {"status", facts.status ? boost::json::parse(to_json(*facts.status)) : value(nullptr)}};
  out << boost::json::serialize(object) << '\n';
}

}  // namespace

int status(const StateDirectory& state, WallTime now, config::OutputFormat format,
           std::ostream& out, std::ostream& err, std::size_t columns) {
  const auto facts = gather(state);
  if (!facts) return config::report(facts.error(), err);
  if (format == config::OutputFormat::kJson) {
    print_json(*facts, out);
  } else {
    print_text(*facts, state, now, columns, out);
  }
  return static_cast<int>(config::ExitCode::kOk);
}

}  // namespace starling::edge_client
