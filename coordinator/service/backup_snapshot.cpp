// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/backup_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "coordinator/job/job.h"
#include "core/base/durable_file.h"
#include "core/data/load.h"
#include "core/protocol/messages.h"
#include "core/store/checkpoints.h"

namespace starling::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "backup-";

Error cannot_copy(const fs::path& file, const std::error_code& code) {
  const std::string message = "cannot copy " + file.string() + ": " + code.message();
  if (code == std::errc::no_space_on_device) {
    return overloaded("disk-full", message + "; free some space");
  }
  return rejected("backup-failed", message);
}

// A hard link, or a copy where the file system has none. False where there is no such file.
Result<bool> link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::create_hard_link(from, to, code);
  if (!code) return true;
  if (code == std::errc::no_such_file_or_directory) return false;
  fs::copy_file(from, to, code);
  if (code) return cannot_copy(from, code);
  return true;
}

Result<void> copy_small_file(const fs::path& from, const fs::path& to) {
  std::error_code code;
  if (!fs::copy_file(from, to, code) || code) return cannot_copy(from, code);
  return {};
}

// A run that goes on needs its evaluation data, which stand elsewhere.
std::optional<std::string> note_on_data(const store::Run& run) {
  if (store::is_finished(run.state)) return std::nullopt;
  const auto job = parse_job(run.job, "job");
  if (!job || job->evaluate.dataset.empty()) return std::nullopt;
  const auto spec = data::DatasetSpec::parse(job->evaluate.dataset);
  if (!spec || spec->kind == data::DatasetKind::kSynthetic) return std::nullopt;
  return fmt::format("run {} evaluates on {}, which is not in the backup", run.id.value(),
                     job->evaluate.dataset);
}

class BackupAnswer final : public OperatorAnswer {
 public:
  explicit BackupAnswer(BackupSnapshot snapshot) : snapshot_(std::move(snapshot)) {
    const std::string text = to_json_text(snapshot_.listing());
    Bytes head(sizeof(std::uint64_t));
    store_little<std::uint64_t>(head.data(), text.size());
    const ByteView listing = as_bytes(text);
    head.insert(head.end(), listing.begin(), listing.end());
    head_ = SharedBytes::own(std::move(head));
    rest_ = head_.size() + snapshot_.listing().bytes();
  }

  Result<SharedBytes> next() override {
    SharedBytes piece;
    if (head_at_ < head_.size()) {
      piece = head_.slice(head_at_, std::min(protocol::kChunkBytesMax, head_.size() - head_at_));
      head_at_ += piece.size();
    } else {
      STARLING_ASSIGN(piece, next_of_files());
    }
    rest_ -= piece.size();
    return piece;
  }
  bool done() const override { return rest_ == 0; }

 private:
  Result<SharedBytes> next_of_files() {
    const auto& files = snapshot_.listing().files;
    while (file_rest_ == 0) {
      const BackupFile& file = files.at(next_file_++);
      file_ = std::ifstream(snapshot_.path(file), std::ios::binary);
      file_rest_ = file.bytes;
    }
    Bytes piece(
        static_cast<std::size_t>(std::min<std::uint64_t>(protocol::kChunkBytesMax, file_rest_)));
    file_.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
    if (!file_) {
      return rejected("backup-failed", "cannot read " + files[next_file_ - 1].path);
    }
    file_rest_ -= piece.size();
    return SharedBytes::own(std::move(piece));
  }

  BackupSnapshot snapshot_;
  SharedBytes head_;
  std::size_t head_at_ = 0;
  std::ifstream file_;
  std::uint64_t file_rest_ = 0;
  std::size_t next_file_ = 0;
  std::uint64_t rest_ = 0;  // of everything
};

}  // namespace

Result<BackupSnapshot> BackupSnapshot::take(store::Store& store, const StateDirectory& state,
                                            const CoordinatorSettings& settings, WallTime now) {
  STARLING_TRY(make_directory(state.spool(), true));
  std::string name = state.spool() / (std::string(kPrefix) + "XXXXXX");
  if (::mkdtemp(name.data()) == nullptr) {
    return cannot_copy(state.root(), {errno, std::generic_category()});
  }
  BackupSnapshot snapshot(name);
  STARLING_ASSIGN(const store::Federation federation, store.federation());
  snapshot.listing_.federation = federation.name;
  snapshot.listing_.created = format_rfc3339(now);
  STARLING_TRY(store.backup_to(snapshot.folder_ / state.database().filename()));
  STARLING_TRY(snapshot.copy_models(store, state));
  STARLING_TRY(snapshot.copy_settings(state, settings));
  for (const fs::path& folder :
       {state.authority(), state.operator_identity(), state.roster().parent_path()}) {
    STARLING_TRY(snapshot.copy_folder(state, folder));
  }
  STARLING_TRY(snapshot.list());
  return snapshot;
}

void BackupSnapshot::sweep(const StateDirectory& state) {
  std::error_code code;
  std::error_code ignored;
  for (auto it = fs::directory_iterator(state.spool(), code);
       !code && it != fs::directory_iterator(); it.increment(code)) {
    if (it->path().filename().string().starts_with(kPrefix)) fs::remove_all(it->path(), ignored);
  }
}

BackupSnapshot::~BackupSnapshot() {
  std::error_code ignored;  // sweep() is the second chance
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

BackupSnapshot::BackupSnapshot(BackupSnapshot&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), listing_(std::move(other.listing_)) {}

// With the address that was served, by which the next start knows which port devices dial.
Result<void> BackupSnapshot::copy_settings(const StateDirectory& state,
                                           const CoordinatorSettings& settings) {
  STARLING_TRY(copy_small_file(state.options_file(), folder_ / state.options_file().filename()));
  CoordinatorSettings kept;
  config::Binder binder;
  kept.bind(binder);
  if (const auto read = binder.read_file(state.options_file()); !read) {
    listing_.notes.push_back("a service does not start with these settings: " +
                             read.error().message());
    return {};
  }
  const auto note = [&](std::string_view flag, const std::string& runs, const std::string& file) {
    if (runs == file) return;
    listing_.notes.push_back(
        fmt::format("devices expect a service with {0} '{1}', and coordinator.toml says '{2}': "
                    "write '{1}' there, or give serve {0} '{1}'",
                    flag, runs, file));
  };
  note("--names", settings.service.names, kept.service.names);
  const auto served = read_address(state);
  if (!served) return {};  // somebody removed it
  note("--listen", served->text(), kept.service.listen);
  return copy_small_file(state.address(), folder_ / state.address().filename());
}

// Models that were removed because newer ones are kept instead are missing rightly; the last one is
// what a run goes on from.
Result<void> BackupSnapshot::copy_models(store::RunStore& store, const StateDirectory& state) {
  STARLING_ASSIGN(const auto runs, store.runs());
  for (const store::Run& run : runs) {
    if (auto note = note_on_data(run)) listing_.notes.push_back(*std::move(note));
    STARLING_ASSIGN(const auto models, store.models(run.id));
    if (models.empty()) continue;
    const fs::path from = state.models(run.id);
    const fs::path to = StateDirectory(folder_).models(run.id);
    std::error_code code;
    fs::create_directories(to, code);
    if (code) return cannot_copy(to, code);
    for (const store::ModelRecord& model : models) {
      const bool last = model.round == models.back().round;
      const std::string name = store::Checkpoints::file_name(model.round);
      STARLING_ASSIGN(const bool found, link_or_copy(from / name, to / name));
      if (!found && last) {
        listing_.notes.push_back(fmt::format("the last model of run {} is missing: {}",
                                             run.id.value(), (from / name).string()));
      }
      if (!model.state) continue;
      const std::string state_name = store::Checkpoints::state_file_name(model.round);
      STARLING_ASSIGN(const bool with_state, link_or_copy(from / state_name, to / state_name));
      if (with_state || !last) continue;
      listing_.notes.push_back(fmt::format("the last state of run {}'s strategy is missing: {}",
                                           run.id.value(), (from / state_name).string()));
    }
  }
  return {};
}

Result<void> BackupSnapshot::copy_folder(const StateDirectory& state, const fs::path& folder) {
  std::error_code code;
  const fs::path to = folder_ / folder.lexically_relative(state.root());
  fs::create_directory(to, code);
  if (code) return cannot_copy(folder, code);
  for (auto it = fs::directory_iterator(folder, code); !code && it != fs::directory_iterator();
       it.increment(code)) {
    const fs::path name = it->path().filename();
    const bool ours = is_backup_path(name.string()) && !name.string().starts_with('.');
    if (ours && it->is_regular_file()) STARLING_TRY(copy_small_file(it->path(), to / name));
  }
  if (code && code != std::errc::no_such_file_or_directory) return cannot_copy(folder, code);
  return {};
}

Result<void> BackupSnapshot::list() {
  std::error_code code;
  for (auto it = fs::recursive_directory_iterator(folder_, code);
       !code && it != fs::recursive_directory_iterator(); it.increment(code)) {
    if (!it->is_regular_file()) continue;
    listing_.files.push_back({.path = it->path().lexically_relative(folder_).generic_string(),
                              .bytes = it->file_size(),
                              .sha256 = std::nullopt});
  }
  if (code) return cannot_copy(folder_, code);
  std::ranges::sort(listing_.files, {}, &BackupFile::path);
  return {};
}

std::unique_ptr<OperatorAnswer> answer_backup(BackupSnapshot snapshot) {
  return std::make_unique<BackupAnswer>(std::move(snapshot));
}

}  // namespace starling::coordinator
