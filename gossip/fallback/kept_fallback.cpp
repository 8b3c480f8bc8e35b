// SPDX-License-Identifier: Apache-2.0
#include "gossip/fallback/kept_fallback.h"

#include <fmt/format.h>

#include <charconv>

#include "core/base/digest.h"
#include "core/base/durable_file.h"
#include "core/base/settings.h"

namespace starling::gossip::fallback {
namespace {

// A line "starling-fallback VERSION MILLISECONDS", the time in Unix time; a line "KEY VALUE" a
// field; an empty line; the model; the SHA-256 of all before.
constexpr std::string_view kHead = "starling-fallback 1 ";
constexpr std::string_view kAnyHead = "starling-fallback ";
constexpr std::uint64_t kFileBytesMax = std::uint64_t{64} << 30;

Error damaged(const std::filesystem::path& path) {
  return rejected("fallback-damaged", path.string() +
                                          " is not as this program wrote it: what was trained by "
                                          "gossip before is dropped");
}

// The lines of the head, without the first; nothing where they do not end.
std::optional<Settings> fields_in(std::string_view text) {
  Settings settings;
  while (!text.starts_with('\n')) {
    const std::size_t end = text.find('\n');
    const std::size_t space = text.find(' ');
    if (end == std::string_view::npos || space > end) return std::nullopt;
    settings.emplace_back(text.substr(0, space), text.substr(space + 1, end - space - 1));
    text.remove_prefix(end + 1);
  }
  return settings;
}

}  // namespace

Result<void> save_fallback(const std::filesystem::path& path, const Kept& kept, WallTime now) {
  std::string head = fmt::format("{}{}\n", kHead, now.time_since_epoch().count());
  for (const auto& [key, value] : to_settings("", kept)) head += fmt::format("{} {}\n", key, value);
  head += '\n';
  Sha256 hash;
  hash.update(as_bytes(head));
  hash.update(kept.trained.model.view());
  const Sha256Digest digest = std::move(hash).finish();
  const ByteView parts[] = {as_bytes(head), kept.trained.model.view(), digest.bytes()};
  return write_durably(path, parts);
}

Result<std::optional<Loaded>> load_fallback(const std::filesystem::path& path) {
  auto file = read_file(path, kFileBytesMax);
  if (!file && file.error().code() == "file-missing") return std::optional<Loaded>();
  if (!file) return file.error();
  if (file->size() < Sha256Digest::kBytes) return damaged(path);
  const ByteView content = ByteView(*file).first(file->size() - Sha256Digest::kBytes);
  const Sha256Digest digest = sha256(content);
  if (!std::ranges::equal(digest.bytes(), ByteView(*file).last(Sha256Digest::kBytes))) {
    return damaged(path);
  }
  const std::string_view text = as_text(content);
  if (!text.starts_with(kHead)) {
    if (!text.starts_with(kAnyHead)) return damaged(path);
    return unsupported("fallback-version", path.string() +
                                               " is of another version: what was trained by gossip "
                                               "before is dropped");
  }
  const std::size_t line = text.find('\n');
  const std::size_t end = text.find("\n\n");
  if (end == std::string_view::npos) return damaged(path);
  std::int64_t milliseconds = 0;
  const auto [rest, error] =
      std::from_chars(text.data() + kHead.size(), text.data() + line, milliseconds);
  const auto settings = fields_in(text.substr(line + 1));
  Loaded loaded{.kept = {}, .at = WallTime(std::chrono::milliseconds(milliseconds))};
  const bool reads = error == std::errc() && rest == text.data() + line && settings &&
                     from_settings("", *settings, loaded.kept);
  const ByteView model = content.subspan(end + 2);
  if (!reads || model.empty() || model.size() % sizeof(float) != 0) return damaged(path);
  loaded.kept.trained.model = SharedBytes::own(to_bytes(model));
  return std::optional(std::move(loaded));
}

}  // namespace starling::gossip::fallback
