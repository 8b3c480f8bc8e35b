// SPDX-License-Identifier: Apache-2.0
// Runs a script of faults: says at each moment what is to be done to which process and link. A
// machine: it is told the time and the step, and acts on nothing itself.
#pragma once

#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "gossip/launch/fault_script.h"

namespace starling::gossip {

struct KillNode {
  Node node;
  friend bool operator==(const KillNode&, const KillNode&) = default;
};
struct StartNode {
  Node node;
  friend bool operator==(const StartNode&, const StartNode&) = default;
};
struct PauseNode {
  Node node;
  friend bool operator==(const PauseNode&, const PauseNode&) = default;
};
struct ResumeNode {
  Node node;
  friend bool operator==(const ResumeNode&, const ResumeNode&) = default;
};
struct SetLink {
  Node from;
  Node to;
  LinkCondition condition;
  friend bool operator==(const SetLink&, const SetLink&) = default;
};
struct ResetLink {  // the connections between the two, whoever dialled
  Node a;
  Node b;
  friend bool operator==(const ResetLink&, const ResetLink&) = default;
};
struct TellFault {  // a line for whoever watches
  std::string line;
  friend bool operator==(const TellFault&, const TellFault&) = default;
};
using FaultAction =
    std::variant<TellFault, KillNode, StartNode, PauseNode, ResumeNode, SetLink, ResetLink>;

class FaultSchedule {
 public:
  // `base`: the condition of a link that no event meets, by (from, to); absent: a good link.
  using Links = std::map<std::pair<Node, Node>, LinkCondition>;
  explicit FaultSchedule(FaultScript script, Links base = {});

  // What is due: `elapsed` since the first step, `step` of the node that is furthest. Where several
  // events meet a link, it is held if one holds it, delays are those of the slowest and the rate
  // that of the narrowest. Nodes stay down or paused until the last event that wants it has ended.
  std::vector<FaultAction> on(Duration elapsed, std::uint64_t step);

  // When on() has something to do next, unless a step comes first.
  std::optional<Duration> next() const;
  // Events that have not begun.
  std::size_t waiting() const { return waiting_.size(); }
  // Whether a node is down now because the script wants it.
  bool down(Node node) const;
  // Whether an event keeps it down or paused to the end.
  bool gone(Node node) const;

 private:
  struct Running {
    FaultEvent event;
    std::optional<Duration> ends;
  };

  void begin(FaultEvent event, Duration at, std::vector<FaultAction>& actions);
  void end(const FaultEvent& event, std::vector<FaultAction>& actions);
  void set_links(const FaultEvent& event, std::vector<FaultAction>& actions) const;
  bool meets(Node node, std::initializer_list<FaultKind> kinds) const;

  Links base_;
  FaultScript waiting_;
  std::vector<Running> running_;
};

}  // namespace starling::gossip
