// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/protocol_base.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "core/base/check.h"

namespace starling::gossip {

ProtocolBase::ProtocolBase(const NetworkRun& run, LocalSteps& local, const ProtocolPlace& place,
                           TimePoint now)
    : run_(run),
      schedule_(run.options.schedule()),
      exchanges_(schedule_.mixings_until(schedule_.steps)),
      local_(local),
      epoch_(place.epoch),
      self_(place.self),
      names_(place.names),
      now_(now) {}

std::vector<training::Action> ProtocolBase::on(training::Event event, TimePoint now) {
  now_ = now;
  dispatch(event);
  return std::exchange(actions_, {});
}

void ProtocolBase::train(const LocalPhase& phase, std::function<Result<double>()> work,
                         std::function<void(double loss_sum)> done) {
  STARLING_CHECK(!is_computing());
  const auto loss = std::make_shared<Result<double>>(0.0);
  done_ = [this, done = std::move(done), loss] {
    if (!*loss) return act(training::Failed{loss->error()});
    done(**loss);
  };
  act(training::Train{.step = phase.step + static_cast<std::uint64_t>(phase.steps),
                      .work = [work = std::move(work), loss] { *loss = work(); }});
}

void ProtocolBase::compute(std::function<void()> work, std::function<void()> done) {
  STARLING_CHECK(!is_computing());
  done_ = std::move(done);
  act(peer::Compute{.work = std::move(work)});
}

bool ProtocolBase::learned(double loss_sum, const LocalPhase& phase,
                           std::optional<Member> suspect) {
  loss_sum_ += loss_sum;
  loss_steps_ += static_cast<std::uint64_t>(phase.steps);
  if (std::isfinite(loss_sum)) return true;
  if (!suspect) suspect = suspect_;
  act(training::Failed{diverged(phase.step, suspect ? names_[*suspect] : std::string())});
  return false;
}

bool ProtocolBase::is_possible(Member from, Exchange exchange) {
  if (exchange <= exchanges_) return true;
  if (impossible_[from].is_due(now_)) {
    say(LogLevel::kWarning,
        fmt::format("{} says that it is at exchange {}, and the run has only {}: ignored",
                    names_[from], exchange, exchanges_));
  }
  return false;
}

void ProtocolBase::say_who_drained(std::optional<Member> taker) {
  if (!taker || !drained_.is_due(now_)) return;
  say(LogLevel::kInfo,
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
