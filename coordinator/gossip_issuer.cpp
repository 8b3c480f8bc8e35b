// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gossip_issuer.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/durable_file.h"

namespace starling::coordinator {
namespace {

constexpr Duration kCheckMax = std::chrono::hours(1);
constexpr Duration kRetry = std::chrono::seconds(5);
constexpr WallTime::duration kTick{1};

WallTime::duration in_milliseconds(Duration duration) {
  return std::chrono::duration_cast<WallTime::duration>(duration);
}

}  // namespace

GossipIssuer::GossipIssuer(const Parts& parts, std::string federation, Handlers handlers)
    : parts_(parts),
      federation_(std::move(federation)),
      handlers_(std::move(handlers)),
      desk_({},
            {.send = handlers_.send,
             .queued_bytes = handlers_.queued_bytes,
             .on_report =
                 [this](const std::string& member, const protocol::PeerReport& report) {
                   reports_[member] = {report, parts_.clock.wall_now()};
                 },
             .wants_model = [](const std::string&, const protocol::Parcel&) -> Result<void> {
               return rejected("model-unwanted", "this coordinator keeps no models of peers");
             },
             .on_model = [](const std::string&, protocol::Exchange, const SharedBytes&) {}},
            parts.log),
      alarm_(parts.loop, [this] { refresh(); }) {}

void GossipIssuer::set_credentials(identity::Credentials credentials) {
  credentials_ = std::move(credentials);
}

const identity::Roster* GossipIssuer::roster() const {
  return desk_.roster() ? &desk_.roster()->roster() : nullptr;
}

void GossipIssuer::resume() {
  auto kept =
      identity::SignedRoster::load(parts_.state.roster(), credentials_->authorities, federation_);
  if (!kept && kept.error().code() == "file-missing") return;
  const Result<void> published = kept ? desk_.publish(*std::move(kept)) : kept.error();
  if (published) return refresh();
  unreadable_ = rejected("bad-roster", published.error().message() +
                                           "; put a copy of the file back, or remove it if no "
                                           "device has heard of the network yet");
  parts_.log.error("the gossip network rests: {}", unreadable_->message());
}

Result<std::map<std::string, std::string>> GossipIssuer::addresses() const {
  STARLING_ASSIGN(const auto tokens, parts_.store.tokens(parts_.clock.wall_now()));
  std::map<std::string, std::string> found;
  for (const store::Token& token : tokens) {  // the oldest first: the last word counts
    if (token.state != store::TokenState::kUsed) continue;
    found[token.client] = token.addresses.empty() ? "" : token.addresses.front();
  }
  return found;
}

Result<std::vector<identity::RosterMember>> GossipIssuer::members() const {
  STARLING_ASSIGN(const auto clients, parts_.store.clients());
  STARLING_ASSIGN(auto address_of, addresses());
  const WallTime now = parts_.clock.wall_now();
  std::vector<identity::RosterMember> members;
  for (const store::Client& client : clients) {
    const bool admitted = client.state == store::ClientState::kActive &&
                          client.role != store::Role::kOperator && now < client.certificate_expires;
    if (!admitted) continue;
    members.push_back({.name = client.name,
                       .key = client.certificate_fingerprint,
                       .address = address_of[client.name]});
  }
  return members;
}

Result<void> GossipIssuer::start(const GossipRun& run, Duration lifetime) {
  if (unreadable_) return *unreadable_;
  STARLING_ASSIGN(auto listed, members());
  if (listed.empty()) {
    return rejected("no-members",
                    "nobody has joined; make tokens with 'starling-coordinator token "
                    "new CLIENT --role peer'");
  }
  STARLING_TRY(check_topology(run.settings, listed.size()));
  Settings settings = settings_for(run.settings, listed.size());
  reports_.clear();
  return issue({.federation = federation_,
                .run = run.name,
                .epoch = roster() ? roster()->epoch + 1 : 1,
                .settings = std::move(settings),
                .members = std::move(listed)},
               lifetime);
}

Result<void> GossipIssuer::stop() {
  if (unreadable_) return *unreadable_;
  if (!roster() || roster()->stopped()) {
    return rejected("not-running", "no gossip network is running");
  }
  identity::Roster next = *roster();
  ++next.epoch;
  next.settings = identity::stopped_settings();
  return issue(std::move(next), roster()->expires - roster()->issued);
}

Result<void> GossipIssuer::issue(identity::Roster roster_to_sign, Duration lifetime) {
  const WallTime now = parts_.clock.wall_now();
  const bool renewal = roster() && roster()->epoch == roster_to_sign.epoch;
  // A clock that was put back must not make the renewal older than what it renews.
  roster_to_sign.issued = renewal ? std::max(now, roster()->issued + kTick) : now;
  roster_to_sign.expires = roster_to_sign.issued + in_milliseconds(lifetime);
  STARLING_ASSIGN(auto made, identity::SignedRoster::sign(roster_to_sign, *credentials_));
  STARLING_TRY(make_directory(parts_.state.roster().parent_path()));
  STARLING_TRY(made.save(parts_.state.roster()));
  if (!renewal) {
    parts_.log.info("gossip network {}: epoch {} with {} members", roster_to_sign.run,
                    roster_to_sign.epoch, roster_to_sign.members.size());
  }
  STARLING_TRY(desk_.publish(std::move(made)));
  set_alarm(lifetime);
  return {};
}

void GossipIssuer::set_alarm(Duration lifetime) {
  alarm_.set(parts_.loop.now() + std::min(lifetime / 4, kCheckMax));
}

Result<void> GossipIssuer::refresh_now() {
  const identity::Roster& current = *roster();
  const Duration lifetime = current.expires - current.issued;
  STARLING_ASSIGN(auto listed, members());
  identity::Roster next = current;
  if (!listed.empty() && listed != current.members) {
    ++next.epoch;
    next.settings = settings_for(current.settings, listed.size());
    next.members = std::move(listed);
    return issue(std::move(next), lifetime);
  }
  if (parts_.clock.wall_now() >= current.issued + in_milliseconds(lifetime / 2)) {
    return issue(std::move(next), lifetime);
  }
  set_alarm(lifetime);
  return {};
}

void GossipIssuer::refresh() {
  if (!roster()) return;
  const auto done = refresh_now();
  if (done) return;
  if (done.error().kind() == ErrorKind::kInternal) return handlers_.on_broken(done.error());
  parts_.log.error("the gossip network's roster stays as it was: {}", done.error().message());
  alarm_.set(parts_.loop.now() + kRetry);
}

}  // namespace starling::coordinator
