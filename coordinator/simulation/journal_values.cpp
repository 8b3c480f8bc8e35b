// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/journal_values.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace starling::coordinator::journal {
namespace {

constexpr std::size_t kTextBytesMin = sizeof(std::uint64_t);

void visit_values(Archive& state, strategy::State<float>& values) {
  std::size_t left = state.count(values.vectors.size(), 2 * sizeof(std::uint64_t));
  if (!state.reading()) {
    for (auto& [name, vector] : values.vectors) {
      std::string text = name;
      state(text);
      state.vector(vector);
    }
  }
  for (; state.reading() && left > 0 && state.good(); --left) {
    std::string name;
    state(name);
    state.vector(values.vectors[name]);
  }
  visit(state, values.scalars);
}

}  // namespace

void visit(Archive& state, Sha256Digest& digest) {
  std::array<std::byte, Sha256Digest::kBytes> bytes{};
  std::ranges::copy(digest.bytes(), bytes.begin());
  state.bytes(bytes);
  digest = Sha256Digest(bytes);
}

void visit(Archive& state, std::map<std::string, double>& numbers) {
  std::size_t left = state.count(numbers.size(), kTextBytesMin + sizeof(double));
  if (!state.reading()) {
    for (auto [name, value] : numbers) {
      std::string text = name;
      state(text);
      state(value);
    }
    return;
  }
  for (numbers.clear(); left > 0 && state.good(); --left) {
    std::string name;
    state(name);
    state(numbers[name]);
  }
}

void visit(Archive& state, Error& error) {
  ErrorKind kind = error.kind();
  ErrorCategory category = error.category();
  std::string code = error.code();
  std::string message = error.message();
  state(kind);
  state(category);
  state(code);
  state(message);
  if (state.reading()) error = Error(kind, std::move(code), std::move(message), category);
}

void visit(Archive& state, update::ModelVersion& version) {
  visit(state, version.run);
  state(version.round);
  visit(state, version.sha256);
  state(version.run_key);
}

void visit(Archive& state, std::vector<update::VectorSpec>& vectors) {
  vectors.resize(state.count(vectors.size(), kTextBytesMin + sizeof(std::uint64_t)));
  for (update::VectorSpec& vector : vectors) {
    state(vector.name);
    state(vector.encoding);
    state(vector.elements);
    state(vector.bytes);
  }
}

void visit(Archive& state, protocol::TaskInput& input) {
  state(input.name);
  visit(state, input.sha256);
  state(input.bytes);
  state(input.encoding);
}

void visit(Archive& state, Measured& measured) {
  state(measured.federated);
  state(measured.loss);
  state(measured.accuracy);
  visit(state, measured.metrics);
}

void visit(Archive& state, store::ModelRecord& record) {
  state(record.round);
  visit(state, record.sha256);
  bool has_state = record.state.has_value();
  state(has_state);
  if (!has_state) return;
  if (state.reading()) record.state.emplace();
  visit(state, record.state->sha256);
  state(record.state->bytes);
}

void visit_shape(Archive& state, strategy::State<float>& values) {
  std::size_t left = state.count(values.vectors.size(), kTextBytesMin + sizeof(std::uint64_t));
  if (!state.reading()) {
    for (const auto& [name, vector] : values.vectors) {
      std::string text = name;
      std::uint64_t size = vector.size();
      state(text);
      state(size);
    }
  }
  for (; state.reading() && left > 0 && state.good(); --left) {
    std::string name;
    std::uint64_t size = 0;
    state(name);
    state(size);
    state.expect(size <= model::Layout::kElementsMax);
    if (!state.good()) return;
    auto& vector = values.vectors[name];
    vector.resize(static_cast<std::size_t>(size));
    std::memset(vector.data(), static_cast<int>(kHollow), vector.size() * sizeof(float));
  }
  visit(state, values.scalars);
}

void visit(Archive& state, strategy::StateSnapshot& values) {
  bool has = values != nullptr;
  state(has);
  if (!has) return;
  if (!state.reading()) {
    strategy::State<float> copy = *values;
    return visit_values(state, copy);
  }
  strategy::State<float> read;
  visit_values(state, read);
  values = std::make_shared<const strategy::State<float>>(std::move(read));
}

}  // namespace starling::coordinator::journal
