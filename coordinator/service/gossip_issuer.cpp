// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/gossip_issuer.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "coordinator/service/member_fit.h"
#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/durable_file.h"
#include "core/base/list_some.h"
#include "gossip/fallback/fallback_terms.h"

namespace starling::coordinator {
namespace {

constexpr Duration kCheckMax = std::chrono::hours(1);
constexpr Duration kRetry = std::chrono::seconds(5);
// Between looks at what members say of their data: one that says something else each time may not
// begin epoch after epoch.
constexpr Duration kJudgeEvery = std::chrono::minutes(1);

using Members = std::vector<identity::RosterMember>;

std::string names_of(std::span<const identity::RosterMember> members) {
  return list_some(members, 10, [](const identity::RosterMember& member) { return member.name; });
}

// Those who were members of `roster` first; how many they are.
std::size_t put_first(const identity::Roster& roster, Members& members) {
  std::map<std::string_view, Sha256Digest> keys;
  for (const identity::RosterMember& member : roster.members) keys[member.name] = member.key;
  const auto newcomers =
      std::ranges::stable_partition(members, [&](const identity::RosterMember& member) {
        const auto known = keys.find(member.name);
        return known != keys.end() && known->second == member.key;
      });
  return members.size() - newcomers.size();
}

WallTime::duration in_milliseconds(Duration duration) {
  return std::chrono::duration_cast<WallTime::duration>(duration);
}

Error address_taken(const std::string& client, const std::string& address,
                    const std::string& other) {
  return rejected("address-taken",
                  fmt::format("{} is the address of {}, and peers dial each other there: give {} "
                              "another with 'token new {} --role peer --address HOST:PORT'",
                              address, other, client, client));
}

}  // namespace

GossipIssuer::GossipIssuer(const Parts& parts, std::string federation, Handlers handlers)
    : parts_(parts),
      federation_(std::move(federation)),
      handlers_(std::move(handlers)),
      desk_(
          {},
          {.send = handlers_.send,
           .queued_bytes = handlers_.queued_bytes,
           .on_report = [this](const std::string& member,
                               const protocol::PeerReport& report) { take_report(member, report); },
           .wants_model = [](const std::string&, const protocol::WholeModel&) -> Result<void> {
             return rejected("model-unwanted", "this coordinator keeps no models of peers");
           },
           .on_model = [](const std::string&, protocol::Exchange, const SharedBytes&) {}},
          parts.log),
      alarm_(parts.loop, [this] { refresh(); }),
      judge_(parts.loop, [this] {
        judges_ = false;
        refresh();
      }) {}

void GossipIssuer::set_credentials(identity::Credentials credentials) {
  credentials_ = std::move(credentials);
}

const identity::Roster* GossipIssuer::roster() const {
  return desk_.roster() ? &desk_.roster()->roster() : nullptr;
}

void GossipIssuer::resume() {
  auto kept = identity::SignedRoster::load(parts_.state.roster(), credentials_->authorities,
                                           federation_, identity::RosterOrigin::kOwnDisk);
  if (!kept && kept.error().code() == "file-missing") return;
  const Result<void> published = kept ? desk_.publish(*std::move(kept)) : kept.error();
  if (published) {
    if (!roster()->stopped()) (void)fitting(roster()->members);  // says what is wrong with it
    return refresh();
  }
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

Result<void> GossipIssuer::check_addresses() const {
  STARLING_ASSIGN(const auto listed, members());
  std::map<std::string, std::string> client_at;
  for (const identity::RosterMember& member : listed) {
    if (member.address.empty()) continue;
    const auto [other, fresh] = client_at.emplace(member.address, member.name);
    if (!fresh) return address_taken(member.name, member.address, other->second);
  }
  return {};
}

Result<void> GossipIssuer::check_joining(const std::string& client,
                                         const std::string& address) const {
  STARLING_ASSIGN(const auto listed, members());
  for (const identity::RosterMember& member : listed) {
    if (member.name == client || member.address != address) continue;
    return address_taken(client, address, member.name);
  }
  return {};
}

Result<void> GossipIssuer::check_address(const std::string& client,
                                         const std::string& address) const {
  STARLING_TRY(check_joining(client, address));
  STARLING_ASSIGN(const auto tokens, parts_.store.tokens(parts_.clock.wall_now()));
  for (const store::Token& token : tokens) {
    const bool is_open = token.state == store::TokenState::kOpen && token.client != client;
    if (!is_open || std::ranges::find(token.addresses, address) == token.addresses.end()) continue;
    return address_taken(client, address, token.client);
  }
  return {};
}

// Those of the present roster too: members take none that leaves one of them out.
Result<std::vector<Sha256Digest>> GossipIssuer::revoked() const {
  STARLING_ASSIGN(const auto listed, load_revoked(parts_.state));
  return revoked_after(roster(), listed);
}

Result<void> GossipIssuer::start(const GossipRun& run, Duration lifetime) {
  if (unreadable_) return *unreadable_;
  STARLING_ASSIGN(auto listed, members());
  if (listed.empty()) {
    return rejected("no-members",
                    "no device has joined; make tokens with 'starling-coordinator token "
                    "new CLIENT --role peer'");
  }
  STARLING_ASSIGN(LeftOut left_out, remove_unfit(run.settings, nullptr, listed));
  STARLING_TRY(check_network(run.settings, listed.size()));
  Settings settings = settings_for(run.settings, listed.size());
  identity::Roster roster{.federation = federation_,
                          .run = run.name,
                          .epoch = next_epoch(),
                          .settings = std::move(settings),
                          .members = std::move(listed)};
  roster.begin_run(parts_.clock.wall_now());
  STARLING_ASSIGN(roster.revoked, revoked());
  STARLING_TRY(issue(std::move(roster), lifetime));
  reports_.clear();
  set_problem("");
  cannot_go_on_ = false;
  set_left_out(std::move(left_out));
  return {};
}

void GossipIssuer::greeted(const std::string& client) {
  const TimePoint now = parts_.loop.now();
  if (left_out_.names.contains(client)) return alarm_.set(now);
  const bool is_member = roster() && !roster()->stopped() && roster()->find(client);
  if (!is_member || std::exchange(judges_, true)) return;
  const TimePoint at = judged_at_ ? std::max(now, *judged_at_ + kJudgeEvery) : now;
  judged_at_ = at;
  judge_.set(at);
}

Result<GossipIssuer::LeftOut> GossipIssuer::remove_unfit(
    const Settings& settings, const identity::Roster* of,
    std::vector<identity::RosterMember>& members) const {
  LeftOut left_out;
  if (gossip::is_fallback(settings)) return left_out;  // its federated run leaves them out
  const auto needs = member_needs(settings);
  if (!needs) return left_out;  // check_network says what is wrong
  STARLING_ASSIGN(auto clients, parts_.store.clients());
  std::set<std::string_view> names;
  for (const identity::RosterMember& member : members) names.insert(member.name);
  std::erase_if(clients, [&](const auto& client) { return !names.contains(client.name); });
  const auto fit = judge_members(*needs, clients, [of](const std::string& name) {
    return of == nullptr || of->find(name).has_value();
  });
  if (fit.disagreement && of == nullptr) return *fit.disagreement;
  if (fit.unfit.empty()) return left_out;
  const std::vector<std::pair<std::string, std::string>> listed(fit.unfit.begin(), fit.unfit.end());
  for (const auto& [name, why] : listed) left_out.names.insert(name);
  left_out.line =
      fmt::format("{} of {} cannot take part in this run ({})", listed.size(),
                  counted(members.size(), "client"), list_some(listed, 5, [](const auto& entry) {
                    return fmt::format("{}: {}", entry.first, entry.second);
                  }));
  if (listed.size() < members.size()) {
    std::erase_if(members, [&](const auto& member) { return fit.unfit.contains(member.name); });
  } else if (of == nullptr) {
    return rejected("no-members", left_out.line);
  }
  return left_out;
}

void GossipIssuer::set_left_out(LeftOut left_out) {
  const bool is_news = left_out.line != left_out_.line && !left_out.line.empty();
  left_out_ = std::move(left_out);
  if (is_news) parts_.log.warning("gossip network {}: {}", roster()->run, left_out_.line);
  desk_.set_left_out(left_out_.names);
}

std::string GossipIssuer::problem() const {
  std::string all;
  for (const std::string& line : {left_out_.line, problem_, not_renewed_}) {
    if (!line.empty()) all += (all.empty() ? "" : "; ") + line;
  }
  return all;
}

Result<void> GossipIssuer::stop() {
  if (unreadable_) return *unreadable_;
  if (!roster() || roster()->stopped()) {
    return rejected("not-running", "no gossip network is running");
  }
  identity::Roster next = *roster();
  next.epoch = next_epoch();
  next.settings = identity::stopped_settings();
  STARLING_ASSIGN(next.revoked, revoked());
  STARLING_TRY(issue(std::move(next), roster()->expires - roster()->issued));
  set_problem("");
  cannot_go_on_ = false;
  set_left_out({});  // they have heard of the end, too
  return {};
}

Result<identity::SignedRoster> GossipIssuer::sign(const identity::Roster& roster) const {
  auto made = identity::SignedRoster::sign(roster, *credentials_);
  if (made || made.error().code() != "roster-revoked") return made;
  return made.error().with_message(fmt::format(
      "the key with which this service signs rosters is revoked ({}): remove issuer-key.pem and "
      "issuer-certificate.pem in {} and start the service again, which makes others",
      credentials_->certificate.public_key_digest().hex(), parts_.state.authority().string()));
}

bool GossipIssuer::is_of_earlier_version() const {
  return desk_.roster()->signer().role != identity::Role::kIssuer;
}

Result<void> GossipIssuer::issue(identity::Roster roster_to_sign, Duration lifetime) {
  const bool renewal = roster() && roster()->epoch == roster_to_sign.epoch;
  roster_to_sign.issued = parts_.clock.wall_now();
  roster_to_sign.expires = roster_to_sign.issued + in_milliseconds(lifetime);
  STARLING_ASSIGN(auto made, sign(roster_to_sign));
  STARLING_TRY(make_directory(parts_.state.roster().parent_path()));
  STARLING_TRY(made.save(parts_.state.roster()));
  if (!renewal) {
    said_ahead_.clear();
    parts_.log.info("gossip network {}: epoch {} with {}", roster_to_sign.run, roster_to_sign.epoch,
                    counted(roster_to_sign.members.size(), "member"));
  }
  STARLING_TRY(desk_.publish(std::move(made)));
  not_renewed_.clear();
  set_alarm(lifetime);
  return {};
}

// What is said of another epoch is of another network, or of what this one was.
void GossipIssuer::take_report(const std::string& member, const protocol::PeerReport& report) {
  const std::uint64_t epoch = roster()->epoch;
  if (report.epoch == epoch) {
    Report& kept = reports_[member];
    const protocol::PeerReport before = std::exchange(kept.report, report);
    if (report.loss_steps == 0) {
      kept.report.loss = before.loss;
      kept.report.loss_steps = before.loss_steps;
    }
    kept.at = parts_.clock.wall_now();
  } else if (report.epoch > std::max(epoch, ahead_)) {
    ahead_ = report.epoch;
    std::string problem = fmt::format(
        "{} holds a roster of epoch {}, signed elsewhere, and does not hear of this one, {}; start "
        "or stop a network again, which takes a later epoch",
        member, ahead_, epoch);
    // A line for each member: one that counts up must not fill the log.
    if (said_ahead_.insert(member).second) {
      set_problem(std::move(problem));
    } else {
      problem_ = std::move(problem);
    }
  }
}

// Of a network that an operator starts or stops: members that missed it take none that is much
// later, and no member's claim may bring that about by itself.
std::uint64_t GossipIssuer::next_epoch() const {
  const std::uint64_t epoch = roster() ? roster()->epoch : 0;
  return std::max(epoch, std::min(ahead_, epoch + identity::kRosterEpochStepMax - 1)) + 1;
}

void GossipIssuer::set_alarm(Duration lifetime) {
  alarm_.set(parts_.loop.now() + std::min(lifetime / 4, kCheckMax));
}

void GossipIssuer::set_problem(std::string problem) {
  if (problem_ == problem) return;
  problem_ = std::move(problem);
  if (!problem_.empty()) parts_.log.warning("gossip network {}: {}", roster()->run, problem_);
}

// All who are admitted where the graph can be formed with them; else those who were members before
// and as many of the others as fit.
Members GossipIssuer::fitting(Members admitted) {
  const identity::Roster& current = *roster();
  const auto all = check_network(current.settings, admitted.size());
  cannot_go_on_ = false;
  if (all) {
    set_problem("");
    return admitted;
  }
  Members chosen = admitted;
  const std::size_t stay = put_first(current, chosen);
  const auto fits = [&](std::size_t count) {
    return check_network(current.settings, count).has_value();
  };
  std::size_t room = admitted.size() - 1;
  while (room > stay && !fits(room)) --room;
  if (room < std::max<std::size_t>(stay, 1) || (room == stay && !fits(room))) {
    cannot_go_on_ = true;
    set_problem(fmt::format(
        "it cannot go on with {}; start one whose topology and algorithm suit any number of "
        "members, as dpsgd on a ring, or let others join",
        all.error().message()));
    return admitted;
  }
  set_problem(fmt::format("waiting to be members: {}; it could not go on with {}",
                          names_of(std::span(chosen).subspan(room)), all.error().message()));
  chosen.resize(room);
  std::ranges::sort(chosen, {}, &identity::RosterMember::name);
  return chosen;
}

// Whether these members are those of now and newcomers, who can wait.
bool GossipIssuer::must_wait(const Members& next) const {
  Members all = next;
  return !roster()->stopped() && changed_at_ &&
         parts_.clock.now() < *changed_at_ + kNewcomersEvery &&
         put_first(*roster(), all) == roster()->members.size();
}

Result<void> GossipIssuer::refresh_now() {
  const identity::Roster& current = *roster();
  const Duration lifetime = current.expires - current.issued;
  STARLING_ASSIGN(auto listed, members());
  if (listed.empty()) {
    if (current.stopped()) return {};  // there is nobody to renew it for
    parts_.log.warning("gossip network {}: it has no member left, so it is stopped", current.run);
    return stop();
  }
  if (!current.stopped()) {
    STARLING_ASSIGN(LeftOut left_out, remove_unfit(current.settings, &current, listed));
    set_left_out(std::move(left_out));
  }
  const bool changed = listed != current.members;
  if (changed && !current.stopped()) listed = fitting(std::move(listed));
  identity::Roster next = current;
  if (listed != current.members && must_wait(listed)) {
    alarm_.set(parts_.loop.now() + (*changed_at_ + kNewcomersEvery - parts_.clock.now()));
    return {};
  }
  STARLING_ASSIGN(next.revoked, revoked());
  const WallTime now = parts_.clock.wall_now();
  // Then nothing of the same epoch is newer.
  const bool is_ahead = is_of_earlier_version() && now <= current.issued;
  if (listed != current.members || next.revoked != current.revoked || is_ahead) {
    if (listed != current.members) changed_at_ = parts_.clock.now();
    next.epoch = current.epoch + 1;
    next.settings = settings_for(current.settings, listed.size());
    next.members = std::move(listed);
    return issue(std::move(next), lifetime);
  }
  // No device takes a roster of an earlier version that does not hold it yet. One that the owner
  // signed waits for half of its life: it may have to reach members that take none of this service,
  // because a thief revoked its key.
  const bool is_old = now >= current.issued + in_milliseconds(lifetime / 2);
  if (is_old || is_of_earlier_version()) return issue(std::move(next), lifetime);
  set_alarm(lifetime);
  return {};
}

void GossipIssuer::refresh() {
  if (!roster()) return;
  const auto done = refresh_now();
  if (done) return not_renewed_.clear();
  if (done.error().kind() == ErrorKind::kInternal) return handlers_.on_broken(done.error());
  const std::string line = "the roster stays as it was: " + done.error().message();
  if (line != not_renewed_) parts_.log.error("the gossip network: {}", line);
  not_renewed_ = line;
  alarm_.set(parts_.loop.now() + kRetry);
}

}  // namespace starling::coordinator
