// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/lossy_sgp.h"

#include <algorithm>
#include <vector>

#include "gossip/algorithms/make_algorithm.h"

namespace starling::gossip {
namespace {

constexpr double kMostStretch = 8;          // of a local step, in z
constexpr double kMostStretchBalanced = 2;  // or shrinks

// What the local steps count with in x; in z, that by w. With 1 the data of all nodes count alike,
// also where members are absent and the others' weights differ. With w a step in z is as long as it
// is trained, which matters where a member takes all weight, or makes some.
double step_factor(bool balanced, double w) {
  if (!balanced) return std::min(1.0, kMostStretch * w);
  if (w > kMostStretchBalanced) return w / kMostStretchBalanced;
  const double stretched = kMostStretchBalanced * w;
  return stretched >= 1 ? 1 : std::max(w, stretched * stretched);
}

}  // namespace

template <class T>
LossySgp<T>::LossySgp(Node members, bool balanced, std::span<const T> model)
    : ledger_(model.size(), members, balanced),
      z_(model.begin(), model.end()),
      update_(model.size()) {
  ledger_.reset(model);
}

template <class T>
Result<double> LossySgp<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase,
                                  const Links& links) {
  std::ranges::copy(z_, update_.begin());
  STARLING_ASSIGN(const double loss, training.steps(update_, phase.rate, phase.steps));
  for (std::size_t i = 0; i < z_.size(); ++i) update_[i] -= z_[i];
  ledger_.settle();
  ledger_.add<T>(update_, step_factor(ledger_.balanced(), ledger_.weight()));
  push(links);
  return loss;
}

template <class T>
void LossySgp<T>::push(const Links& links) {
  messages_.clear();
  double left = 1;  // of the mass before the first push
  for (const topologies::Weight& receiver : links.receivers) {
    const bool is_there = !std::ranges::binary_search(links.absent, receiver.node);
    const double share = is_there ? ledger_.share(links, receiver) : 0;
    messages_.push_back({.packed = ledger_.push(receiver.node, share / left)});
    left -= share;
  }
  for (const topologies::Weight& sender : links.senders) ledger_.open(sender.node);
}

template <class T>
const Message<T>& LossySgp<T>::message(std::size_t receiver) const {
  return messages_[receiver];
}

template <class T>
void LossySgp<T>::absorb(const Links&, std::span<const Received<T>> inbox, Columns columns) {
  for (const Received<T>& received : inbox) {
    if (received.message != nullptr) {
      ledger_.pull(received.from, received.message->packed, columns);
    }
  }
}

template <class T>
void LossySgp<T>::conclude(const Links& links, std::span<const Received<T>> inbox) {
  const std::size_t size = ledger_.size();
  absorb(links, inbox, {size, size + 1});
  ledger_.read<T>(z_);
}

template <class T>
void LossySgp<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, z_.begin());
  ledger_.reset(model);
}

template <class T>
void LossySgp<T>::regroup(const Plan& plan, const Links& links, const LocalPhase* trained) {
  if (trained != nullptr) {
    for (std::size_t i = 0; i < z_.size(); ++i) z_[i] += update_[i];
  }
  ledger_ = MassLedger(z_.size(), plan.nodes, plan.balanced);
  ledger_.reset<T>(z_);
  if (trained != nullptr) push(links);
}

template <class T>
void LossySgp<T>::visit_state(StateVisitor& state) {
  const std::vector<MassLedger::Fixed> before(ledger_.mass().begin(), ledger_.mass().end());
  ledger_.visit_state(state);
  // Of a local phase that is saved before it is mixed, regroup() needs the model before the phase.
  if (!std::ranges::equal(before, ledger_.mass())) ledger_.read<T>(z_);
}

// The model whose mass is new on the edge; where none is, this node's own.
template <class T>
std::optional<Unpacked<T>> LossySgp<T>::unpack(Node from, const Message<T>& message) const {
  Unpacked<T> unpacked{.theirs = {z_.begin(), z_.end()}, .own = {z_.begin(), z_.end()}};
  ledger_.read_new<T>(from, message.packed, unpacked.theirs);
  return unpacked;
}

template class LossySgp<float>;
template class LossySgp<double>;

}  // namespace starling::gossip
