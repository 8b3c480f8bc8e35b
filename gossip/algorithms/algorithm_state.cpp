// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/algorithm_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "gossip/algorithms/algorithm.h"
#include "gossip/algorithms/async_algorithm.h"

namespace starling::gossip {
namespace {

// A part: the type, the lengths of name and values (u32, u64, little endian), then both.
constexpr std::size_t kHeadBytes = 1 + 4 + 8;

// Calls part(name, type, bytes that may be written) for each.
template <class F>
class EachPart final : public StateVisitor {
 public:
  explicit EachPart(F part) : part_(std::move(part)) {}
  using StateVisitor::visit;
  void visit(std::string_view name, std::span<float> values) override {
    part_(name, 'f', std::as_writable_bytes(values));
  }
  void visit(std::string_view name, std::span<double> values) override {
    part_(name, 'd', std::as_writable_bytes(values));
  }
  void visit(std::string_view name, std::span<std::uint64_t> values) override {
    part_(name, 'u', std::as_writable_bytes(values));
  }

 private:
  F part_;
};

void append(Bytes& to, ByteView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

Bytes head_of(std::string_view name, char type, std::size_t bytes) {
  Bytes head(kHeadBytes + name.size());
  head[0] = static_cast<std::byte>(type);
  store_little<std::uint32_t>(head.data() + 1, static_cast<std::uint32_t>(name.size()));
  store_little<std::uint64_t>(head.data() + 5, bytes);
  std::ranges::copy(as_bytes(name), head.begin() + kHeadBytes);
  return head;
}

template <class A>
Bytes save(A& algorithm) {
  Bytes state;
  EachPart write([&](std::string_view name, char type, std::span<std::byte> values) {
    append(state, head_of(name, type, values.size()));
    append(state, values);
  });
  algorithm.visit_state(write);
  return state;
}

// What precedes each part says it all: the first pass compares, the second copies.
template <class A>
Result<void> restore(A& algorithm, ByteView state) {
  ByteView left = state;
  std::string mismatch;
  EachPart check([&](std::string_view name, char type, std::span<std::byte> values) {
    const Bytes head = head_of(name, type, values.size());
    const bool fits = left.size() >= head.size() + values.size() &&
                      std::memcmp(left.data(), head.data(), head.size()) == 0;
    if (mismatch.empty() && !fits) mismatch = name;
    if (fits) left = left.subspan(head.size() + values.size());
  });
  algorithm.visit_state(check);
  if (!mismatch.empty()) {
    return rejected("state-mismatch",
                    fmt::format("the state kept holds no '{}' of this model's size", mismatch));
  }
  if (!left.empty()) {
    return rejected("state-mismatch", "the state kept holds more than this algorithm has");
  }
  left = state;
  EachPart read([&](std::string_view name, char, std::span<std::byte> values) {
    left = left.subspan(kHeadBytes + name.size());
    if (!values.empty()) std::memcpy(values.data(), left.data(), values.size());
    left = left.subspan(values.size());
  });
  algorithm.visit_state(read);
  return {};
}

}  // namespace

template <class T>
Bytes save_state(Algorithm<T>& algorithm) {
  return save(algorithm);
}

template <class T>
Bytes save_state(AsyncAlgorithm<T>& algorithm) {
  return save(algorithm);
}

template <class T>
Result<void> restore_state(Algorithm<T>& algorithm, ByteView state) {
  return restore(algorithm, state);
}

template <class T>
Result<void> restore_state(AsyncAlgorithm<T>& algorithm, ByteView state) {
  return restore(algorithm, state);
}

#define STARLING_INSTANTIATE(T)                                 \
  template Bytes save_state(Algorithm<T>&);                     \
  template Bytes save_state(AsyncAlgorithm<T>&);                \
  template Result<void> restore_state(Algorithm<T>&, ByteView); \
  template Result<void> restore_state(AsyncAlgorithm<T>&, ByteView);
STARLING_INSTANTIATE(float)
STARLING_INSTANTIATE(double)
#undef STARLING_INSTANTIATE

}  // namespace starling::gossip
