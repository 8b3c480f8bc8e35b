// SPDX-License-Identifier: Apache-2.0
// All-reduce machines on a simulated network: random latencies, in order for each pair; members are
// killed at a message, restarted from an earlier exchange, paused, cut off or wrongly suspected,
// models that are asked for do not come, epochs change, and links fall silent one way or both.
// Checks that nothing sent is ever written again, and what every result must be.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gossip/collective/all_reduce_machine.h"
#include "tests/support/machine_network.h"

namespace starling::collective::testing {

// "member 0", ...
std::vector<std::string> member_names(std::size_t members);

// Of an exchange whose inputs all rest on a mean of a majority, as in a run without faults.
inline Progress at(Exchange exchange) { return {.backed = exchange, .exchange = exchange}; }

// About an exchange that rests on means of majorities.
inline NoteReceived note(Member from, reduce::What what, Exchange exchange, Attempt attempt) {
  return {from, {.epoch = 1, .at = at(exchange), .attempt = attempt, .what = std::move(what)}};
}

// A note that a machine sends, to whom, and about which attempt.
template <class What>
struct SentNote : What {
  Member to = 0;
  Progress at;
  Attempt attempt = 0;
};
template <class What>
std::vector<SentNote<What>> sent_notes(const std::vector<Action>& actions,
                                       std::optional<Member> to = std::nullopt) {
  std::vector<SentNote<What>> all;
  for (const Action& action : actions) {
    const auto* const sent = std::get_if<SendNote>(&action);
    if (sent == nullptr || sent->to != to.value_or(sent->to)) continue;
    const auto* const what = std::get_if<What>(&sent->note.what);
    if (what != nullptr) all.push_back({*what, sent->to, sent->note.at, sent->note.attempt});
  }
  return all;
}

struct World {
  std::uint64_t seed = 1;
  std::size_t members = 4;
  std::size_t floats = 13;
  Exchange exchanges = 1;
  AllReduceOptions options;
  double latency = 0.005;  // seconds, mean of an exponential; a tenth of them ten times that
  double spread = 0.05;    // of the beginnings, uniform
  double detection = 0.5;  // from a death to each survivor's news, uniform
  double seconds_max = 600;
  double distance_max = std::numeric_limits<double>::infinity();  // Begin::distance_max
  double copies_fail = 0;  // this part of the models that are asked for
  double copy_seconds =
      0;  // in which a model is waited for in vain; it goes on within `spread` else
};

class ReduceNetwork final
    : public starling::testing::MachineNetwork<AllReduceMachine, Event, Tick> {
 public:
  explicit ReduceNetwork(const World& world);

  // `victim` dies when the network's message number `index` (from 0) is about to be sent.
  void kill_at(Member victim, std::size_t index) { kills_.emplace(index, victim); }
  void kill(Member victim);
  // The connection breaks, what is on its way is lost; both notice, and it comes back.
  void disconnect(Member a, Member b, double seconds);
  // `a` alone believes `b` dead for a while; messages still flow.
  void suspect(Member a, Member b, double seconds);
  // Both say hello once more over their link, if it is whole.
  void greet(Member a, Member b);
  // What a liar says beside its machine, which may be mute.
  void tell(Member from, Member to, Note note);
  void mute(Member member) { nodes_[member].mute = true; }
  // Sees each note that a machine sends, may change it, and says whether it is sent.
  std::function<bool(Member from, Member to, Note&)> forge;
  // Whether it ends its exchanges does not count.
  void do_not_await(Member member) { nodes_[member].awaited = false; }
  // Others get no model of it.
  void give_no_model(Member member) { nodes_[member].gives = false; }
  void give_no_pieces(Member member) { nodes_[member].gives_pieces = false; }
  // Its pieces come so much later from now on, in order: all, or those of this place and after it.
  void delay_pieces(Member member, double seconds, std::uint64_t place = 0) {
    nodes_[member].pieces_late = seconds;
    nodes_[member].late_from = place;
  }
  // Means and segments of them arrive changed from now on.
  void change_means(Member from, Member to) { changed_.insert({from, to}); }
  // What its pieces and the means that it gives hold from now on, to all or to one.
  void spoil_numbers(Member member, float number, std::optional<Member> to = {}) {
    for (Member m = 0; m < members(); ++m) {
      if (!to || m == *to) spoilt_[{member, m}] = number;
    }
  }
  // The exchange that it has begun, or is to begin.
  Progress place(Member member) const;
  // Its process ends and is back after this time, so many of its exchanges earlier; what it ended
  // since is forgotten.
  void restart(Member member, std::size_t exchanges, double seconds);
  // From now on members go on in the next epoch, each within `spread`.
  void change_epoch(double spread);
  void delay_begin(Member member, Exchange exchange, double seconds) {
    delays_[{member, exchange}] = seconds;
  }

  // Until every living member has ended its last exchange; "" or why not.
  std::string run();

  const std::vector<Finished>& finished(Member member) const { return nodes_[member].finished; }
  const Finished* finished(Member member, Exchange exchange) const;
  // Where it was told that others are, and to copy their model.
  const std::vector<Progress>& catch_ups(Member member) const { return nodes_[member].catch_ups; }
  std::vector<float> input(Member member, Exchange exchange) const;
  // Finished results that are not the mean of their members, or not the same for one attempt.
  std::string wrong_results() const;
  // From the first end of an exchange of a majority to that of the next.
  std::vector<double> exchange_seconds() const;
  // Living members with different results of one exchange; `but`: not looked at.
  std::string disagreement(std::optional<Member> but = std::nullopt) const;

  std::size_t messages() const { return messages_; }
  std::uint64_t floats_sent(Member member) const { return nodes_[member].floats_sent; }
  const std::string& trace() const { return trace_; }
  const std::vector<std::string>& said() const { return said_; }

 private:
  struct Node {
    Progress next;
    std::vector<Finished> finished;
    std::vector<Progress> catch_ups;
    std::uint64_t floats_sent = 0;
    std::set<Member> unreachable;
    std::vector<Progress> began = {};  // in order
    Epoch epoch = 1;
    bool back = false;  // it is dead, and will be back
    bool awaited = true;
    bool mute = false;  // what its machine sends is lost
    bool gives = true;  // its model
    bool gives_pieces = true;
    double pieces_late = 0;
    std::uint64_t late_from = 0;  // these places
  };

  void begin_next(Member member, double seconds);
  AllReduceMachine make_machine(Member member, Memory memory);
  void go_on_in(Member member, Epoch epoch);
  void perform(Member self, Action& action) override;
  void perform(Member self, const Say& said);
  void perform(Member self, SendNote& message);
  void perform(Member self, const SendPiece& piece);
  void perform(Member self, const Finished& result);
  void perform(Member self, const CatchUp& further);
  void transmit(Member from, Member to, Work arrive);
  void arrive(Member to, PieceReceived piece, std::size_t checksum);
  void inform(Member member, Member about, bool reachable);
  Duration latency(Member from) override;
  bool ended() const;

  World world_;
  std::vector<Node> nodes_;
  std::multimap<std::size_t, Member> kills_;
  std::map<std::pair<Member, Exchange>, double> delays_;
  std::map<std::pair<Member, Member>, float> spoilt_;  // from, to
  std::set<std::pair<Member, Member>> changed_;        // pieces from, to
  std::map<Exchange, TimePoint> ended_;                // first
  std::size_t messages_ = 0;
  std::string trace_;
  std::string torn_;
  bool forgot_ = false;  // some member, what it promised
  std::vector<std::string> said_;
};

std::vector<float> mean_of(const std::vector<std::vector<float>>& inputs);

}  // namespace starling::collective::testing
