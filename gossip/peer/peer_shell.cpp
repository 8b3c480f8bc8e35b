// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/peer_shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/check.h"
#include "core/base/counted.h"
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
struct PeerShell::Session {
  Session(const identity::Roster& roster, NetworkRun with_run, Member me)
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

struct PeerShell::Fallback {
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

struct PeerShell::Former {
  std::string run_id;
  Settings settings;  // lasting()
  std::shared_ptr<LocalSteps> local;
  protocol::Support support;
  std::optional<Handover> course;
};

// A job on another thread holds it too.
struct PeerShell::Preparation {
  std::shared_ptr<const identity::SignedRoster> roster;
  std::atomic<bool> cancelled = false;
};

PeerShell::PeerShell(World world, Options options, PeerData data, Issuer issuer)
    : world_(world),
      options_(std::move(options)),
      data_(std::move(data)),
      issuer_(std::move(issuer)),
      rng_({.seed = options_.seed,
            .purpose = Purpose::kBackoff,
            .node = hash_name(world.identity.identity().name)}),
      self_(std::make_shared<PeerShell*>(this)),
      links_(world.connect(
          {.hello = [this] { return hello(); },
           .on_up = [this](Member m, const PeerHello& h) { on_up(m, h); },
           .on_down = [this](Member m, const Error& e) { on_down(m, e); },
           .on_message = [this](Member m, const protocol::Envelope& e) { on_message(m, e); },
           .check = [this](Member m, const Parcel& p) { return check(m, p); },
           .on_parcel = [this](Member m, ParcelFlow::Whole w) { on_parcel(m, std::move(w)); }})),
      timer_(world.scheduler.make_timer([this] { tick(); })) {}

// A trainer's task would keep the thread for as long as it may take.
PeerShell::~PeerShell() {
  *self_ = nullptr;
  stop_computing();
}

void PeerShell::stop_computing() {
  if (preparation_) preparation_->cancelled = true;
  if (session_) session_->local->cancel();
}

Result<void> PeerShell::start() {
  STARLING_TRY(world_.disk.make_directory(options_.directory, Disk::Access::kOwner));
  const auto kept = load_held_roster(world_.disk, options_.directory, world_.identity);
  if (kept) {
    if (*kept) take_roster(**kept, Source::kOther);
  } else {
    world_.log.warning("the kept roster is not used: {}", kept.error().message());
  }
  return {};
}

void PeerShell::take_roster(const identity::SignedRoster& roster, Source source) {
  if (closing_ || (roster_ && !roster.roster().newer_than(roster_->roster()))) return;
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
  const bool same_epoch = (session_ && session_->epoch == epoch) || has_failed || is_prepared;
  if (std::exchange(expired_, false)) problem_ = has_failed ? failure_->problem : "";
  if (!same_epoch) switching_ = true;  // from here on members are those of the next epoch
  roster_ = std::make_shared<const identity::SignedRoster>(roster);
  taken_at_ = now();
  const WallTime wall = world_.clock.wall_now();
  clock_is_wrong_ = source == Source::kIssuer &&
                    (wall < roster.roster().issued - kClockSlack || roster.roster().expired(wall));
  if (const auto saved = hold_roster(world_.disk, options_.directory, roster); !saved) {
    world_.log.warning("the roster is not kept for the next start: {}", saved.error().message());
  }
  links_->set_roster(roster_);  // links of former members end first
  // Neighbours without a link to the issuer hear of it here.
  for (const auto& [member, theirs] : links_->all_up()) links_->send(member, hello());
  if (same_epoch) return keep_links();
  if (!is_computing()) return adopt();
  leave_trainer();
}

void PeerShell::keep_links() {
  const auto neighbours = session_ ? session_->course->neighbours() : std::vector<Member>();
  links_->keep(std::set<Member>(neighbours.begin(), neighbours.end()));
}

// Whether a thread is at work for the course.
bool PeerShell::is_computing() const {
  return preparation_ || (session_ && session_->course->is_computing() && !session_->held_back);
}

bool PeerShell::is_member() const { return gossip::is_member(roster_->roster(), world_.identity); }

// What the roster held means from here on; only while nothing is computed, so that what was learnt
// goes on. See hand_over() for a local phase that is still to be mixed.
void PeerShell::adopt() {
  const identity::Roster& roster = roster_->roster();
  if (session_) {
    const bool run_ends = roster.stopped() || roster.run_identity() != session_->run_id;
    keep_checkpoint(run_ends ? Kept::kModelToo : Kept::kCheckpoint);
    send_report();  // the counts of steps and losses end with the session
    former_.reset();
    if (!run_ends && !session_->held_back) hand_over();
  }
  end_session();
  switching_ = false;
  if (closing_) return;
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
      is_fallback(roster.settings) && (!fallback_ || fallback_->run_id != roster.run_identity());
  world_.log.info("roster {} of run {}: {} until {}{}", roster.epoch, roster.run,
                  counted(roster.members.size(), "member"), format_rfc3339(roster.expires),
                  stands_by ? ", should the coordinator be gone" : "");
  if (self && !roster.members[*self].address.empty() && !options_.listens) {
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
  } else if (const auto begun = begin_session(*self); !begun) {
    failed(begun.error());
  }
  set_alarm();
}

WallTime PeerShell::judged_now() const {
  const WallTime known = std::max(
      world_.identity.last_authenticated(),
      roster_->roster().issued + std::chrono::floor<std::chrono::milliseconds>(now() - taken_at_));
  return clock_is_wrong_ ? known : std::max(known, world_.clock.wall_now());
}

std::string PeerShell::expiry() const {
  return fmt::format("the roster expired at {}", format_rfc3339(roster_->roster().expires));
}

void PeerShell::expire() {
  problem_ = expiry();
  world_.log.warning("{}: no peer is a member any more; waiting for its issuer", problem_);
  expired_ = true;
  switching_ = true;
  links_->set_roster(nullptr);
  if (!is_computing()) return adopt();
  leave_trainer();
}

// --- while the coordinator is gone --------------------------------------------------------------

std::optional<FallbackTerms> PeerShell::standby() const {
  if (!roster_ || roster_->roster().expired(judged_now()) || !is_member()) return std::nullopt;
  const auto terms = read_fallback(roster_->roster().settings);
  return terms ? *terms : std::nullopt;
}

Result<void> PeerShell::begin_with(const fallback::Begin& begin) {
  const auto terms = standby();
  if (!terms || session_ || closing_) return rejected("no-fallback", "no roster stands by");
  const identity::Roster& roster = roster_->roster();
  const fallback::Trained& from = begin.from;
  const auto* floats = reinterpret_cast<const float*>(from.model.view().data());
  const std::string run = roster.run_identity();
  former_.reset();
  start_.reset();
  latest_ = Checkpoint{run, from.exchanges, {floats, floats + from.model.size() / sizeof(float)}};
  const double loss_sum = from.loss * static_cast<double>(from.steps);
  fallback_ = std::make_unique<Fallback>(Fallback{.run_id = run,
                                                  .start_patience = terms->after,
                                                  .steps_before = begin.steps_before,
                                                  .pace = begin.pace,
                                                  .loss_sum_before = loss_sum,
                                                  .loss_steps_before = from.steps,
                                                  .exchanges = from.exchanges,
                                                  .steps = from.steps,
                                                  .loss_sum = loss_sum,
                                                  .loss_steps = from.steps});
  auto begun = begin_session(*roster.find(world_.identity.identity().name));
  if (!begun) failed(begun.error());
  set_alarm();
  return begun;
}

// What lies after the last mixing is no network's yet.
std::optional<fallback::Trained> PeerShell::gossiped() const {
  if (!fallback_ || !latest_ || latest_->run != fallback_->run_id) return std::nullopt;
  const double loss = fallback_->loss_steps > 0
                          ? fallback_->loss_sum / static_cast<double>(fallback_->loss_steps)
                          : 0.0;
  const std::span<const float> model(latest_->model);
  return fallback::Trained{.model = SharedBytes::own(to_bytes(as_bytes(model))),
                           .exchanges = fallback_->exchanges,
                           .steps = fallback_->steps,
                           .loss = loss};
}

std::optional<fallback::Trained> PeerShell::end_fallback() {
  auto trained = gossiped();
  fallback_.reset();
  if (!trained) return std::nullopt;
  end_session();
  if (ended_)
    ended_->reachable.reset();  // peers that heard of the coordinator earlier only seemed dead
  latest_.reset();
  keep_links();
  if (switching_) {
    adopt();
  } else {
    set_alarm();
  }
  return trained;
}

// --- an epoch's session -------------------------------------------------------------------------

void PeerShell::load_latest(const NetworkRun& run) {
  const auto path = options_.directory / "checkpoint.safetensors";
  auto kept = load_checkpoint(world_.disk, path, run.layout());
  if (!kept && kept.error().code() == "file-missing") return;
  if (!kept) {
    return world_.log.warning("the checkpoint is not used: {}", kept.error().message());
  }
  latest_ = std::move(*kept);
  if (latest_->run != roster_->roster().run_identity()) return;
  auto state = load_state(world_.disk, path, *latest_, std::string(run.plan.traits.name));
  if (state) {
    latest_->state = std::move(*state);
  } else {
    world_.log.warning("{}", state.error().message());
  }
}

// What this session would go on with.
Checkpoint PeerShell::checkpoint_now(std::span<const float> model) const {
  return {.run = session_->run_id,
          .exchange = session_->course->progress().exchange,
          .model = {model.begin(), model.end()},
          .state = {.algorithm = std::string(session_->run.plan.traits.name),
                    .epoch = session_->epoch,
                    .bytes = session_->course->state()},
          .support = session_->course->support()};
}

CourseStart PeerShell::course_start(const NetworkRun& run) {
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
// in the next epoch. What an algorithm shares with the members starts again (Algorithm::regroup).
void PeerShell::hand_over() {
  former_ = std::make_unique<Former>(Former{.run_id = session_->run_id,
                                            .settings = session_->settings,
                                            .local = session_->local,
                                            .support = session_->course->support(),
                                            .course = session_->course->hand_over()});
}

// For members that were never heard: they may be starting, as long as the run itself is. Later on
// no epoch waits longer for them than twice a local phase.
Duration PeerShell::start_patience() {
  const std::string id = roster_->roster().run_identity();
  if (!start_ || start_->run_id != id) start_ = Start{.run_id = id, .at = now()};
  const Duration most = fallback_ ? fallback_->start_patience : options_.start_patience;
  const Duration left = most - (now() - start_->at);
  return std::min(most, std::max(left, options_.patience_min + 2 * start_->computing_max));
}

// Members that were not reachable at the end of the previous session: the next one does not wait
// for them to start. A running network must not pay for a start at each change of epoch; a run that
// has not begun, or a different one, does wait.
std::set<Member> PeerShell::absent(Member self) const {
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

Result<void> PeerShell::begin_session(Member self) {
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
  return begin_session(self, std::move(run));
}

// A trainer that is being started, or makes a large model, must not keep the links waiting. It
// makes none where this member goes on with what it has.
void PeerShell::prepare(Member self) {
  const std::string id = roster_->roster().run_identity();
  const std::size_t held = latest_ && latest_->run == id ? latest_->model.size() : 0;
  preparation_ = std::make_shared<Preparation>();
  preparation_->roster = roster_;
  const auto run = std::make_shared<std::optional<Result<NetworkRun>>>();
  world_.training.submit(
      [preparation = preparation_, held, trainer = data_.trainer, run,
       name = world_.identity.identity().name, warn = trainer_warning()](unsigned) {
        const Retries retries{.attempts_max = 0, .stop = preparation->cancelled, .warn = warn};
        const identity::Roster& roster = preparation->roster->roster();
        run->emplace(with_retries(retries, name, [&] {
          return derive_run(roster, {*trainer, name, held}, preparation->cancelled);
        }));
      },
      [preparation = preparation_, self, run, shell = self_] {
        if (*shell != nullptr) (*shell)->prepared(*preparation, self, std::move(**run));
      });
}

std::function<void(const std::string&)> PeerShell::trainer_warning() {
  return [&scheduler = world_.scheduler, shell = self_](const std::string& line) {
    scheduler.post([line, shell] {
      if (*shell != nullptr) (*shell)->trainer_failed(line);
    });
  };
}

void PeerShell::trainer_failed(const std::string& line) {
  trainer_fails_ = true;
  say(LogLevel::kWarning, line);
  if (switching_) leave_trainer();
}

// A trainer's task may take long, and be repeated without end: a new roster does not wait for one
// whose result it makes useless.
void PeerShell::leave_trainer() {
  if (preparation_) preparation_->cancelled = true;
  if (!session_) return;
  const identity::Roster& roster = roster_->roster();
  const bool run_goes_on =
      !expired_ && !roster.stopped() && roster.run_identity() == session_->run_id;
  if (!run_goes_on || trainer_fails_) session_->local->cancel();
}

void PeerShell::prepared(const Preparation& preparation, Member self, Result<NetworkRun> run) {
  const auto ended = std::exchange(preparation_, nullptr);
  if (closing_) return finish_closing();
  if (switching_ || preparation.roster->roster().epoch != roster_->roster().epoch) return adopt();
  trainer_fails_ = false;
  problem_.clear();
  if (!run) {
    failed(run.error());
  } else if (const auto begun = begin_session(self, std::move(*run)); !begun) {
    failed(begun.error());
  }
  set_alarm();
}

Result<void> PeerShell::begin_session(Member self, NetworkRun run) {
  const identity::Roster& roster = roster_->roster();
  if (fallback_ && latest_->model.size() != run.initial.size()) {
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
  session_ = std::make_shared<Session>(roster, std::move(run), self);
  const std::uint64_t steps_before = fallback_ ? fallback_->steps_before : 0;
  if (continues) {
    session_->local = former->local;
    session_->local->resume();
  } else if (session_->run.model == nullptr) {
    session_->local = std::make_shared<LocalSteps>(session_->run, *data_.trainer,
                                                   session_->names[self], trainer_warning());
  } else {
    session_->local =
        std::make_shared<LocalSteps>(session_->run, data_.rows, self, step + steps_before,
                                     fallback_ ? std::optional(fallback_->pace) : std::nullopt);
  }
  session_->handed_in_at = step / session_->run.options.evaluate_every();
  const std::set<Member> away = absent(self);
  session_->silent = away;
  CoursePlace place{.epoch = roster.epoch, .self = self, .names = session_->names, .absent = away};
  session_->course = make_course(
      session_->run, *session_->local, *this, std::move(place),
      {.min = options_.patience_min, .max = options_.patience_max, .start = start_patience()},
      std::move(start));
  session_->members = std::make_unique<membership::SwimMachine>(
      options_.membership, roster.epoch, self, static_cast<std::uint32_t>(roster.members.size()),
      Rng({.seed = options_.seed, .purpose = Purpose::kBackoff, .node = rng_.next_u64()}), now());
  links_->set_messages_max(messages_of_use(session_->run));
  keep_links();
  checkpoint_at_ = now() + options_.checkpoint_every;
  report_at_ = now();
  reported_loss_ = 0;
  reported_steps_ = 0;
  session_->course->begin();
  // On links that outlast an epoch both sides say where they are now. The link of an absent member
  // may only look whole, so that member has to speak first.
  for (const auto& [member, theirs] : links_->all_up()) {
    links_->send(member, hello());
    if (away.contains(member) && theirs.epoch != roster.epoch) continue;
    PeerHello unknown = theirs;
    unknown.epoch = roster.epoch;
    unknown.begun = false;
    on_up(member, unknown);
  }
  return {};
}

void PeerShell::end_session() {
  unsent_.clear();  // of members that may have other places from now on
  assemblers_.clear();
  if (!session_) return;
  if (session_->course->is_computing()) session_->local->cancel();
  traffic_before_ = traffic();
  std::map<std::string, bool> reachable;
  for (Member member = 0; member < session_->names.size(); ++member) {
    reachable[session_->names[member]] =
        session_->members->state(member) != protocol::SwimNews::State::kDead &&
        !session_->silent.contains(member);
  }
  ended_ = Ended{.run_id = session_->run_id,
                 .run_name = session_->run_name,
                 .progress = session_->course->progress(),
                 .reachable = std::move(reachable)};
  session_.reset();
}

// --- what a course asks for ---------------------------------------------------------------------

void PeerShell::send(Member to, Parcel parcel, SharedBytes data) {
  if (switching_) return;  // the links' members are those of the next epoch already
  parcel.epoch = session_->epoch;
  if (!links_->is_up(to)) links_->reach(to);  // the course sends again what it missed
  links_->send_parcel(to, parcel, std::move(data), ParcelFlow::Urgency::kNow);
}

void PeerShell::send(Member to, protocol::ReduceNote note) {
  if (switching_) return;
  note.epoch = session_->epoch;
  links_->send(to, note);
}

// Unless its process is killed, the session is destroyed on the peer's turns.
void PeerShell::submit(Computation& computation, std::function<void()> work,
                       std::function<void()> done) {
  struct Job {
    std::shared_ptr<Session> session;
    std::function<void()> work;
  };
  const auto job = std::make_shared<Job>(Job{session_, std::move(work)});
  computation.submit([job](unsigned) { job->work(); },
                     [job, done = std::move(done), began = now(), self = self_] {
                       const auto session = std::move(job->session);
                       if (*self != nullptr && (*self)->session_ == session)
                         (*self)->computed(done, began);
                     });
}

void PeerShell::compute(std::function<void()> work, std::function<void()> done) {
  submit(world_.mixing, std::move(work), std::move(done));
}

void PeerShell::train(std::uint64_t step, std::function<void()> work, std::function<void()> done) {
  const auto due = fallback_ ? fallback_->pace.due(step) : now();
  if (due && *due <= now()) return submit(world_.training, std::move(work), std::move(done));
  session_->held_back = Session::HeldBack{due, std::move(work), std::move(done)};
}

void PeerShell::computed(const std::function<void()>& done, TimePoint began) {
  start_->computing_max = std::max(start_->computing_max, now() - began);
  done();
  if (switching_ && !is_computing()) adopt();
  if (closing_ && !is_computing()) return finish_closing();
  if (session_) answer_asks();
  set_alarm();
}

void PeerShell::copy_model(std::vector<Member> donors) {
  session_->copy.emplace(std::move(donors), session_->run.initial.size(), options_.patience_max);
  continue_copy();
}

void PeerShell::continue_copy() {
  Session& session = *session_;
  if (!session.copy || switching_) return;
  for (const ModelCopy::Ask& ask : session.copy->asks(now())) {
    protocol::ColumnsAsk columns = ask.columns;
    columns.epoch = session.epoch;
    if (links_->is_up(ask.to)) {
      links_->send(ask.to, columns);
    } else {
      session.copy->lose(ask.to);
    }
  }
  if (session.copy->failed()) {
    session.copy.reset();
    session.course->not_copied();
  } else if (session.copy->done()) {
    const ModelCopy copy = std::move(*session.copy);
    session.copy.reset();
    session.course->copied(copy.progress(), copy.model());
  }
}

void PeerShell::say(LogLevel level, std::string line) {
  if (level >= LogLevel::kWarning) problem_ = line;
  world_.log.write(level, line);
}

void PeerShell::advanced() {
  const CourseProgress progress = session_->course->progress();
  if (progress.heard == progress.expected) problem_.clear();
  answer_asks();  // who never waits for others has its model to show at no other moment
  if (fallback_) return record_fallback();
  if (session_->run.model == nullptr) {
    trainer_fails_ = false;
    // Its next task may be cancelled, and what the algorithm holds is of no use then.
    if (const auto model = session_->course->model()) latest_ = checkpoint_now(*model);
  }
  look_at_model();
  if (now() < checkpoint_at_) return;
  checkpoint_at_ = now() + options_.checkpoint_every;
  keep_checkpoint(Kept::kCheckpoint);
}

// The course's model cannot be had while it trains.
void PeerShell::record_fallback() {
  const auto model = session_->course->model();
  if (!model) return;
  const CourseProgress progress = session_->course->progress();
  latest_ = Checkpoint{.run = session_->run_id,
                       .exchange = progress.exchange,
                       .model = {model->begin(), model->end()},
                       .support = session_->course->support()};
  fallback_->exchanges = progress.exchange;
  fallback_->steps = progress.step;
  fallback_->loss_sum = fallback_->loss_sum_before + progress.loss_sum;
  fallback_->loss_steps = fallback_->loss_steps_before + progress.loss_steps;
}

void PeerShell::finished() {
  problem_.clear();
  world_.log.info("the run is finished: {}", counted(session_->run.options.run.steps, "step"));
  const std::uint64_t alone = session_->course->progress().loss_steps;
  if (arrived_in_ != session_->run_id && alone > 0 && !session_->course->neighbours().empty()) {
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

void PeerShell::failed(Error error) {
  if (switching_ && session_ && session_->run.model == nullptr) {  // cancelled for the next roster
    former_.reset();
    write_checkpoint(Kept::kModelToo);
    return end_session();
  }
  problem_ = error.message();
  world_.log.error("the run cannot go on: {}", problem_);
  failure_ = {session_ ? session_->epoch : roster_->roster().epoch, problem_};
  former_.reset();
  end_session();
  send_report();
}

// At every evaluation of the run its issuer may want the model.
void PeerShell::look_at_model() {
  const auto model = session_->course->model();
  if (!model) return;
  const CourseProgress progress = session_->course->progress();
  const bool last = session_->course->is_finished();
  const NetOptions& options = session_->run.options;
  const std::uint64_t evaluation = progress.step / options.evaluate_every();
  // Less far, where the model of a quorum took the place of one that was learned apart.
  if (progress.exchange == 0 || (evaluation <= session_->handed_in_at && !last)) return;
  session_->handed_in_at = evaluation;
  // A peer that left out exchanges hands in its model for the evaluation that it passed.
  const std::uint64_t due =
      last ? progress.exchange
           : options.schedule().mixings_until(evaluation * options.evaluate_every());
  Parcel parcel{.kind = Parcel::Kind::kModel,
                .epoch = session_->epoch,
                .exchange = due - 1,  // the last that is in it
                .place = progress.step,
                .first = model->size()};
  send_report();  // first: what is said of this model is to be known when it is there
  issuer_.hand_in(parcel, SharedBytes::own(to_bytes(as_bytes(*model))));
}

void PeerShell::keep_checkpoint(Kept kept) {
  const auto model = session_->course->model();
  if (!model || fallback_) return;
  latest_ = checkpoint_now(*model);  // a session may end while its model is being computed
  write_checkpoint(kept);
}

void PeerShell::write_checkpoint(Kept kept) {
  if (!latest_ || latest_->run != session_->run_id) return;
  const auto saved = std::make_shared<Result<void>>();
  world_.disk_work.submit(
      [saved, kept, checkpoint = std::make_shared<const Checkpoint>(*latest_), &disk = world_.disk,
       directory = options_.directory, layout = session_->run.layout()](unsigned) {
        *saved = save_checkpoint(disk, directory / "checkpoint.safetensors", *checkpoint, layout);
        if (*saved && kept == Kept::kModelToo) {
          *saved = save_model(disk, directory / "model.safetensors", *checkpoint, layout);
        }
      },
      [saved, &log = world_.log] {
        if (!*saved) log.warning("the checkpoint is not kept: {}", saved->error().message());
      });
}

// --- links --------------------------------------------------------------------------------------

PeerHello PeerShell::hello() const {
  PeerHello hello{.software = options_.software};
  if (roster_) hello.epoch = roster_->roster().epoch;
  if (session_ && session_->epoch == hello.epoch) {  // not of a run that is about to be left
    hello.exchange = session_->course->progress().exchange;
    hello.begun = true;
    hello.support = session_->course->support();
  }
  return hello;
}

void PeerShell::on_up(Member member, const PeerHello& hello) {
  if (!roster_) return;
  const protocol::Epoch ours = roster_->roster().epoch;
  links_->send(member, issuer::ask_for_newer(&roster_->roster()));
  if (!session_ || switching_ || hello.epoch != ours) return;
  heard(member);
  const auto unsent = unsent_.find(member);
  if (unsent != unsent_.end()) {
    links_->send(member, unsent->second);
    unsent_.erase(unsent);
  }
  session_->course->told(member, hello);
  set_alarm();
}

void PeerShell::heard(Member member) {
  session_->silent.erase(member);
  on_swim(session_->members->on(membership::Heard{member}, now()));
}

void PeerShell::on_down(Member member, const Error&) {
  assemblers_.erase(member);
  unsent_.erase(member);
  if (!session_ || switching_) return;
  session_->course->link_lost(member);
  if (session_->copy) session_->copy->lose(member);
  std::erase_if(session_->asks, [&](const auto& ask) { return ask.first == member; });
  on_swim(session_->members->on(membership::LinkLost{member}, now()));
  continue_copy();
  set_alarm();
}

void PeerShell::on_message(Member from, const protocol::Envelope& envelope) {
  const protocol::Message& message = envelope.message;
  if (const auto* ask = std::get_if<protocol::RosterAsk>(&message)) {
    for (const auto& part : issuer::roster_parts(*roster_, *ask)) {
      links_->send(from, part.message, part.payload);
    }
    return;
  }
  if (const auto* part = std::get_if<protocol::RosterPart>(&message)) {
    return take_roster_part(from, *part, envelope.payload);
  }
  if (const auto* ping = std::get_if<protocol::Ping>(&message)) {
    return links_->send(from, protocol::Pong{ping->nonce});
  }
  if (const auto* hello = std::get_if<PeerHello>(&message)) {
    return on_up(from, *hello);
  }
  if (!session_ || switching_) return;
  if (const auto* swim = std::get_if<Swim>(&message)) {
    if (swim->epoch == session_->epoch) session_->silent.erase(from);
    on_swim(session_->members->on(membership::Received{from, *swim}, now()));
  } else if (const auto* ask_columns = std::get_if<protocol::ColumnsAsk>(&message)) {
    const auto waiting = std::ranges::count(session_->asks, from, &Session::Ask::first);
    if (ask_columns->epoch == session_->epoch && waiting < kAsksMax) {
      session_->asks.emplace_back(from, *ask_columns);
    }
    answer_asks();
  } else if (const auto* note = std::get_if<protocol::ReduceNote>(&message)) {
    if (note->epoch == session_->epoch) session_->course->take(from, *note);
  }
  set_alarm();
}

Result<void> PeerShell::check(Member from, const Parcel& parcel) {
  if (!session_ || switching_ || parcel.epoch != session_->epoch) {
    return rejected("other-epoch", "this peer is not in that epoch");
  }
  if (parcel.kind != Parcel::Kind::kColumns) {
    auto judged = session_->course->judge(from, parcel);
    if (!judged) {
      session_->course->overheard(from, parcel);
      set_alarm();
    }
    return judged;
  }
  if (session_->copy && session_->copy->expects(from, parcel)) return {};
  return rejected("not-wanted", "these columns were not asked for");
}

void PeerShell::on_parcel(Member from, ParcelFlow::Whole whole) {
  if (!session_ || switching_ || whole.parcel.epoch != session_->epoch) return;
  heard(from);
  ++arrived_;
  if (arrived_in_ != session_->run_id) arrived_in_ = session_->run_id;
  if (whole.parcel.kind != Parcel::Kind::kColumns) {
    session_->course->take(from, std::move(whole));
  } else if (session_->copy && session_->copy->expects(from, whole.parcel)) {
    const std::span<const float> columns(reinterpret_cast<const float*>(whole.data.view().data()),
                                         whole.parcel.first);
    const auto own = session_->course->model();
    const bool fits = own ? UsualDistance::may_be_of_this_run(
                                columns, own->subspan(whole.parcel.place, columns.size()))
                          : is_finite(columns);
    if (fits) {
      session_->copy->take(from, whole.parcel, columns);
    } else {
      world_.log.warning("{} gives a model that is none of this run: not copied",
                         session_->names[from]);
      session_->copy->lose(from);
    }
    continue_copy();
  }
  set_alarm();
}

// In the background, so that a member that copies the model delays no exchange.
void PeerShell::answer_asks() {
  const auto model = session_->course->model();
  if (!model || session_->asks.empty()) return;
  const CourseProgress progress = session_->course->progress();
  for (const auto& [to, ask] : std::exchange(session_->asks, {})) {
    if (ask.end > model->size()) continue;
    const auto columns = model->subspan(ask.begin, ask.end - ask.begin);
    Parcel parcel{.kind = Parcel::Kind::kColumns,
                  .epoch = session_->epoch,
                  .exchange = progress.exchange,
                  .place = ask.begin,
                  .first = columns.size(),
                  .support = session_->course->support()};
    links_->send_parcel(to, parcel, SharedBytes::own(to_bytes(as_bytes(columns))),
                        ParcelFlow::Urgency::kBackground);
  }
}

void PeerShell::take_roster_part(Member from, const protocol::RosterPart& part,
                                 const SharedBytes& piece) {
  const auto taken =
      assemblers_[from].take(part, piece.view(), roster_ ? &roster_->roster() : nullptr);
  if (taken.ask) links_->send(from, *taken.ask);
  if (!taken.whole) return;
  const auto roster = verify_roster(*taken.whole, world_.identity);
  if (roster) {
    take_roster(*roster, Source::kOther);
  } else {
    world_.log.warning("a peer passed on a bad roster: {}", roster.error().message());
  }
}

// --- failure detection --------------------------------------------------------------------------

void PeerShell::on_swim(const std::vector<membership::Action>& actions) {
  for (const membership::Action& action : actions) {
    if (const auto* send = std::get_if<membership::Send>(&action)) {
      if (links_->is_up(send->to)) {
        links_->send(send->to, send->swim);
      } else {
        unsent_[send->to] = send->swim;
        links_->reach(send->to);
      }
    } else if (const auto* changed = std::get_if<membership::Changed>(&action)) {
      const bool reachable = changed->state != protocol::SwimNews::State::kDead;
      const std::string& name = roster_->roster().members[changed->member].name;
      world_.log.debug("{} is {}", name, reachable ? "reachable" : "not reachable");
      if (session_) session_->course->reach(changed->member, reachable);
    }
  }
}

// --- time ---------------------------------------------------------------------------------------

void PeerShell::tick() {
  if (closing_) return finish_closing();
  if (roster_ && !expired_ && roster_->roster().expired(judged_now())) expire();
  if (session_ && !switching_) {
    if (session_->held_back && session_->held_back->until && *session_->held_back->until <= now()) {
      const Session::HeldBack phase = *std::exchange(session_->held_back, std::nullopt);
      submit(world_.training, phase.work, phase.done);
    }
    on_swim(session_->members->on(membership::Tick{}, now()));
    if (session_) session_->course->tick();
    if (session_) continue_copy();
  }
  if (now() >= report_at_) send_report();
  set_alarm();
}

void PeerShell::set_alarm() {
  if (closing_ || !roster_) return;
  TimePoint next = report_at_;
  if (session_ && !switching_) {
    const auto sooner = [&](std::optional<TimePoint> time) {
      if (time) next = std::min(next, *time);
    };
    sooner(session_->members->next_deadline());
    sooner(session_->course->next_deadline());
    if (session_->copy) sooner(session_->copy->next_deadline());
    if (session_->held_back) sooner(session_->held_back->until);
  }
  timer_->set(next);
}

// Of all sessions.
Traffic PeerShell::traffic() const {
  Traffic sum = traffic_before_;
  if (session_) sum += session_->course->progress().traffic;
  return sum;
}

protocol::PeerReport PeerShell::report() const {
  protocol::PeerReport report;
  if (roster_) report.epoch = roster_->roster().epoch;
  report.problem = problem_;
  const PeerTransport::Counters counters = links_->counters();
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
  if (!session_) {
    if (!ended_) return report;
    const identity::Roster& roster = roster_->roster();
    const bool same_run =
        roster.stopped() ? roster.run == ended_->run_name : roster.run_identity() == ended_->run_id;
    if (!same_run) return report;
    report.exchange = ended_->progress.exchange;
    report.step = ended_->progress.step;
    return report;
  }
  const CourseProgress progress = session_->course->progress();
  report.exchange = progress.exchange;
  report.step = progress.step;
  report.state = progress.state;
  report.neighbours = progress.heard;
  report.expected = progress.expected;
  report.reachable = static_cast<std::uint32_t>(session_->members->reachable());
  report.loss_steps = progress.loss_steps - reported_steps_;
  if (report.loss_steps > 0) {
    report.loss = (progress.loss_sum - reported_loss_) / static_cast<double>(report.loss_steps);
  }
  return report;
}

void PeerShell::send_report() {
  report_at_ = now() + options_.report_every;
  issuer_.report(report());
  if (!session_) return;
  const CourseProgress progress = session_->course->progress();
  reported_loss_ = progress.loss_sum;
  reported_steps_ = progress.loss_steps;
}

// --- the end ------------------------------------------------------------------------------------

bool PeerShell::is_finished() const { return session_ && session_->course->is_finished(); }

void PeerShell::close(std::function<void()> closed) {
  closing_ = true;
  closed_ = std::move(closed);
  if (preparation_) preparation_->cancelled = true;
  if (!is_computing()) return finish_closing();
  timer_->set(now() + kLastComputation);
}

// What was being computed has come to its end, so that the checkpoint is of now, or takes too long.
void PeerShell::finish_closing() {
  if (!closed_) return;
  timer_->clear();
  if (session_) keep_checkpoint(is_finished() ? Kept::kModelToo : Kept::kCheckpoint);
  const bool external = session_ && session_->run.model == nullptr;
  if (external && is_computing()) write_checkpoint(Kept::kCheckpoint);
  stop_computing();
  session_.reset();
  // Behind what is to be kept.
  world_.disk_work.submit([](unsigned) {}, std::exchange(closed_, nullptr));
}

}  // namespace starling::gossip
