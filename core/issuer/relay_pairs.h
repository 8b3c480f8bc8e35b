// SPDX-License-Identifier: Apache-2.0
// Between whom an issuer relays at present: pairs of members, bounded in all and for each member,
// so that a few of them cannot take what is there for everybody.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>

namespace starling::issuer {

class RelayPairs {
 public:
  struct Limits {
    std::size_t pairs_max = 20'000;
    std::size_t per_member_max = 1'000;
  };

  explicit RelayPairs(Limits limits) : limits_(limits) {}

  // Whether the pair is there now. Requires: two names.
  bool insert(const std::string& a, const std::string& b);
  bool contains(const std::string& a, const std::string& b) const;
  // Whether it was there.
  bool erase(const std::string& a, const std::string& b);
  // All pairs of this member; who the others are.
  std::set<std::string> erase(const std::string& member);
  // All pairs of members that are not kept.
  void keep(const std::function<bool(const std::string&)>& kept);
  std::size_t size() const { return size_; }

 private:
  bool is_full(const std::string& member) const;
  void drop(const std::string& member, const std::string& other);

  Limits limits_;
  std::map<std::string, std::set<std::string>> others_;  // of a member; each pair is there twice
  std::size_t size_ = 0;
};

}  // namespace starling::issuer
