// SPDX-License-Identifier: Apache-2.0
// run export and backup: what leaves the state directory as a file.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "coordinator/rounds/run_records.h"
#include "coordinator/service/backup_snapshot.h"
#include "coordinator/service/operator_desk.h"
#include "core/store/checkpoints.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

Result<Round> parse_round(const std::string& text) {
  Round round = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), round);
  if (code == std::errc() && end == text.data() + text.size()) return round;
  return wrong_setting("argument-invalid",
                       "--round must be the number of a round; 0 is the initial "
                       "model");
}

// The last one unless `call` names a round or asks for the best.
Result<Round> wanted_round(const store::Run& run, const std::vector<store::ModelRecord>& models,
                           const OperatorCall& call) {
  if (const auto text = call.find("round")) return parse_round(*text);
  if (call.find("best") != "true") {
    if (models.back().round > 0) return models.back().round;
    return rejected("no-model",
                    "this run has committed no round yet; --round 0 takes its initial model");
  }
  STARLING_ASSIGN(const Job job, parse_job(run.job, "job"));
  if (const auto best = store::best_round(models, metric_of(job.stop))) return *best;
  const std::string by = job.stop.enabled() ? fmt::format(" by {}", job.stop.metric) : "";
  return rejected("not-evaluated", fmt::format("no round of this run was evaluated{}, so none is "
                                               "the best",
                                               by));
}

}  // namespace

Result<store::ModelRecord> OperatorDesk::find_model(const store::Run& run,
                                                    const OperatorCall& call) {
  STARLING_ASSIGN(const auto models, parts_.store.models(run.id));
  if (models.empty()) {
    return rejected("no-model", fmt::format("run {} has no model yet; it is {}", run.id.value(),
                                            store::to_string(run.state)));
  }
  STARLING_ASSIGN(const Round round, wanted_round(run, models, call));
  const auto model = std::ranges::find(models, round, &store::ModelRecord::round);
  if (model != models.end()) return *model;
  return rejected("round-unknown", fmt::format("run {} has no round {}; its last is {}",
                                               run.id.value(), round, models.back().round));
}

Answer OperatorDesk::run_model(const OperatorCall& call) {
  STARLING_ASSIGN(const store::Run run, find_run(call));
  STARLING_ASSIGN(const store::ModelRecord model, find_model(run, call));
  return answer_json(json::object{
      {"id", run.id.value()}, {"round", model.round}, {"model_sha256", model.sha256.hex()}});
}

Answer OperatorDesk::run_export(const OperatorCall& call) {
  STARLING_ASSIGN(const store::Run run, find_run(call));
  STARLING_ASSIGN(const store::ModelRecord model, find_model(run, call));
  Answer file =
      answer_file(parts_.state.models(run.id) / store::Checkpoints::file_name(model.round));
  if (file) return file;
  return rejected("model-removed",
                  fmt::format("the model of round {} is not kept any more (checkpoint.keep); the "
                              "first, the best and the last rounds are",
                              model.round));
}

Answer OperatorDesk::backup(const OperatorCall& call) {
  STARLING_ASSIGN(
      BackupSnapshot snapshot,
      BackupSnapshot::take(parts_.store, parts_.state, parts_.settings, parts_.clock.wall_now()));
  parts_.log.info("{} takes a backup of {} files, {}", call.caller, snapshot.listing().files.size(),
                  format_byte_count(snapshot.listing().bytes()));
  return answer_backup(std::move(snapshot));
}

}  // namespace starling::coordinator
