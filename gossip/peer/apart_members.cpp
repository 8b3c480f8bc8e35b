// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/apart_members.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/counted.h"
#include "core/base/list_some.h"
#include "core/base/nearest_name.h"

namespace starling::gossip {

namespace {

constexpr std::size_t kNamedMax = 5;  // members in a sentence

}  // namespace

ApartMembers::ApartMembers(std::uint64_t own_size, std::vector<std::string> names)
    : own_size_(own_size), names_(std::move(names)) {}

bool ApartMembers::contains(Member member) const {
  const auto found = records_.find(member);
  return found != records_.end() && found->second.is_apart;
}

std::uint64_t ApartMembers::other_size(Member member) const {
  const auto found = records_.find(member);
  return found != records_.end() && is_other(found->second.size) ? found->second.size : 0;
}

bool ApartMembers::was_alike(Member member) const {
  const auto found = records_.find(member);
  return found != records_.end() && found->second.was_alike;
}

// A greeting without a size comes from an earlier version, or from a peer that has no run yet. A
// member that was apart comes back once it has a run.
bool ApartMembers::takes_part(const Record& record, const protocol::PeerHello& hello) const {
  if (is_other(hello.elements) || !hello.refusal.empty()) return false;
  if (!record.is_apart) return true;
  return (hello.begun || hello.elements != 0) && record.returns < kReturnsMax;
}

ApartMembers::Greeted ApartMembers::greeted(Member from, const protocol::PeerHello& hello) {
  Record& record = records_[from];
  if (takes_part(record, hello)) {
    record.size = hello.elements;
    if (hello.elements == own_size_) record.was_alike = true;
    if (!std::exchange(record.is_apart, false)) return {};
    ++record.returns;
    record.why.clear();
    return {Change::kCameBack, std::nullopt};
  }
  if (is_other(hello.elements) || !hello.refusal.empty()) {
    record.size = hello.elements;
    record.refusal = printable(hello.refusal, kRefusalBytes);
  }
  const bool is_new = !std::exchange(record.is_apart, true);
  Greeted came{is_new ? Change::kLeft : Change::kNone, std::nullopt};
  std::string now = why(record);
  if (now == record.why) return came;
  record.why = std::move(now);
  if (record.lines == kLinesMax) return came;
  ++record.lines;
  came.line = is_other(record.size)
                  ? fmt::format("nothing is exchanged with {}: {}", names_[from], record.why)
                  : fmt::format("{} takes no part in this run, and is not waited for: {}",
                                names_[from], record.why);
  if (record.returns == kReturnsMax) {
    *came.line += fmt::format("; it has come back {} times, and stays apart until the next roster",
                              kReturnsMax);
  }
  return came;
}

// What a member with another size says when it refuses is about the same.
std::string ApartMembers::why(const Record& record) const {
  if (!is_other(record.size)) return fmt::format("it says \"{}\"", record.refusal);
  return fmt::format(
      "its model has {}, and this device's {}: their data differ in columns or classes, or their "
      "trainers in the model",
      counted(record.size, "value"), own_size_);
}

std::string ApartMembers::problem() const {
  std::vector<Member> others;
  std::vector<Member> refused;
  for (const auto& [member, record] : records_) {
    if (record.is_apart) (is_other(record.size) ? others : refused).push_back(member);
  }
  const auto name = [this](Member member) { return names_[member]; };
  std::string problem;
  if (!others.empty()) {
    problem = fmt::format(
        "nothing is exchanged with {}: their models have another size than this device's, which "
        "has {}",
        list_some(others, kNamedMax, name), counted(own_size_, "value"));
  }
  if (refused.empty()) return problem;
  if (!problem.empty()) problem += "; ";
  const Member first = refused.front();
  const bool is_one = refused.size() == 1;
  return problem + fmt::format("{} {} no part in this run: {} says \"{}\"",
                               list_some(refused, kNamedMax, name), is_one ? "takes" : "take",
                               is_one ? "it" : names_[first], records_.at(first).refusal);
}

}  // namespace starling::gossip
