// SPDX-License-Identifier: Apache-2.0
#include "edge_client/pending_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/check.h"
#include "core/base/durable_file.h"
#include "core/wire/codec.h"
#include "core/wire/limits.h"

namespace starling::edge_client {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "STLPEND1";
constexpr std::size_t kChecksumAt = 8;
constexpr std::size_t kHeaderSizeAt = 16;
constexpr std::size_t kPayloadSizeAt = 24;
constexpr std::size_t kPrefixBytes = 64;
constexpr std::size_t kAlignment = 64;
constexpr std::string_view kExtension = ".update";
constexpr std::string_view kDamagedExtension = ".damaged";

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Error damaged(std::string why) { return rejected("pending-damaged", std::move(why)); }

// Where the payload begins, once the prefix has been believed.
Result<std::size_t> check_prefix(ByteView file) {
  if (file.size() < kPrefixBytes || as_text(file.first(kMagic.size())) != kMagic) {
    return damaged("it does not begin as an update does");
  }
  const auto header = load_little<std::uint32_t>(file.data() + kHeaderSizeAt);
  if (header > wire::kHeaderBytesMax) return damaged("its head is too long");
  const std::size_t begin = kPrefixBytes + aligned(header);
  const auto payload = load_little<std::uint64_t>(file.data() + kPayloadSizeAt);
  if (file.size() < begin || file.size() - begin != payload) {
    return damaged(fmt::format("it has {} bytes, which is not what its head says", file.size()));
  }
  const ByteView covered = file.first(begin).subspan(kHeaderSizeAt);
  if (load_little<std::uint64_t>(file.data() + kChecksumAt) != checksum(covered)) {
    return damaged("the checksum of its head does not match");
  }
  return begin;
}

Result<update::ContributionHead> decode_head(ByteView header) {
  constexpr auto kOffer = static_cast<std::uint16_t>(wire::FrameType::kUpdateOffer);
  auto message = wire::decode_header(kOffer, header);
  if (!message) return damaged(message.error().message());
  return std::get<protocol::UpdateOffer>(std::move(*message)).head;
}

std::vector<fs::path> files_in(const fs::path& directory, std::string_view extension) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator i(directory, code); !code && i != fs::directory_iterator();
       i.increment(code)) {
    if (i->path().extension() == extension) files.push_back(i->path());
  }
  return files;
}

std::vector<fs::path> newest_first(std::vector<fs::path> files) {
  std::vector<std::pair<fs::file_time_type, fs::path>> dated;
  std::error_code ignored;
  for (fs::path& file : files) {
    const auto written = fs::last_write_time(file, ignored);
    dated.emplace_back(written, std::move(file));
  }
  std::ranges::sort(dated, std::greater<>());
  std::ranges::transform(dated, files.begin(), [](auto& entry) { return std::move(entry.second); });
  return files;
}

}  // namespace

Result<Bytes> encode_pending_head(const update::ContributionHead& head) {
  STARLING_ASSIGN(const Bytes header, wire::encode_header(protocol::UpdateOffer{head}));
  Bytes file(kPrefixBytes + aligned(header.size()));
  std::ranges::copy(as_bytes(kMagic), file.begin());
  store_little(file.data() + kHeaderSizeAt, static_cast<std::uint32_t>(header.size()));
  store_little(file.data() + kPayloadSizeAt, head.payload_bytes);
  std::ranges::copy(header, file.begin() + kPrefixBytes);
  store_little(file.data() + kChecksumAt, checksum(ByteView(file).subspan(kHeaderSizeAt)));
  return file;
}

Result<client::PendingUpdate> decode_pending(Bytes file) {
  STARLING_ASSIGN(const std::size_t begin, check_prefix(file));
  const auto header = load_little<std::uint32_t>(file.data() + kHeaderSizeAt);
  STARLING_ASSIGN(update::ContributionHead head,
                  decode_head(ByteView(file).subspan(kPrefixBytes, header)));
  const SharedBytes whole = SharedBytes::own(std::move(file));
  SharedBytes payload = whole.slice(begin, whole.size() - begin);
  if (head.payload_bytes != payload.size() ||
      head.payload_bytes != update::payload_bytes(head.vectors)) {
    return damaged("its vectors have another size than its payload");
  }
  if (checksum(payload.view()) != head.payload_checksum) {
    return damaged("the checksum of its payload does not match");
  }
  return client::PendingUpdate{std::move(head), std::move(payload)};
}

fs::path PendingStore::file_of(TaskId task) const {
  return directory_ / fmt::format("{:016x}{}", task.value(), kExtension);
}

Result<void> PendingStore::store(const client::PendingUpdate& update) const {
  STARLING_CHECK(update.payload.size() == update.head.payload_bytes);
  STARLING_ASSIGN(const Bytes head, encode_pending_head(update.head));
  const std::array<ByteView, 2> parts = {head, update.payload.view()};
  return write_durably(file_of(update.head.task), parts);
}

Result<void> PendingStore::forget(TaskId task) const { return remove_durably(file_of(task)); }

Result<client::PendingUpdate> PendingStore::read(const fs::path& file) const {
  const std::size_t overhead = kPrefixBytes + aligned(wire::kHeaderBytesMax);
  STARLING_ASSIGN(Bytes content, read_file(file, options_.payload_bytes_max + overhead));
  STARLING_ASSIGN(client::PendingUpdate update, decode_pending(std::move(content)));
  if (file_of(update.head.task).filename() != file.filename()) {
    return damaged("it holds another task than its name says");
  }
  return update;
}

void PendingStore::set_aside(const fs::path& file, const Error& why, Log& log) const {
  log.warning("the pending update {} is set aside: {}", file.string(), why.message());
  std::error_code code;
  if (files_in(directory_, kDamagedExtension).size() >= options_.set_aside_max) {
    fs::remove(file, code);
  } else {
    fs::rename(file, fs::path(file).replace_extension(kDamagedExtension), code);
  }
  if (code) log.warning("{} cannot be moved: {}", file.string(), code.message());
}

Result<std::vector<client::PendingUpdate>> PendingStore::load(Log& log) const {
  STARLING_TRY(make_directory(directory_, true));
  sweep_temporaries(directory_);
  std::vector<client::PendingUpdate> updates;
  for (const fs::path& file : newest_first(files_in(directory_, kExtension))) {
    if (updates.size() == options_.updates_max) {
      log.warning("the pending update {} is dropped to make room", file.string());
      STARLING_TRY(remove_durably(file));
      continue;
    }
    auto update = read(file);
    if (update) {
      updates.push_back(std::move(*update));
    } else {
      set_aside(file, update.error(), log);
    }
  }
  std::ranges::reverse(updates);
  return updates;
}

}  // namespace starling::edge_client
