// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/backup_listing.h"

#include <algorithm>
#include <boost/json.hpp>
#include <numeric>
#include <set>
#include <utility>

namespace starling::coordinator {
namespace {

namespace json = boost::json;

constexpr std::string_view kFormat = "starling-backup/1";

Error bad_listing(const std::string& why) {
  return rejected("bad-backup", "this is not a backup of a coordinator: " + why);
}

bool is_plain_component(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  });
}

std::optional<std::string> text_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string());
}

Result<BackupFile> parse_file(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return bad_listing("a file is not an object");
  const auto path = text_of(*object, "path");
  if (!path || !is_backup_path(*path)) return bad_listing("the path of a file is not a plain one");
  BackupFile file{.path = *path, .bytes = 0, .sha256 = std::nullopt};
  boost::system::error_code code;
  const json::value* bytes = object->if_contains("bytes");
  if (bytes != nullptr) file.bytes = bytes->to_number<std::uint64_t>(code);
  if (bytes == nullptr || code) return bad_listing(file.path + " has no size");
  if (const auto hex = text_of(*object, "sha256")) {
    STARLING_ASSIGN(file.sha256, Sha256Digest::parse(*hex));
  }
  return file;
}

}  // namespace

bool is_backup_path(std::string_view path) {
  if (path == kBackupManifest) return false;
  while (true) {
    const std::size_t slash = path.find('/');
    if (!is_plain_component(path.substr(0, slash))) return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::uint64_t BackupListing::bytes() const {
  return std::accumulate(
      files.begin(), files.end(), std::uint64_t{0},
      [](std::uint64_t sum, const BackupFile& file) { return sum + file.bytes; });
}

std::string to_json_text(const BackupListing& listing) {
  json::array files;
  for (const BackupFile& file : listing.files) {
    json::object object{{"path", file.path}, {"bytes", file.bytes}};
    if (file.sha256) object["sha256"] = file.sha256->hex();
    files.push_back(std::move(object));
  }
  const json::object object{{"format", kFormat},
                            {"federation", listing.federation},
                            {"created", listing.created},
                            {"notes", json::array(listing.notes.begin(), listing.notes.end())},
                            {"files", std::move(files)}};
  return json::serialize(object) + "\n";
}

Result<BackupListing> parse_backup_listing(std::string_view text) {
  boost::system::error_code code;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), code);
  const json::object* object = code ? nullptr : value.if_object();
  if (object == nullptr) return bad_listing("its listing is not JSON");
  if (text_of(*object, "format") != kFormat) {
    return bad_listing("its format is not " + std::string(kFormat));
  }
  const auto federation = text_of(*object, "federation");
  const auto created = text_of(*object, "created");
  const json::value* files = object->if_contains("files");
  if (!federation || !created || files == nullptr || !files->is_array()) {
    return bad_listing("its listing lacks the federation, the time or the files");
  }
  BackupListing listing{.federation = *federation, .created = *created, .files = {}, .notes = {}};
  std::set<std::string> paths;
  for (const json::value& entry : files->get_array()) {
    STARLING_ASSIGN(BackupFile file, parse_file(entry));
    if (!paths.insert(file.path).second) return bad_listing("it lists " + file.path + " twice");
    listing.files.push_back(std::move(file));
  }
  if (!paths.contains("starling.db")) return bad_listing("it lists no starling.db");
  const json::value* notes = object->if_contains("notes");
  if (notes == nullptr || !notes->is_array()) return listing;
  for (const json::value& note : notes->get_array()) {
    if (note.is_string()) listing.notes.emplace_back(note.get_string());
  }
  return listing;
}

}  // namespace starling::coordinator
