// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/ended_session.h"

namespace starling::gossip {

// A stopped roster has the name of its run only.
bool EndedSession::is_of_run(const identity::Roster& roster) const {
  return roster.stopped() ? roster.run == run_name : roster.run_identity() == run_id;
}

std::set<Member> EndedSession::absent(const identity::Roster& roster,
                                      const std::string& self) const {
  std::set<Member> absent;
  if (!reachable || run_id != roster.run_identity() || progress.exchange == 0) return absent;
  for (Member member = 0; member < roster.members.size(); ++member) {
    const std::string& name = roster.members[member].name;
    const auto known = reachable->find(name);
    const bool was_there = known != reachable->end() && known->second;
    if (name != self && !was_there) absent.insert(member);
  }
  return absent;
}

}  // namespace starling::gossip
