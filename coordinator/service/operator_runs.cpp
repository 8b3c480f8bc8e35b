// SPDX-License-Identifier: Apache-2.0
// run submit, list, show, log, stop; `run wait` is made of these.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <random>

#include "coordinator/job/job.h"
#include "coordinator/rounds/run_json.h"
#include "coordinator/service/operator_desk.h"
#include "core/base/utf8.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

constexpr std::size_t kJobBytesMax = 60'000;
constexpr std::size_t kSubmitTokenBytesMax = 128;
constexpr std::size_t kLinesPerPiece = 256;
constexpr std::size_t kPieceBytes = 32 * 1024;  // before the last line of a piece
constexpr std::size_t kLineBytesMax = 8 * 1024;

// For a submission without one: it also makes the run's key, which tells it from a run of the same
// number in another database.
std::string random_submit_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

// A line a JSON object; with `follow` until the run is finished.
class LogAnswer final : public OperatorAnswer {
 public:
  LogAnswer(store::RunStore& store, RunId run, std::uint64_t first, bool follow)
      : store_(store), run_(run), next_(first), follow_(follow) {}

  Result<SharedBytes> next() override {
    STARLING_ASSIGN(const auto run, store_.find_run(run_));
    STARLING_ASSIGN(const auto lines, store_.log_lines(run_, next_, kLinesPerPiece));
    std::string piece;
    for (const store::LogLine& line : lines) {
      if (piece.size() > kPieceBytes) break;
      piece += json::serialize(json::object{{"sequence", line.sequence},
                                            {"time", format_rfc3339(line.time)},
                                            {"text", clean_sentence(line.text, kLineBytesMax)}});
      piece += '\n';
      next_ = line.sequence + 1;
    }
    done_ = lines.empty() && (!follow_ || !run || store::is_finished(run->state));
    return SharedBytes::own(to_bytes(as_bytes(piece)));
  }
  bool done() const override { return done_; }

 private:
  store::RunStore& store_;
  RunId run_;
  std::uint64_t next_;
  bool follow_;
  bool done_ = false;
};

// One that is not known yet: nothing until it is.
class LaterAnswer final : public OperatorAnswer {
 public:
  explicit LaterAnswer(std::shared_ptr<std::optional<Answer>> answer)
      : answer_(std::move(answer)) {}

  Result<SharedBytes> next() override {
    if (!*answer_) return SharedBytes();
    Answer& answer = **answer_;
    if (!answer) return answer.error();
    return (*answer)->next();
  }
  bool done() const override { return *answer_ && **answer_ && (***answer_)->done(); }

 private:
  std::shared_ptr<std::optional<Answer>> answer_;
};

json::value time_or_null(const std::optional<WallTime>& time) {
  return time ? json::value(format_rfc3339(*time)) : json::value(nullptr);
}

json::object summary(const store::Run& run, Round rounds_done) {
  return {{"id", run.id.value()},
          {"name", run.name},
          {"state", store::to_string(run.state)},
          {"seed", run.seed},
          {"rounds_committed", rounds_done},
          {"submitted", format_rfc3339(run.submitted)},
          {"started", time_or_null(run.started)},
          {"ended", time_or_null(run.ended)}};
}

// Why the round that is under way has no model yet, where its last attempt was abandoned.
json::value last_abandoned(const store::Run& run, const std::vector<store::RoundRecord>& rounds) {
  if (store::is_finished(run.state)) return nullptr;
  const auto ended = std::find_if(rounds.rbegin(), rounds.rend(), [](const auto& record) {
    return record.state != store::RoundState::kOpen;
  });
  if (ended == rounds.rend() || !ended->abandonment) return nullptr;
  return json::value(fmt::format("attempt {} of round {} was abandoned: {}", ended->key.attempt,
                                 ended->key.round, ended->abandonment->reason));
}

}  // namespace

Result<store::Run> OperatorDesk::find_run(const OperatorCall& call) {
  STARLING_ASSIGN(const RunId id, call.run_id());
  STARLING_ASSIGN(auto run, parts_.store.find_run(id));
  if (run) return *std::move(run);
  return rejected("run-unknown",
                  fmt::format("there is no run {}; 'run list' shows all", id.value()));
}

json::value OperatorDesk::waits_for(const store::Run& run) const {
  if (store::is_finished(run.state)) return nullptr;
  const std::string why = handlers_.waits_for(run);
  return why.empty() ? json::value(nullptr) : json::value(why);
}

json::value OperatorDesk::clients_of(RunId id) const {
  const RunMachine* run = handlers_.find_run(id);
  if (run == nullptr) return nullptr;
  const Candidates::Reach reach = run->candidates().reach();
  json::array left_out;
  for (const auto& [client, reason, trains] : reach.left_out) {
    left_out.push_back({{"client", client}, {"reason", reason}, {"trains", trains}});
  }
  return json::object{{"admitted", reach.admitted},
                      {"able", reach.able},
                      {"connected", reach.connected},
                      {"left_out", std::move(left_out)}};
}

Answer OperatorDesk::run_submit(const OperatorCall& call) {
  if (call.payload.size() > kJobBytesMax) {
    return wrong_setting("job-too-large", fmt::format("a job may have {} bytes", kJobBytesMax));
  }
  std::string submit_token = call.find("submit-token").value_or("");
  if (submit_token.empty()) submit_token = random_submit_token();
  if (submit_token.size() > kSubmitTokenBytesMax) {
    return wrong_setting("argument-invalid",
                         fmt::format("a submit token may have {} bytes", kSubmitTokenBytesMax));
  }
  STARLING_ASSIGN(const Job job, parse_job(call.payload, "job"));
  store::NewRun run{.name = job.job.name,
                    .seed = job.job.seed,
                    .submit_token = submit_token,
                    .job = std::string(call.payload)};
  const auto answer = std::make_shared<std::optional<Answer>>();
  handlers_.try_job(job, [this, caller = call.caller, run,
                          asked = std::weak_ptr(answer)](const Result<TriedJob>& tried) mutable {
    const auto waiting = asked.lock();
    if (!waiting) return;  // the operator has gone: nothing is submitted
    if (tried) run.initial_sha256 = tried->initial_sha256;
    waiting->emplace(tried ? noted(store_run(caller, run, handlers_.warnings(tried->job)))
                           : tried.error());
    handlers_.on_answered();
  });
  return std::make_unique<LaterAnswer>(answer);
}

Answer OperatorDesk::store_run(const std::string& caller, const store::NewRun& run,
                               const std::vector<std::string>& warnings) {
  STARLING_ASSIGN(const RunId id, parts_.store.submit_run(run, parts_.clock.wall_now()));
  parts_.log.info("{} submitted run {} '{}'", caller, id.value(), run.name);
  handlers_.on_submitted();
  json::object answer{{"id", id.value()}};
  if (!warnings.empty()) answer["warnings"] = json::value_from(warnings);
  return answer_json(answer);
}

Answer OperatorDesk::run_list(const OperatorCall&) {
  STARLING_ASSIGN(const auto runs, parts_.store.runs());
  json::array list;
  for (const store::Run& run : runs) {
    STARLING_ASSIGN(const Round done, parts_.store.last_round(run.id));
    json::object object = summary(run, done);
    object["waits_for"] = waits_for(run);
    object["last_abandoned"] = nullptr;
    if (!store::is_finished(run.state)) {
      STARLING_ASSIGN(const auto attempts, parts_.store.rounds(run.id, done + 1));
      object["last_abandoned"] = last_abandoned(run, attempts);
    }
    list.push_back(std::move(object));
  }
  return answer_json(list);
}

Answer OperatorDesk::run_show(const OperatorCall& call) {
  STARLING_ASSIGN(const store::Run run, find_run(call));
  STARLING_ASSIGN(const auto rounds, parts_.store.rounds(run.id, 1));
  STARLING_ASSIGN(const auto evaluations, parts_.store.evaluations(run.id, 1));
  json::value shown = run_to_json(run, rounds, evaluations);
  shown.as_object()["waits_for"] = waits_for(run);
  shown.as_object()["last_abandoned"] = last_abandoned(run, rounds);
  shown.as_object()["clients"] = clients_of(run.id);
  const RunMachine* machine = handlers_.find_run(run.id);
  if (machine != nullptr && machine->phase()) add_progress(*machine->phase(), shown);
  return answer_json(shown);
}

// What `run show` says, without the rounds.
Answer OperatorDesk::run_state(const OperatorCall& call) {
  STARLING_ASSIGN(const store::Run run, find_run(call));
  json::value shown = run_to_json(run, {});
  shown.as_object()["waits_for"] = waits_for(run);
  return answer_json(shown);
}

Answer OperatorDesk::run_log(const OperatorCall& call) {
  STARLING_ASSIGN(const store::Run run, find_run(call));
  const bool follow = call.find("follow") == "true";
  std::uint64_t first = 1;
  if (call.find("new") == "true") {
    STARLING_ASSIGN(const std::uint64_t length, parts_.store.log_length(run.id));
    first = length + 1;
  }
  return std::make_unique<LogAnswer>(parts_.store, run.id, first, follow);
}

Answer OperatorDesk::run_stop(const OperatorCall& call) {
  STARLING_ASSIGN(const store::Run run, find_run(call));
  STARLING_ASSIGN(const auto state, parts_.store.request_stop(run.id, parts_.clock.wall_now()));
  parts_.log.info("{} stops run {}", call.caller, run.id.value());
  handlers_.on_stop(run.id);
  if (state != store::RunState::kRunning) handlers_.on_answered();  // a pending run has ended
  return answer_json(json::object{{"id", run.id.value()}, {"state", store::to_string(state)}});
}

}  // namespace starling::coordinator
