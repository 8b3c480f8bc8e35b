// SPDX-License-Identifier: Apache-2.0
#include "core/client/client_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "core/base/bytes.h"

namespace starling::client {
namespace {

protocol::TaskFailed failure_of(TaskId task, const Error& error) {
  return {task, error.code(), error.message(), error.kind() == ErrorKind::kUnsupported};
}

// The first is the model.
protocol::TaskInput input_of(const protocol::RoundPlan& plan, std::size_t index) {
  if (index > 0) return plan.inputs[index - 1];
  return {.name = "model", .sha256 = plan.base.sha256, .bytes = plan.model_bytes};
}

std::uint64_t bytes_of(const StateSnapshot& state) {
  std::uint64_t bytes = 0;
  if (state == nullptr) return bytes;
  for (const auto& [name, values] : state->vectors) bytes += values.size() * sizeof(float);
  return bytes;
}

// What this version can neither read nor send. "unknown-encoding".
Result<void> check_encodings(const protocol::RoundPlan& plan) {
  const auto unknown = [](const std::string& name, update::Encoding encoding) {
    return unsupported("unknown-encoding",
                       fmt::format("the task names vector '{}' with encoding {}, which this "
                                   "version does not know: update this program",
                                   name, static_cast<unsigned>(encoding)));
  };
  for (const protocol::TaskInput& input : plan.inputs) {
    if (input.encoding != update::Encoding::kFloat32) return unknown(input.name, input.encoding);
  }
  for (const update::VectorSpec& vector : plan.schema.vectors) {
    if (!update::is_known(vector.encoding)) return unknown(vector.name, vector.encoding);
  }
  return {};
}

Error stopped_error() { return retry("stopped", "the client is stopping"); }

}  // namespace

ClientMachine::ClientMachine(ClientOptions options, Rng backoff_rng, Leftovers leftovers)
    : options_(std::move(options)), backoff_(options_.backoff, backoff_rng) {
  for (CommittedState& state : leftovers.states) remember(std::move(state));
  for (PendingUpdate& update : leftovers.pending) keep(std::move(update), true);
}

std::vector<Action> ClientMachine::on(Event event, TimePoint now) {
  now_ = now;
  if (link_ != Link::kStopped) {
    std::visit([this](auto& e) { handle(e); }, event);
  }
  return std::exchange(actions_, {});
}

std::uint64_t made_from(const protocol::RoundPlan& plan) {
  Bytes begins(sizeof(std::uint64_t));
  store_little(begins.data(), plan.last_counted.task.value());
  for (const protocol::TaskInput& input : plan.inputs) {
    std::ranges::copy(as_bytes(input.name), std::back_inserter(begins));
    std::ranges::copy(input.sha256.bytes(), std::back_inserter(begins));
  }
  return std::max<std::uint64_t>(checksum(begins), 1);
}

std::optional<TimePoint> ClientMachine::next_deadline() const {
  std::optional<TimePoint> next = link_deadline();
  if (link_ == Link::kStopped) return next;
  for (const auto& [task, pending] : pending_) {
    if (!pending.store_again_at) continue;
    next = next ? std::min(*next, *pending.store_again_at) : pending.store_again_at;
  }
  return next;
}

std::optional<TimePoint> ClientMachine::link_deadline() const {
  switch (link_) {
    case Link::kDown:
      return dial_at_;
    case Link::kGreeting:
      return greet_by_;
    case Link::kUp:
      return std::min(sent_at_ + heartbeat_, heard_at_ + options_.silence_max);
    case Link::kDialing:
    case Link::kStopped:
      return std::nullopt;
  }
  return std::nullopt;
}

ClientMachine::Activity ClientMachine::activity() const {
  return task_ ? task_->activity : Activity::kIdle;
}

// --- link ---------------------------------------------------------------------------------------

void ClientMachine::handle(Tick&) {
  store_again();
  if (const auto due = link_deadline(); !due || now_ < *due) return;
  switch (link_) {
    case Link::kDown:
      link_ = Link::kDialing;
      actions_.push_back(Dial{});
      return;
    case Link::kGreeting:
      return hang_up(
          timed_out("deadline", fmt::format("the coordinator did not answer the greeting "
                                            "within {}",
                                            format_duration(options_.greeting_deadline))));
    case Link::kUp:
      if (now_ >= heard_at_ + options_.silence_max) {
        return hang_up(retry("silent", fmt::format("nothing was heard from the coordinator for {}",
                                                   format_duration(options_.silence_max))));
      }
      return send(protocol::Ping{});
    case Link::kDialing:
    case Link::kStopped:
      return;
  }
}

void ClientMachine::handle(Connected&) {
  if (link_ != Link::kDialing) return;
  link_ = Link::kGreeting;
  greet_by_ = now_ + options_.greeting_deadline;
  heard_at_ = now_;
  send(protocol::Hello{.software = options_.software,
                       .rows = options_.rows,
                       .abilities = options_.abilities,
                       .input = options_.input,
                       .classes = options_.classes,
                       .held_out = options_.held_out});
}

void ClientMachine::handle(Disconnected& event) {
  if (link_ == Link::kDown) return;
  link_ = Link::kDown;
  schedule_dial();
  say(LogLevel::kWarning, fmt::format("not connected: {}; trying again in {:.1f} s",
                                      event.error.message(), to_seconds(dial_at_ - now_)));
}

void ClientMachine::handle(Stop&) {
  drop_task();
  if (link_ == Link::kUp) send(protocol::Bye{.code = "stopped", .message = "the client stops"});
  if (link_ != Link::kDown) actions_.push_back(HangUp{stopped_error()});
  link_ = Link::kStopped;
}

void ClientMachine::hang_up(Error reason) {
  say(LogLevel::kWarning, fmt::format("closing the connection: {}", reason.message()));
  actions_.push_back(HangUp{std::move(reason)});
  link_ = Link::kDown;
  schedule_dial();
}

void ClientMachine::schedule_dial() {
  for (auto& [task, pending] : pending_) pending.sender.stop();
  const auto welcomed_at = std::exchange(welcomed_at_, std::nullopt);
  if (welcomed_at && now_ - *welcomed_at >= options_.good_link_min) backoff_.reset();
  dial_at_ = now_ + backoff_.next();
}

// --- what the coordinator says ------------------------------------------------------------------

void ClientMachine::handle(Received& event) {
  if (link_ != Link::kGreeting && link_ != Link::kUp) return;
  heard_at_ = now_;
  protocol::Message& message = event.envelope.message;
  if (const auto* welcome = std::get_if<protocol::Welcome>(&message)) return receive(*welcome);
  if (const auto* bye = std::get_if<protocol::Bye>(&message)) return receive(*bye);
  if (link_ == Link::kGreeting) {
    return hang_up(rejected("bad-message", "the coordinator spoke before it greeted"));
  }
  if (const auto* plan = std::get_if<protocol::RoundPlan>(&message)) return receive(*plan);
  if (const auto* chunk = std::get_if<protocol::Chunk>(&message)) {
    return receive(*chunk, event.envelope.payload);
  }
  if (const auto* credit = std::get_if<protocol::Credit>(&message)) return receive(*credit);
  if (const auto* accept = std::get_if<protocol::UpdateAccept>(&message)) return receive(*accept);
  if (const auto* got = std::get_if<protocol::UpdateReceived>(&message)) return receive(*got);
  if (const auto* done = std::get_if<protocol::RoundCommitted>(&message)) return receive(*done);
  if (const auto* ended = std::get_if<protocol::TaskEnded>(&message)) return receive(*ended);
  if (const auto* ping = std::get_if<protocol::Ping>(&message)) {
    return send(protocol::Pong{ping->nonce});
  }
  if (!std::holds_alternative<protocol::Pong>(message)) {
    hang_up(rejected("bad-message", "the coordinator sent a message that only clients send"));
  }
}

void ClientMachine::receive(const protocol::Welcome& welcome) {
  if (link_ != Link::kGreeting) return;
  if (welcome.version != protocol::kVersion) {
    return hang_up(unsupported(
        "version", fmt::format("the coordinator speaks protocol version {}; this client speaks {}",
                               welcome.version, protocol::kVersion)));
  }
  link_ = Link::kUp;
  welcomed_at_ = now_;
  heartbeat_ = std::clamp<Duration>(welcome.heartbeat, std::chrono::milliseconds(100),
                                    options_.silence_max / 2);
  say(LogLevel::kInfo,
      fmt::format("connected to federation {} as {}", welcome.federation, welcome.client));
  reads_sparse_ = welcome.reads_sparse;
  drop_unreadable();
  for (const auto& [task, failed] : failures_) send(failure_of(task, failed.error));
  for (auto& [task, pending] : pending_) {
    if (pending.stored && is_readable(pending.head)) {
      offer(pending);
    } else {
      ask_about(task);  // it may have counted
    }
  }
  if (activity() == Activity::kFetching) request_input();
  if (activity() == Activity::kTraining || activity() == Activity::kSettling) {
    ask_about(task_->plan.task);
  }
}

// Whether its result is still wanted: a request for no bytes brings nothing but, where the task is
// over, the message that says so.
void ClientMachine::ask_about(TaskId task) { send(protocol::ModelRequest{.task = task}); }

void ClientMachine::receive(const protocol::Bye& bye) {
  hang_up(retry(bye.code, fmt::format("the coordinator closed the connection: {}", bye.message)));
}

void ClientMachine::receive(const protocol::RoundPlan& plan) {
  if (plan.kind == protocol::TaskKind::kTrain) ended_.erase(plan.run);
  if (const auto at = std::ranges::find(recent_, plan.run); at != recent_.end()) {
    recent_.splice(recent_.end(), recent_, at);
  }
  forget_another_past(plan);
  if (const auto pending = pending_.find(plan.task); pending != pending_.end()) {
    return offer(pending->second);
  }
  if (task_ && task_->plan.task == plan.task) {
    if (task_->activity == Activity::kFetching) request_input();
    return;
  }
  if (const auto failed = failures_.find(plan.task); failed != failures_.end()) {
    return send(failure_of(plan.task, failed->second.error));
  }
  if (continue_for(plan)) return;
  drop_task();
  if (reuse_update_for(plan)) return;
  for (auto& [task, pending] : pending_) offer(pending);  // ask what became of them
  begin(plan);
}

// A coordinator that was restored from a backup gives the rounds since then, and their tasks, once
// more, perhaps from other models; it, or another federation, also gives a run's number again. What
// is of another past answers nothing any more.
void ClientMachine::forget_another_past(const protocol::RoundPlan& plan) {
  const update::ModelVersion& now = plan.base;
  if (task_ && task_->plan.task == plan.task && !task_->plan.base.matches(now)) drop_task();
  if (const auto failed = failures_.find(plan.task);
      failed != failures_.end() && !failed->second.work.base.matches(now)) {
    failures_.erase(failed);
  }
  if (const auto counted = pending_.find(plan.last_counted.task); counted != pending_.end()) {
    commit(counted->second);
  }
  take_state_back(plan);
  std::vector<TaskId> past;
  std::vector<TaskId> too_late;
  for (const auto& [task, update] : pending_) {
    const update::ModelVersion& base = update.head.base;
    if (base.run != plan.run) continue;
    const bool is_of_this_run = update::ModelVersion::is_same_run(base.run_key, now.run_key);
    const bool is_other_model = base.round == now.round && !base.matches(now);
    // What builds on a round that is taken back may never be settled: no later round is over.
    const bool is_later = base.round > now.round && update.state != nullptr;
    // Were it counted nevertheless, its state would be one that the server does not know of.
    const bool is_forgotten = now.run_key != 0 && plan.last_counted.round == 0 &&
                              base.round < now.round && update.state != nullptr;
    // A later attempt at the same round may begin with other states and inputs.
    const bool is_made_otherwise = plan.kind == protocol::TaskKind::kTrain &&
                                   Work::of(update.head).trains && base.matches(now) &&
                                   update.made_from != 0 && update.made_from != made_from(plan);
    // It was never offered: nobody else would settle it.
    const bool is_too_late = base.round < now.round && !update.stored;
    if (is_too_late) {
      too_late.push_back(task);
    } else if (!is_of_this_run || is_other_model || is_later || is_forgotten || is_made_otherwise) {
      past.push_back(task);
    }
  }
  for (const TaskId task : past) {
    say(LogLevel::kWarning, fmt::format("run {}: an unsettled update is dropped: it began with a "
                                        "model, a state or an input that the coordinator does not "
                                        "have",
                                        plan.run.value()));
    settle(task);
  }
  for (const TaskId task : too_late) {
    say(LogLevel::kWarning,
        Work::of(pending_.at(task).head).name() +
            "the update is dropped: the round was over before the disk had taken it");
    settle(task);
  }
}

// The server believes this client to have the state of its last update that counted, or none.
void ClientMachine::take_state_back(const protocol::RoundPlan& plan) {
  const RunId run = plan.run;
  const auto state = states_.find(run);
  const auto counted = [&plan](const CommittedState& kept) {
    if (plan.base.run_key == 0) return kept.round <= plan.base.round;
    return kept.task == plan.last_counted.task;
  };
  if (state == states_.end() || counted(state->second)) return;
  auto before = before_.extract(run);
  const bool has_earlier = before && counted(before.mapped());
  const char* const why = plan.base.run_key != 0 && plan.last_counted.round == 0
                              ? "the coordinator remembers no update of this client"
                              : "it is not of its last update that the coordinator counted";
  say(LogLevel::kWarning,
      fmt::format("run {}: this client's state of round {} is {}: {}", run.value(),
                  state->second.round,
                  has_earlier ? fmt::format("replaced by that of round {}", before.mapped().round)
                              : "dropped",
                  why));
  if (has_earlier) {
    state->second = std::move(before.mapped());
    actions_.push_back(RestoreState{state->second});
    return;
  }
  drop_state(run);
}

// A later attempt of the round at work: the same training answers it.
bool ClientMachine::continue_for(const protocol::RoundPlan& plan) {
  if (!task_ || task_->activity == Activity::kStoring) return false;
  const protocol::RoundPlan& now = task_->plan;
  if (!now.base.matches(plan.base) || now.kind != plan.kind || made_from(now) != made_from(plan) ||
      !update::answers(now.schema.vectors, plan.schema.vectors)) {
    return false;
  }
  task_->plan = plan;
  if (task_->activity == Activity::kFetching) request_input();
  return true;
}

void ClientMachine::begin(const protocol::RoundPlan& plan) {
  if (const auto known = check_encodings(plan); !known) {
    return fail_task(plan.task, Work::of(plan), known.error());
  }
  const auto acceptable = [this](std::uint64_t size) {
    return size > 0 && size <= options_.model_bytes_max && size % sizeof(float) == 0;
  };
  std::uint64_t size = plan.model_bytes;
  for (const protocol::TaskInput& input : plan.inputs) {
    if (acceptable(size)) size = input.bytes;
  }
  if (!acceptable(size)) {
    return fail_task(plan.task, Work::of(plan),
                     unsupported("model-too-large",
                                 fmt::format("a model of {} bytes cannot be taken; the limit here "
                                             "is {}",
                                             size, format_byte_count(options_.model_bytes_max))));
  }
  if (const auto free = find_place(plan); !free) {
    return fail_task(plan.task, Work::of(plan), free.error());
  }
  if (const auto fits = make_room(plan); !fits) {
    return fail_task(plan.task, Work::of(plan), fits.error());
  }
  say(LogLevel::kInfo,
      fmt::format("run {} '{}' round {}/{}: {}", plan.run.value(), plan.run_name, plan.round,
                  plan.rounds,
                  plan.kind == protocol::TaskKind::kTrain ? "selected" : "evaluating"));
  task_.emplace(Task{.plan = plan});
  fetch_inputs();
}

// The inputs in order, those that are not held already from the coordinator, one at a time.
void ClientMachine::fetch_inputs() {
  Task& task = *task_;
  while (task.inputs.size() <= task.plan.inputs.size()) {
    const protocol::TaskInput next = input_of(task.plan, task.inputs.size());
    const auto held = held_.find(next.sha256);
    if (held == held_.end() || held->second.size() != next.bytes) {
      task.assembler.emplace(next.bytes, options_.transfer.window_bytes);
      return request_input();
    }
    task.inputs.push_back(held->second);
  }
  held_.clear();
  for (std::size_t i = 0; i < task.inputs.size(); ++i) {
    held_.emplace(input_of(task.plan, i).sha256, task.inputs[i]);
  }
  start_when_settled();
}

// A later attempt of the same round from the same base asks for the same training, whose randomness
// does not depend on the attempt: the finished update is still good.
bool ClientMachine::reuse_update_for(const protocol::RoundPlan& plan) {
  const auto is_same = [&](const auto& entry) {
    return entry.second.head.base.matches(plan.base) &&
           update::answers(entry.second.head.vectors, plan.schema.vectors);
  };
  std::optional<Pending> same;
  std::vector<TaskId> replaced;
  // Several where a crash came between the file of one attempt and the removal of an earlier one's.
  for (auto at = pending_.begin(); at != pending_.end();) {
    if (!is_same(*at)) {
      ++at;
      continue;
    }
    replaced.push_back(at->first);
    std::ranges::copy(at->second.replaced, std::back_inserter(replaced));
    same.emplace(std::move(at->second));
    at = pending_.erase(at);
  }
  if (!same) return false;
  std::erase(replaced, plan.task);
  same->head.task = plan.task;
  task_.emplace(Task{.plan = plan, .activity = Activity::kStoring});
  keep_and_store(
      {std::move(same->head), std::move(same->payload), std::move(same->state), same->made_from});
  pending_.at(plan.task).replaced = std::move(replaced);
  return true;
}

void ClientMachine::request_input() {
  protocol::TransferReceiver& receiver = task_->assembler->receiver();
  send(protocol::ModelRequest{.task = task_->plan.task,
                              .offset = receiver.received(),
                              .limit = receiver.tell_limit(),
                              .input = static_cast<std::uint16_t>(task_->inputs.size())});
}

void ClientMachine::receive(const protocol::Chunk& chunk, const SharedBytes& payload) {
  if (!task_ || task_->plan.task != chunk.task || task_->activity != Activity::kFetching) return;
  if (chunk.input != task_->inputs.size()) return;  // of an input that is there already
  protocol::ModelAssembler& assembler = *task_->assembler;
  if (const auto taken = assembler.take(chunk.offset, payload); !taken) {
    return hang_up(taken.error());
  }
  if (const auto limit = assembler.receiver().credit_due()) {
    send(protocol::Credit{.task = chunk.task, .limit = *limit});
  }
  if (!assembler.receiver().done()) return;
  task_->inputs.push_back(std::move(assembler).finish());
  task_->assembler.reset();
  fetch_inputs();
}

void ClientMachine::receive(const protocol::Credit& credit) {
  const auto pending = pending_.find(credit.task);
  if (pending == pending_.end()) return;
  pending->second.sender.extend(credit.limit);
  pump(pending->second);
}

void ClientMachine::receive(const protocol::UpdateAccept& accept) {
  const auto pending = pending_.find(accept.task);
  if (pending == pending_.end()) return;
  // An update that is offered at a welcome, and again because it is asked for, is accepted twice:
  // what is on its way since the first time arrives.
  if (!std::exchange(pending->second.offered, false)) {
    pending->second.sender.extend(accept.limit);
    return pump(pending->second);
  }
  if (const auto started = pending->second.sender.start(accept.offset, accept.limit); !started) {
    return hang_up(started.error());
  }
  pump(pending->second);
}

void ClientMachine::receive(const protocol::UpdateReceived& received) {
  if (pending_.contains(received.task)) backoff_.reset();
}

void ClientMachine::receive(const protocol::RoundCommitted& committed) {
  const auto pending = pending_.find(committed.task);
  if (pending == pending_.end()) return;
  backoff_.reset();
  commit(pending->second);
}

void ClientMachine::commit(const Pending& pending) {
  const Work work = Work::of(pending.head);
  if (work.trains) ++updates_counted_;
  say(LogLevel::kInfo, work.name() + "counted");
  commit_state(pending);
  settle(pending.head.task);
}

// The state of a later round stays: an update may be settled again after a crash between the two
// files.
void ClientMachine::commit_state(const Pending& pending) {
  if (pending.state == nullptr) return;
  const RunId run = pending.head.base.run;
  const Round round = pending.head.base.round + 1;
  const auto now = states_.find(run);
  if (now != states_.end() && now->second.round >= round) return;
  CommittedState state{run, round, pending.head.task, pending.state};
  actions_.push_back(KeepState{state});
  remember(std::move(state));
  if (pending.rounds > 0 && round >= pending.rounds) ended_.insert(run);
  drop_ended_but(run);
  if (recent_.size() <= options_.states_max) return;
  if (const auto ended = ended_with_state_but(run)) return drop_state(*ended);
  // Were new runs refused instead, runs that ended unseen would block them on every client.
  const RunId dropped = recent_.front();
  say(LogLevel::kWarning,
      fmt::format(
          "this client's state of run {} is dropped to make room: states of {} runs are kept",
          dropped.value(), options_.states_max));
  drop_state(dropped);
}

// Where this run has ended, its state is kept, for its last round may be taken back, and that of
// the one that ended before it goes. A coordinator that is restored from a backup begins that run
// again.
void ClientMachine::drop_ended_but(RunId run) {
  if (!ended_.contains(run) || !states_.contains(run)) return;
  const auto earlier = ended_with_state_but(run);
  if (!earlier) return;
  say(LogLevel::kDebug,
      fmt::format("this client's state of run {}, which has ended, is dropped", earlier->value()));
  drop_state(*earlier);
}

// There is one at most.
std::optional<RunId> ClientMachine::ended_with_state_but(RunId run) const {
  const auto found = std::ranges::find_if(
      recent_, [&](RunId other) { return other != run && ended_.contains(other); });
  return found == recent_.end() ? std::nullopt : std::optional(*found);
}

void ClientMachine::drop_state(RunId run) {
  states_.erase(run);
  before_.erase(run);
  recent_.remove(run);
  ended_.erase(run);
  actions_.push_back(ForgetState{run});
}

void ClientMachine::remember(CommittedState state) {
  const RunId run = state.run;
  if (auto last = states_.extract(run)) before_.insert_or_assign(run, std::move(last.mapped()));
  states_.emplace(run, std::move(state));
  recent_.remove(run);
  recent_.push_back(run);
}

void ClientMachine::receive(const protocol::TaskEnded& ended) {
  const bool at_work = task_ && task_->plan.task == ended.task;
  const auto pending = pending_.find(ended.task);
  const auto failed = failures_.find(ended.task);
  Work work;
  if (at_work) {
    work = Work::of(task_->plan);
  } else if (pending != pending_.end()) {
    work = Work::of(pending->second.head);
  } else if (failed != failures_.end()) {
    work = failed->second.work;
  } else {
    return;  // of a model that the device's gossip peer handed in, or said again
  }
  if (ended.code == "run-stopped") {
    ended_.insert(work.base.run);
    drop_ended_but(work.base.run);
  }
  if (at_work) drop_task();
  if (failed != failures_.end()) failures_.erase(failed);
  settle(ended.task);
  say(LogLevel::kInfo,
      fmt::format("{}not counted ({}): {}", work.name(), ended.code, ended.message));
}

// --- training and what comes of it --------------------------------------------------------------

// A round of a strategy with a state builds on the outcome of the client's earlier rounds: whether
// they counted is known when their updates are settled, which was asked for already.
void ClientMachine::start_when_settled() {
  task_->activity = Activity::kSettling;
  if (!builds_on_unsettled(task_->plan)) start_training();
}

bool ClientMachine::builds_on_unsettled(const protocol::RoundPlan& plan) const {
  return plan.kind == protocol::TaskKind::kTrain &&
         std::ranges::any_of(pending_, [&](const auto& entry) {
           return entry.second.state != nullptr && entry.second.head.base.run == plan.run;
         });
}

void ClientMachine::start_training() {
  Task& task = *task_;
  task.activity = Activity::kTraining;
  task.training = task.plan.task;
  Train train{.plan = task.plan,
              .base = std::move(task.inputs[0]),
              .other_states_bytes = other_states_bytes(task.plan.run)};
  train.inputs.assign(std::make_move_iterator(task.inputs.begin() + 1),
                      std::make_move_iterator(task.inputs.end()));
  task.inputs.clear();
  if (const auto state = states_.find(task.plan.run); state != states_.end()) {
    train.state = state->second.state;
  }
  train.state_lost = lacks_state(task.plan);
  actions_.push_back(std::move(train));
}

// Nothing is lost where the strategy keeps no state; the trainer knows.
bool ClientMachine::lacks_state(const protocol::RoundPlan& plan) const {
  if (plan.kind != protocol::TaskKind::kTrain) return false;
  if (plan.base.run_key == 0 || plan.last_counted.round == 0) return false;
  return !states_.contains(plan.run);
}

std::uint64_t ClientMachine::other_states_bytes(RunId run) const {
  std::uint64_t bytes = 0;
  for (const auto& [other, committed] : states_) {
    if (other != run) bytes += state_bytes(other);
  }
  for (const auto& [task, pending] : pending_) {
    if (pending.head.base.run != run) bytes += bytes_of(pending.state);
  }
  return bytes;
}

// Of its last commit and of the one before.
std::uint64_t ClientMachine::state_bytes(RunId run) const {
  std::uint64_t bytes = bytes_of(states_.at(run).state);
  if (const auto before = before_.find(run); before != before_.end()) {
    bytes += bytes_of(before->second.state);
  }
  return bytes;
}

// An update with a state is not dropped for another one, so that a task needs a place for its own.
// What a training of the same run left is settled before the next one begins: its place serves
// again. What an evaluation leaves is a few numbers, which find a place beyond the limit.
Result<void> ClientMachine::find_place(const protocol::RoundPlan& plan) const {
  if (plan.kind != protocol::TaskKind::kTrain) return {};
  std::set<std::uint64_t> holders;
  std::size_t held = 0;
  for (const auto& [task, pending] : pending_) {
    const RunId run = pending.head.base.run;
    if (pending.state == nullptr || run == plan.run) continue;
    ++held;
    holders.insert(run.value());
  }
  if (held < options_.pending_updates_max) return {};
  return overloaded(
      std::string(kMemoryInUse),
      fmt::format(
          "each place for a pending update (there are {}) is taken until rounds of run {} are "
          "committed: raise limits.pending-updates if that happens often",
          options_.pending_updates_max, fmt::join(holders, ", ")));
}

// Where memory is short, states of runs that may go on are never dropped for another run: two that
// do not fit together would go on destroying each other's. No message says that a run has ended
// early, nor does a file, so some that are of no use stay; the refusal names them. Only beyond
// states_max does one of them go: see commit_state().
Result<void> ClientMachine::make_room(const protocol::RoundPlan& plan) {
  if (!options_.check) return {};
  const std::uint64_t others = other_states_bytes(plan.run);
  Result<void> fits = options_.check(plan, others);
  if (fits || fits.error().kind() != ErrorKind::kOverloaded) return fits;
  const auto ended = ended_with_state_but(plan.run);
  if (!ended || !options_.check(plan, others - state_bytes(*ended))) {
    return with_holders(fits.error(), plan.run);
  }
  say(LogLevel::kInfo, fmt::format("this client's state of run {}, which has ended, is dropped: "
                                   "run {} needs the memory",
                                   ended->value(), plan.run.value()));
  drop_state(*ended);
  return {};
}

Error ClientMachine::with_holders(const Error& error, RunId run) const {
  std::set<std::uint64_t> holders;
  for (const auto& [other, committed] : states_) holders.insert(other.value());
  for (const auto& [task, pending] : pending_) {
    if (pending.state != nullptr) holders.insert(pending.head.base.run.value());
  }
  holders.erase(run.value());
  return error.with_message(
      fmt::format("{}; held are the states of run {}: raise limits.memory, or, where one of them "
                  "has ended, stop "
                  "this client and remove RUN.state and RUN.before from its directory pending/",
                  error.message(), fmt::join(holders, ", ")));
}

void ClientMachine::handle(TrainingFinished& event) {
  if (!task_ || task_->activity != Activity::kTraining || task_->training != event.task) return;
  if (event.update && !event.update->head.base.matches(task_->plan.base)) return;  // another past
  const TaskId task = task_->plan.task;
  if (!event.update) {
    // Perhaps it was the model that was bad.
    if (event.update.error().code() != kStateLost) held_.clear();
    const Work work = Work::of(task_->plan);
    task_.reset();
    return fail_task(task, work, event.update.error());
  }
  task_->activity = Activity::kStoring;
  event.update->head.task = task;
  event.update->made_from = made_from(task_->plan);
  keep_and_store(std::move(*event.update));
}

void ClientMachine::handle(UpdateStored& event) {
  if (activity() == Activity::kStoring && task_->plan.task == event.task) task_.reset();
  const auto found = pending_.find(event.task);
  if (found == pending_.end()) return;
  Pending& pending = found->second;
  if (!event.result && event.result.error().kind() != ErrorKind::kOverloaded) {
    const Work work = Work::of(pending.head);
    settle(event.task);
    return fail_task(event.task, work, event.result.error());
  }
  if (!event.result && pending.state != nullptr) {
    // Were it counted, and this process killed before it heard so, the state would be lost that the
    // server believes this client to have.
    pending.store_again_at = now_ + options_.disk_retry;
    if (std::exchange(pending.waits_for_disk, true)) return;
    return say(LogLevel::kWarning,
               fmt::format("the update waits until it can be stored, tried again every {}: {}",
                           format_duration(options_.disk_retry), event.result.error().message()));
  }
  if (!event.result) {  // a full disk: only a crash before the commit would lose the update
    say(LogLevel::kWarning,
        fmt::format("the update is kept in memory only: {}", event.result.error().message()));
  } else {
    for (const TaskId earlier : std::exchange(pending.replaced, {})) {
      actions_.push_back(ForgetUpdate{earlier});
    }
  }
  pending.stored = true;
  if (is_readable(pending.head)) return offer(pending);
  const Work work = Work::of(pending.head);
  settle(event.task);
  fail_task(event.task, work,
            retry("coordinator-older",
                  "the coordinator was replaced by an earlier version, which "
                  "cannot read this update"));
}

ClientMachine::Work ClientMachine::Work::of(const protocol::RoundPlan& plan) {
  return {plan.base, plan.kind == protocol::TaskKind::kTrain};
}

ClientMachine::Work ClientMachine::Work::of(const update::ContributionHead& head) {
  return {head.base, !head.vectors.empty()};
}

std::string ClientMachine::Work::name() const {
  return fmt::format("run {} round {}: {}", base.run.value(), base.round + (trains ? 1 : 0),
                     trains ? "" : "evaluation ");
}

void ClientMachine::fail_task(TaskId task, const Work& work, const Error& error) {
  say(LogLevel::kError, fmt::format("{}{}failed ({}): {}", work.name(),
                                    work.trains ? "training " : "", error.code(), error.message()));
  while (failures_.size() >= options_.pending_updates_max) failures_.erase(failures_.begin());
  failures_.insert_or_assign(task, Failure{work, error});
  if (link_ == Link::kUp) send(failure_of(task, error));
}

void ClientMachine::keep_and_store(PendingUpdate update) {
  keep(update, false, task_->plan.rounds);
  actions_.push_back(StoreUpdate{std::move(update)});
}

// The coordinator may have counted an update and this client not have heard so. Without its state
// nothing is lost; with it, the client's part of the run is: it is kept until it is settled.
void ClientMachine::keep(PendingUpdate update, bool stored, Round rounds) {
  const TaskId task = update.head.task;
  protocol::TransferSender sender(update.payload, options_.transfer.chunk_bytes_max);
  Pending pending{.head = std::move(update.head),
                  .payload = std::move(update.payload),
                  .state = std::move(update.state),
                  .made_from = update.made_from,
                  .order = order_++,
                  .stored = stored,
                  .sender = std::move(sender),
                  .rounds = rounds};
  pending_.insert_or_assign(task, std::move(pending));
  if (pending_.size() <= options_.pending_updates_max) return;
  const auto first = std::ranges::min_element(pending_, {}, [](const auto& entry) {
    return std::pair(entry.second.state != nullptr, entry.second.order);
  });
  if (first->second.state != nullptr) return;
  say(LogLevel::kWarning, "an update that was never settled is dropped to make room");
  settle(first->first);
}

void ClientMachine::store_again() {
  for (auto& [task, pending] : pending_) {
    if (!pending.store_again_at || now_ < *pending.store_again_at) continue;
    pending.store_again_at.reset();
    actions_.push_back(
        StoreUpdate{{pending.head, pending.payload, pending.state, pending.made_from}});
  }
}

bool ClientMachine::is_readable(const update::ContributionHead& head) const {
  return reads_sparse_ || std::ranges::none_of(head.vectors, [](const update::VectorSpec& vector) {
           return is_sparse(vector.encoding);
         });
}

// An earlier version closes the connection on what it cannot read, and would do so each time. It
// asks again for the tasks that it still wants.
void ClientMachine::drop_unreadable() {
  std::vector<TaskId> unreadable;
  for (const auto& [task, pending] : pending_) {
    const bool is_unreadable = pending.stored && !is_readable(pending.head);
    if (is_unreadable && pending.state == nullptr) unreadable.push_back(task);
  }
  for (const TaskId task : unreadable) {
    say(LogLevel::kWarning,
        fmt::format("{}the update is dropped: the coordinator was replaced by an earlier version, "
                    "which cannot read it",
                    Work::of(pending_.at(task).head).name()));
    settle(task);
  }
}

void ClientMachine::offer(Pending& pending) {
  if (!pending.stored || link_ != Link::kUp || !is_readable(pending.head)) return;
  pending.offered = true;
  send(protocol::UpdateOffer{pending.head});
}

// A coordinator may give credit for more than the link has room for: two windows now, and what is
// left once these are on their way.
void ClientMachine::pump(Pending& pending) {
  std::uint64_t queued = 0;
  while (queued < 2 * options_.transfer.window_bytes) {
    auto piece = pending.sender.next();
    if (!piece) return;
    queued += piece->bytes.size();
    send(protocol::Chunk{.task = pending.head.task, .offset = piece->offset},
         std::move(piece->bytes));
  }
}

void ClientMachine::handle(Drained&) {
  if (link_ != Link::kUp) return;
  for (auto& [task, pending] : pending_) pump(pending);
}

void ClientMachine::settle(TaskId task) {
  const auto pending = pending_.extract(task);
  if (!pending) return;
  for (const TaskId earlier : pending.mapped().replaced) actions_.push_back(ForgetUpdate{earlier});
  actions_.push_back(ForgetUpdate{task});
  if (activity() == Activity::kSettling) start_when_settled();
}

void ClientMachine::drop_task() {
  if (!task_) return;
  if (task_->activity == Activity::kTraining) {
    actions_.push_back(CancelTraining{task_->training});
  }
  task_.reset();
}

void ClientMachine::send(protocol::Message message, SharedBytes payload) {
  sent_at_ = now_;
  actions_.push_back(Send{{std::move(message), std::move(payload)}});
}

void ClientMachine::say(LogLevel level, std::string line) {
  actions_.push_back(Say{level, std::move(line)});
}

}  // namespace starling::client
