// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/peer_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/durable_file.h"
#include "gossip/peer/held_roster.h"
#include "gossip/peer/local_steps.h"
#include "gossip/peer/make_course.h"
#include "gossip/peer/network_run.h"
#include "gossip/peer/usual_distance.h"
#include "gossip/training/retries.h"

namespace starling::gossip {

using protocol::Parcel;
using protocol::PeerHello;
using protocol::Swim;

namespace {

// Clocks differ so much.
constexpr auto kClockSlack = std::chrono::minutes(5);
// How long the end waits for what is being computed.
constexpr Duration kLastComputation = std::chrono::seconds(5);
// Asks of one member for columns of the model, that wait until it may be read.
constexpr std::ptrdiff_t kAsksMax = 4;

// The settings that do not change with the members.
Settings lasting(Settings settings) {
  std::erase_if(settings, [](const auto& setting) { return setting.first == "topology.nodes"; });
  return settings;
}

}  // namespace

// A job on another thread holds it too, so that nothing is destroyed under its hands.
struct PeerNode::Life {
  Life(const identity::Roster& roster, NetworkRun with_run, Member me)
      : epoch(roster.epoch),
        run_id(roster.run_identity()),
        run_name(roster.run),
        settings(lasting(roster.settings)),
        self(me),
        names(names_of(roster)),
        run(std::move(with_run)) {}

  const protocol::Epoch epoch;
  const std::string run_id;  // Roster::run_identity()
  const std::string run_name;
  const Settings settings;  // lasting()
  const Member self;
  const std::vector<std::string> names;  // of all members
  const NetworkRun run;
  std::shared_ptr<LocalSteps> local;
  std::set<Member> silent;  // were absent when it began, and were not heard since
  std::unique_ptr<Course> course;
  std::unique_ptr<membership::SwimMachine> members;
  std::optional<ModelCopy> copy;
  using Ask = std::pair<Member, protocol::ColumnsAsk>;
  std::vector<Ask> asks;
  std::uint64_t handed_in_at = 0;  // evaluations so far
  struct HeldBack {
    std::optional<TimePoint> until;  // none: the run is over
    std::function<void()> work;
    std::function<void()> done;
  };
  std::optional<HeldBack> held_back;  // a local phase that the pace does not allow yet
};

struct PeerNode::Spell {
  std::string run_id;
  Duration start_patience{};
  std::uint64_t steps_before = 0;
  FallbackPace pace;
  double loss_sum_before = 0;  // in earlier processes, as the next
  std::uint64_t loss_steps_before = 0;
  std::uint64_t exchanges = 0;  // what follows: when the model was last mixed
  std::uint64_t steps = 0;
  double loss_sum = 0;
  std::uint64_t loss_steps = 0;
};

struct PeerNode::Former {
  std::string run_id;
  Settings settings;  // lasting()
  std::shared_ptr<LocalSteps> local;
  protocol::Support support;
  std::optional<Handover> course;
};

// A job on another thread holds it too.
struct PeerNode::Preparation {
  std::shared_ptr<const identity::SignedRoster> roster;
  std::atomic<bool> cancelled = false;
};

PeerNode::PeerNode(World world, Options options, PeerData data, Issuer issuer)
    : world_(world),
      options_(std::move(options)),
      data_(std::move(data)),
      issuer_(std::move(issuer)),
      rng_({.seed = options_.seed,
            .purpose = Purpose::kBackoff,
            .node = hash_name(world.identity.identity().name)}),
      self_(std::make_shared<PeerNode*>(this)),
      links_(world, options_.links,
             {.hello = [this] { return hello(); },
              .on_up = [this](Member m, const PeerHello& h) { on_up(m, h); },
              .on_down = [this](Member m, const Error& e) { on_down(m, e); },
              .on_message = [this](Member m, const protocol::Envelope& e) { on_message(m, e); },
              .judge = [this](Member m, const Parcel& p) { return judge(m, p); },
              .on_parcel = [this](Member m, ParcelFlow::Whole w) { on_parcel(m, std::move(w)); },
              .issuer = issuer_.relay},
             rng_),
      alarm_(world.loop, [this] { tick(); }),
      alive_(world.loop) {}

// A trainer's task would keep the thread for as long as it may take.
PeerNode::~PeerNode() {
  *self_ = nullptr;
  stop_computing();
}

void PeerNode::stop_computing() {
  if (preparation_) preparation_->cancelled = true;
  if (life_) life_->local->cancel();
}

Result<void> PeerNode::start() {
  STARLING_TRY(make_directory(options_.directory, true));
  STARLING_TRY(links_.listen());
  const auto kept = load_held_roster(options_.directory, world_.identity);
  if (kept) {
    if (*kept) take_roster(**kept, Source::kOther);
  } else {
    world_.log.warning("the kept roster is not used: {}", kept.error().message());
  }
  return {};
}

void PeerNode::take_roster(const identity::SignedRoster& roster, Source source) {
  if (stopping_ || (roster_ && !roster.roster().newer_than(roster_->roster()))) return;
  // One that is over has no place beside one that holds: else a lost key of long ago, whose
  // certificate was good when the roster says that it was signed, could end any network.
  if (roster_ && source == Source::kOther && !roster_->roster().expired(judged_now()) &&
      roster.roster().expired(judged_now())) {
    return;
  }
  if (roster_ && !roster.roster().replaces(roster_->roster())) {
    return world_.log.warning(
        "a roster of epoch {} that says other things than the one held is not taken: its issuer "
        "must give it a later epoch",
        roster.roster().epoch);
  }
  const protocol::Epoch epoch = roster.roster().epoch;
  const bool has_failed = failure_ && failure_->epoch == epoch;
  const bool is_prepared = preparation_ && preparation_->roster->roster().epoch == epoch;
  const bool same_epoch = (life_ && life_->epoch == epoch) || has_failed || is_prepared;
  if (std::exchange(expired_, false)) problem_ = has_failed ? failure_->problem : "";
  if (!same_epoch) switching_ = true;  // from here on members are those of the next epoch
  roster_ = std::make_shared<const identity::SignedRoster>(roster);
  taken_at_ = now();
  const WallTime wall = world_.clock.wall_now();
  clock_is_wrong_ = source == Source::kIssuer &&
                    (wall < roster.roster().issued - kClockSlack || roster.roster().expired(wall));
  if (const auto saved = hold_roster(options_.directory, roster); !saved) {
    world_.log.warning("the roster is not kept for the next start: {}", saved.error().message());
  }
  links_.set_roster(roster_);  // who is no member any more is cut off before anything else
  // Neighbours without a link to the issuer hear of it here.
  for (const auto& [member, theirs] : links_.all_up()) links_.send(member, hello());
  if (same_epoch) return keep_links();
  if (!is_computing()) return adopt();
  leave_trainer();
}

void PeerNode::keep_links() {
  const auto neighbours = life_ ? life_->course->neighbours() : std::vector<Member>();
  links_.keep(std::set<Member>(neighbours.begin(), neighbours.end()));
}

// Whether a thread is at work for the course.
bool PeerNode::is_computing() const {
  return preparation_ || (life_ && life_->course->is_computing() && !life_->held_back);
}

bool PeerNode::is_member() const { return gossip::is_member(roster_->roster(), world_.identity); }

// What the roster held means from here on; only while nothing is computed, so that what was learnt
// goes on. See hand_over() for a local phase that is still to be mixed.
void PeerNode::adopt() {
  const identity::Roster& roster = roster_->roster();
  if (life_) {
    const bool run_ends = roster.stopped() || roster.run_identity() != life_->run_id;
    keep_checkpoint(run_ends ? Kept::kModelToo : Kept::kCheckpoint);
    send_report();  // the counts of steps and losses end with the life
    former_.reset();
    if (!run_ends && !life_->held_back) hand_over();
  }
  end_life();
  switching_ = false;
  if (stopping_) return;
  if (expired_) {  // the course may have cleared it on its last steps
    problem_ = expiry();
    return set_alarm();
  }
  failure_.reset();
  problem_.clear();
  if (roster.expired(judged_now())) return expire();
  if (roster.stopped()) {
    world_.log.info("run {} was ended by its issuer", roster.run);
    return set_alarm();
  }
  const auto self = roster.find(world_.identity.identity().name);
  const bool stands_by =
      is_fallback(roster.settings) && (!spell_ || spell_->run_id != roster.run_identity());
  world_.log.info("roster {} of run {}: {} until {}{}", roster.epoch, roster.run,
                  counted(roster.members.size(), "member"), format_rfc3339(roster.expires),
                  stands_by ? ", should the coordinator be gone" : "");
  if (self && !roster.members[*self].address.empty() && !options_.links.listen) {
    world_.log.warning(
        "others dial this device at {}, as the roster says, but it does not listen: set "
        "gossip.listen",
        roster.members[*self].address);
  }
  if (!self || !is_member()) {
    problem_ = "this device is not a member of the roster";
    world_.log.warning("{}: waiting for another", problem_);
  } else if (stands_by) {
    return set_alarm();
  } else if (const auto begun = begin_life(*self); !begun) {
    failed(begun.error());
  }
  set_alarm();
}

WallTime PeerNode::judged_now() const {
  const WallTime known = std::max(
      world_.identity.last_authenticated(),
      roster_->roster().issued + std::chrono::floor<std::chrono::milliseconds>(now() - taken_at_));
  return clock_is_wrong_ ? known : std::max(known, world_.clock.wall_now());
}

std::string PeerNode::expiry() const {
  return fmt::format("the roster expired at {}", format_rfc3339(roster_->roster().expires));
}

void PeerNode::expire() {
  problem_ = expiry();
  world_.log.warning("{}: no peer is a member any more; waiting for its issuer", problem_);
  expired_ = true;
  switching_ = true;
  links_.set_roster(nullptr);
  if (!is_computing()) return adopt();
  leave_trainer();
}

// --- while the coordinator is gone --------------------------------------------------------------

std::optional<FallbackTerms> PeerNode::standby() const {
  if (!roster_ || roster_->roster().expired(judged_now()) || !is_member()) return std::nullopt;
  const auto terms = read_fallback(roster_->roster().settings);
  return terms ? *terms : std::nullopt;
}

Result<void> PeerNode::begin_with(const fallback::Begin& begin) {
  const auto terms = standby();
  if (!terms || life_) return rejected("no-fallback", "no roster stands by");
  const identity::Roster& roster = roster_->roster();
  const fallback::Trained& from = begin.from;
  const auto* floats = reinterpret_cast<const float*>(from.model.view().data());
  const std::string run = roster.run_identity();
  former_.reset();
  start_.reset();
  latest_ = Checkpoint{run, from.exchanges, {floats, floats + from.model.size() / sizeof(float)}};
  const double loss_sum = from.loss * static_cast<double>(from.steps);
  spell_ = std::make_unique<Spell>(Spell{.run_id = run,
                                         .start_patience = terms->after,
                                         .steps_before = begin.steps_before,
                                         .pace = begin.pace,
                                         .loss_sum_before = loss_sum,
                                         .loss_steps_before = from.steps,
                                         .exchanges = from.exchanges,
                                         .steps = from.steps,
                                         .loss_sum = loss_sum,
                                         .loss_steps = from.steps});
  auto begun = begin_life(*roster.find(world_.identity.identity().name));
  if (!begun) failed(begun.error());
  set_alarm();
  return begun;
}

// What lies after the last mixing is no network's yet.
std::optional<fallback::Trained> PeerNode::gossiped() const {
  if (!spell_ || !latest_ || latest_->run != spell_->run_id) return std::nullopt;
  const double loss =
      spell_->loss_steps > 0 ? spell_->loss_sum / static_cast<double>(spell_->loss_steps) : 0.0;
  const std::span<const float> model(latest_->model);
  return fallback::Trained{.model = SharedBytes::own(to_bytes(as_bytes(model))),
                           .exchanges = spell_->exchanges,
                           .steps = spell_->steps,
                           .loss = loss};
}

std::optional<fallback::Trained> PeerNode::rest() {
  auto trained = gossiped();
  spell_.reset();
  if (!trained) return std::nullopt;
  end_life();
  if (ended_) ended_->reachable.reset();  // whoever heard of the coordinator earlier seemed dead
  latest_.reset();
  keep_links();
  if (switching_) {
    adopt();
  } else {
    set_alarm();
  }
  return trained;
}

// --- an epoch's life ----------------------------------------------------------------------------

void PeerNode::load_latest(const NetworkRun& run) {
  const auto path = options_.directory / "checkpoint.safetensors";
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return;
  auto kept = load_checkpoint(path, run.layout());
  if (!kept) {
    return world_.log.warning("the checkpoint is not used: {}", kept.error().message());
  }
  latest_ = std::move(*kept);
  if (latest_->run != roster_->roster().run_identity()) return;
  auto state = load_state(path, *latest_, std::string(run.plan.traits.name));
  if (state) {
    latest_->state = std::move(*state);
  } else {
    world_.log.warning("{}", state.error().message());
  }
}

// What this life would go on with.
Checkpoint PeerNode::checkpoint_now(std::span<const float> model) const {
  return {.run = life_->run_id,
          .exchange = life_->course->progress().exchange,
          .model = {model.begin(), model.end()},
          .state = {.algorithm = std::string(life_->run.plan.traits.name),
                    .epoch = life_->epoch,
                    .bytes = life_->course->state()},
          .support = life_->course->support()};
}

CourseStart PeerNode::course_start(const NetworkRun& run) {
  CourseStart start;
  start.incarnation = rng_.next_u32() | 1U;
  if (!latest_) load_latest(run);
  const std::string id = roster_->roster().run_identity();
  if (latest_ && latest_->run == id && latest_->model.size() == run.initial.size()) {
    start.exchange = latest_->exchange;
    start.support = latest_->support;
    start.model = latest_->model;
    // Weights are shares of what one epoch's members hold together: in another all begin with 1.
    const KeptState& kept = latest_->state;
    const bool same_epoch = kept.epoch == roster_->roster().epoch;
    const AlgorithmTraits& traits = run.plan.traits;
    if (kept.algorithm == traits.name && (same_epoch || !traits.weighs)) start.state = kept.bytes;
    if (start.exchange > 0) world_.log.info("goes on from exchange {}", start.exchange);
  } else {
    start.model.assign(run.initial.values().begin(), run.initial.values().end());
  }
  return start;
}

// The local phase that waits to be mixed, the algorithm's state and the order of batches continue
// in the next epoch. What an algorithm shares with the members begins anew (Algorithm::regroup).
void PeerNode::hand_over() {
  former_ = std::make_unique<Former>(Former{.run_id = life_->run_id,
                                            .settings = life_->settings,
                                            .local = life_->local,
                                            .support = life_->course->support(),
                                            .course = life_->course->hand_over()});
}

// For members that were never heard: they may be starting, as long as the run itself is. Later on
// no epoch waits longer for them than twice a local phase.
Duration PeerNode::start_patience() {
  const std::string id = roster_->roster().run_identity();
  if (!start_ || start_->run_id != id) start_ = Start{.run_id = id, .at = now()};
  const Duration most = spell_ ? spell_->start_patience : options_.start_patience;
  const Duration left = most - (now() - start_->at);
  return std::min(most, std::max(left, options_.patience_min + 2 * start_->computing_max));
}

// Who was not there in the life before, or not since it was absent from an earlier one. A change of
// epoch must not cost a network that runs the time in which another one is started; one that has
// not begun, and another run, is started.
std::set<Member> PeerNode::absent(Member self) const {
  std::set<Member> absent;
  const identity::Roster& roster = roster_->roster();
  const bool runs = ended_ && ended_->reachable && ended_->run_id == roster.run_identity() &&
                    ended_->progress.exchange > 0;
  if (!runs) return absent;
  for (Member member = 0; member < roster.members.size(); ++member) {
    const auto known = ended_->reachable->find(roster.members[member].name);
    const bool was_there = known != ended_->reachable->end() && known->second;
    if (member != self && !was_there) absent.insert(member);
  }
  return absent;
}

Result<void> PeerNode::begin_life(Member self) {
  const identity::Roster& roster = roster_->roster();
  STARLING_ASSIGN(const bool external, is_external(roster));
  if (external && data_.trainer == nullptr) {
    return unsupported("no-trainer",
                       "the run trains a model of the kind external, and this device has no "
                       "program that does: name it in edge.toml, [trainer] command");
  }
  if (external) {
    prepare(self);
    return {};
  }
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
  STARLING_ASSIGN(NetworkRun run, derive_run(roster, dataset.shape(), dataset.classes()));
  return begin_life(self, std::move(run));
}

// A trainer that is being started, or makes a large model, must not keep the links waiting. It
// makes none where this member goes on with what it has.
void PeerNode::prepare(Member self) {
  const std::string id = roster_->roster().run_identity();
  const std::size_t held = latest_ && latest_->run == id ? latest_->model.size() : 0;
  preparation_ = std::make_shared<Preparation>();
  preparation_->roster = roster_;
  pool_.submit([preparation = preparation_, self, held, trainer = data_.trainer,
                &loop = world_.loop, name = world_.identity.identity().name, node = self_,
                warn = trainer_warning()](unsigned) {
    const Retries retries{.attempts_max = 0, .stop = preparation->cancelled, .warn = warn};
    const identity::Roster& roster = preparation->roster->roster();
    auto run = std::make_shared<Result<NetworkRun>>(with_retries(retries, name, [&] {
      return derive_run(roster, {*trainer, name, held}, preparation->cancelled);
    }));
    loop.post([preparation, self, run, node] {
      if (*node != nullptr) (*node)->prepared(*preparation, self, std::move(*run));
    });
  });
}

std::function<void(const std::string&)> PeerNode::trainer_warning() {
  return [&loop = world_.loop, node = self_](const std::string& line) {
    loop.post([line, node] {
      if (*node != nullptr) (*node)->trainer_failed(line);
    });
  };
}

void PeerNode::trainer_failed(const std::string& line) {
  trainer_fails_ = true;
  say(LogLevel::kWarning, line);
  if (switching_) leave_trainer();
}

// A trainer's task may take long, and be repeated without end: a new roster does not wait for one
// whose result it makes useless.
void PeerNode::leave_trainer() {
  if (preparation_) preparation_->cancelled = true;
  if (!life_) return;
  const identity::Roster& roster = roster_->roster();
  const bool run_goes_on = !expired_ && !roster.stopped() && roster.run_identity() == life_->run_id;
  if (!run_goes_on || trainer_fails_) life_->local->cancel();
}

void PeerNode::prepared(const Preparation& preparation, Member self, Result<NetworkRun> run) {
  const auto ended = std::exchange(preparation_, nullptr);
  if (stopping_) return;
  if (switching_ || preparation.roster->roster().epoch != roster_->roster().epoch) return adopt();
  trainer_fails_ = false;
  problem_.clear();
  if (!run) {
    failed(run.error());
  } else if (const auto begun = begin_life(self, std::move(*run)); !begun) {
    failed(begun.error());
  }
  set_alarm();
}

Result<void> PeerNode::begin_life(Member self, NetworkRun run) {
  const identity::Roster& roster = roster_->roster();
  if (spell_ && latest_->model.size() != run.initial.size()) {
    return rejected("wrong-vectors", "the model that is held is not of the roster's run");
  }
  CourseStart start = course_start(run);
  const std::unique_ptr<Former> former = std::move(former_);
  const bool continues = former && former->run_id == roster.run_identity() &&
                         former->settings == lasting(roster.settings);
  if (continues && former->course) {
    start.exchange = former->course->exchange;
    start.support = former->support;
    start.state.clear();
    start.former = std::make_shared<Handover>(std::move(*former->course));
  }
  const std::uint64_t step = run.options.schedule().after(start.exchange);
  life_ = std::make_shared<Life>(roster, std::move(run), self);
  const std::uint64_t steps_before = spell_ ? spell_->steps_before : 0;
  if (continues) {
    life_->local = former->local;
    life_->local->resume();
  } else if (life_->run.model == nullptr) {
    life_->local = std::make_shared<LocalSteps>(life_->run, *data_.trainer, life_->names[self],
                                                trainer_warning());
  } else {
    life_->local =
        std::make_shared<LocalSteps>(life_->run, data_.rows, self, step + steps_before,
                                     spell_ ? std::optional(spell_->pace) : std::nullopt);
  }
  life_->handed_in_at = step / life_->run.options.evaluate_every();
  const std::set<Member> away = absent(self);
  life_->silent = away;
  CoursePlace place{.epoch = roster.epoch, .self = self, .names = life_->names, .absent = away};
  life_->course = make_course(
      life_->run, *life_->local, *this, std::move(place),
      {.min = options_.patience_min, .max = options_.patience_max, .start = start_patience()},
      std::move(start));
  life_->members = std::make_unique<membership::SwimMachine>(
      options_.membership, roster.epoch, self, static_cast<std::uint32_t>(roster.members.size()),
      Rng({.seed = options_.seed, .purpose = Purpose::kBackoff, .node = rng_.next_u64()}), now());
  links_.set_messages_max(messages_of_use(life_->run));
  keep_links();
  checkpoint_at_ = now() + options_.checkpoint_every;
  report_at_ = now();
  reported_loss_ = 0;
  reported_steps_ = 0;
  life_->course->begin();
  // Links that outlast an epoch: both sides say where they are now. The link of who is away may
  // only look whole: it has to say so itself.
  for (const auto& [member, theirs] : links_.all_up()) {
    links_.send(member, hello());
    if (away.contains(member) && theirs.epoch != roster.epoch) continue;
    PeerHello unknown = theirs;
    unknown.epoch = roster.epoch;
    unknown.begun = false;
    on_up(member, unknown);
  }
  return {};
}

void PeerNode::end_life() {
  unsent_.clear();  // of members that may have other places from now on
  assemblers_.clear();
  if (!life_) return;
  if (life_->course->is_computing()) life_->local->cancel();
  traffic_before_ = traffic();
  std::map<std::string, bool> reachable;
  for (Member member = 0; member < life_->names.size(); ++member) {
    reachable[life_->names[member]] =
        life_->members->state(member) != protocol::SwimNews::State::kDead &&
        !life_->silent.contains(member);
  }
  ended_ = Ended{.run_id = life_->run_id,
                 .run_name = life_->run_name,
                 .progress = life_->course->progress(),
                 .reachable = std::move(reachable)};
  life_.reset();
}

// --- what a course asks for ---------------------------------------------------------------------

void PeerNode::send(Member to, Parcel parcel, SharedBytes data) {
  if (switching_) return;  // the links' members are those of the next epoch already
  parcel.epoch = life_->epoch;
  if (!links_.is_up(to)) links_.reach(to);  // the course sends again what it missed
  links_.send_parcel(to, parcel, std::move(data), ParcelFlow::Urgency::kNow);
}

void PeerNode::send(Member to, protocol::ReduceNote note) {
  if (switching_) return;
  note.epoch = life_->epoch;
  links_.send(to, note);
}

void PeerNode::compute(std::function<void()> work, std::function<void()> done) {
  pool_.submit([life = life_, work = std::move(work), done = std::move(done), began = now(),
                &loop = world_.loop, self = self_](unsigned) mutable {
    work();
    loop.post([life = std::move(life), done = std::move(done), began, self = std::move(self)] {
      if (*self == nullptr || (*self)->life_ != life) return;
      (*self)->computed(done, began);
    });
  });
}

void PeerNode::train(std::uint64_t step, std::function<void()> work, std::function<void()> done) {
  const auto due = spell_ ? spell_->pace.due(step) : now();
  if (due && *due <= now()) return compute(std::move(work), std::move(done));
  life_->held_back = Life::HeldBack{due, std::move(work), std::move(done)};
}

void PeerNode::computed(const std::function<void()>& done, TimePoint began) {
  start_->computing_max = std::max(start_->computing_max, now() - began);
  done();
  if (switching_ && !is_computing()) adopt();
  if (life_) answer_asks();
  set_alarm();
}

void PeerNode::copy_model(std::vector<Member> donors) {
  life_->copy.emplace(std::move(donors), life_->run.initial.size(), options_.patience_max);
  continue_copy();
}

void PeerNode::continue_copy() {
  Life& life = *life_;
  if (!life.copy || switching_) return;
  for (const ModelCopy::Ask& ask : life.copy->asks(now())) {
    protocol::ColumnsAsk columns = ask.columns;
    columns.epoch = life.epoch;
    if (links_.is_up(ask.to)) {
      links_.send(ask.to, columns);
    } else {
      life.copy->lose(ask.to);
    }
  }
  if (life.copy->failed()) {
    life.copy.reset();
    life.course->not_copied();
  } else if (life.copy->done()) {
    const ModelCopy copy = std::move(*life.copy);
    life.copy.reset();
    life.course->copied(copy.progress(), copy.model());
  }
}

void PeerNode::say(LogLevel level, std::string line) {
  if (level >= LogLevel::kWarning) problem_ = line;
  world_.log.write(level, line);
}

void PeerNode::advanced() {
  const CourseProgress progress = life_->course->progress();
  if (progress.heard == progress.expected) problem_.clear();
  answer_asks();  // who never waits for others has its model to show at no other moment
  if (spell_) return note_spell();
  if (life_->run.model == nullptr) {
    trainer_fails_ = false;
    // Its next task may be cancelled, and what the algorithm holds is of no use then.
    if (const auto model = life_->course->model()) latest_ = checkpoint_now(*model);
  }
  look_at_model();
  if (now() < checkpoint_at_) return;
  checkpoint_at_ = now() + options_.checkpoint_every;
  keep_checkpoint(Kept::kCheckpoint);
}

// The course's model cannot be had while it trains.
void PeerNode::note_spell() {
  const auto model = life_->course->model();
  if (!model) return;
  const CourseProgress progress = life_->course->progress();
  latest_ = Checkpoint{.run = life_->run_id,
                       .exchange = progress.exchange,
                       .model = {model->begin(), model->end()},
                       .support = life_->course->support()};
  spell_->exchanges = progress.exchange;
  spell_->steps = progress.step;
  spell_->loss_sum = spell_->loss_sum_before + progress.loss_sum;
  spell_->loss_steps = spell_->loss_steps_before + progress.loss_steps;
}

void PeerNode::finished() {
  problem_.clear();
  world_.log.info("the run is finished: {}", counted(life_->run.options.run.steps, "step"));
  const std::uint64_t alone = life_->course->progress().loss_steps;
  if (arrived_in_ != life_->run_id && alone > 0 && !life_->course->neighbours().empty()) {
    problem_ = fmt::format(
        "no neighbour was ever heard: {} on this device's own data alone; check the members' "
        "addresses and firewalls",
        counted(alone, "step"));
    world_.log.warning("{}", problem_);
  }
  look_at_model();
  keep_checkpoint(Kept::kModelToo);
  answer_asks();  // nothing is computed any more that would be followed by it
  send_report();
}

void PeerNode::failed(Error error) {
  if (switching_ && life_ && life_->run.model == nullptr) {  // cancelled for the next roster
    former_.reset();
    write_checkpoint(Kept::kModelToo);
    return end_life();
  }
  problem_ = error.message();
  world_.log.error("the run cannot go on: {}", problem_);
  failure_ = {life_ ? life_->epoch : roster_->roster().epoch, problem_};
  former_.reset();
  end_life();
  send_report();
}

// At every evaluation of the run its issuer may want the model.
void PeerNode::look_at_model() {
  const auto model = life_->course->model();
  if (!model) return;
  const CourseProgress progress = life_->course->progress();
  const bool last = life_->course->is_finished();
  const NetOptions& options = life_->run.options;
  const std::uint64_t evaluation = progress.step / options.evaluate_every();
  // Less far, where the model of a quorum took the place of one that was learned apart.
  if (progress.exchange == 0 || (evaluation <= life_->handed_in_at && !last)) return;
  life_->handed_in_at = evaluation;
  // Who has left out exchanges hands in for the evaluation that they went past.
  const std::uint64_t due =
      last ? progress.exchange
           : options.schedule().mixings_until(evaluation * options.evaluate_every());
  Parcel parcel{.kind = Parcel::Kind::kModel,
                .epoch = life_->epoch,
                .exchange = due - 1,  // the last that is in it
                .place = progress.step,
                .first = model->size()};
  send_report();  // first: what is said of this model is to be known when it is there
  issuer_.hand_in(parcel, SharedBytes::own(to_bytes(as_bytes(*model))));
}

void PeerNode::keep_checkpoint(Kept kept) {
  const auto model = life_->course->model();
  if (!model || spell_) return;
  latest_ = checkpoint_now(*model);  // a life may end while its model is being computed
  write_checkpoint(kept);
}

void PeerNode::write_checkpoint(Kept kept) {
  if (!latest_ || latest_->run != life_->run_id) return;
  const auto checkpoint = std::make_shared<const Checkpoint>(*latest_);
  disk_.submit([this, checkpoint, kept, layout = life_->run.layout()](unsigned) {
    auto saved =
        save_checkpoint(options_.directory / "checkpoint.safetensors", *checkpoint, layout);
    if (saved && kept == Kept::kModelToo) {
      saved = save_model(options_.directory / "model.safetensors", *checkpoint, layout);
    }
    if (!saved) world_.log.warning("the checkpoint is not kept: {}", saved.error().message());
  });
}

// --- links --------------------------------------------------------------------------------------

PeerHello PeerNode::hello() const {
  PeerHello hello{.software = options_.software};
  if (roster_) hello.epoch = roster_->roster().epoch;
  if (life_ && life_->epoch == hello.epoch) {  // not of a run that is about to be left
    hello.exchange = life_->course->progress().exchange;
    hello.begun = true;
    hello.support = life_->course->support();
  }
  return hello;
}

void PeerNode::on_up(Member member, const PeerHello& hello) {
  if (!roster_) return;
  const protocol::Epoch ours = roster_->roster().epoch;
  links_.send(member, issuer::ask_for_newer(&roster_->roster()));
  if (!life_ || switching_ || hello.epoch != ours) return;
  heard(member);
  const auto unsent = unsent_.find(member);
  if (unsent != unsent_.end()) {
    links_.send(member, unsent->second);
    unsent_.erase(unsent);
  }
  life_->course->told(member, hello);
  set_alarm();
}

void PeerNode::heard(Member member) {
  life_->silent.erase(member);
  on_swim(life_->members->on(membership::Heard{member}, now()));
}

void PeerNode::on_down(Member member, const Error&) {
  assemblers_.erase(member);
  unsent_.erase(member);
  if (!life_ || switching_) return;
  life_->course->link_lost(member);
  if (life_->copy) life_->copy->lose(member);
  std::erase_if(life_->asks, [&](const auto& ask) { return ask.first == member; });
  on_swim(life_->members->on(membership::LinkLost{member}, now()));
  continue_copy();
  set_alarm();
}

void PeerNode::on_message(Member from, const protocol::Envelope& envelope) {
  const protocol::Message& message = envelope.message;
  if (const auto* ask = std::get_if<protocol::RosterAsk>(&message)) {
    for (const auto& part : issuer::roster_parts(*roster_, *ask)) {
      links_.send(from, part.message, part.payload);
    }
    return;
  }
  if (const auto* part = std::get_if<protocol::RosterPart>(&message)) {
    return take_roster_part(from, *part, envelope.payload);
  }
  if (const auto* ping = std::get_if<protocol::Ping>(&message)) {
    return links_.send(from, protocol::Pong{ping->nonce});
  }
  if (const auto* hello = std::get_if<PeerHello>(&message)) {
    return on_up(from, *hello);
  }
  if (!life_ || switching_) return;
  if (const auto* swim = std::get_if<Swim>(&message)) {
    if (swim->epoch == life_->epoch) life_->silent.erase(from);
    on_swim(life_->members->on(membership::Received{from, *swim}, now()));
  } else if (const auto* ask_columns = std::get_if<protocol::ColumnsAsk>(&message)) {
    const auto waiting = std::ranges::count(life_->asks, from, &Life::Ask::first);
    if (ask_columns->epoch == life_->epoch && waiting < kAsksMax) {
      life_->asks.emplace_back(from, *ask_columns);
    }
    answer_asks();
  } else if (const auto* note = std::get_if<protocol::ReduceNote>(&message)) {
    if (note->epoch == life_->epoch) life_->course->take(from, *note);
  }
  set_alarm();
}

Result<void> PeerNode::judge(Member from, const Parcel& parcel) {
  if (!life_ || switching_ || parcel.epoch != life_->epoch) {
    return rejected("other-epoch", "this peer is not in that epoch");
  }
  if (parcel.kind != Parcel::Kind::kColumns) {
    auto judged = life_->course->judge(from, parcel);
    if (!judged) {
      life_->course->overheard(from, parcel);
      set_alarm();
    }
    return judged;
  }
  if (life_->copy && life_->copy->expects(from, parcel)) return {};
  return rejected("not-wanted", "these columns were not asked for");
}

void PeerNode::on_parcel(Member from, ParcelFlow::Whole whole) {
  if (!life_ || switching_ || whole.parcel.epoch != life_->epoch) return;
  heard(from);
  ++arrived_;
  if (arrived_in_ != life_->run_id) arrived_in_ = life_->run_id;
  if (whole.parcel.kind != Parcel::Kind::kColumns) {
    life_->course->take(from, std::move(whole));
  } else if (life_->copy && life_->copy->expects(from, whole.parcel)) {
    const std::span<const float> columns(reinterpret_cast<const float*>(whole.data.view().data()),
                                         whole.parcel.first);
    const auto own = life_->course->model();
    const bool fits = own ? UsualDistance::may_be_of_this_run(
                                columns, own->subspan(whole.parcel.place, columns.size()))
                          : is_finite(columns);
    if (fits) {
      life_->copy->take(from, whole.parcel, columns);
    } else {
      world_.log.warning("{} gives a model that is none of this run: not copied",
                         life_->names[from]);
      life_->copy->lose(from);
    }
    continue_copy();
  }
  set_alarm();
}

// Behind what is urgent, so that whoever copies holds nobody up.
void PeerNode::answer_asks() {
  const auto model = life_->course->model();
  if (!model || life_->asks.empty()) return;
  const CourseProgress progress = life_->course->progress();
  for (const auto& [to, ask] : std::exchange(life_->asks, {})) {
    if (ask.end > model->size()) continue;
    const auto columns = model->subspan(ask.begin, ask.end - ask.begin);
    Parcel parcel{.kind = Parcel::Kind::kColumns,
                  .epoch = life_->epoch,
                  .exchange = progress.exchange,
                  .place = ask.begin,
                  .first = columns.size(),
                  .support = life_->course->support()};
    links_.send_parcel(to, parcel, SharedBytes::own(to_bytes(as_bytes(columns))),
                       ParcelFlow::Urgency::kBackground);
  }
}

void PeerNode::take_roster_part(Member from, const protocol::RosterPart& part,
                                const SharedBytes& piece) {
  const auto taken =
      assemblers_[from].take(part, piece.view(), roster_ ? &roster_->roster() : nullptr);
  if (taken.ask) links_.send(from, *taken.ask);
  if (!taken.whole) return;
  const auto roster = verify_roster(*taken.whole, world_.identity);
  if (roster) {
    take_roster(*roster, Source::kOther);
  } else {
    world_.log.warning("a peer passed on a bad roster: {}", roster.error().message());
  }
}

// --- failure detection --------------------------------------------------------------------------

void PeerNode::on_swim(const std::vector<membership::Action>& actions) {
  for (const membership::Action& action : actions) {
    if (const auto* send = std::get_if<membership::Send>(&action)) {
      if (links_.is_up(send->to)) {
        links_.send(send->to, send->swim);
      } else {
        unsent_[send->to] = send->swim;
        links_.reach(send->to);
      }
    } else if (const auto* changed = std::get_if<membership::Changed>(&action)) {
      const bool reachable = changed->state != protocol::SwimNews::State::kDead;
      const std::string& name = roster_->roster().members[changed->member].name;
      world_.log.debug("{} is {}", name, reachable ? "reachable" : "not reachable");
      if (life_) life_->course->reach(changed->member, reachable);
    }
  }
}

// --- time ---------------------------------------------------------------------------------------

void PeerNode::tick() {
  if (stopping_) return;
  if (roster_ && !expired_ && roster_->roster().expired(judged_now())) expire();
  if (life_ && !switching_) {
    if (life_->held_back && life_->held_back->until && *life_->held_back->until <= now()) {
      const Life::HeldBack phase = *std::exchange(life_->held_back, std::nullopt);
      compute(phase.work, phase.done);
    }
    on_swim(life_->members->on(membership::Tick{}, now()));
    if (life_) life_->course->tick();
    if (life_) continue_copy();
  }
  if (now() >= report_at_) send_report();
  set_alarm();
}

void PeerNode::set_alarm() {
  if (stopping_ || !roster_) return;
  TimePoint next = report_at_;
  if (life_ && !switching_) {
    const auto sooner = [&](std::optional<TimePoint> time) {
      if (time) next = std::min(next, *time);
    };
    sooner(life_->members->next_deadline());
    sooner(life_->course->next_deadline());
    if (life_->copy) sooner(life_->copy->next_deadline());
    if (life_->held_back) sooner(life_->held_back->until);
  }
  alarm_.set(next);
}

// Of all lives.
Traffic PeerNode::traffic() const {
  Traffic sum = traffic_before_;
  if (life_) sum += life_->course->progress().traffic;
  return sum;
}

protocol::PeerReport PeerNode::report() const {
  protocol::PeerReport report;
  if (roster_) report.epoch = roster_->roster().epoch;
  report.problem = problem_;
  const PeerLinks::Counters counters = links_.counters();
  report.bytes_sent = counters.wire_bytes_out;
  report.bytes_received = counters.wire_bytes_in;
  report.messages = counters.parcels_out;
  report.arrived = arrived_;
  const Traffic traffic = this->traffic();
  report.late = traffic.late;
  report.lost = traffic.lost;
  report.staleness = traffic.staleness;
  report.state = !roster_ || preparation_ ? "joining" : standby() ? "fallback-roster" : "refused";
  if (roster_ && roster_->roster().stopped()) report.state = "ended";
  if (!life_) {
    if (!ended_) return report;
    const identity::Roster& roster = roster_->roster();
    const bool same_run =
        roster.stopped() ? roster.run == ended_->run_name : roster.run_identity() == ended_->run_id;
    if (!same_run) return report;
    report.exchange = ended_->progress.exchange;
    report.step = ended_->progress.step;
    return report;
  }
  const CourseProgress progress = life_->course->progress();
  report.exchange = progress.exchange;
  report.step = progress.step;
  report.state = progress.state;
  report.neighbours = progress.heard;
  report.expected = progress.expected;
  report.reachable = static_cast<std::uint32_t>(life_->members->reachable());
  report.loss_steps = progress.loss_steps - reported_steps_;
  if (report.loss_steps > 0) {
    report.loss = (progress.loss_sum - reported_loss_) / static_cast<double>(report.loss_steps);
  }
  return report;
}

void PeerNode::send_report() {
  report_at_ = now() + options_.report_every;
  issuer_.report(report());
  if (!life_) return;
  const CourseProgress progress = life_->course->progress();
  reported_loss_ = progress.loss_sum;
  reported_steps_ = progress.loss_steps;
}

// --- the end ------------------------------------------------------------------------------------

bool PeerNode::is_finished() const { return life_ && life_->course->is_finished(); }

net::Async<void> PeerNode::sleep_until_stopped() {
  while (!stopping_) {
    const TimePoint tomorrow = world_.loop.now() + std::chrono::hours(24);
    co_await net::sleep_until(world_.loop, tomorrow);
  }
}

net::Async<void> PeerNode::run() {
  alive_.spawn(sleep_until_stopped());
  co_await alive_.wait();
  co_await links_.stop();
  alarm_.clear();
  if (preparation_) preparation_->cancelled = true;
  // What is being computed comes to its end, so that the checkpoint is of now; H steps may be many.
  const TimePoint until = now() + kLastComputation;
  while (now() < until && is_computing()) {
    const TimePoint next = now() + std::chrono::milliseconds(10);
    co_await net::sleep_until(world_.loop, next);
  }
  if (life_) keep_checkpoint(is_finished() ? Kept::kModelToo : Kept::kCheckpoint);
  if (life_ && life_->run.model == nullptr && is_computing()) write_checkpoint(Kept::kCheckpoint);
  stop_computing();
  life_.reset();
  disk_.for_each(1, [](std::size_t, unsigned) {});  // what was to be kept is kept
}

void PeerNode::request_stop() {
  stopping_ = true;
  alive_.cancel();
}

}  // namespace starling::gossip
