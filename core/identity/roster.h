// SPDX-License-Identifier: Apache-2.0
// The members of a gossip network and what it trains. An issuer decides both (the coordinator's
// service, or the holder of the authority's key offline), and members pass the roster on as it was
// signed.
// Refusals:
//   bad-roster roster-signature roster-signer roster-federation roster-expired roster-old
//   roster-changed roster-jump roster-revoked roster-revocations
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/settings.h"
#include "core/base/shared_bytes.h"
#include "core/identity/certificate.h"

namespace starling::identity {

inline constexpr std::size_t kRosterMembersMax = 10'000;
// Epochs only grow, so one that left no room for the next would be the last for ever.
inline constexpr std::uint64_t kRosterEpochMax = std::uint64_t{1} << 53;  // exact in JSON too
// A member takes an epoch that is at most so much later than the one it holds, and an issuer never
// goes further at a time. An issuer that lost its disk finds its members again with one epoch, and
// a stolen key cannot use up the epochs: it would have to sign nine thousand million rosters, each
// of which a member verifies and writes to its disk.
inline constexpr std::uint64_t kRosterEpochStepMax = 1'000'000;
inline constexpr std::size_t kRosterRevokedMax = 1'000;
inline constexpr std::chrono::hours kRosterLifetimeMax{24 * 365};
inline constexpr std::size_t kRosterBytesMax = 4 << 20;  // with its signature
inline constexpr std::size_t kRosterSettingsMax = 256;
inline constexpr std::size_t kRosterSettingKeyBytesMax = 128;
// The names of some thousand columns of a CSV file. Earlier versions take 1,024 bytes.
inline constexpr std::size_t kRosterSettingValueBytesMax = std::size_t{64} << 10;

// The setting that tells a run from others of its name: 16 hexadecimal digits, '@', and when the
// run began by its issuer's clock in RFC 3339. Earlier issuers wrote the digits alone, or no such
// setting: then the roster is of the run that its name says.
inline constexpr std::string_view kRunIdKey = "run-id";

// The name of an issuer that has the authority's key: `gossip sign` certifies itself with it. The
// issuer of a service has another name.
inline constexpr std::string_view kOwnerName = "owner";

// Where a roster was read. Coordinators of earlier versions signed rosters with their servers'
// keys. Such a roster counts only where it is on the reader's own disk, or was put there by the
// owner for `gossip sign`: so its epoch is not forgotten.
enum class RosterOrigin { kReceived, kOwnDisk };

struct RosterMember {
  std::string name;
  Sha256Digest key;     // Certificate::public_key_digest()
  std::string address;  // "host:port"; empty: cannot be dialled
  friend bool operator==(const RosterMember&, const RosterMember&) = default;
};

struct Roster {
  std::string federation;
  std::string run;          // the name of what is trained
  std::uint64_t epoch = 0;  // 1 to kRosterEpochMax; a change of members or settings begins one
  WallTime issued{};
  WallTime expires{};
  Settings settings;                  // of the run: {"algorithm.name", "dpsgd"}, ...
  std::vector<RosterMember> members;  // in the order of the topology's nodes
  // Certificate::public_key_digest() of those whose signatures on later rosters do not count.
  std::vector<Sha256Digest> revoked = {};

  // The node number of a member.
  std::optional<std::uint32_t> find(std::string_view name) const;
  bool is_member(std::string_view name, const Sha256Digest& key) const;
  // Of the same federation: of a later epoch, or of the same one and issued later.
  bool newer_than(const Roster& other) const;
  // Whether this may take the place of `held`: it is newer, and within an epoch, whose peers must
  // agree on all else, nothing but its times has changed.
  bool replaces(const Roster& held) const;
  // What members keep their checkpoints by: the run's name, and its id where it has one. A stopped
  // roster says the name alone.
  std::string run_identity() const;
  // Gives the run an id that no run before it has, from everything that this roster says at `now`,
  // and says that it begins then.
  void begin_run(WallTime now);
  // How long the run had been going on when this was issued, never negative; none where the roster
  // does not say it, as earlier issuers signed them.
  std::optional<WallTime::duration> run_age() const;
  // Whether this tells the members to end: the run's settings are stopped_settings().
  bool stopped() const;
  bool expired(WallTime now) const { return now >= expires; }
  // "roster-expired" with the sentence.
  [[nodiscard]] Result<void> check_current(WallTime now) const;
  // Epoch and life within their limits; names, keys and settings too, and unique; addresses as
  // HostPort writes them, texts without control characters; "bad-roster" otherwise.
  [[nodiscard]] Result<void> validate() const;
  friend bool operator==(const Roster&, const Roster&) = default;
};

Settings stopped_settings();

// A roster that has been verified, with the very bytes that were signed: lines of text, the
// signer's certificate in PEM, and the signature over all that stands before it. What is signed has
// one form only, so nothing that the roster says can be changed unnoticed. The signature itself
// can: of an ECDSA signature (r, s) anybody makes another one, (r, n - s), that verifies. So the
// bytes tell no two rosters apart; epoch and time of issue do. Copies share what they hold.
class SignedRoster {
 public:
  // Signs and verifies: whatever this returns, members whose authorities are the signer's take.
  [[nodiscard]] static Result<SignedRoster> sign(const Roster& roster, const Credentials& signer);
  // The signer must be an issuer of `federation` (see RosterOrigin for coordinators) whose
  // certificate one of the authorities issued and which was valid when the roster was issued.
  // Whether the roster has expired is the caller's to judge.
  [[nodiscard]] static Result<SignedRoster> verify(ByteView bytes,
                                                   std::span<const Certificate> authorities,
                                                   std::string_view federation,
                                                   RosterOrigin origin = RosterOrigin::kReceived);
  [[nodiscard]] static Result<SignedRoster> load(const std::filesystem::path& path,
                                                 std::span<const Certificate> authorities,
                                                 std::string_view federation,
                                                 RosterOrigin origin = RosterOrigin::kReceived);
  [[nodiscard]] Result<void> save(const std::filesystem::path& path) const;  // durably

  // Whether a member that holds `held` takes this in its place:
  //   roster-old          it is not newer
  //   roster-changed      it is of the same epoch and says other things
  //   roster-jump         its epoch is more than kRosterEpochStepMax later
  //   roster-revoked      `held` revokes the key that signed it
  //   roster-revocations  it does not revoke all that `held` revokes, and its signer is not named
  //                       kOwnerName: only the holder of the authority's key may take a
  //                       revocation back, and no thief of the service's key
  [[nodiscard]] Result<void> may_follow(const SignedRoster& held) const;

  const Roster& roster() const { return *roster_; }
  const Identity& signer() const { return signer_; }
  const Sha256Digest& signer_key() const { return signer_key_; }
  const SharedBytes& bytes() const { return bytes_; }

 private:
  SignedRoster(Roster roster, Identity signer, const Sha256Digest& signer_key, SharedBytes bytes)
      : roster_(std::make_shared<const Roster>(std::move(roster))),
        signer_(std::move(signer)),
        signer_key_(signer_key),
        bytes_(std::move(bytes)) {}

  std::shared_ptr<const Roster> roster_;
  Identity signer_;
  Sha256Digest signer_key_;
  SharedBytes bytes_;
};

}  // namespace starling::identity
