// SPDX-License-Identifier: Apache-2.0
// Members that are there, and take no part in the run of this epoch: by what their greetings say,
// their model has another size than this device's, or they refuse the run. To training they are as
// members whose link is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/peer_messages.h"

namespace starling::gossip {

// Of the sentence in which a peer says why it takes no part.
inline constexpr std::size_t kRefusalBytes = 400;

class ApartMembers {
 public:
  using Member = protocol::Member;
  // Who has come back so often in this epoch and goes again stays apart: whoever greets now this
  // way, now that way must not disturb the others without end.
  static constexpr int kReturnsMax = 4;
  static constexpr int kLinesMax = 8;  // about one member

  // `own_size`: values of this device's model. `names`: of all members.
  ApartMembers(std::uint64_t own_size, std::vector<std::string> names);

  enum class Change { kNone, kLeft, kCameBack };
  struct Greeted {
    Change change = Change::kNone;
    std::optional<std::string> line;  // for the log
  };
  Greeted greeted(Member from, const protocol::PeerHello& hello);
  bool contains(Member member) const;
  // What a report says of them; empty: there are none.
  std::string problem() const;

  // The other size that a member's model has; 0: it has none, as far as it said.
  std::uint64_t other_size(Member member) const;
  // Its model was as large as this device's before.
  bool was_alike(Member member) const;

 private:
  struct Record {
    std::string refusal;
    std::uint64_t size = 0;  // as it said last
    bool is_apart = false;
    bool was_alike = false;
    int returns = 0;
    int lines = 0;
    std::string why;  // as it was said last
  };

  bool takes_part(const Record& record, const protocol::PeerHello& hello) const;
  bool is_other(std::uint64_t size) const { return size != 0 && size != own_size_; }
  std::string why(const Record& record) const;

  const std::uint64_t own_size_;
  const std::vector<std::string> names_;
  std::map<Member, Record> records_;
};

}  // namespace starling::gossip
