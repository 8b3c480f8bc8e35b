// SPDX-License-Identifier: Apache-2.0
// The values of a simulation's journal in an archive: each function writes or reads one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/rounds/round_aggregate.h"
#include "core/base/archive.h"
#include "core/store/records.h"
#include "core/strategy/state.h"

namespace starling::coordinator::journal {

inline constexpr std::byte kHollow{0xff};  // four of them are no number

template <class Tag>
void visit(Archive& state, NumericId<Tag>& id) {
  std::uint64_t value = id.value();
  state(value);
  id = NumericId<Tag>(value);
}

void visit(Archive& state, Sha256Digest& digest);
void visit(Archive& state, std::map<std::string, double>& numbers);
void visit(Archive& state, Error& error);
void visit(Archive& state, update::ModelVersion& version);
void visit(Archive& state, std::vector<update::VectorSpec>& vectors);
void visit(Archive& state, protocol::TaskInput& input);
void visit(Archive& state, Measured& measured);
void visit(Archive& state, store::ModelRecord& record);
void visit(Archive& state, strategy::StateSnapshot& values);
// The names and sizes of its vectors, and its scalars; what is read has hollow values.
void visit_shape(Archive& state, strategy::State<float>& values);

template <class T>
void visit_optional(Archive& state, std::optional<T>& value) {
  bool has = value.has_value();
  state(has);
  if (state.reading()) value = has ? std::optional<T>(T{}) : std::nullopt;
  if (has) visit(state, *value);
}

template <class Visit>
void append(Bytes& to, Visit visit) {
  Archive state([&](ByteView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); });
  visit(state);
}

// From `at` on, which moves behind what was read; false where it cannot have been written so.
template <class Visit>
bool read_at(const Bytes& from, std::size_t& at, Visit visit) {
  Archive state(
      [&](MutableByteView to) {
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
        at += to.size();
        return true;
      },
      from.size() - at);
  visit(state);
  return state.good();
}

}  // namespace starling::coordinator::journal
