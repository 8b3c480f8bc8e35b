// SPDX-License-Identifier: Apache-2.0
#include "core/client/pending_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "core/base/check.h"
#include "core/base/digest.h"
#include "core/strategy/state_file.h"

namespace starling::client {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "STLPEND1";
constexpr std::string_view kStateMagic = "STLSTAT1";
constexpr std::size_t kChecksumAt = 8;
constexpr std::size_t kPrefixBytes = 64;
constexpr std::size_t kAlignment = 64;
constexpr std::string_view kExtension = ".update";
constexpr std::string_view kStateExtension = ".state";
constexpr std::string_view kBeforeExtension = ".before";
constexpr std::string_view kDamagedExtension = ".damaged";

// What an update's prefix says after magic and checksum. A file of the first version has no state.
struct UpdatePrefix {
  static constexpr std::size_t kHeaderSizeAt = 16;
  static constexpr std::size_t kPayloadSizeAt = 24;
  static constexpr std::size_t kStateSizeAt = 32;
  static constexpr std::size_t kStateChecksumAt = 40;
  static constexpr std::size_t kMadeFromAt = 48;
};

// What a state's prefix says.
struct StatePrefix {
  static constexpr std::size_t kRunAt = 16;
  static constexpr std::size_t kTaskAt = 24;
  static constexpr std::size_t kRoundAt = 32;
  static constexpr std::size_t kStateSizeAt = 40;
  static constexpr std::size_t kStateChecksumAt = 48;
};

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Error damaged(std::string why) { return rejected("pending-damaged", std::move(why)); }

struct Parts {
  ByteView header;
  std::size_t payload_at = 0;
  std::size_t payload_bytes = 0;
  ByteView state;
  std::uint64_t state_checksum = 0;
  std::uint64_t made_from = 0;
};

// What is where, once the prefix has been believed.
Result<Parts> check_prefix(const HeadCodec& codec, ByteView file) {
  if (file.size() < kPrefixBytes || as_text(file.first(kMagic.size())) != kMagic) {
    return damaged("it does not begin as an update does");
  }
  const auto header = load_little<std::uint32_t>(file.data() + UpdatePrefix::kHeaderSizeAt);
  if (header > codec.bytes_max) return damaged("its head is too long");
  const std::size_t begin = kPrefixBytes + aligned(header);
  const auto payload = load_little<std::uint64_t>(file.data() + UpdatePrefix::kPayloadSizeAt);
  const auto state = load_little<std::uint64_t>(file.data() + UpdatePrefix::kStateSizeAt);
  const std::size_t rest = file.size() - std::min(file.size(), begin);
  if (file.size() < begin || payload > rest || rest - payload != state) {
    return damaged(fmt::format("it has {} bytes, which is not what its head says", file.size()));
  }
  const ByteView covered = file.first(begin).subspan(UpdatePrefix::kHeaderSizeAt);
  if (load_little<std::uint64_t>(file.data() + kChecksumAt) != checksum(covered)) {
    return damaged("the checksum of its head does not match");
  }
  return Parts{file.subspan(kPrefixBytes, header),
               begin,
               payload,
               file.subspan(begin + payload),
               load_little<std::uint64_t>(file.data() + UpdatePrefix::kStateChecksumAt),
               load_little<std::uint64_t>(file.data() + UpdatePrefix::kMadeFromAt)};
}

Result<StateSnapshot> decode_state(ByteView bytes, std::uint64_t expected) {
  if (checksum(bytes) != expected) return damaged("the checksum of its state does not match");
  auto state = strategy::parse_state(bytes);
  if (!state) return damaged(state.error().message());
  return *state;
}

// The parts of a state, and their size and checksum in a file's prefix.
std::vector<SharedBytes> encode_state(const StateSnapshot& state, std::byte* size_at,
                                      std::byte* checksum_at) {
  std::vector<SharedBytes> parts = strategy::encode_state(state);
  std::uint64_t bytes = 0;
  Checksum sum;
  for (const SharedBytes& part : parts) {
    bytes += part.size();
    sum.update(part.view());
  }
  store_little(size_at, bytes);
  store_little(checksum_at, sum.value());
  return parts;
}

// Newest first.
Result<std::vector<fs::path>> files_in(Disk& disk, const fs::path& directory,
                                       std::string_view extension) {
  STARLING_ASSIGN(auto entries, disk.list(directory));
  std::ranges::sort(entries, [](const DiskEntry& a, const DiskEntry& b) {
    return std::tie(a.written, a.name) > std::tie(b.written, b.name);
  });
  std::vector<fs::path> files;
  for (const DiskEntry& entry : entries) {
    if (entry.name.ends_with(extension)) files.push_back(directory / entry.name);
  }
  return files;
}

fs::path aside_of(const fs::path& file) { return fs::path(file) += kDamagedExtension; }

// What cannot be read today may be sound: it stays as it is.
bool tells_of_damage(const Error& error) { return error.kind() == ErrorKind::kRejected; }

}  // namespace

Result<std::vector<SharedBytes>> encode_pending(const HeadCodec& codec,
                                                const PendingUpdate& update) {
  STARLING_ASSIGN(const Bytes header, codec.encode(update.head));
  Bytes begin(kPrefixBytes + aligned(header.size()));
  std::ranges::copy(as_bytes(kMagic), begin.begin());
  store_little(begin.data() + UpdatePrefix::kHeaderSizeAt,
               static_cast<std::uint32_t>(header.size()));
  store_little(begin.data() + UpdatePrefix::kPayloadSizeAt, update.head.payload_bytes);
  store_little(begin.data() + UpdatePrefix::kMadeFromAt, update.made_from);
  std::ranges::copy(header, begin.begin() + kPrefixBytes);
  std::vector<SharedBytes> state;
  if (update.state != nullptr) {
    state = encode_state(update.state, begin.data() + UpdatePrefix::kStateSizeAt,
                         begin.data() + UpdatePrefix::kStateChecksumAt);
  }
  store_little(begin.data() + kChecksumAt,
               checksum(ByteView(begin).subspan(UpdatePrefix::kHeaderSizeAt)));
  std::vector<SharedBytes> parts = {SharedBytes::own(std::move(begin)), update.payload};
  parts.insert(parts.end(), state.begin(), state.end());
  return parts;
}

Result<PendingUpdate> decode_pending(const HeadCodec& codec, Bytes file) {
  const SharedBytes whole = SharedBytes::own(std::move(file));
  STARLING_ASSIGN(const Parts parts, check_prefix(codec, whole.view()));
  auto decoded = codec.decode(parts.header);
  if (!decoded) return damaged(decoded.error().message());
  update::ContributionHead head = std::move(*decoded);
  if (head.payload_bytes != parts.payload_bytes ||
      head.payload_bytes != update::payload_bytes(head.vectors)) {
    return damaged("its vectors have another size than its payload");
  }
  SharedBytes payload = whole.slice(parts.payload_at, parts.payload_bytes);
  if (checksum(payload.view()) != head.payload_checksum) {
    return damaged("the checksum of its payload does not match");
  }
  PendingUpdate update{std::move(head), std::move(payload), nullptr, parts.made_from};
  if (parts.state.empty()) return update;
  STARLING_ASSIGN(update.state, decode_state(parts.state, parts.state_checksum));
  return update;
}

std::vector<SharedBytes> encode_committed(const CommittedState& state) {
  Bytes begin(kPrefixBytes);
  std::ranges::copy(as_bytes(kStateMagic), begin.begin());
  store_little(begin.data() + StatePrefix::kRunAt, state.run.value());
  store_little(begin.data() + StatePrefix::kTaskAt, state.task.value());
  store_little(begin.data() + StatePrefix::kRoundAt, std::uint64_t{state.round});
  const std::vector<SharedBytes> values =
      encode_state(state.state, begin.data() + StatePrefix::kStateSizeAt,
                   begin.data() + StatePrefix::kStateChecksumAt);
  store_little(begin.data() + kChecksumAt, checksum(ByteView(begin).subspan(StatePrefix::kRunAt)));
  std::vector<SharedBytes> parts = {SharedBytes::own(std::move(begin))};
  parts.insert(parts.end(), values.begin(), values.end());
  return parts;
}

Result<CommittedState> decode_committed(ByteView file) {
  if (file.size() < kPrefixBytes || as_text(file.first(kStateMagic.size())) != kStateMagic) {
    return damaged("it does not begin as a state does");
  }
  const auto number = [&](std::size_t at) { return load_little<std::uint64_t>(file.data() + at); };
  const ByteView covered = file.first(kPrefixBytes).subspan(StatePrefix::kRunAt);
  const ByteView values = file.subspan(kPrefixBytes);
  if (number(kChecksumAt) != checksum(covered) ||
      number(StatePrefix::kStateSizeAt) != values.size()) {
    return damaged("its beginning does not match what follows");
  }
  STARLING_ASSIGN(StateSnapshot state, decode_state(values, number(StatePrefix::kStateChecksumAt)));
  return CommittedState{RunId(number(StatePrefix::kRunAt)),
                        static_cast<Round>(number(StatePrefix::kRoundAt)),
                        TaskId(number(StatePrefix::kTaskAt)), std::move(state)};
}

fs::path PendingStore::file_of(TaskId task) const {
  return directory_ / fmt::format("{:016x}{}", task.value(), kExtension);
}

fs::path PendingStore::file_of(RunId run) const {
  return directory_ / fmt::format("{}{}", run.value(), kStateExtension);
}

fs::path PendingStore::file_before(RunId run) const {
  return file_of(run).replace_extension(kBeforeExtension);
}

// Not where nothing stands beside it: then the whole state directory is gone, or its file system is
// not mounted.
Result<void> PendingStore::write(const fs::path& file, std::span<const SharedBytes> parts) const {
  auto written = disk_->write(file, parts);
  if (written || written.error().code() != "file-missing") return written;
  STARLING_ASSIGN(const auto beside, disk_->list(directory_.parent_path()));
  if (beside.empty()) return written;
  STARLING_TRY(disk_->make_directory(directory_, Disk::Access::kOwner));
  if (options_.log != nullptr) {
    options_.log->warning(
        "{} was removed while this program ran, and is made again: finished updates and states "
        "that were in it are lost if the program ends now; do not remove it",
        directory_.string());
  }
  return disk_->write(file, parts);
}

// A directory that was removed holds nothing that could come back.
Result<void> PendingStore::sync() const {
  auto synced = disk_->sync(directory_);
  if (!synced && synced.error().code() == "file-missing") return {};
  return synced;
}

Result<void> PendingStore::store(const PendingUpdate& update) const {
  STARLING_CHECK(update.payload.size() == update.head.payload_bytes);
  STARLING_ASSIGN(const std::vector<SharedBytes> parts, encode_pending(codec_, update));
  const fs::path file = file_of(update.head.task);
  auto stored = write(file, parts);
  if (stored || stored.error().code() != "is-a-directory") return stored;
  STARLING_TRY(disk_->rename(file, aside_of(file)));
  return write(file, parts);
}

Result<void> PendingStore::forget(TaskId task) const {
  STARLING_TRY(disk_->remove(file_of(task)));
  return sync();
}

Result<void> PendingStore::keep(const CommittedState& state) const {
  const fs::path next = directory_ / fmt::format(".{}.next.tmp", state.run.value());
  STARLING_TRY(write(next, encode_committed(state)));
  auto moved = disk_->rename(file_of(state.run), file_before(state.run));
  if (!moved && moved.error().code() != "file-missing") return moved;
  STARLING_TRY(disk_->rename(next, file_of(state.run)));
  return sync();
}

// As given, not out of RUN.before: where the disk was full, that is of an earlier round.
Result<void> PendingStore::restore_state(const CommittedState& state) const {
  STARLING_TRY(write(file_of(state.run), encode_committed(state)));
  STARLING_TRY(disk_->remove(file_before(state.run)));
  return sync();
}

Result<void> PendingStore::forget_state(RunId run) const {
  STARLING_TRY(disk_->remove(file_before(run)));
  STARLING_TRY(disk_->remove(file_of(run)));
  return sync();
}

Result<PendingUpdate> PendingStore::read(const fs::path& file) const {
  const std::size_t overhead = kPrefixBytes + aligned(codec_.bytes_max);
  STARLING_ASSIGN(Bytes content, read_file(*disk_, file, options_.file_bytes_max + overhead));
  STARLING_ASSIGN(PendingUpdate update, decode_pending(codec_, std::move(content)));
  if (file_of(update.head.task).filename() != file.filename()) {
    return damaged("it holds another task than its name says");
  }
  return update;
}

Result<CommittedState> PendingStore::read_state(const fs::path& file) const {
  STARLING_ASSIGN(const Bytes content,
                  read_file(*disk_, file, options_.file_bytes_max + kPrefixBytes));
  STARLING_ASSIGN(CommittedState state, decode_committed(content));
  if (file_of(state.run).stem() != file.stem()) {
    return damaged("it holds the state of another run than its name says");
  }
  return state;
}

Result<void> PendingStore::set_aside(const fs::path& file, const Error& why, Log& log) const {
  if (why.code() == "no-permission") {
    return why.with_message(why.message() +
                            "; make it readable for the user that runs this program, or remove it: "
                            "what it holds is then computed again");
  }
  if (!tells_of_damage(why)) return why;
  log.warning("{} is set aside: {}", file.string(), why.message());
  STARLING_ASSIGN(const auto damaged, files_in(*disk_, directory_, kDamagedExtension));
  const bool full = damaged.size() >= options_.set_aside_max;
  const auto moved = full ? disk_->remove(file) : disk_->rename(file, aside_of(file));
  if (!moved) log.warning("{}", moved.error().message());
  return {};
}

// Oldest first, those that are not the last ones of their run before all others. Where the last one
// is damaged, the one before is there for a run that takes its last round back; else the client has
// lost its state.
Result<std::vector<CommittedState>> PendingStore::load_states(Log& log) const {
  std::vector<CommittedState> states;
  std::set<fs::path> damaged;
  STARLING_ASSIGN(auto files, files_in(*disk_, directory_, kStateExtension));
  STARLING_ASSIGN(const auto before, files_in(*disk_, directory_, kBeforeExtension));
  files.insert(files.end(), before.begin(), before.end());
  for (const fs::path& file : files) {
    auto state = read_state(file);
    if (!state) {
      STARLING_TRY(set_aside(file, state.error(), log));
      damaged.insert(file);
      continue;
    }
    if (damaged.contains(file_of(state->run))) {
      log.warning("{} has the state of round {}, the last one that was kept before it",
                  file.string(), state->round);
    }
    states.push_back(std::move(*state));
  }
  std::ranges::reverse(states);
  return states;
}

Result<Leftovers> PendingStore::load(Log& log) const {
  STARLING_TRY(disk_->make_directory(directory_, Disk::Access::kOwner));
  sweep_temporaries(*disk_, directory_);
  Leftovers left;
  STARLING_ASSIGN(left.states, load_states(log));
  const auto is_settled = [&](TaskId task) {
    return std::ranges::any_of(left.states,
                               [task](const CommittedState& state) { return state.task == task; });
  };
  STARLING_ASSIGN(const auto files, files_in(*disk_, directory_, kExtension));
  for (const fs::path& file : files) {
    auto update = read(file);
    if (!update) {
      STARLING_TRY(set_aside(file, update.error(), log));
    } else if (is_settled(update->head.task)) {
      STARLING_TRY(disk_->remove(file));
    } else if (left.pending.size() >= options_.updates_max && update->state == nullptr) {
      log.warning("the pending update {} is dropped to make room", file.string());
      STARLING_TRY(disk_->remove(file));
    } else {
      left.pending.push_back(std::move(*update));
    }
  }
  std::ranges::reverse(left.pending);
  return left;
}

void PendingStore::visit_states(const std::function<void(const StateSnapshot&)>& visit) const {
  for (const std::string_view extension : {kStateExtension, kBeforeExtension}) {
    const auto files = files_in(*disk_, directory_, extension);
    for (std::size_t i = 0; files && i < files->size(); ++i) {
      const auto state = read_state((*files)[i]);
      if (state) visit(state->state);
    }
  }
  const auto files = files_in(*disk_, directory_, kExtension);
  for (std::size_t i = 0; files && i < files->size(); ++i) {
    const auto update = read((*files)[i]);
    if (update && update->state != nullptr) visit(update->state);
  }
}

}  // namespace starling::client
