// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/state_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "coordinator/service/certificate_records.h"
#include "coordinator/service/coordinator_options.h"
#include "coordinator/service/host_names.h"
#include "coordinator/service/server_credentials.h"
#include "core/base/durable_file.h"
#include "core/base/shell_word.h"
#include "core/identity/certificate_authority.h"
#include "core/identity/identity_directory.h"
#include "core/store/sqlite_store.h"

namespace starling::coordinator {
namespace {

namespace fs = std::filesystem;

Result<void> expect_empty(const fs::path& root) {
  std::error_code code;
  if (!fs::exists(root, code)) return {};
  if (!fs::is_directory(root, code)) {
    return rejected("directory-not-empty", root.string() + " is not a directory");
  }
  if (fs::is_empty(root, code) && !code) return {};
  const StateDirectory state(root);
  STARLING_TRY(expect_not_interrupted(state));
  if (!fs::exists(state.options_file(), code)) {
    return rejected("directory-not-empty", root.string() + " is not empty; name a new directory");
  }
  return rejected("directory-not-empty",
                  root.string() +
                      " is not empty; name a new directory, or start what is in it "
                      "with 'starling-coordinator serve " +
                      root.string() + "'");
}

// Something that init makes before coordinator.toml and as it makes it, or a temporary file of it.
bool is_of_init(const StateDirectory& state, const fs::path& entry) {
  const std::string name = entry.filename().string();
  const auto is = [&](const fs::path& made) { return entry.filename() == made.filename(); };
  std::error_code code;
  if (is(state.models()) || is(state.spool())) return fs::is_empty(entry, code) && !code;
  if (is(state.operator_identity())) return fs::exists(state.authority(), code);
  return is(state.authority()) || name.starts_with(state.database().filename().string()) ||
         (name.starts_with('.') && name.ends_with(".tmp"));
}

// "My lab!" becomes "My-lab".
std::string federation_name_of(const fs::path& root) {
  std::string name = fs::absolute(root).lexically_normal().filename().string();
  if (name.empty()) name = fs::absolute(root).lexically_normal().parent_path().filename().string();
  std::ranges::replace_if(
      name, [](char c) { return !identity::check_name(std::string("x") + c, ""); }, '-');
  while (!name.empty() && name.back() == '-') name.pop_back();
  name = name.substr(0, 64);
  return name.empty() ? "federation" : name;
}

std::string options_text(const CoordinatorSettings& settings) {
  return fmt::format(
      "# A Starling coordinator. Every other key, with its default: coordinator/README.md\n"
      "[service]\n"
      "listen = \"{}\"\n"
      "names = \"{}\"  # what devices dial; the first stands in join tokens\n",
      settings.service.listen, settings.service.names);
}

Result<void> make_operator(const StateDirectory& state, const CoordinatorSettings& settings,
                           const identity::CertificateAuthority& authority,
                           store::IdentityStore& store, WallTime now) {
  STARLING_ASSIGN(const auto credentials,
                  authority.issue_credentials({.role = identity::Role::kOperator,
                                               .name = kLocalOperator,
                                               .lifetime = settings.enrol.operator_lifetime},
                                              now));
  STARLING_TRY(store.add_client(kLocalOperator, store::Role::kOperator,
                                to_record(credentials.certificate, kLocalOperator), now));
  STARLING_ASSIGN(const auto listen, settings.listen_address());
  return identity::IdentityDirectory::save(state.operator_identity(), credentials,
                                           {settings.names().front(), listen.port});
}

}  // namespace

Result<void> expect_not_interrupted(const StateDirectory& state) {
  std::error_code code;
  if (fs::exists(state.options_file(), code) || code) return {};
  const std::string root = state.root().string();
  if (fs::exists(state.database(), code) && fs::exists(state.address(), code)) {
    return rejected("file-missing",
                    fmt::format("{} has served and has no coordinator.toml any more: put the file "
                                "back, or restore a backup into a new directory",
                                root));
  }
  std::size_t found = 0;
  for (auto it = fs::directory_iterator(state.root(), code);
       !code && it != fs::directory_iterator(); it.increment(code), ++found) {
    if (!is_of_init(state, it->path())) return {};
  }
  if (found == 0) return {};
  return rejected(
      "init-interrupted",
      fmt::format("{0} has no coordinator.toml, as after an interrupted init: remove {0} "
                  "and repeat: starling-coordinator init {1}",
                  root, shell_word(root)));
}

Result<identity::HostPort> read_address(const StateDirectory& state) {
  constexpr std::size_t kBytesMax = 512;
  STARLING_ASSIGN(std::string line, read_text_file(state.address(), kBytesMax));
  if (line.ends_with('\n')) line.pop_back();
  return identity::parse_host_port(line);
}

Result<InitResult> init_state_directory(const fs::path& root, const InitOptions& options,
                                        const Clock& clock) {
  const WallTime now = clock.wall_now();
  const std::string federation =
      options.federation.empty() ? federation_name_of(root) : options.federation;
  STARLING_TRY(identity::check_name(federation, "the federation"));
  CoordinatorSettings settings;
  settings.service.listen = options.listen;
  STARLING_ASSIGN(const auto listen, settings.listen_address());
  if (listen.port == 0) {
    return wrong_setting("setting-invalid", "--listen " + options.listen +
                                                " names no port; devices need one that stays");
  }
  const auto names = options.names.empty() ? default_names(listen.host) : options.names;
  settings.service.names = fmt::format("{}", fmt::join(names, ", "));
  STARLING_TRY(settings.validate());
  if (settings.names().empty()) {
    return wrong_setting("setting-invalid", "--name is empty; name what devices dial");
  }
  for (const std::string& name : settings.names()) {
    if (identity::parse_dialled_address(identity::HostPort{name, 1}.text())) continue;
    return wrong_setting(
        "setting-invalid",
        "--name " + name + ": devices cannot dial that; write this machine's own name or address");
  }
  STARLING_TRY(expect_empty(root));

  const StateDirectory state(root);
  STARLING_TRY(make_directory(root, true));
  STARLING_TRY(make_directory(state.models()));
  STARLING_TRY(make_directory(state.spool(), true));
  STARLING_ASSIGN(const auto authority, identity::CertificateAuthority::create(
                                            state.authority(), {.federation = federation}, now));
  STARLING_TRY(server_credentials(state, authority, settings, now));
  STARLING_TRY(issuer_credentials(state, authority, settings, now));
  STARLING_ASSIGN(const auto store, store::open_sqlite_store(state.database(), {.create = true}));
  STARLING_TRY(store->create_federation({federation, now}));
  STARLING_TRY(make_operator(state, settings, authority, *store, now));
  STARLING_TRY(write_durably(state.options_file(), as_bytes(options_text(settings))));
  return InitResult{.federation = federation,
                    .listen = settings.service.listen,
                    .names = settings.names(),
                    .authority = authority.certificate().public_key_digest().hex()};
}

}  // namespace starling::coordinator
