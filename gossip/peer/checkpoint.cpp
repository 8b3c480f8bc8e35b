// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/digest.h"
#include "core/model/safetensors.h"

namespace starling::gossip {
namespace {

constexpr const char* kRun = "run";
constexpr const char* kExchange = "exchange";
// Of the model's support; left out where they are 0, as older versions do.
constexpr const char* kBacked = "backed";
constexpr const char* kMinority = "minority";
constexpr const char* kQuorumSeconds = "quorum-seconds";
constexpr const char* kDigest = "sha256";

// A state file: a line "starling-state VERSION ALGORITHM EPOCH MODEL", MODEL being the digest in
// the checkpoint's metadata, then the state, then the SHA-256 of all before.
constexpr std::string_view kMagic = "starling-state";
constexpr std::string_view kVersion = "1";
constexpr std::size_t kLineBytesMax = 1024;
constexpr std::uint64_t kStateBytesMax = std::uint64_t{64} << 30;

Error damaged(const std::filesystem::path& path) {
  return rejected("checkpoint-damaged",
                  path.string() + " is not as this program wrote it; the peer begins without it");
}

Error damaged_state(const std::filesystem::path& path) {
  return rejected("state-damaged", path.string() +
                                       " is not as this program wrote it; the peer goes on with "
                                       "the model alone");
}

std::filesystem::path state_path(std::filesystem::path path) {
  return path.replace_extension(".state");
}

// Of a state whose model may not be in place.
std::filesystem::path new_state_path(std::filesystem::path path) {
  return path.replace_extension(".state.new");
}

model::Metadata support_of(const Checkpoint& checkpoint) {
  const protocol::Support& support = checkpoint.support;
  model::Metadata said;
  if (support.backed > 0) said[kBacked] = std::to_string(support.backed);
  if (support.minority) said[kMinority] = "1";
  if (support.quorum_seconds > 0) said[kQuorumSeconds] = std::to_string(support.quorum_seconds);
  return said;
}

// Of all that a checkpoint says, so that nothing of it changes unnoticed.
std::string digest_of(const Checkpoint& checkpoint) {
  Sha256 hash;
  hash.update(as_bytes(fmt::format("{}\n{}\n", checkpoint.run, checkpoint.exchange)));
  for (const auto& [key, value] : support_of(checkpoint)) {
    // Without its name, as older versions do.
    const bool is_backed = key == kBacked;
    hash.update(as_bytes(is_backed ? value + "\n" : fmt::format("{} {}\n", key, value)));
  }
  hash.update(as_bytes(std::span(checkpoint.model)));
  return std::move(hash).finish().hex();
}

template <class Number>
bool parse(std::string_view digits, Number& number) {
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return code == std::errc() && end == digits.data() + digits.size();
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> result;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    result.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

Result<void> write_model(Disk& disk, const std::filesystem::path& path,
                         const Checkpoint& checkpoint, const std::string& digest,
                         const std::shared_ptr<const model::Layout>& layout) {
  model::Metadata metadata = {
      {kRun, checkpoint.run}, {kExchange, std::to_string(checkpoint.exchange)}, {kDigest, digest}};
  metadata.merge(support_of(checkpoint));
  const Bytes header = model::safetensors_header(*layout, metadata);
  const SharedBytes parts[] = {{nullptr, header}, {nullptr, as_bytes(std::span(checkpoint.model))}};
  return disk.write(path, parts);
}

// `model`: the digest of the checkpoint that the state is of.
Result<void> write_state(Disk& disk, const std::filesystem::path& path, const KeptState& state,
                         const std::string& model) {
  const std::string line =
      fmt::format("{} {} {} {} {}\n", kMagic, kVersion, state.algorithm, state.epoch, model);
  Sha256 hash;
  hash.update(as_bytes(line));
  hash.update(state.bytes);
  const Sha256Digest digest = std::move(hash).finish();
  const SharedBytes parts[] = {
      {nullptr, as_bytes(line)}, {nullptr, state.bytes}, {nullptr, digest.bytes()}};
  return disk.write(path, parts);
}

// The digest of the model that the state at `path` was kept with, as its first line says.
Result<std::string> model_of_state(Disk& disk, const std::filesystem::path& path) {
  STARLING_ASSIGN(const auto file, disk.open(path));
  Bytes begin(std::min<std::uint64_t>(file->size(), kLineBytesMax));
  STARLING_TRY(file->read(0, begin));
  const std::string_view text = as_text(begin);
  const auto said = words(text.substr(0, text.find('\n')));
  if (said.size() != 5 || said[0] != kMagic) return damaged_state(path);
  return std::string(said[4]);
}

// The digest that the checkpoint at `path` says it has.
Result<std::string> digest_in(Disk& disk, const std::filesystem::path& path) {
  STARLING_ASSIGN(const model::Metadata metadata, model::load_safetensors_metadata(disk, path));
  const auto digest = metadata.find(kDigest);
  if (digest == metadata.end()) return damaged(path);
  return digest->second;
}

// The disk or the system failed, so it is not known what the file is.
bool is_of_system(const Error& error) {
  return error.kind() == ErrorKind::kOverloaded || error.kind() == ErrorKind::kInternal;
}

// Finishes what a save_checkpoint() began that did not end well: a new state whose model is in
// place replaces the former state, and one whose model was never written is removed. A file that is
// not as it should be is of no use to a peer, so it counts as absent.
Result<void> settle(Disk& disk, const std::filesystem::path& path) {
  const auto of_state = model_of_state(disk, new_state_path(path));
  if (!of_state && of_state.error().code() == "file-missing") return {};
  if (!of_state && is_of_system(of_state.error())) return of_state.error();
  const auto in_place = digest_in(disk, path);
  if (!in_place && is_of_system(in_place.error())) return in_place.error();
  if (!of_state || !in_place || *of_state != *in_place) return disk.remove(new_state_path(path));
  // Of renames that were not synced, a power cut may keep any. It must not keep this one and undo
  // the model's, after which the process may have been killed.
  STARLING_TRY(disk.sync(path.parent_path()));
  return disk.rename(new_state_path(path), state_path(path));
}

}  // namespace

// Equal runs write equal files.
Result<void> save_model(Disk& disk, const std::filesystem::path& path, Checkpoint checkpoint,
                        const std::shared_ptr<const model::Layout>& layout) {
  checkpoint.support.quorum_seconds = 0;
  return write_model(disk, path, checkpoint, digest_of(checkpoint), layout);
}

// The model's rename decides which pair is in force. Both states exist before and after it.
Result<void> save_checkpoint(Disk& disk, const std::filesystem::path& path,
                             const Checkpoint& checkpoint,
                             const std::shared_ptr<const model::Layout>& layout) {
  const std::string digest = digest_of(checkpoint);
  STARLING_TRY(settle(disk, path));
  // Nor may it keep the new state's rename and undo that of the former state, by which that left
  // the name that the new one takes.
  STARLING_TRY(disk.sync(path.parent_path()));
  STARLING_TRY(write_state(disk, new_state_path(path), checkpoint.state, digest));
  auto written = write_model(disk, path, checkpoint, digest, layout);
  if (written) return disk.rename(new_state_path(path), state_path(path));
  // So that a useless state does not fill the disk until the next attempt.
  (void)settle(disk, path);
  return written;
}

std::vector<std::filesystem::path> checkpoint_files(const std::filesystem::path& path) {
  return {path, state_path(path), new_state_path(path)};
}

Result<Checkpoint> load_checkpoint(Disk& disk, const std::filesystem::path& path,
                                   std::shared_ptr<const model::Layout> layout) {
  STARLING_ASSIGN(const model::SafetensorsFile file,
                  model::load_safetensors(disk, path, {.expected = std::move(layout)}));
  const auto run = file.metadata.find(kRun);
  const auto exchange = file.metadata.find(kExchange);
  const auto digest = file.metadata.find(kDigest);
  const auto end = file.metadata.end();
  if (run == end || exchange == end || digest == end) return damaged(path);
  Checkpoint checkpoint{.run = run->second};
  if (!parse(exchange->second, checkpoint.exchange)) return damaged(path);
  const auto read = [&](const char* key, auto& number) {
    const auto found = file.metadata.find(key);
    return found == end || parse(found->second, number);
  };
  protocol::Support& support = checkpoint.support;
  std::uint8_t minority = 0;
  if (!read(kBacked, support.backed) || !read(kMinority, minority) ||
      !read(kQuorumSeconds, support.quorum_seconds)) {
    return damaged(path);
  }
  support.minority = minority != 0;
  const auto values = file.parameters.values();
  checkpoint.model.assign(values.begin(), values.end());
  if (digest_of(checkpoint) != digest->second) return damaged(path);
  return checkpoint;
}

Result<KeptState> load_state(Disk& disk, const std::filesystem::path& path,
                             const Checkpoint& checkpoint, const std::string& algorithm) {
  const std::string model = digest_of(checkpoint);
  const auto of_new = model_of_state(disk, new_state_path(path));
  if (!of_new && is_of_system(of_new.error())) {
    const auto of_former = model_of_state(disk, state_path(path));
    if (!of_former || *of_former != model) return of_new.error();
  }
  const auto where = of_new && *of_new == model ? new_state_path(path) : state_path(path);
  STARLING_ASSIGN(const Bytes file, read_file(disk, where, kStateBytesMax));
  if (file.size() < Sha256Digest::kBytes) return damaged_state(where);
  const ByteView all = file;
  const ByteView content = all.first(all.size() - Sha256Digest::kBytes);
  const std::string_view text = as_text(content.first(std::min(content.size(), kLineBytesMax)));
  const std::size_t line = text.find('\n');
  const auto said = words(text.substr(0, line));
  if (line == std::string_view::npos || said[0] != kMagic) return damaged_state(where);
  const Sha256Digest digest = sha256(content);
  if (!std::ranges::equal(digest.bytes(), all.last(Sha256Digest::kBytes))) {
    return damaged_state(where);
  }
  if (said.size() < 2 || said[1] != kVersion) {
    return unsupported("state-version",
                       fmt::format("{} is of another version than {}; the peer goes on with the "
                                   "model alone",
                                   where.string(), kVersion));
  }
  KeptState state;
  if (said.size() != 5 || !parse(said[3], state.epoch)) return damaged_state(where);
  state.algorithm = said[2];
  if (state.algorithm != algorithm) {
    return rejected("state-other", fmt::format("{} is of {}, and the run's algorithm is {}; the "
                                               "peer goes on with the model alone",
                                               where.string(), state.algorithm, algorithm));
  }
  if (said[4] != model) {
    return rejected("state-other", where.string() +
                                       " was not kept with this model; the peer goes "
                                       "on with the model alone");
  }
  state.bytes = to_bytes(content.subspan(line + 1));
  return state;
}

}  // namespace starling::gossip
