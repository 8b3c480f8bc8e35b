// SPDX-License-Identifier: Apache-2.0
// A federated strategy has two halves: what a client does in a round, and what the server makes of
// the round's aggregate. One file a strategy; both halves stand in it, with their equations. Both
// are templates over the scalar: float is what runs, double is for tests of convergence. A strategy
// object is immutable: what it remembers between rounds comes in and goes out as a State.
//
// Words of all strategies: x the round's model, [d]; y a client's model after its local training;
// tau its local steps; eta their learning rate; S the clients that contributed, of the N admitted
// ones whose data and program suit the run.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/aggregate/aggregator.h"
#include "core/aggregate/weighted_mean.h"
#include "core/base/error.h"
#include "core/strategy/options.h"
#include "core/strategy/state.h"
#include "core/train/train_options.h"
#include "core/train/training_hooks.h"

namespace starling::strategy {

// The name of a contribution's first vector, and of what it is about: y - x unless the strategy
// says otherwise.
inline constexpr const char* kModelVector = "model";

// --- the client's half
// ----------------------------------------------------------------------------

struct LocalWork {
  std::uint64_t steps = 0;  // tau
  double rate = 0;          // eta
  double train_loss = 0;    // mean over the samples seen
};

// The client's rows, as strategies see them.
template <class T>
class LocalTraining {
 public:
  virtual ~LocalTraining() = default;
  // The local steps of this round, from y, in place.
  [[nodiscard]] virtual Result<LocalWork> train(std::span<T> y,
                                                const train::TrainingHooks<T>& hooks) = 0;
  // The mean gradient over all rows at x, regularisation included. Returns their mean loss.
  [[nodiscard]] virtual Result<double> full_gradient(std::span<const T> x,
                                                     std::span<T> gradient) = 0;
  // The mean loss over all rows at x.
  [[nodiscard]] virtual Result<double> loss(std::span<const T> x) = 0;
};

template <class T>
struct ClientRound {
  std::span<const T> model;                          // x
  std::map<std::string, std::span<const T>> inputs;  // what the server sends beside it, [d] each
  const State<T>& state;                             // this client's; empty in its first round
};

template <class T>
struct ClientResult {
  linalg::AlignedVector<T> payload;       // [k, d]: the server's receives(), one after the other
  std::map<std::string, double> scalars;  // beside "train_loss"
  State<T> state;                         // this client's, from the round's commit on
  LocalWork work;
};

template <class T>
class ClientStrategy {
 public:
  virtual ~ClientStrategy() = default;
  // How many vectors [d] the state has at most. Where there are some, it matters: then a round does
  // not begin before the one before it is settled.
  virtual std::size_t state_vectors() const { return 0; }
  // One round of one client. Requires: the inputs that the server's half sends, all of one size.
  [[nodiscard]] virtual Result<ClientResult<T>> round(const ClientRound<T>& round,
                                                      LocalTraining<T>& training) const = 0;
};

// --- the server's half
// ----------------------------------------------------------------------------

enum class Weighting {
  kRows,     // a client counts as its training rows
  kUniform,  // every client counts the same
};

// What the equations of a server's half hold for. Rules against dishonest clients (median, trimmed
// mean) report another centre of the updates than their mean.
enum class Needs {
  kMeans,   // of vectors and scalars: they stand for sums, or for the change of a state that all
            // clients share
  kCentre,  // any: the vector is taken for the direction in which the clients want the model to go
};

struct ServerRound {
  // Vectors as receives(), which are consumed; scalars: "train_loss" and scalars().
  aggregate::Report& report;
  std::uint64_t population = 1;  // N
};

template <class T>
class ServerStrategy {
 public:
  virtual ~ServerStrategy() = default;
  virtual Weighting weighting() const { return Weighting::kRows; }
  virtual Needs needs() const { return Needs::kMeans; }
  // The names of the state's vectors that clients are sent beside the model.
  virtual std::vector<std::string> sends() const { return {}; }
  // The names of the vectors [d] that a contribution brings.
  virtual std::vector<std::string> receives() const { return {kModelVector}; }
  // The names of the scalars that are averaged beside "train_loss"; each contribution must bring
  // them, finite and above 0.
  virtual std::vector<std::string> scalars() const { return {}; }
  // The largest value of one of scalars() that so many local steps give.
  virtual double scalar_max(const train::TrainOptions& /*training*/,
                            std::uint64_t /*steps*/) const {
    return std::numeric_limits<double>::infinity();
  }
  // Whether the state stands for those of all clients together, so that one client that begins
  // again from nothing makes it wrong for good.
  virtual bool mirrors_client_states() const { return false; }
  // What a contribution brings, where it is not just a step of the model. The norms of honest
  // clients' contributions may differ by orders of magnitude then, so that there is no bound on
  // them unless a job sets one. Empty: a step.
  virtual std::string_view instead_of_step() const { return {}; }
  // How small the values of those vectors may be.
  virtual aggregate::ValueRange values() const { return aggregate::ValueRange::kModel; }
  // Before the first round, for a model of `elements`.
  virtual State<T> initial_state(std::size_t /*elements*/) const { return {}; }
  // Appends the next model to `next`, which is empty and has room: it takes memory as the report's
  // means give theirs back. The next state comes in place. Fails with "diverged" where a value
  // would not be finite, "missing-scalar", "bad-scalar", "values-too-small" or "bad-state"; both
  // mean nothing then.
  [[nodiscard]] virtual Result<void> apply(std::span<const T> model, linalg::AlignedVector<T>& next,
                                           State<T>& state, const ServerRound& round) const = 0;
};

}  // namespace starling::strategy
