// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/held_roster.h"

namespace starling::gossip {
namespace {

std::filesystem::path file_in(const std::filesystem::path& directory) {
  return directory / "roster";
}

}  // namespace

Result<identity::SignedRoster> verify_roster(ByteView bytes,
                                             const identity::IdentityDirectory& self) {
  return identity::SignedRoster::verify(bytes, self.credentials().authorities,
                                        self.identity().federation);
}

bool is_member(const identity::Roster& roster, const identity::IdentityDirectory& self) {
  return roster.is_member(self.identity().name, self.credentials().certificate.public_key_digest());
}

std::vector<std::string> names_of(const identity::Roster& roster) {
  std::vector<std::string> names;
  for (const identity::RosterMember& member : roster.members) names.push_back(member.name);
  return names;
}

Result<std::optional<identity::SignedRoster>> load_held_roster(
    Disk& disk, const std::filesystem::path& directory, const identity::IdentityDirectory& self) {
  const std::filesystem::path file = file_in(directory);
  const auto bytes = read_file(disk, file, identity::kRosterBytesMax);
  if (!bytes && bytes.error().code() == "file-missing") {
    return std::optional<identity::SignedRoster>();
  }
  if (!bytes) return bytes.error();
  auto roster =
      identity::SignedRoster::verify(*bytes, self.credentials().authorities,
                                     self.identity().federation, identity::RosterOrigin::kOwnDisk);
  if (!roster) return roster.error().within(file.string());
  return std::optional<identity::SignedRoster>(std::move(*roster));
}

Result<void> hold_roster(Disk& disk, const std::filesystem::path& directory,
                         const identity::SignedRoster& roster) {
  STARLING_TRY(disk.make_directory(directory, Disk::Access::kOwner));
  return disk.write(file_in(directory), std::span(&roster.bytes(), 1));
}

}  // namespace starling::gossip
