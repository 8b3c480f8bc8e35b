// SPDX-License-Identifier: Apache-2.0
#include "core/issuer/relay_pairs.h"

#include <vector>

#include "core/base/check.h"

namespace starling::issuer {

bool RelayPairs::contains(const std::string& a, const std::string& b) const {
  const auto found = others_.find(a);
  return found != others_.end() && found->second.contains(b);
}

bool RelayPairs::is_full(const std::string& member) const {
  const auto found = others_.find(member);
  return found != others_.end() && found->second.size() >= limits_.per_member_max;
}

bool RelayPairs::insert(const std::string& a, const std::string& b) {
  STARLING_CHECK(a != b);
  if (contains(a, b)) return true;
  if (size_ >= limits_.pairs_max || is_full(a) || is_full(b)) return false;
  others_[a].insert(b);
  others_[b].insert(a);
  ++size_;
  return true;
}

void RelayPairs::drop(const std::string& member, const std::string& other) {
  const auto found = others_.find(member);
  found->second.erase(other);
  if (found->second.empty()) others_.erase(found);
}

bool RelayPairs::erase(const std::string& a, const std::string& b) {
  if (!contains(a, b)) return false;
  drop(a, b);
  drop(b, a);
  --size_;
  return true;
}

std::set<std::string> RelayPairs::erase(const std::string& member) {
  const auto found = others_.find(member);
  if (found == others_.end()) return {};
  std::set<std::string> others = std::move(found->second);
  others_.erase(found);
  for (const std::string& other : others) drop(other, member);
  size_ -= others.size();
  return others;
}

void RelayPairs::keep(const std::function<bool(const std::string&)>& kept) {
  std::vector<std::string> gone;
  for (const auto& [member, others] : others_) {
    if (!kept(member)) gone.push_back(member);
  }
  for (const std::string& member : gone) erase(member);
}

}  // namespace starling::issuer
