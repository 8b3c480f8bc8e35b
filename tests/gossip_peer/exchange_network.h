// SPDX-License-Identifier: Apache-2.0
// Exchange machines on a simulated network, without models: random latencies, in order for each
// pair. Sides of a partition hear each other's messages when it is over, as TCP would have it; a
// member that is killed comes back at an older exchange. Notes how long everybody waited.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gossip/peer/exchange_machine.h"
#include "tests/support/machine_network.h"

namespace starling::gossip::testing {

class ExchangeNetwork final
    : public starling::testing::MachineNetwork<ExchangeMachine, exchange::Event, exchange::Tick> {
 public:
  struct World {
    std::uint64_t seed = 1;
    std::string topology = "ring";
    std::size_t members = 6;
    ExchangeOptions options;
    double work = 0.010;       // seconds of one local step, uniform from half of it to 1.5 times
    double latency = 0.002;    // mean of an exponential
    double loss = 0;           // of messages, questions and answers
    double detection = 3;      // until failure detection says it, uniform from half of it to 1.5
    double seconds_max = 600;  // of virtual time
  };
  struct Wait {
    exchange::Member member = 0;
    exchange::Exchange exchange = 0;
    double seconds = 0;
    bool complete = false;  // everybody was heard
  };

  explicit ExchangeNetwork(const World& world);

  // Members below `border` and the others do not hear each other for a while.
  void split(exchange::Member border, double seconds);
  // The cable of these is pulled: they and the others do not hear each other.
  void pull(const std::set<exchange::Member>& pulled, double seconds);
  // Its process ends, and is back after `away` at an exchange that is at most `age` older.
  void restart(exchange::Member member, double away, exchange::Exchange age);
  // It greets all others and says that it is at this exchange, with a quorum since long ago.
  void lie(exchange::Member member, exchange::Exchange claim);
  // It does nothing any more but lie, if told to; the others see its links unbroken.
  void replace_by_liar(exchange::Member member);
  // It is gone for good: its links break, and none can be made.
  void die(exchange::Member member);
  // All that it trains takes this much longer from now on.
  void slow(exchange::Member member, double seconds) { slowness_[member] = seconds; }

  // Until everybody has finished; "" or why not.
  std::string run();

  const std::vector<Wait>& waits() const { return waits_; }
  // Of all inboxes: entries that were no message of that sender, of a later exchange, too old, or
  // mixed before.
  std::size_t wrong_entries() const { return wrong_entries_; }
  // What became of messages, as all machines together count them.
  Traffic traffic() const;
  // Of all inboxes: entries that were filled.
  std::size_t filled_entries() const { return filled_entries_; }
  std::size_t copies() const;
  std::size_t copies_of(exchange::Member member) const { return nodes_[member].copies; }
  // Exchanges that it went past without training for them.
  exchange::Exchange skipped_by(exchange::Member member) const { return nodes_[member].skipped; }
  // The most exchanges in a row that anybody mixed nothing of one of its senders in.
  exchange::Exchange longest_silence() const { return longest_silence_; }
  exchange::Exchange exchange(exchange::Member member) const { return machine(member).exchange(); }

 private:
  struct Node {
    bool finished = false;
    bool gone = false;   // for good
    bool linked = true;  // as the others see it
    std::size_t copies = 0;
    std::optional<exchange::Exchange> trained_for;
    exchange::Exchange skipped = 0;
    TimePoint trained{};
    std::map<exchange::Member, std::deque<exchange::Arrival>> sent;
  };

  double drawn(double mean) { return mean * (0.5 + rng().uniform()); }
  Duration latency(exchange::Member from) override;
  protocol::Support support(exchange::Member member) const {
    return machine(member).support(now());
  }
  void begin(exchange::Member member, exchange::Exchange from);
  void end(exchange::Member member);
  void forget_mixed(exchange::Member member);
  void connect(exchange::Member a, exchange::Member b);
  void greet(exchange::Member from, exchange::Member to);
  void send_message(exchange::Member to, const exchange::Arrival& arrival);
  void perform(exchange::Member self, exchange::Action& action) override;
  void announce(exchange::Member self, const exchange::Announce& announced);
  void mix(exchange::Member self, const exchange::Mix& mix);

  World world_;
  std::unique_ptr<const topologies::Topology> topology_;
  std::vector<Node> nodes_;
  std::map<exchange::Member, double> slowness_;
  std::map<std::pair<exchange::Member, exchange::Member>, exchange::Exchange> mixed_;   // up to
  std::map<std::pair<exchange::Member, exchange::Member>, exchange::Exchange> silent_;  // in a row
  std::vector<Wait> waits_;
  std::size_t wrong_entries_ = 0;
  std::size_t filled_entries_ = 0;
  exchange::Exchange longest_silence_ = 0;
};

}  // namespace starling::gossip::testing
