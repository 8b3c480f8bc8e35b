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

Result<void> write(Disk& disk, const std::filesystem::path& path, const Checkpoint& checkpoint,
                   const std::shared_ptr<const model::Layout>& layout) {
  model::Metadata metadata = {{kRun, checkpoint.run},
                              {kExchange, std::to_string(checkpoint.exchange)},
                              {kDigest, digest_of(checkpoint)}};
  metadata.merge(support_of(checkpoint));
  const Bytes header = model::safetensors_header(*layout, metadata);
  const SharedBytes parts[] = {{nullptr, header}, {nullptr, as_bytes(std::span(checkpoint.model))}};
  return disk.write(path, parts);
}

}  // namespace

// Equal runs write equal files.
Result<void> save_model(Disk& disk, const std::filesystem::path& path, Checkpoint checkpoint,
                        const std::shared_ptr<const model::Layout>& layout) {
  checkpoint.support.quorum_seconds = 0;
  return write(disk, path, checkpoint, layout);
}

// The state first: after a crash in between, the older model finds no state of its own.
Result<void> save_checkpoint(Disk& disk, const std::filesystem::path& path,
                             const Checkpoint& checkpoint,
                             const std::shared_ptr<const model::Layout>& layout) {
  const KeptState& state = checkpoint.state;
  const std::string line = fmt::format("{} {} {} {} {}\n", kMagic, kVersion, state.algorithm,
                                       state.epoch, digest_of(checkpoint));
  Sha256 hash;
  hash.update(as_bytes(line));
  hash.update(state.bytes);
  const Sha256Digest digest = std::move(hash).finish();
  const SharedBytes parts[] = {
      {nullptr, as_bytes(line)}, {nullptr, state.bytes}, {nullptr, digest.bytes()}};
  STARLING_TRY(disk.write(state_path(path), parts));
  return write(disk, path, checkpoint, layout);
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
  const auto where = state_path(path);
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
  if (said[4] != digest_of(checkpoint)) {
    return rejected("state-other", where.string() +
                                       " was not kept with this model; the peer goes "
                                       "on with the model alone");
  }
  state.bytes = to_bytes(content.subspan(line + 1));
  return state;
}

}  // namespace starling::gossip
