// SPDX-License-Identifier: Apache-2.0
#include "edge_client/join_command.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <filesystem>
#include <ostream>
#include <vector>

#include "core/base/durable_file.h"
#include "edge_client/edge_options.h"
#include "gossip/peer/checkpoint.h"

namespace starling::edge_client {
namespace {

namespace fs = std::filesystem;
using identity::IdentityDirectory;

// A replacement is complete in here before the old identity moves away.
fs::path replacement(const StateDirectory& state) { return state.path / "identity.new"; }

fs::path former_identity(const StateDirectory& state) { return state.path / "identity.old"; }

Result<void> move_directory(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::remove_all(to, code);
  if (!code) fs::rename(from, to, code);
  if (!code) return sync_directory(to.parent_path());
  return internal("io-error", fmt::format("cannot move {} to {}: {}", from.string(), to.string(),
                                          code.message()));
}

// The old identity may have moved away before a crash.
bool is_same_client(const StateDirectory& state) {
  auto former = IdentityDirectory::load(state.identity());
  if (!former) former = IdentityDirectory::load(former_identity(state));
  const auto next = IdentityDirectory::load(replacement(state));
  return former && next && former->identity() == next->identity();
}

Result<void> install_replacement(const StateDirectory& state) {
  // A checkpoint of the former identity may lie far ahead of its network (it trained on while it
  // was revoked), and would be where the others go on from.
  std::vector<fs::path> removed =
      gossip::checkpoint_files(state.gossip() / "checkpoint.safetensors");
  removed.push_back(state.gossip() / "fallback");
  // Its updates and its strategies' states, on which the server's state builds, are those of the
  // same client of the same federation; they name the run that they belong to.
  if (!is_same_client(state)) removed.push_back(state.pending());
  for (const fs::path& former : removed) {
    std::error_code code;
    fs::remove_all(former, code);
    if (code) {
      return internal("io-error", fmt::format("cannot remove {} of the former identity: {}",
                                              former.string(), code.message()));
    }
  }
  // Else a power cut might bring the checkpoint back, and not the former identity.
  if (fs::exists(state.gossip())) STARLING_TRY(sync_directory(state.gossip()));
  if (fs::exists(state.identity())) {
    STARLING_TRY(move_directory(state.identity(), former_identity(state)));
  }
  return move_directory(replacement(state), state.identity());
}

// A replacement that another token made, and that a crash kept from being installed.
Result<void> discard_replacement(const StateDirectory& state) {
  std::error_code code;
  fs::remove_all(replacement(state), code);
  if (!code) return {};
  return internal("io-error",
                  fmt::format("cannot remove {}: {}", replacement(state).string(), code.message()));
}

Error already_joined(const StateDirectory& state) {
  const auto joined = IdentityDirectory::load(state.identity());
  if (!joined) return joined.error();
  const identity::Identity& who = joined->identity();
  return rejected(
      "already-joined",
      fmt::format("{} is {} of federation {} already; run: {}, or add --replace to take "
                  "a new identity",
                  state.path.string(), who.name, who.federation, state.command("start")));
}

Error explain(const StateDirectory& state, const Error& error) {
  if (error.code() == "already-joined") return already_joined(state);
  if (error.kind() != ErrorKind::kRetry) return error;
  return error.with_message(error.message() + "; the same command may be typed again");
}

Result<void> join_into(const fs::path& directory, net::EventLoop& loop, const JoinRequest& request,
                       const identity::JoinToken& token, const Clock& clock) {
  auto joining = enrol::join(loop, token, directory, clock, request.options);
  const auto joined = net::run_task(loop, std::move(joining));
  if (!joined) return explain(request.state, joined.error());
  return {};
}

Result<void> obtain_identity(net::EventLoop& loop, const JoinRequest& request,
                             const identity::JoinToken& token, const Clock& clock) {
  const StateDirectory& state = request.state;
  const bool present = IdentityDirectory::is_joined(state.identity());
  const bool complete = IdentityDirectory::is_joined(replacement(state));
  if (complete && (request.replace || !present)) {
    if (enrol::begun_with(replacement(state), token)) return install_replacement(state);
    if (present) STARLING_TRY(discard_replacement(state));
  }
  if (!request.replace || !present) {
    return join_into(state.identity(), loop, request, token, clock);
  }
  STARLING_TRY(join_into(replacement(state), loop, request, token, clock));
  return install_replacement(state);
}

Result<void> write_options_file(const StateDirectory& state) {
  if (fs::exists(state.options_file())) return {};
  return write_durably(state.options_file(), as_bytes(edge_toml_template()));
}

void print_text(const JoinRequest& request, const identity::Identity& who, std::ostream& out) {
  const StateDirectory& state = request.state;
  out << fmt::format("{} joined federation {}\n", who.name, who.federation);
  out << fmt::format(
      "Say where this device's data is, in {}, for example:\n"
      "  [data]\n"
      "  dataset = \"csv:/path/to/rows.csv\"\n",
      state.options_file().string());
  if (who.role == identity::Role::kPeer) {
    out << "and, if its token names an address at which other peers dial it:\n"
           "  [gossip]\n"
           "  listen = \"0.0.0.0:PORT\"\n";
  }
  out << fmt::format("Then start it:\n  {}\n", state.command("start"));
}

void print_json(const JoinRequest& request, const IdentityDirectory& identity, std::ostream& out) {
  const boost::json::object object{{"client", identity.identity().name},
                                   {"federation", identity.identity().federation},
                                   {"coordinator", identity.coordinator().text()},
                                   {"state", request.state.path.string()}};
  out << boost::json::serialize(object) << '\n';
}

}  // namespace

Result<IdentityDirectory> join_federation(net::EventLoop& loop, const JoinRequest& request,
                                          const Clock& clock) {
  const StateDirectory& state = request.state;
  STARLING_ASSIGN(const identity::JoinToken token, identity::JoinToken::parse(request.token));
  STARLING_TRY(state.expect_no_coordinator());
  STARLING_TRY(make_directory(state.path));
  STARLING_ASSIGN(const StateLock lock, StateLock::acquire(state));
  STARLING_TRY(obtain_identity(loop, request, token, clock));
  STARLING_TRY(make_directory(state.pending(), true));
  STARLING_TRY(write_options_file(state));
  return IdentityDirectory::load(state.identity());
}

int join(JoinRequest request, const Clock& clock, config::OutputFormat format, std::ostream& out,
         std::ostream& err) {
  net::EventLoop loop;
  request.options.on_retry = [&err](const Error& error, Duration pause) {
    err << enrol::describe_retry(error, pause) << std::endl;
  };
  const auto joined = join_federation(loop, request, clock);
  if (!joined) return config::report(joined.error(), err);
  if (format == config::OutputFormat::kJson) {
    print_json(request, *joined, out);
  } else {
    print_text(request, joined->identity(), out);
  }
  return static_cast<int>(config::ExitCode::kOk);
}

}  // namespace starling::edge_client
