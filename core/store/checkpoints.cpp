// SPDX-License-Identifier: Apache-2.0
#include "core/store/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

namespace starling::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelSuffix = ".safetensors";
constexpr std::string_view kStateSuffix = ".state.safetensors";
constexpr std::string_view kSetAside = "set-aside";

struct OurFile {
  std::string name;
  Round round = 0;
  bool is_state = false;
};

// What file_name() or state_file_name() gives; other files are not ours to touch.
std::optional<OurFile> parse_name(const std::string& name) {
  Round round = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), round);
  if (code != std::errc()) return std::nullopt;
  if (name == Checkpoints::file_name(round)) return OurFile{name, round, false};
  if (name == Checkpoints::state_file_name(round)) return OurFile{name, round, true};
  return std::nullopt;
}

// Our files in `folder` that are not `wanted`, in order of name.
Result<std::vector<OurFile>> files_unless(Disk& disk, const fs::path& folder,
                                          const std::function<bool(const OurFile&)>& wanted) {
  STARLING_ASSIGN(const std::vector<DiskEntry> entries, disk.list(folder));
  std::vector<OurFile> files;
  for (const DiskEntry& entry : entries) {
    std::optional<OurFile> file = parse_name(entry.name);
    if (file && !wanted(*file)) files.push_back(*std::move(file));
  }
  return files;
}

// Over a whole file. One that cannot be opened, whether for want of permission or of file handles,
// is not damaged.
Result<Sha256Digest> hash_file(Disk& disk, const fs::path& path) {
  constexpr std::size_t kPieceBytes = 1 << 16;
  STARLING_ASSIGN(const auto file, disk.open(path));
  Sha256 hash;
  Bytes piece(kPieceBytes);
  for (std::uint64_t at = 0; at < file->size(); at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(kPieceBytes, file->size() - at));
    STARLING_TRY(file->read(at, piece));
    hash.update(piece);
  }
  return std::move(hash).finish();
}

// What tells apart two files of one round; "unreadable" where nothing does.
std::string content_id(Disk& disk, const fs::path& path) {
  const Result<Sha256Digest> hash = hash_file(disk, path);
  return hash ? hash->hex().substr(0, 16) : "unreadable";
}

std::string describe_set_aside(RunId run, const fs::path& folder,
                               const std::vector<std::string>& names) {
  return fmt::format(
      "the database does not know these models of run {}; they are set aside, and never removed by "
      "this service: {} in {}",
      run.value(), fmt::join(names, ", "), folder.string());
}

// The run of a folder that StateDirectory::models() names.
std::optional<RunId> run_of(const std::string& name) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), value);
  if (code != std::errc() || std::to_string(value) != name) return std::nullopt;
  return RunId(value);
}

// A file that another user or limit hides is not damaged: nothing may be withdrawn for it. What
// this service does not support it has not written.
bool tells_of_damage(const Error& error) {
  if (error.kind() == ErrorKind::kUnsupported) return true;
  return error.kind() == ErrorKind::kRejected && error.code() != "no-permission" &&
         error.code() != "file-too-large";
}

// What is wrong with `file`, which should have the SHA-256 `expected`; empty where it is intact.
Result<std::string> find_damage(Disk& disk, const fs::path& file, const Sha256Digest& expected,
                                std::string_view what, const HashModelFile& hash) {
  const Result<Sha256Digest> found = hash(disk, file);
  if (!found && found.error().code() == "file-missing") return file.string() + " is missing";
  if (!found && !tells_of_damage(found.error())) return found.error();
  if (!found) return found.error().message();
  if (*found == expected) return std::string();
  return fmt::format("{} holds a {} of SHA-256 {}, not {}", file.string(), what, found->hex(),
                     expected.hex());
}

Result<Sha256Digest> hash_state_file(Disk& disk, const fs::path& file) {
  Result<Sha256Digest> hash = hash_file(disk, file);
  if (hash || tells_of_damage(hash.error())) return hash;
  return internal("io-error", hash.error().message() +
                                  "; where it cannot be restored, remove it: its round is "
                                  "then run again");
}

}  // namespace

Result<std::string> find_damage(const Checkpoints& checkpoints, const ModelRecord& model,
                                const HashModelFile& hash) {
  Disk& disk = checkpoints.disk();
  STARLING_ASSIGN(std::string damage,
                  find_damage(disk, checkpoints.path(model.round), model.sha256, "model", hash));
  if (!damage.empty() || !model.state) return damage;
  return find_damage(disk, checkpoints.state_path(model.round), model.state->sha256, "state",
                     hash_state_file);
}

namespace {

std::optional<double> value_of(const ModelRecord& model, const Metric& metric) {
  const Evaluation& evaluation = metric.federated ? model.federated : model.evaluation;
  if (metric.name == "accuracy") return evaluation.accuracy;
  if (metric.name == "loss") return evaluation.loss;
  const auto found = evaluation.metrics.find(metric.name);
  return found == evaluation.metrics.end() ? std::nullopt : std::optional(found->second);
}

std::optional<BestModel> best_by(std::span<const ModelRecord> models, const Metric& metric) {
  std::optional<BestModel> best;
  for (const ModelRecord& model : models) {
    const std::optional<double> value = value_of(model, metric);
    if (!value) continue;
    if (best && !(metric.more_is_better ? *value > best->value : *value < best->value)) continue;
    best = BestModel{model.round, metric, *value};
  }
  return best;
}

}  // namespace

std::optional<BestModel> best_model(std::span<const ModelRecord> models,
                                    const std::optional<Metric>& metric) {
  if (metric) return best_by(models, *metric);
  for (const bool federated : {false, true}) {
    for (const auto& [name, more_is_better] : {std::pair("accuracy", true), {"loss", false}}) {
      if (const auto best = best_by(models, {name, federated, more_is_better})) return best;
    }
  }
  return std::nullopt;
}

std::optional<Round> best_round(std::span<const ModelRecord> models,
                                const std::optional<Metric>& metric) {
  const auto best = best_model(models, metric);
  return best ? std::optional(best->round) : std::nullopt;
}

std::vector<Round> rounds_to_keep(std::span<const ModelRecord> models, std::uint32_t keep,
                                  const std::optional<Metric>& metric) {
  std::set<Round> kept;
  const std::size_t newest = keep == 0 ? models.size() : std::max<std::size_t>(keep, 1);
  for (std::size_t i = models.size() - std::min(newest, models.size()); i < models.size(); ++i) {
    kept.insert(models[i].round);
  }
  if (!models.empty()) kept.insert(models.front().round);
  if (const std::optional<Round> best = best_round(models, metric)) kept.insert(*best);
  return {kept.begin(), kept.end()};
}

std::string Checkpoints::file_name(Round round) {
  return std::to_string(round) + std::string(kModelSuffix);
}

std::string Checkpoints::state_file_name(Round round) {
  return std::to_string(round) + std::string(kStateSuffix);
}

Result<void> Checkpoints::write(Round round, std::span<const SharedBytes> parts) const {
  STARLING_TRY(disk_->make_directory(folder_, Disk::Access::kShared));
  return disk_->write(path(round), parts);
}

Result<void> Checkpoints::write_state(Round round, std::span<const SharedBytes> parts) const {
  STARLING_TRY(disk_->make_directory(folder_, Disk::Access::kShared));
  return disk_->write(state_path(round), parts);
}

Result<std::vector<Round>> Checkpoints::rounds() const {
  STARLING_ASSIGN(const auto files,
                  files_unless(*disk_, folder_, [](const OurFile&) { return false; }));
  std::set<Round> rounds;
  for (const OurFile& file : files) rounds.insert(file.round);
  return std::vector<Round>(rounds.begin(), rounds.end());
}

Result<void> Checkpoints::prune(std::span<const ModelRecord> models, std::uint32_t keep,
                                const std::optional<Metric>& metric) const {
  const std::vector<Round> kept = rounds_to_keep(models, keep, metric);
  const auto wanted = [&](const OurFile& file) {
    const auto same = [&](const ModelRecord& model) { return model.round == file.round; };
    return std::binary_search(kept.begin(), kept.end(), file.round) ||
           std::none_of(models.begin(), models.end(), same);
  };
  STARLING_ASSIGN(const std::vector<OurFile> files, files_unless(*disk_, folder_, wanted));
  // Not durably: a file that a power cut brings back is found again by the next prune.
  for (const OurFile& file : files) STARLING_TRY(disk_->remove(folder_ / file.name));
  return {};
}

Result<std::vector<std::string>> Checkpoints::set_aside(std::span<const ModelRecord> models) const {
  sweep_temporaries(*disk_, folder_);
  const auto known = [&](const OurFile& file) {
    return std::ranges::any_of(models, [&](const ModelRecord& model) {
      return model.round == file.round && (!file.is_state || model.state);
    });
  };
  STARLING_ASSIGN(const std::vector<OurFile> files, files_unless(*disk_, folder_, known));
  std::vector<std::string> names;
  if (files.empty()) return names;
  STARLING_TRY(disk_->make_directory(folder_ / kSetAside, Disk::Access::kShared));
  for (const OurFile& file : files) {
    const fs::path aside =
        fs::path(kSetAside) / fmt::format("{}-{}{}", file.round,
                                          content_id(*disk_, folder_ / file.name),
                                          file.is_state ? kStateSuffix : kModelSuffix);
    STARLING_TRY(disk_->rename(folder_ / file.name, folder_ / aside));
    names.push_back(aside.string());
  }
  STARLING_TRY(disk_->sync(folder_ / kSetAside));
  STARLING_TRY(disk_->sync(folder_));
  return names;
}

Result<void> prune(RunStore& store, const Checkpoints& checkpoints, RunId run, std::uint32_t keep,
                   const std::optional<Metric>& metric) {
  if (keep == 0) return {};
  STARLING_ASSIGN(const auto rounds, checkpoints.rounds());
  if (rounds.size() <= keep) return {};
  std::vector<ModelRecord> models;
  for (const Round round : rounds) {
    STARLING_ASSIGN(auto model, store.find_model(run, round));
    if (model) models.push_back(*model);
  }
  return checkpoints.prune(models, keep, metric);
}

Result<std::vector<std::string>> set_aside_unknown(const Checkpoints& checkpoints, RunId run,
                                                   std::span<const ModelRecord> models) {
  STARLING_ASSIGN(const auto names, checkpoints.set_aside(models));
  std::vector<std::string> sentences;
  if (!names.empty()) sentences.push_back(describe_set_aside(run, checkpoints.folder(), names));
  return sentences;
}

Result<Recovery> recover_run(RunStore& store, const Checkpoints& checkpoints, RunId run,
                             const HashModelFile& hash) {
  Recovery recovery;
  STARLING_ASSIGN(std::vector<ModelRecord> models, store.models(run));
  std::vector<std::string> damages;
  std::size_t intact = models.size();
  while (intact > 0) {
    const ModelRecord& model = models[intact - 1];
    STARLING_ASSIGN(std::string damage, find_damage(checkpoints, model, hash));
    if (damage.empty()) break;
    damages.push_back(std::move(damage));
    --intact;
  }
  if (intact == 0) {
    STARLING_ASSIGN(const auto there, checkpoints.disk().list(checkpoints.folder()));
    if (there.empty()) {
      return retry("models-missing",
                   fmt::format("no model of run {} is in {}: mount its disk, or restore its files "
                               "from a copy",
                               run.value(), checkpoints.folder().string()));
    }
    return internal("model-damaged",
                    fmt::format("no model of run {} is intact ({}); restore its files from a copy",
                                run.value(), fmt::join(damages, "; ")));
  }
  // Only now is it known that there is something to go back to.
  recovery.model = models[intact - 1];
  for (std::size_t i = 0; i < damages.size(); ++i) {
    const Round round = models[models.size() - 1 - i].round;
    STARLING_TRY(store.withdraw_round(run, round, {"model-damaged", damages[i]}));
    recovery.complaints.push_back(
        fmt::format("round {} of run {} is withdrawn and will be run again from round {}: {}",
                    round, run.value(), recovery.model.round, damages[i]));
  }
  models.resize(intact);
  STARLING_ASSIGN(const auto unknown, set_aside_unknown(checkpoints, run, models));
  recovery.complaints.insert(recovery.complaints.end(), unknown.begin(), unknown.end());
  return recovery;
}

Result<std::vector<std::string>> set_aside_unknown_runs(RunStore& store, Disk& disk,
                                                        const fs::path& folder) {
  std::vector<RunId> found;
  STARLING_ASSIGN(const std::vector<DiskEntry> entries, disk.list(folder));
  // The former process may have ended between making a run's folder and syncing its name.
  if (!entries.empty()) STARLING_TRY(disk.sync(folder));
  for (const DiskEntry& entry : entries) {
    if (const auto run = run_of(entry.name)) found.push_back(*run);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> sentences;
  for (const RunId id : found) {
    STARLING_ASSIGN(const auto run, store.find_run(id));
    if (run && run->state != RunState::kPending) continue;
    const Checkpoints checkpoints(disk, folder / std::to_string(id.value()));
    STARLING_ASSIGN(const auto unknown, set_aside_unknown(checkpoints, id, {}));
    sentences.insert(sentences.end(), unknown.begin(), unknown.end());
  }
  return sentences;
}

}  // namespace starling::store
