// SPDX-License-Identifier: Apache-2.0
// The coordinator's process and its sessions; the clients stand in
// federation_simulator_clients.cpp, the network and the nodes in federation_simulator_world.cpp.
#include "coordinator/federation_simulator.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/run_records.h"
#include "core/base/check.h"
#include "core/model/safetensors.h"

namespace starling::coordinator {

FederationSimulator::FederationSimulator(store::Store& store, const Clock& clock, Options options,
                                         Hooks hooks)
    : store_(store),
      clock_(clock),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      caches_(options_.threads),
      pool_(options_.threads),
      fault_rng_({.seed = options_.faults.seed, .purpose = Purpose::kNetwork}) {}

FederationSimulator::~FederationSimulator() {
  for (Node& node : nodes_) {
    for (auto& [task, training] : node.trainings) training->stop = true;
  }
}

void FederationSimulator::add_client(const std::string& name, data::DatasetView data) {
  STARLING_CHECK(!node_of_.contains(name));
  node_of_[name] = nodes_.size();
  const auto lie = options_.faults.announces.find(name);
  const std::uint64_t rows = lie == options_.faults.announces.end() ? data.size() : lie->second;
  nodes_.push_back(Node{.name = name, .data = std::move(data), .rows = rows});
}

Result<RunId> FederationSimulator::run(const RunContext& context, const std::string& job_text,
                                       std::map<Round, std::vector<std::string>> recorded) {
  context_ = &context;
  recorded_ = std::move(recorded);
  const JobOptions& job = context.job.job;
  STARLING_ASSIGN(run_, store_.submit_run({.name = job.name, .seed = job.seed, .job = job_text},
                                          clock_.wall_now()));
  auto initial = std::make_shared<const model::Parameters>(
      model::initial_parameters(*context.model, job.seed));
  const Sha256Digest sha = initial->sha256();
  models_[0] = initial;
  store::ModelRecord record{.sha256 = sha,
                            .file = store::Checkpoints::file_name(0),
                            .bytes = initial->size() * sizeof(float)};
  if (options_.checkpoints) {
    STARLING_TRY(model::write_safetensors(options_.checkpoints->path(0), *initial));
  }
  STARLING_TRY(store_.start_run(run_, record, clock_.wall_now()));
  start_coordinator();
  STARLING_TRY(begin_world());
  submit_when_connected();
  while (!finished_ && !failure_) {
    if (queue_.now() > options_.give_up_at) {
      return internal("simulation-stalled",
                      fmt::format("the run had not ended after {} of virtual time",
                                  format_duration(queue_.now() - TimePoint{})));
    }
    auto event = queue_.pop();
    if (!event) {  // otherwise somebody always waits for something
      STARLING_CHECK(options_.world && options_.world->population().churns());
      return rejected("all-left", fmt::format("after {:.1f} s of virtual time every client has "
                                              "left: raise nodes.leave-after or lower rounds",
                                              seconds_now()));
    }
    (*event)();
  }
  if (failure_) return *failure_;
  return run_;
}

// --- the coordinator's process ------------------------------------------------------------------

void FederationSimulator::start_coordinator() {
  machine_ = std::make_unique<CoordinatorMachine>(
      CoordinatorOptions{.federation = "simulated", .transfer = options_.transfer});
  const bool first = coordinator_incarnation_++ == 0;
  for (const Node& node : nodes_) {  // what a store would know
    to_coordinator(ClientAdmitted{node.name, !first, first ? 0 : node.rows});
  }
  if (submitted_) submit();
}

// The run begins once everybody is there, as researchers expect of clients that cost nothing; where
// clients come and go, at once: round.wait-for decides, as it does for a service.
void FederationSimulator::submit_when_connected() {
  const bool churns = options_.world && options_.world->population().churns();
  if (machine_ && (churns || machine_->clients_connected() == nodes_.size())) {
    submitted_ = true;
    return submit();
  }
  const Duration pause =
      std::max<Duration>(options_.faults.latency_max / 10, std::chrono::milliseconds(1));
  queue_.schedule(queue_.now() + pause, [this] { submit_when_connected(); });
}

void FederationSimulator::submit() {
  const auto rounds = store_.rounds(run_, 1);
  if (!rounds) return fail(rounds.error());
  const auto& [round, model] = *models_.rbegin();
  RunStart start = to_run_start(run_, *context_, {run_, round, model->sha256()}, model, *rounds);
  start.recorded_contributors = recorded_;
  to_coordinator(RunSubmitted{std::move(start)});
}

void FederationSimulator::kill_coordinator(Duration restart_after) {
  ++crashes_;
  ++coordinator_incarnation_;
  machine_.reset();
  aggregate_.reset();
  uploads_.clear();
  coordinator_tick_at_.reset();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    break_session(i, retry("connection-lost", "the coordinator went away"));
  }
  queue_.schedule(queue_.now() + restart_after, [this] { start_coordinator(); });
}

void FederationSimulator::to_coordinator(Event event) {
  if (!machine_ || finished_) return;
  const std::uint64_t incarnation = coordinator_incarnation_;
  for (Action& action : machine_->on(std::move(event), queue_.now())) {
    if (incarnation != coordinator_incarnation_) return;
    perform(action);
  }
  schedule_coordinator_tick();
}

void FederationSimulator::schedule_coordinator_tick() {
  const auto due = machine_ ? machine_->next_deadline() : std::nullopt;
  if (!due || (coordinator_tick_at_ && *coordinator_tick_at_ <= *due)) return;
  coordinator_tick_at_ = due;
  queue_.schedule(*due, [this, due, incarnation = coordinator_incarnation_] {
    if (incarnation != coordinator_incarnation_ || coordinator_tick_at_ != due) return;
    coordinator_tick_at_.reset();
    to_coordinator(Tick{});
  });
}

void FederationSimulator::perform(Action& action) {
  if (auto* send = std::get_if<Send>(&action)) {
    const auto node = node_of_session_.find(send->session);
    if (node != node_of_session_.end()) {
      transmit(node->second, send->session, Direction::kToClient, std::move(send->envelope));
    }
  } else if (const auto* close = std::get_if<CloseSession>(&action)) {
    const auto node = node_of_session_.find(close->session);
    if (node != node_of_session_.end()) {
      break_session(node->second, retry(close->code, close->message));
    }
  } else if (const auto* begin = std::get_if<BeginRound>(&action)) {
    begin_round(*begin);
  } else if (const auto* open = std::get_if<OpenUpload>(&action)) {
    open_upload(*open);
  } else if (const auto* write = std::get_if<WriteUpload>(&action)) {
    write_upload(*write);
  } else if (const auto* drop = std::get_if<DropUpload>(&action)) {
    uploads_.erase(drop->task);
  } else if (auto* sum = std::get_if<SumUpload>(&action)) {
    sum_upload(*sum);
  } else if (const auto* traffic = std::get_if<RecordTraffic>(&action)) {
    const auto stored = store_.record_traffic({traffic->run, traffic->round, traffic->attempt},
                                              traffic->bytes_in, traffic->bytes_out);
    if (!stored) fail(stored.error());
  } else if (const auto* commit = std::get_if<CommitRound>(&action)) {
    commit_round(*commit);
  } else if (const auto* abandon = std::get_if<AbandonRound>(&action)) {
    abandon_round(*abandon);
  } else if (const auto* finish = std::get_if<FinishRun>(&action)) {
    finish_run(*finish);
  } else if (const auto* look = std::get_if<LookUpTask>(&action)) {
    look_up(*look);
  } else if (const auto* line = std::get_if<Say>(&action)) {
    say(line->line);
  }  // ClientSeen, RunWaits: a simulation has no operator to ask, and one run only
}

void FederationSimulator::begin_round(const BeginRound& begin) {
  round_started_ = clock_.now();
  if (!begin.resumed) {
    const auto opened = store_.open_attempt(to_record(begin, clock_.wall_now()));
    if (!opened) return fail(opened.error());
  }
  auto aggregate =
      RoundAggregate::begin(*context_, begin.schema, models_.rbegin()->second, begin.norm_max);
  if (!aggregate) return fail(aggregate.error());
  aggregate_ = std::move(*aggregate);
}

void FederationSimulator::open_upload(const OpenUpload& open) {
  Upload& upload = uploads_[open.task];
  upload.bytes = open.bytes;
  queue_.schedule(queue_.now(), [this, task = open.task, received = upload.received,
                                 incarnation = coordinator_incarnation_] {
    if (incarnation == coordinator_incarnation_) to_coordinator(UploadOpened{task, received});
  });
}

void FederationSimulator::write_upload(const WriteUpload& write) {
  Upload& upload = uploads_.at(write.task);
  upload.received = write.offset + write.bytes.size();
  if (write.bytes.size() == upload.bytes) {
    upload.whole = write.bytes;
    return;
  }
  if (!upload.memory) upload.memory = std::make_shared<std::vector<float>>(upload.bytes / 4);
  std::memcpy(reinterpret_cast<std::byte*>(upload.memory->data()) + write.offset,
              write.bytes.view().data(), write.bytes.size());
}

void FederationSimulator::sum_upload(SumUpload& sum) {
  const TaskId task = sum.head.task;
  Upload upload = std::move(uploads_.at(task));
  uploads_.erase(task);
  SharedBytes payload = std::move(upload.whole);
  if (upload.memory) payload = {upload.memory, std::as_bytes(std::span(*upload.memory))};
  auto result = aggregate_->add(std::move(sum.head), std::move(payload));
  queue_.schedule(queue_.now(),
                  [this, task, result = std::move(result), incarnation = coordinator_incarnation_] {
                    if (incarnation == coordinator_incarnation_)
                      to_coordinator(UploadSummed{task, result});
                  });
}

void FederationSimulator::commit_round(const CommitRound& commit) {
  RoundSummary summary = commit.summary;
  auto outcome = std::move(*aggregate_).finish(summary.round, &pool_);
  aggregate_.reset();
  // People want to know how long it took, not how long it would have taken in virtual time.
  summary.elapsed = clock_.now() - round_started_;
  ended_at_[{summary.round, summary.attempt}] = seconds_now();
  using Next = Result<std::pair<update::ModelVersion, model::Snapshot>>;
  Next next = outcome ? make_durable(summary, *outcome) : Next(outcome.error());
  if (next) {
    auto lines = round_lines(summary, &*outcome, static_cast<Round>(context_->job.job.rounds));
    if (options_.world) lines.back() += fmt::format("  {:.2f} s virtual", seconds_now());
    for (const std::string& line : lines) say(line);
    if (hooks_.on_round) hooks_.on_round(summary, *outcome);
  }
  queue_.schedule(queue_.now(),
                  [this, next = std::move(next), incarnation = coordinator_incarnation_] {
                    if (incarnation == coordinator_incarnation_) to_coordinator(RoundDurable{next});
                  });
}

Result<std::pair<update::ModelVersion, model::Snapshot>> FederationSimulator::make_durable(
    const RoundSummary& summary, RoundOutcome& outcome) {
  if (options_.checkpoints) {
    STARLING_TRY(
        model::write_safetensors(options_.checkpoints->path(summary.round), *outcome.model));
  }
  const store::ModelRecord record{.round = summary.round,
                                  .sha256 = outcome.sha256,
                                  .file = store::Checkpoints::file_name(summary.round),
                                  .bytes = outcome.model->size() * sizeof(float)};
  STARLING_TRY(store_.commit_attempt({summary.run, summary.round, summary.attempt},
                                     to_record(summary, &outcome), record));
  models_.clear();
  models_[summary.round] = outcome.model;
  if (options_.checkpoints) {
    STARLING_ASSIGN(const auto models, store_.models(run_));
    const auto keep = static_cast<std::uint32_t>(context_->job.checkpoint.keep);
    STARLING_TRY(options_.checkpoints->prune(models, keep));
  }
  return std::pair(update::ModelVersion{summary.run, summary.round, outcome.sha256}, outcome.model);
}

void FederationSimulator::abandon_round(const AbandonRound& abandon) {
  const RoundSummary& summary = abandon.summary;
  ended_at_[{summary.round, summary.attempt}] = seconds_now();
  for (const std::string& line :
       round_lines(summary, nullptr, static_cast<Round>(context_->job.job.rounds))) {
    say(line);
  }
  const auto stored = store_.abandon_attempt({summary.run, summary.round, summary.attempt},
                                             to_record(summary, nullptr),
                                             {abandon.reason.code(), abandon.reason.message()});
  if (!stored) fail(stored.error());
}

void FederationSimulator::finish_run(const FinishRun& finish) {
  store::RunEnd end;
  switch (finish.state) {
    case FinishRun::State::kCompleted:
      end.state = store::RunState::kCompleted;
      break;
    case FinishRun::State::kFailed:
      end.state = store::RunState::kFailed;
      break;
    case FinishRun::State::kStopped:
      end.state = store::RunState::kStopped;
      break;
  }
  if (finish.error) {
    end.error_code = finish.error->code();
    end.error = finish.error->message();
    say(fmt::format("run failed: {}", finish.error->message()));
  }
  const auto stored = store_.finish_run(finish.run, end, clock_.wall_now());
  if (!stored) return fail(stored.error());
  finished_ = true;
}

void FederationSimulator::look_up(const LookUpTask& look) {
  auto settlement = settle_task(store_, look.task, look.client);
  if (!settlement) return fail(settlement.error());
  if (!*settlement) return;
  queue_.schedule(queue_.now(), [this, session = look.session, message = std::move(**settlement),
                                 incarnation = coordinator_incarnation_] {
    if (incarnation == coordinator_incarnation_) to_coordinator(TaskLookedUp{session, message});
  });
}

// --- sessions -----------------------------------------------------------------------------------

bool FederationSimulator::happens(double probability) {
  if (probability <= 0) return false;
  return fault_rng_.uniform() < probability && queue_.now() < options_.faults.until;
}

void FederationSimulator::deliver(std::size_t index, SessionId session, Direction direction,
                                  protocol::Envelope& envelope) {
  if (nodes_[index].session != session) return;  // it broke on the way
  if (happens(options_.faults.disconnect)) {
    ++disconnects_;
    return break_session(index, retry("connection-lost", "the connection broke"));
  }
  if (direction == Direction::kToClient) {
    if (happens(options_.faults.client_crash)) return crash_client(index);
    if (fallback_) fallback_->see(index, envelope.message);
    return to_client(index, client::Received{std::move(envelope)});
  }
  if (happens(options_.faults.coordinator_crash))
    return kill_coordinator(options_.faults.restart_after);
  to_coordinator(MessageReceived{session, std::move(envelope)});
}

void FederationSimulator::break_session(std::size_t index, const Error& reason) {
  Node& node = nodes_[index];
  if (!node.session) return;
  const SessionId session = *node.session;
  node.session.reset();
  node_of_session_.erase(session);
  if (options_.world) options_.world->forget_session(static_cast<std::uint32_t>(index));
  if (fallback_) fallback_->lost(index);
  queue_.schedule(queue_.now(), [this, index, session, reason, incarnation = node.incarnation] {
    to_coordinator(SessionClosed{session});
    if (nodes_[index].incarnation == incarnation) to_client(index, client::Disconnected{reason});
  });
}

void FederationSimulator::say(const std::string& line) {
  const auto stored = store_.append_log(run_, std::span(&line, 1), clock_.wall_now());
  if (!stored) fail(stored.error());
  if (hooks_.on_line) hooks_.on_line(line);
}

void FederationSimulator::fail(const Error& error) { failure_ = error; }

}  // namespace starling::coordinator
