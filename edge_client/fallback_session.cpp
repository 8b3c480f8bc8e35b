// SPDX-License-Identifier: Apache-2.0
#include "edge_client/fallback_session.h"

#include "core/base/durable_file.h"
#include "core/client/given_model.h"
#include "core/client/training_settings.h"
#include "core/train/local_trainer.h"

namespace starling::edge_client {

using namespace gossip::fallback;

FallbackSession::FallbackSession(net::EventLoop& loop, const Clock& clock, Log& log,
                                 gossip::PeerShell& peer, std::uint64_t rows,
                                 std::filesystem::path path)
    : loop_(loop),
      clock_(clock),
      log_(log),
      peer_(peer),
      rows_(rows),
      path_(std::move(path)),
      machine_(loop.now()),
      alarm_(loop, [this] { on(Tick{}); }) {
  restore();
}

void FallbackSession::restore() {
  auto loaded = load_fallback(path_);
  if (!loaded) return log_.warning("{}", loaded.error().message());
  if (!*loaded) return;
  Kept& kept = (*loaded)->kept;
  log_.info("{} steps trained by gossip for run {} were kept", kept.trained.steps, kept.run);
  const Duration since = std::max<Duration>(clock_.wall_now() - (*loaded)->at, Duration{});
  on(Restored{std::move(kept), since});
}

void FallbackSession::stop() {
  if (machine_.state() == gossip::FallbackMachine::State::kGossiping) {
    on(Progress{peer_.gossiped()});
  }
  disk_.for_each(1, [](std::size_t, unsigned) {});
}

void FallbackSession::see(const protocol::Envelope& envelope) {
  if (const auto* committed = std::get_if<protocol::RoundCommitted>(&envelope.message)) {
    on(TaskSettled{committed->task, true});
  } else if (const auto* ended = std::get_if<protocol::TaskEnded>(&envelope.message)) {
    on(TaskSettled{ended->task, false});
  }
}

std::shared_ptr<client::Trainer> FallbackSession::take_training(const client::Train& train) {
  if (train.plan.kind == protocol::TaskKind::kEvaluate) return nullptr;
  const auto settings = client::TrainingSettings::parse(train.plan.settings);
  on(TaskOffered{.task = train.plan.task,
                 .base = train.plan.base,
                 .model = train.base,
                 .rounds = train.plan.rounds,
                 .steps = settings ? train::local_steps(settings->train, rows_) : 0});
  return std::exchange(merging_, nullptr);
}

void FallbackSession::on(Event event) {
  for (const Action& action : machine_.on(std::move(event), loop_.now())) {
    std::visit([this](const auto& a) { perform(a); }, action);
  }
  const auto next = machine_.next_deadline();
  if (next) {
    alarm_.set(*next);
  } else {
    alarm_.clear();
  }
}

void FallbackSession::perform(const Begin& begin) {
  const auto begun = peer_.begin_with(begin);
  if (!begun) log_.warning("nothing is trained meanwhile: {}", begun.error().message());
}

void FallbackSession::perform(const Pause&) { on(Paused{peer_.end_fallback()}); }

void FallbackSession::perform(const ReadProgress&) { on(Progress{peer_.gossiped()}); }

void FallbackSession::perform(const Keep& keep) {
  disk_.submit([this, kept = keep.kept, now = clock_.wall_now()](unsigned) {
    const auto saved = save_fallback(path_, kept, now);
    if (saved) return;
    log_.warning("what is trained by gossip would be lost in a restart: {}",
                 saved.error().message());
    on_disk_error_(saved.error());
  });
}

void FallbackSession::perform(const Forget&) {
  disk_.submit([this](unsigned) {
    const auto removed = remove_durably(path_);
    if (removed) return;
    log_.warning("{} is not removed: {}", path_.string(), removed.error().message());
    on_disk_error_(removed.error());
  });
}

void FallbackSession::perform(const Merge& merge) {
  merging_ = std::make_shared<client::GivenModel>(
      merge.trained.model, client::TrainingReport{.weight = static_cast<double>(rows_),
                                                  .train_loss = merge.trained.loss,
                                                  .steps = merge.trained.steps});
}

void FallbackSession::perform(const Say& say) { log_.write(say.level, say.line); }

void join_up(EdgeSession& session, GossipSession& gossip, FallbackSession& fallback) {
  gossip.set_on_report([&session, &fallback] {
    fallback.look();
    session.refresh_status();
  });
  fallback.set_on_disk_error([&session](const Error& error) { session.report_disk(error); });
  session.set_peer(
      {.on_link_up =
           [&gossip, &fallback] {
             fallback.link_up();
             gossip.link_up();
           },
       .on_link_down =
           [&gossip, &fallback] {
             gossip.link_down();
             fallback.link_down();
           },
       .on_drained = [&gossip] { gossip.link_drained(); },
       .take =
           [&gossip, &fallback](const protocol::Envelope& envelope) {
             fallback.see(envelope);
             return gossip.take(envelope);
           },
       .status = [&gossip] { return gossip.status(); },
       .on_train =
           [&fallback](const client::Train& train) { return fallback.take_training(train); }});
}

}  // namespace starling::edge_client
