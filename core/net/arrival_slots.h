// SPDX-License-Identifier: Apache-2.0
// A limited number of slots for connections that have not shown yet what they are good for, shared
// by address. When all slots are taken, the connection that got least far makes room for a
// newcomer; otherwise whoever comes first and says nothing keeps everybody else out. Decides only.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/base/clock.h"
#include "core/net/connection.h"

namespace starling::net {

class ArrivalSlots {
 public:
  struct Options {
    std::size_t slots_max = 256;
    std::size_t per_address_max = 64;  // of one IPv4 address or IPv6 /64; slots_max: no limit
    // A younger connection makes room only if its address holds more slots than the newcomer's. One
    // that was not answered yet has a fifth of it: a client speaks as soon as it is connected.
    Duration undisturbed = std::chrono::milliseconds(500);
  };
  using Id = std::uint64_t;
  enum class Answer {
    kFree,    // take() it
    kEvict,   // `victim` has to leave first
    kWait,    // nobody has to leave before `until`, unless a slot becomes free
    kRefuse,  // the newcomer's address holds its share already
  };
  struct Verdict {
    Answer answer = Answer::kFree;
    Id victim = 0;
    TimePoint until{};
  };

  explicit ArrivalSlots(const Options& options) : options_(options) {}

  // What has to happen before a newcomer from `address` (numeric) may take a slot.
  Verdict verdict_on(const std::string& address, TimePoint now) const;
  // `counters` tell how far the connection got; they must stay valid until leave().
  Id take(const std::string& address, const ConnectionCounters& counters, TimePoint now);
  // Whether the slot was still held.
  bool leave(Id id);
  std::size_t taken() const { return slots_.size(); }

 private:
  struct Slot {
    std::string share;  // see address_share.h
    const ConnectionCounters* counters;
    TimePoint since;
  };
  std::size_t held_by(const std::string& share) const;
  // Until when the connection is left undisturbed.
  TimePoint protected_until(const Slot& slot) const;

  Options options_;
  std::map<Id, Slot> slots_;  // oldest first
  std::map<std::string, std::size_t> held_;
  Id last_id_ = 0;
};

}  // namespace starling::net
