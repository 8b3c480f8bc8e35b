// SPDX-License-Identifier: Apache-2.0
#include "edge_client/preflight_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <optional>
#include <ostream>

#include "core/base/counted.h"
#include "core/base/disk.h"
#include "core/base/durable_file.h"
#include "core/base/nearest_name.h"
#include "core/base/word_wrap.h"
#include "core/client/trainer_host.h"
#include "core/net/listener.h"
#include "edge_client/advice.h"
#include "edge_client/client_data.h"
#include "edge_client/greeting.h"
#include "gossip/peer/held_roster.h"

namespace starling::edge_client {
namespace {

using config::ExitCode;
using identity::IdentityDirectory;

constexpr std::uintmax_t kFreeBytesMin = 64'000'000;
constexpr Duration kClockDifferenceMax = std::chrono::minutes(5);

Check passed(std::string name, std::string finding) {
  return {.name = std::move(name), .ok = true, .finding = std::move(finding)};
}

Check failed(std::string name, std::string finding, std::string remedy,
             ExitCode code = ExitCode::kFailed) {
  return {.name = std::move(name),
          .finding = std::move(finding),
          .remedy = std::move(remedy),
          .exit_code = code};
}

// `otherwise`, unless what failed is the right to read the state directory.
std::string remedy_for(const Error& error, const StateDirectory& state, std::string otherwise) {
  if (error.code() != "no-permission") return otherwise;
  return fmt::format("run this as the user who owns {}", state.path.string());
}

Check check_configuration(const PreflightRequest& request) {
  const std::string file = request.state.options_file().string();
  const auto refused = [&](const Error& error) {
    const bool is_flag = error.message().starts_with("--");  // as Binder::apply() says it
    return failed("configuration", error.message(),
                  remedy_for(error, request.state, "correct " + (is_flag ? "the flag" : file)));
  };
  if (!request.options) return refused(request.options.error());
  const auto found = request.state.find_options_file();
  if (!found) return refused(found.error());
  return passed("configuration", file + (*found ? " is understood" : " is not there: defaults"));
}

// The advice names a section of edge.toml, or the whole file where there is none yet.
std::string see_section(const StateDirectory& state, std::string_view section,
                        std::string_view example) {
  const auto found = state.find_options_file();
  if (found && *found) return fmt::format("see {} in edge.toml", section);
  return fmt::format("make {} with {} and {}", state.options_file().string(), section, example);
}

// Starts it, as `start` would, unless that runs already with the same directory.
Check check_trainer(const EdgeOptions& options, const StateDirectory& state,
                    std::uint64_t model_bytes_max) {
  if (StateLock::holder(state)) {
    return passed("trainer", "it runs with starling-edge start, and is not started again");
  }
  NullLog log;
  client::TrainerHost host({.trainer = options.trainer, .directory = state.trainer(), .client = {}},
                           log);
  const std::atomic<bool> never = false;
  const auto found = host.describe("{}", never);
  if (!found && client::is_answer(found.error())) {
    return passed("trainer", "it starts, and describes itself with the settings of a run only: " +
                                 found.error().message());
  }
  if (!found) {
    return failed("trainer", found.error().message(), see_section(state, "[trainer]", "command"));
  }
  const std::string models = format_byte_count(model_bytes_max);
  const std::uint64_t bytes = found->layout->size() * sizeof(float);
  if (bytes > model_bytes_max) {
    return failed("trainer",
                  fmt::format("its model takes {}, and limits.memory leaves room for models of up "
                              "to {}",
                              format_byte_count(bytes), models),
                  "raise limits.memory in edge.toml");
  }
  return passed("trainer",
                fmt::format("{}; models of up to {}", client::summarize(*found), models));
}

Check check_data(const EdgeOptions& options, const StateDirectory& state) {
  const auto data = load_client_data(options);
  if (!data) {
    const bool large = data.error().code() == "dataset-too-large";
    return failed("data", data.error().message(),
                  large
                      ? "raise limits.memory in edge.toml, or hold fewer rows"
                      : see_section(state, "[data]", "dataset = \"csv:/path/to/rows.csv\" in it"));
  }
  const auto model = model_bytes_max(options.limits, bytes_of(*data));
  if (!model) {
    return failed("data", model.error().message(),
                  see_section(state, "[limits]", "memory = 1000 in it"));
  }
  if (data->training.dataset == nullptr) {
    return check_trainer(options, state, *model);
  }
  const std::string held_out =
      data->held_out ? fmt::format("; {} held out", counted(data->held_out->size(), "row")) : "";
  return passed("data", fmt::format("{}{}; models of up to {}", summarize(data->training), held_out,
                                    format_byte_count(*model)));
}

Check check_certificate(const IdentityDirectory& identity, WallTime now) {
  const identity::Validity validity = identity.credentials().certificate.validity();
  const std::string who =
      fmt::format("{} of federation {}, valid from {} to {}", identity.identity().name,
                  identity.identity().federation, format_rfc3339(validity.not_before),
                  format_rfc3339(validity.not_after));
  if (validity.contains(now)) return passed("certificate", who);
  // The coordinator takes it: its clock was ahead when it was issued. Or this device's is behind,
  // which is the check of the clock to say.
  if (now < validity.not_before) {
    return passed("certificate", fmt::format("{}, which is still to come", who));
  }
  return failed(
      "certificate",
      fmt::format("{}, which by this device's clock ({}) is over", who, format_rfc3339(now)),
      "if the clock is right, ask the operator for a new token and join with --replace",
      ExitCode::kNotConnected);
}

Check check_disk(const StateDirectory& state) {
  const std::filesystem::path probe = state.path / "preflight.tmp";
  Result<void> written = write_durably(probe, as_bytes("preflight"));
  if (written) written = remove_durably(probe);
  if (!written) {
    return failed("disk", written.error().message(),
                  remedy_for(written.error(), state, "make the state directory writable"));
  }
  std::error_code code;
  const auto space = std::filesystem::space(state.path, code);
  const std::string free = fmt::format("{} free", format_byte_count(space.available));
  if (!code && space.available < kFreeBytesMin) {
    return failed("disk", "only " + free, "free some space: finished updates are kept there");
  }
  return passed("disk", state.path.string() + " is writable, " + free);
}

struct Reached {
  Check check;
  std::optional<WallTime> coordinator_time;
};

GreetingOptions greeting_options(const PreflightRequest& request, bool running) {
  const EdgeOptions options = request.options ? *request.options : EdgeOptions();
  GreetingOptions greeting;
  greeting.connect.deadline = options.connection.connect_deadline;
  greeting.greeting_deadline = options.connection.greeting_deadline;
  greeting.hello.software = "starling-edge " + request.version;
  greeting.only_connect = running;
  return greeting;
}

Reached check_connection(const PreflightRequest& request, const IdentityDirectory& identity,
                         const Clock& clock) {
  const bool running = StateLock::holder(request.state).has_value();
  const std::string where = identity.coordinator().text();
  net::EventLoop loop;
  auto greeting = greet(loop, identity, clock, greeting_options(request, running));
  const auto welcome = net::run_task(loop, std::move(greeting));
  if (!welcome) {
    std::string message = welcome.error().message();
    std::string advice = advice_for(welcome.error(), identity, request.state);
    const std::size_t end = message.find("; ");
    if (advice.empty() && end != message.npos) {  // the message has its own
      advice = message.substr(end + 2);
      message.resize(end);
    }
    if (advice.empty()) {
      advice = fmt::format("see that the coordinator runs and that {} can be reached", where);
    }
    return {failed("connection", std::move(message), std::move(advice), ExitCode::kNotConnected),
            {}};
  }
  if (running) {
    return {passed("connection", fmt::format("{} and this device accept each other (the session "
                                             "is the running process's)",
                                             where)),
            {}};
  }
  return {passed("connection",
                 fmt::format("{} welcomes this device as {}", where, printable(welcome->client))),
          WallTime(std::chrono::milliseconds(welcome->wall_time_ms))};
}

Check check_clock(const IdentityDirectory& identity, std::optional<WallTime> coordinator_time,
                  WallTime now) {
  const std::string remedy =
      "set this device's clock; until then it judges certificates by what the coordinator last "
      "told";
  if (!coordinator_time) {
    const WallTime last = identity.last_authenticated();
    if (now + kClockDifferenceMax >= last) return passed("clock", format_rfc3339(now));
    return failed("clock",
                  fmt::format("{} is before {}, when the coordinator was last heard",
                              format_rfc3339(now), format_rfc3339(last)),
                  remedy);
  }
  const auto difference = now - *coordinator_time;
  const Duration size = std::chrono::abs(difference);
  if (size <= kClockDifferenceMax) return passed("clock", "agrees with the coordinator's");
  return failed("clock",
                fmt::format("{:.0f} s {} the coordinator's", to_seconds(size),
                            difference.count() > 0 ? "ahead of" : "behind"),
                remedy);
}

// None once its run was stopped.
std::optional<identity::SignedRoster> current_roster(const PreflightRequest& request,
                                                     const IdentityDirectory& identity) {
  SystemDisk disk;
  auto held = gossip::load_held_roster(disk, request.state.gossip(), identity);
  return held && *held && !(*held)->roster().stopped() ? *std::move(held) : std::nullopt;
}

// Where others dial this device, as the roster that it holds says.
std::optional<identity::HostPort> dialled_address(const identity::SignedRoster& held,
                                                  const IdentityDirectory& identity) {
  const identity::Roster& roster = held.roster();
  const auto place = roster.find(identity.identity().name);
  if (!place || roster.members[*place].address.empty()) return std::nullopt;
  const auto address = identity::parse_host_port(roster.members[*place].address);
  return address ? std::optional(*address) : std::nullopt;
}

// On every address of the machine, as the one that is dialled may be a router's.
std::string everywhere(const std::string& dialled_host) {
  return dialled_host.find(':') == dialled_host.npos ? "0.0.0.0" : "[::]";
}

Check does_not_listen(const std::string& dialled, const std::string& who_says,
                      const std::string& remedy) {
  return failed(
      "listen",
      fmt::format("peers dial {}, as {}, and this device does not listen", dialled, who_says),
      remedy);
}

// Of a device that peers dial, though it is not told to listen. The certificate, which is all that
// there is before the first roster, has the host alone.
std::optional<Check> check_deafness(const PreflightRequest& request,
                                    const IdentityDirectory& identity) {
  if (const auto roster = current_roster(request, identity)) {
    const auto told = dialled_address(*roster, identity);
    if (!told) return std::nullopt;
    return does_not_listen(told->text(), "the roster says",
                           fmt::format("say listen = \"{}:{}\" under [gossip] in edge.toml",
                                       everywhere(told->host), told->port));
  }
  const auto hosts = identity.credentials().certificate.hosts();
  if (hosts.empty()) return std::nullopt;
  return does_not_listen(
      hosts.front(), "its certificate says",
      fmt::format("say listen = \"{}:PORT\" under [gossip] in edge.toml, with the port of the "
                  "address that the operator gave this device (token new --address)",
                  everywhere(hosts.front())));
}

// Whether peers that dial this device would find it.
Check check_listen(const PreflightRequest& request, const IdentityDirectory& identity,
                   const Clock& clock) {
  const std::string& listen = request.options->gossip.listen;
  const auto where = identity::parse_host_port(listen);
  if (!where) return failed("listen", where.error().message(), "correct gossip.listen");
  if (StateLock::holder(request.state)) {
    return passed("listen", fmt::format("{} is the running process's", listen));
  }
  identity::PeerPolicy nobody;
  nobody.time = [&clock] { return identity::VerificationTime{clock.wall_now()}; };
  const auto tls = net::TlsContext::make_server(identity.credentials(),
                                                {{net::Protocol::kPeer, std::move(nobody)}});
  if (!tls) return failed("listen", tls.error().message(), "join again with --replace");
  net::EventLoop loop;
  net::ListenerOptions options;
  options.host = where->host;
  options.port = where->port;
  auto listener = net::Listener::open(loop, *tls, options,
                                      {.on_connection = [](std::unique_ptr<net::Connection>) {}});
  if (!listener) {
    return failed("listen", listener.error().message(),
                  "end what uses it, or say another gossip.listen");
  }
  loop.run_task((*listener)->close());
  const auto roster = current_roster(request, identity);
  const auto told = roster ? dialled_address(*roster, identity) : std::nullopt;
  if (!told || told->port == where->port || where->port == 0) {
    return passed("listen", fmt::format("peers may dial {}", listen));
  }
  return passed(
      "listen",
      fmt::format("on {}; peers dial {}, as the roster says: unless that port is "
                  "forwarded to this one, say gossip.listen = \"{}\"",
                  listen, told->text(), identity::HostPort{where->host, told->port}.text()));
}

void print_text(const std::vector<Check>& checks, std::size_t columns, std::ostream& out) {
  for (const Check& check : checks) {
    const std::string label = fmt::format("{:<13} {:<6} ", check.name, check.ok ? "ok" : "FAILED");
    out << wrap_beside(label, check.finding, columns) << "\n";
    if (check.ok) continue;
    out << wrap_beside(std::string(label.size(), ' '), check.remedy, columns) << "\n";
  }
}

void print_json(const std::vector<Check>& checks, std::ostream& out) {
  boost::json::array list;
  for (const Check& check : checks) {
    list.push_back(boost::json::object{
        {"name", check.name},
        {"ok", check.ok},
        {"finding", check.finding},
        {"remedy", check.ok ? boost::json::value() : boost::json::value(check.remedy)}});
  }
  const bool ok = std::ranges::all_of(checks, &Check::ok);
  out << boost::json::serialize(boost::json::object{{"ok", ok}, {"checks", list}}) << '\n';
}

}  // namespace

std::vector<Check> preflight_checks(const PreflightRequest& request, const Clock& clock) {
  std::vector<Check> checks = {check_configuration(request)};
  if (request.options) checks.push_back(check_data(*request.options, request.state));
  checks.push_back(check_disk(request.state));
  const auto identity = IdentityDirectory::load(request.state.identity());
  if (!identity) {
    checks.push_back(failed(
        "certificate", identity.error().message(),
        remedy_for(identity.error(), request.state,
                   "ask the operator for a token and type: " + request.state.command("join TOKEN")),
        ExitCode::kNotConnected));
    return checks;
  }
  checks.push_back(check_certificate(*identity, clock.wall_now()));
  if (request.options && !request.options->gossip.listen.empty()) {
    checks.push_back(check_listen(request, *identity, clock));
  } else if (request.options) {
    if (auto deaf = check_deafness(request, *identity)) checks.push_back(*std::move(deaf));
  }
  Reached reached = check_connection(request, *identity, clock);
  checks.push_back(std::move(reached.check));
  checks.push_back(check_clock(*identity, reached.coordinator_time, clock.wall_now()));
  return checks;
}

int preflight(const PreflightRequest& request, const Clock& clock, config::OutputFormat format,
              std::ostream& out, std::size_t columns) {
  const std::vector<Check> checks = preflight_checks(request, clock);
  if (format == config::OutputFormat::kJson) {
    print_json(checks, out);
  } else {
    print_text(checks, columns, out);
  }
  ExitCode code = ExitCode::kOk;
  for (const Check& check : checks) {
    if (!check.ok && code != ExitCode::kFailed) code = check.exit_code;
  }
  return static_cast<int>(code);
}

}  // namespace starling::edge_client
