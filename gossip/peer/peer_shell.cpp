// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/peer_shell.h"

#include "core/data/row_names.h"
#include "gossip/peer/held_roster.h"
#include "gossip/training/retries.h"

namespace starling::gossip {

using protocol::PeerHello;
using protocol::VectorTransfer;

// A job on another thread holds it too, so that nothing is destroyed under its hands.
struct PeerShell::Preparation {
  peer::Prepare wanted;
  std::atomic<bool> cancelled = false;
};

PeerShell::PeerShell(World world, Options options, PeerData data, Issuer issuer)
    : world_(world),
      options_(std::move(options)),
      data_(std::move(data)),
      rows_(data_.rows),
      issuer_(std::move(issuer)),
      machine_(options_, world.identity,
               [this](const NetworkRun& run, Member self, std::uint64_t step,
                      std::optional<FallbackPace> pace) {
                 return make_local_steps(run, self, step, pace);
               }),
      self_(std::make_shared<PeerShell*>(this)),
      links_(world.connect({
          .hello = [this] { return machine_.hello(); },
          .on_up =
              [this](Member m, const PeerHello& h) {
                on(peer::LinkUp{m, h});
              },
          .on_down =
              [this](Member m, const Error& why) {
                on(peer::LinkDown{m, why});
              },
          .on_message =
              [this](Member m, const protocol::Envelope& e) {
                on(peer::MessageReceived{m, e});
              },
          .check =
              [this](Member m, const VectorTransfer& p) {
                auto checked = machine_.check(m, p);
                if (!checked) {
                  on(peer::TransferRefused{m, p});
                } else if (std::holds_alternative<protocol::ModelColumns>(p.content)) {
                  on(peer::TransferProgressed{m, p});
                }
                return checked;
              },
          .on_piece =
              [this](Member m, const VectorTransfer& p) {
                if (std::holds_alternative<protocol::ModelColumns>(p.content)) {
                  on(peer::TransferProgressed{m, p});
                }
              },
          .on_transfer =
              [this](Member m, TransferFlow::Whole w) {
                on(peer::TransferReceived{m, std::move(w)});
              },
      })),
      timer_(world.scheduler.make_timer([this] { on(peer::Tick{}); })) {}

PeerShell::~PeerShell() {
  *self_ = nullptr;
  if (preparation_) preparation_->cancelled = true;
}

// What handlers report while actions are performed comes after these.
void PeerShell::on(peer::Event event) {
  if (performing_) return events_.push_back(std::move(event));
  performing_ = true;
  handle(std::move(event));
  while (!events_.empty()) {
    peer::Event next = std::move(events_.front());
    events_.pop_front();
    handle(std::move(next));
  }
  performing_ = false;
  if (const auto next = machine_.next_deadline()) {
    timer_->set(*next);
  } else {
    timer_->clear();
  }
}

void PeerShell::handle(peer::Event&& event) {
  for (peer::Action& action : machine_.on(std::move(event), world_.scheduler.now(), wall())) {
    std::visit([this](auto& wanted) { perform(wanted); }, action);
  }
}

Result<void> PeerShell::start() {
  STARLING_TRY(world_.disk.make_directory(options_.directory, Disk::Access::kOwner));
  sweep_temporaries(world_.disk, options_.directory);  // each may be as large as the model
  auto kept = load_held_roster(world_.disk, options_.directory, world_.identity);
  if (kept) {
    if (*kept) {
      auto roster = std::make_shared<const identity::SignedRoster>(std::move(**kept));
      on(peer::RosterReceived{.roster = std::move(roster), .was_kept = true});
    }
  } else {
    world_.log.warning("the kept roster is not used: {}", kept.error().message());
  }
  return {};
}

void PeerShell::take_roster(const identity::SignedRoster& roster, Source source) {
  on(peer::RosterReceived{std::make_shared<const identity::SignedRoster>(roster), source});
}

void PeerShell::close(std::function<void()> closed) {
  closed_ = std::move(closed);
  on(peer::Close{});
}

std::optional<FallbackTerms> PeerShell::standby() const {
  return machine_.standby(world_.scheduler.now(), wall());
}

Result<void> PeerShell::begin_with(const fallback::Begin& begin) {
  if (!standby()) return rejected("no-fallback", "no roster stands by");
  on(peer::BeginFallback{begin});
  if (machine_.failure()) return *machine_.failure();
  return {};
}

std::optional<fallback::Trained> PeerShell::end_fallback() {
  auto trained = gossiped();
  on(peer::EndFallback{});
  return trained;
}

// --- what the machine asks for ------------------------------------------------------------------

void PeerShell::perform(peer::KeepRoster& action) {
  const auto kept = hold_roster(world_.disk, options_.directory, *action.roster);
  if (kept) return;
  world_.log.warning("the roster is not kept for the next start: {}", kept.error().message());
}

void PeerShell::perform(peer::SetRoster& action) {
  links_->set_roster(action.roster);
  on(peer::LinksRenewed{links_->all_up()});
}

void PeerShell::perform(peer::KeepLinks& action) {
  links_->end_idle_links(action.ends_idle);
  links_->keep(std::move(action.members));
}

void PeerShell::perform(peer::SendTransfer& action) {
  links_->send_transfer(action.to, action.transfer, std::move(action.data), action.urgency);
}

// The session is destroyed on the peer's turns, unless the peer is destroyed before.
void PeerShell::perform(peer::Compute& action) {
  Computation& where =
      action.what == peer::Compute::What::kTraining ? world_.training : world_.mixing;
  const auto job = std::make_shared<peer::Compute>(std::move(action));
  where.submit([job](unsigned) { job->work(); },
               [job, self = self_] {
                 auto session = std::move(job->session);
                 if (*self != nullptr) (*self)->on(peer::Computed{std::move(session)});
               });
}

void PeerShell::perform(peer::KeepCheckpoint& action) {
  const auto saved = std::make_shared<Result<void>>();
  const auto checkpoint = action.checkpoint;
  world_.disk_work.submit(
      [saved, keep = action, &disk = world_.disk, directory = options_.directory,
       model = model_path()](unsigned) {
        const auto path = directory / "checkpoint.safetensors";
        // The directory may have been removed since the start.
        *saved = disk.make_directory(directory, Disk::Access::kOwner);
        if (*saved) *saved = save_checkpoint(disk, path, *keep.checkpoint, keep.layout);
        if (*saved && keep.model_too) {
          *saved = save_model(disk, model, *keep.checkpoint, keep.layout);
        }
      },
      [saved, checkpoint, with_model = action.model_too, self = self_, &log = world_.log] {
        if (*self != nullptr) {
          if (*saved && with_model) (*self)->note_model(checkpoint->run);
          return (*self)->on(peer::CheckpointKept{checkpoint, *saved});
        }
        if (!*saved) log.warning("the checkpoint is not kept: {}", saved->error().message());
      });
}

void PeerShell::note_model(const std::string& run) {
  if (std::exchange(model_of_, run) == run) return;
  world_.log.info("the model with which the run ended is in {}", model_path().string());
}

std::filesystem::path PeerShell::model_file() const {
  const EpochSession* const session = machine_.session();
  const bool is_over = session == nullptr || machine_.is_finished();
  const bool is_current = session == nullptr || session->run_id() == model_of_;
  return !model_of_.empty() && is_over && is_current ? model_path() : std::filesystem::path();
}

void PeerShell::perform(peer::Report& action) {
  add_links(action.report);
  issuer_.report(action.report);
}

void PeerShell::add_links(protocol::PeerReport& report) const {
  const PeerTransport::Counters counters = links_->counters();
  report.bytes_sent = counters.wire_bytes_out;
  report.bytes_received = counters.wire_bytes_in;
  report.messages = counters.transfers_out;
}

protocol::PeerReport PeerShell::report() const {
  protocol::PeerReport report = machine_.report(world_.scheduler.now(), wall());
  add_links(report);
  return report;
}

// Behind what is to be kept.
void PeerShell::perform(peer::Closed&) {
  if (preparation_) preparation_->cancelled = true;
  world_.disk_work.submit([](unsigned) {}, std::exchange(closed_, nullptr));
}

// --- a run to begin -----------------------------------------------------------------------------

Result<NetworkRun> PeerShell::derive(const identity::Roster& roster) {
  if (data_.rows.dataset == nullptr) {
    return unsupported("no-data",
                       "the run trains a built-in model, and this device has a trainer in place of "
                       "data: start the run with model.kind = \"external\", or give the device "
                       "[data] in edge.toml");
  }
  const data::Dataset& dataset = *data_.rows.dataset;
  if (options_.own_classes) {
    return rejected(
        "text-labels",
        dataset.name() +
            " has texts as labels; in a gossip network write the classes' numbers, from "
            "0, which mean the same on every device");
  }
  STARLING_ASSIGN(NetworkRun run,
                  derive_run(roster, dataset.shape(), dataset.classes(), options_.own));
  const std::vector<std::string>& columns = run.options.data.columns;
  if (rows_.dataset->feature_names() != columns) rows_ = data_.rows;  // as the file has them
  if (!columns.empty()) {
    STARLING_TRY(data::fit_to(rows_.dataset, {columns, dataset.class_names()}));
  } else if (!dataset.feature_names().empty()) {
    world_.log.info(
        "the run does not name its columns (data.columns): those of {} count by position, and must "
        "stand in the same order on all devices",
        dataset.name());
  }
  return run;
}

void PeerShell::perform(peer::Prepare& action) {
  const identity::Roster& roster = action.roster->roster();
  const auto external = is_external(roster, options_.own);
  if (!external) return prepared(action, external.error());
  if (!*external) return prepared(action, derive(roster));
  if (data_.trainer != nullptr) return prepare_with_trainer(action);
  prepared(action,
           unsupported("no-trainer",
                       "the run trains a model of the kind external, and this device has no "
                       "program that does: name it in edge.toml, [trainer] command"));
}

// A trainer that is being started, or makes a large model, must not keep the links waiting. It
// makes none where this member goes on with what it has.
void PeerShell::prepare_with_trainer(const peer::Prepare& wanted) {
  preparation_ = std::make_shared<Preparation>();
  preparation_->wanted = wanted;
  const auto run = std::make_shared<std::optional<Result<NetworkRun>>>();
  world_.training.submit(
      [preparation = preparation_, trainer = data_.trainer, run,
       name = world_.identity.identity().name, warn = trainer_warning()](unsigned) {
        const Retries retries{.attempts_max = 0, .stop = preparation->cancelled, .warn = warn};
        const peer::Prepare& prepare = preparation->wanted;
        run->emplace(with_retries(retries, name, [&] {
          return derive_run(prepare.roster->roster(), {*trainer, name, prepare.held},
                            preparation->cancelled);
        }));
      },
      [preparation = preparation_, run, self = self_] {
        if (*self == nullptr) return;
        (*self)->preparation_.reset();
        (*self)->prepared(preparation->wanted, std::move(**run));
      });
}

void PeerShell::perform(peer::CancelPreparation&) {
  if (preparation_) preparation_->cancelled = true;
}

void PeerShell::prepared(const peer::Prepare& wanted, Result<NetworkRun> run) {
  const identity::Roster& roster = wanted.roster->roster();
  std::optional<Checkpoint> kept;
  if (run && wanted.wants_checkpoint) kept = load_kept(*run, roster.run_identity());
  on(peer::Prepared{roster.epoch, std::move(run), std::move(kept)});
}

std::optional<Checkpoint> PeerShell::load_kept(const NetworkRun& run,
                                               const std::string& run_id) const {
  const auto path = options_.directory / "checkpoint.safetensors";
  auto kept = load_checkpoint(world_.disk, path, run.layout());
  if (!kept) {
    if (kept.error().code() != "file-missing") {
      world_.log.warning("the checkpoint is not used: {}", kept.error().message());
    }
    return std::nullopt;
  }
  if (kept->run != run_id) return std::move(*kept);
  auto state = load_state(world_.disk, path, *kept, std::string(run.plan.traits.name));
  if (state) {
    kept->state = std::move(*state);
  } else {
    world_.log.warning("{}", state.error().message());
  }
  return std::move(*kept);
}

std::shared_ptr<LocalSteps> PeerShell::make_local_steps(const NetworkRun& run, Member self,
                                                        std::uint64_t step,
                                                        std::optional<FallbackPace> pace) {
  if (run.model != nullptr) {
    return std::make_shared<LocalSteps>(run, rows_, self, step, pace);
  }
  return std::make_shared<LocalSteps>(run, *data_.trainer, world_.identity.identity().name,
                                      trainer_warning());
}

std::function<void(const std::string&)> PeerShell::trainer_warning() {
  return [&scheduler = world_.scheduler, self = self_](const std::string& line) {
    scheduler.post([line, self] {
      if (*self != nullptr) (*self)->on(peer::TrainerFailed{line});
    });
  };
}

}  // namespace starling::gossip
