// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/protocol_base.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "core/base/check.h"

namespace starling::gossip {

ProtocolBase::ProtocolBase(const NetworkRun& run, LocalSteps& local, ProtocolHost& host,
                           Member self, std::vector<std::string> names)
    : run_(run),
      schedule_(run.options.schedule()),
      exchanges_(schedule_.mixings_until(schedule_.steps)),
      local_(local),
      host_(host),
      self_(self),
      names_(std::move(names)) {}

void ProtocolBase::train(const LocalPhase& phase, std::function<Result<double>()> work,
                         std::function<void(double loss_sum)> done) {
  STARLING_CHECK(!computing_);
  const auto loss = std::make_shared<Result<double>>(0.0);
  computing_ = true;
  host_.train(
      phase.step + static_cast<std::uint64_t>(phase.steps),
      [work = std::move(work), loss] { *loss = work(); },
      [this, done = std::move(done), loss] {
        if (!*loss) return host_.failed(loss->error());
        computing_ = false;
        done(**loss);
      });
}

void ProtocolBase::compute(std::function<void()> work, std::function<void()> done) {
  STARLING_CHECK(!computing_);
  computing_ = true;
  host_.compute(std::move(work), [this, done = std::move(done)] {
    computing_ = false;
    done();
  });
}

bool ProtocolBase::learned(double loss_sum, const LocalPhase& phase,
                           std::optional<Member> suspect) {
  loss_sum_ += loss_sum;
  loss_steps_ += static_cast<std::uint64_t>(phase.steps);
  if (std::isfinite(loss_sum)) return true;
  if (!suspect) suspect = suspect_;
  host_.failed(diverged(phase.step, suspect ? names_[*suspect] : std::string()));
  return false;
}

bool ProtocolBase::is_possible(Member from, Exchange exchange) {
  if (exchange <= exchanges_) return true;
  if (impossible_[from].is_due(host_.now())) {
    host_.say(LogLevel::kWarning,
              fmt::format("{} says that it is at exchange {}, and the run has only {}: ignored",
                          names_[from], exchange, exchanges_));
  }
  return false;
}

void ProtocolBase::say_who_drained(std::optional<Member> taker) {
  if (!taker || !drained_.is_due(host_.now())) return;
  host_.say(LogLevel::kInfo,
            fmt::format("little weight is left to this peer's model, and {} took more of it than "
                        "it gave back: it gets no more until it does",
                        names_[*taker]));
}

LocalPhase ProtocolBase::phase_of(Exchange exchange) const {
  const std::uint64_t step = schedule_.after(exchange);
  return {.step = step,
          .steps = static_cast<int>(schedule_.after(exchange + 1) - step),
          .rate = local_.rate_at(step),
          .exchange = exchange};
}

TrainingProgress ProtocolBase::progress_at(std::string_view state, Exchange exchange) const {
  return {.state = state,
          .exchange = exchange,
          .step = schedule_.after(exchange),
          .loss_sum = loss_sum_,
          .loss_steps = loss_steps_};
}

}  // namespace starling::gossip
