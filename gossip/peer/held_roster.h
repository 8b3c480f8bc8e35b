// SPDX-License-Identifier: Apache-2.0
// The roster that a member holds: what it believes of one, and where it keeps it between processes.
// The same rules whether the issuer sends it, a peer passes it on, or the owner brings a file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/disk.h"
#include "core/identity/identity_directory.h"
#include "core/identity/roster.h"

namespace starling::gossip {

// One that came from elsewhere: signed by who may issue rosters to `self`; errors as of
// identity::SignedRoster::verify.
[[nodiscard]] Result<identity::SignedRoster> verify_roster(ByteView bytes,
                                                           const identity::IdentityDirectory& self);

// With this very key.
bool is_member(const identity::Roster& roster, const identity::IdentityDirectory& self);

// Of all members, by their places.
std::vector<std::string> names_of(const identity::Roster& roster);

// `directory` is the peer's (PeerShell::Options). Nothing where it holds none; an error where what
// it holds cannot be believed. One that a coordinator of an earlier version signed can
// (identity::RosterOrigin).
[[nodiscard]] Result<std::optional<identity::SignedRoster>> load_held_roster(
    Disk& disk, const std::filesystem::path& directory, const identity::IdentityDirectory& self);
// Durably, in place of the one that is held; makes the directory.
[[nodiscard]] Result<void> hold_roster(Disk& disk, const std::filesystem::path& directory,
                                       const identity::SignedRoster& roster);

}  // namespace starling::gossip
