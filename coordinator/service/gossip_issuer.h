// SPDX-License-Identifier: Apache-2.0
// The coordinator as the issuer of a gossip network's roster: its members are the admitted clients,
// as many as fit its graph. A roster is durable before it is published. A change of members or run
// begins a new epoch; what only grows old is renewed at half of its life under the same epoch.
// Newcomers share epochs, since each one costs all members an exchange with new neighbours.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/service/gossip_run.h"
#include "coordinator/service/state_directory.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/issuer/issuer_desk.h"
#include "core/net/alarm.h"
#include "core/store/identity_store.h"

namespace starling::coordinator {

class GossipIssuer {
 public:
  // All must outlive the issuer.
  struct Parts {
    net::EventLoop& loop;
    const Clock& clock;
    store::IdentityStore& store;
    const StateDirectory& state;
    Log& log;
  };
  struct Handlers {
    std::function<void(SessionId, const protocol::Envelope&)> send;
    std::function<std::size_t(SessionId)> queued_bytes;
    std::function<void(const Error&)> on_broken;
  };
  struct Report {
    protocol::PeerReport report;  // its loss is the last one that was reported in this run
    WallTime at;
  };
  static constexpr Duration kLifetimeMin = std::chrono::minutes(1);
  static constexpr Duration kLifetimeMax = identity::kRosterLifetimeMax;
  static constexpr Duration kLifetimeDefault = std::chrono::minutes(10);
  // Between an epoch and the next one that only admits newcomers.
  static constexpr Duration kNewcomersEvery = std::chrono::seconds(5);

  GossipIssuer(const Parts& parts, std::string federation, Handlers handlers);

  // Who signs from now on, with the role of an issuer; before the rest.
  void set_credentials(identity::Credentials credentials);
  // Publishes what an earlier process kept, with the members of today; one that an earlier version
  // signed with its server's key is renewed at once. A file that cannot be verified is an error of
  // start() and stop() from then on: its epoch is not known.
  void resume();

  // Begins a run with all admitted clients that can train its model (judge_members), in place of an
  // earlier one, whatever the name of that one was: every device starts from the initial model.
  // "no-members", "shapes-differ", what check_network and the disk say.
  [[nodiscard]] Result<void> start(const GossipRun& run, Duration lifetime);
  // "address-taken" where two who would be members are to be dialled at one address.
  [[nodiscard]] Result<void> check_addresses() const;
  // "address-taken" where a member or an open token of another client has this address.
  [[nodiscard]] Result<void> check_address(const std::string& client,
                                           const std::string& address) const;
  // The same of members alone, as a client joins.
  [[nodiscard]] Result<void> check_joining(const std::string& client,
                                           const std::string& address) const;
  // Tells the members to end. "not-running"
  [[nodiscard]] Result<void> stop();
  // Clients have joined or were revoked. A revocation takes effect at once. Newcomers wait until
  // kNewcomersEvery has passed since the last change of members; newcomers with which the graph
  // cannot be formed wait until it can. When no member is left, the network is stopped.
  void members_changed() { refresh(); }
  // A client that was left out may be another one now, and the data of a member may have another
  // shape.
  void greeted(const std::string& client);

  // Null before the first run.
  const identity::Roster* roster() const;
  // Which clients are left out or still waiting, why the network cannot go on, or why its roster
  // was not renewed. Empty: all is well.
  std::string problem() const;
  // The graph cannot be formed with the members that are left, who refuse the run; problem() says
  // why.
  bool cannot_go_on() const { return cannot_go_on_; }
  const std::map<std::string, Report>& reports() const { return reports_; }
  issuer::IssuerDesk& desk() { return desk_; }

 private:
  Result<std::vector<identity::RosterMember>> members() const;
  Result<std::map<std::string, std::string>> addresses() const;
  Result<std::vector<Sha256Digest>> revoked() const;
  struct LeftOut {
    std::set<std::string> names;
    std::string line;  // "1 of 4 clients cannot take part in this run (...)"; empty: none is
  };
  // Removes who cannot train the run's model, by the shape of the data of all, or, where `of` is
  // given, of its members; not the last one. "shapes-differ", "no-members" without `of` only.
  Result<LeftOut> remove_unfit(const Settings& settings, const identity::Roster* of,
                               std::vector<identity::RosterMember>& members) const;
  void set_left_out(LeftOut left_out);
  // "roster-revoked" where `roster` revokes the service's own key, with what to do about it.
  [[nodiscard]] Result<identity::SignedRoster> sign(const identity::Roster& roster) const;
  // It signed the roster at hand with its server's key. Requires: roster().
  bool is_of_earlier_version() const;
  // Signs, keeps, publishes.
  Result<void> issue(identity::Roster roster, Duration lifetime);
  Result<void> refresh_now();
  void refresh();
  std::vector<identity::RosterMember> fitting(std::vector<identity::RosterMember> admitted);
  void set_problem(std::string problem);
  void take_report(const std::string& member, const protocol::PeerReport& report);
  std::uint64_t next_epoch() const;
  bool must_wait(const std::vector<identity::RosterMember>& next) const;
  void set_alarm(Duration lifetime);

  Parts parts_;
  std::string federation_;
  Handlers handlers_;
  std::optional<identity::Credentials> credentials_;
  std::optional<Error> unreadable_;
  std::string problem_;
  std::string not_renewed_;  // why the last renewal failed
  bool cannot_go_on_ = false;
  LeftOut left_out_;
  std::optional<TimePoint> changed_at_;  // the members, in this process
  std::uint64_t ahead_ = 0;  // the latest epoch that a member says it holds, if it is later
  std::set<std::string> said_ahead_;  // who got a line for that, under the present epoch
  std::map<std::string, Report> reports_;
  issuer::IssuerDesk desk_;
  net::Alarm alarm_;
  std::optional<TimePoint> judged_at_;  // or will be, where `judges_`
  bool judges_ = false;                 // judge_ is set
  net::Alarm judge_;
};

}  // namespace starling::coordinator
