// SPDX-License-Identifier: Apache-2.0
#include "core/client/client_shell.h"

#include <fmt/format.h>

namespace starling::client {

ClientShell::ClientShell(World world, ClientOptions options, Rng backoff, Leftovers leftovers,
                         Handlers handlers)
    : world_(std::move(world)),
      handlers_(std::move(handlers)),
      machine_(std::move(options), backoff, std::move(leftovers)),
      timer_(world_.scheduler.make_timer([this] {
        timer_set_.reset();
        handle(Tick{});
      })) {}

ClientShell::~ClientShell() {
  for (const auto& [task, stop] : trainings_) stop->store(true);
}

void ClientShell::handle(Event event) {
  std::vector<Action> actions = machine_.on(std::move(event), world_.scheduler.now());
  for (const Action& action : actions) {
    if (const auto* hang_up = std::get_if<HangUp>(&action)) handlers_.on_hang_up(hang_up->reason);
  }
  for (Action& action : actions) {
    std::visit([this](auto& a) { perform(a); }, action);
  }
  set_timer();
  handlers_.on_handled();
}

void ClientShell::set_timer() {
  const auto next = machine_.next_deadline();
  if (next == timer_set_) return;
  timer_set_ = next;
  if (next) {
    timer_->set(*next);
  } else {
    timer_->clear();
  }
}

void ClientShell::perform(Dial&) { world_.link.dial(); }

void ClientShell::perform(HangUp&) { world_.link.hang_up(); }

void ClientShell::perform(Send& send) { world_.link.send(send.envelope); }

void ClientShell::perform(Say& say) { handlers_.on_say(say); }

// --- training -----------------------------------------------------------------------------------

void ClientShell::perform(Train& train) {
  const TaskId task = train.plan.task;
  auto instead = handlers_.on_train(train);
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  trainings_[task] = stop;
  compute<PendingUpdate>(
      world_.training, alive_,
      [make = world_.make_update, train = std::move(train), instead = std::move(instead),
       stop](unsigned worker) { return make(train, instead.get(), *stop, worker); },
      [this, task, stop](Result<PendingUpdate> update) {
        const auto found = trainings_.find(task);
        if (found != trainings_.end() && found->second == stop) trainings_.erase(found);
        // A coordinator that was restored may have given the task's number again.
        if (stop->load()) return;
        handle(TrainingFinished{task, std::move(update)});
      });
}

void ClientShell::perform(CancelTraining& cancel) {
  if (const auto found = trainings_.find(cancel.task); found != trainings_.end()) {
    found->second->store(true);
  }
}

// --- pending updates ----------------------------------------------------------------------------

void ClientShell::perform(StoreUpdate& store) {
  const TaskId task = store.update.head.task;
  compute<void>(
      world_.disk, alive_,
      [pending = world_.pending, update = std::move(store.update)](unsigned) {
        return pending.store(update);
      },
      [this, task](const Result<void>& result) { stored(task, result); });
}

void ClientShell::perform(KeepState& keep) {
  compute<void>(
      world_.disk, alive_,
      [pending = world_.pending, unkept = unkept_, state = std::move(keep.state)](unsigned) {
        Result<void> kept = pending.keep(state);
        if (!kept) {
          unkept->emplace(state.task, state.run);
          return kept;
        }
        std::erase_if(*unkept, [&](const auto& update) {
          return update.second == state.run && pending.forget(update.first);
        });
        return kept;
      },
      [this](const Result<void>& result) {
        changed("the strategy's state is kept in memory only", result);
      });
}

// An update whose state is not kept is settled again after a restart, which then keeps it, unless a
// later one of its run is kept before.
void ClientShell::perform(ForgetUpdate& forget) {
  compute<void>(
      world_.disk, alive_,
      [pending = world_.pending, unkept = unkept_, task = forget.task](unsigned) {
        return unkept->contains(task) ? Result<void>() : pending.forget(task);
      },
      [this](const Result<void>& result) { changed("a settled update remains", result); });
}

void ClientShell::perform(RestoreState& restore) {
  compute<void>(
      world_.disk, alive_,
      [pending = world_.pending, state = std::move(restore.state)](unsigned) {
        return pending.restore_state(state);
      },
      [this](const Result<void>& result) { changed("a run's new state remains", result); });
}

void ClientShell::perform(ForgetState& forget) {
  compute<void>(
      world_.disk, alive_,
      [pending = world_.pending, run = forget.run](unsigned) { return pending.forget_state(run); },
      [this](const Result<void>& result) { changed("a run's old state remains", result); });
}

void ClientShell::stored(TaskId task, const Result<void>& result) {
  handle(UpdateStored{task, result});
  if (!result) check_disk(result.error());
}

void ClientShell::changed(const char* what, const Result<void>& result) {
  if (result) return;
  handlers_.on_say({LogLevel::kWarning, fmt::format("{}: {}", what, result.error().message())});
  check_disk(result.error());
}

void ClientShell::check_disk(const Error& error) {
  if (error.kind() == ErrorKind::kInternal) handlers_.on_disk_broken(error);
}

}  // namespace starling::client
