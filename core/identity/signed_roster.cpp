// SPDX-License-Identifier: Apache-2.0
// The text of a roster:
//   starling-roster/1
//   federation NAME / run NAME / epoch N / issued TIME / expires TIME, a line each
//   setting KEY=VALUE, any number
//   member NAME KEY ADDRESS, one or more; "-" for no address
//   revoked KEY, any number
//   the signer's certificate in PEM
//   signature HEX, over all before this line
// A parsed text is written again and compared, so that what is signed has exactly one form.
#include <algorithm>
#include <charconv>
#include <optional>

#include "core/base/durable_file.h"
#include "core/identity/peer_policy.h"
#include "core/identity/roster.h"
#include "core/identity/signature.h"

namespace starling::identity {
namespace {

// Also what keeps this apart from anything else that the key signs.
constexpr std::string_view kFirstLine = "starling-roster/1";
constexpr std::string_view kPemBegin = "\n-----BEGIN CERTIFICATE-----\n";
constexpr std::string_view kSignature = "signature ";
constexpr std::string_view kNoAddress = "-";

Error malformed(std::string_view why) {
  return rejected("bad-roster", "the roster is malformed: " + std::string(why));
}

std::string write_body(const Roster& roster) {
  std::string text = std::string(kFirstLine) + "\n";
  const auto line = [&](std::string_view word, std::string_view value) {
    text.append(word).append(" ").append(value).append("\n");
  };
  line("federation", roster.federation);
  line("run", roster.run);
  line("epoch", std::to_string(roster.epoch));
  line("issued", format_rfc3339(roster.issued));
  line("expires", format_rfc3339(roster.expires));
  for (const auto& [key, value] : roster.settings) line("setting", key + "=" + value);
  for (const RosterMember& member : roster.members) {
    line("member", member.name + " " + member.key.hex() + " " +
                       (member.address.empty() ? std::string(kNoAddress) : member.address));
  }
  for (const Sha256Digest& key : roster.revoked) line("revoked", key.hex());
  return text;
}

// Reads lines of a word and a value.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  bool done() const { return text_.empty(); }
  // The value of the next line if it begins with `word`.
  std::optional<std::string_view> take(std::string_view word) {
    const std::size_t end = text_.find('\n');
    std::string_view line = text_.substr(0, end);
    if (end == std::string_view::npos || !line.starts_with(word)) return {};
    line.remove_prefix(word.size());
    if (!line.starts_with(' ')) return {};
    text_.remove_prefix(end + 1);
    return line.substr(1);
  }
  Result<std::string_view> expect(std::string_view word) {
    if (const auto value = take(word)) return *value;
    return malformed("the line \"" + std::string(word) + "\" is missing");
  }

 private:
  std::string_view text_;
};

Result<WallTime> parse_time(std::string_view text) {
  constexpr std::size_t kTimeBytesMax = 32;
  if (text.size() <= kTimeBytesMax) {
    if (const auto time = parse_rfc3339(text)) return *time;
  }
  return malformed("a time is not in RFC 3339");
}

Result<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last) return malformed("the epoch is no number");
  return number;
}

Result<RosterMember> parse_member(std::string_view value) {
  const std::size_t first = value.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : value.find(' ', first + 1);
  if (second == std::string_view::npos) return malformed("a member is not NAME KEY ADDRESS");
  const auto key = Sha256Digest::parse(value.substr(first + 1, second - first - 1));
  if (!key) return malformed("a member's key is no SHA-256");
  const std::string_view address = value.substr(second + 1);
  return RosterMember{.name = std::string(value.substr(0, first)),
                      .key = *key,
                      .address = std::string(address == kNoAddress ? "" : address)};
}

Result<void> parse_lists(Lines& lines, Roster& roster) {
  while (const auto value = lines.take("setting")) {
    if (roster.settings.size() == kRosterSettingsMax) return malformed("too many settings");
    const std::size_t equals = value->find('=');
    if (equals == std::string_view::npos) return malformed("a setting is not KEY=VALUE");
    roster.settings.emplace_back(value->substr(0, equals), value->substr(equals + 1));
  }
  while (const auto value = lines.take("member")) {
    if (roster.members.size() == kRosterMembersMax) return malformed("too many members");
    STARLING_ASSIGN(RosterMember member, parse_member(*value));
    roster.members.push_back(std::move(member));
  }
  while (const auto value = lines.take("revoked")) {
    if (roster.revoked.size() == kRosterRevokedMax) return malformed("too many revoked keys");
    const auto key = Sha256Digest::parse(*value);
    if (!key) return malformed("a revoked key is no SHA-256");
    roster.revoked.push_back(*key);
  }
  return {};
}

Result<Roster> parse_body(std::string_view text) {
  const std::string first = std::string(kFirstLine) + "\n";
  if (!text.starts_with(first)) return malformed("it does not begin with " + first);
  Lines lines(text.substr(first.size()));
  Roster roster;
  STARLING_ASSIGN(roster.federation, lines.expect("federation"));
  STARLING_ASSIGN(roster.run, lines.expect("run"));
  STARLING_ASSIGN(const std::string_view epoch, lines.expect("epoch"));
  STARLING_ASSIGN(roster.epoch, parse_number(epoch));
  STARLING_ASSIGN(const std::string_view issued, lines.expect("issued"));
  STARLING_ASSIGN(roster.issued, parse_time(issued));
  STARLING_ASSIGN(const std::string_view expires, lines.expect("expires"));
  STARLING_ASSIGN(roster.expires, parse_time(expires));
  STARLING_TRY(parse_lists(lines, roster));
  if (!lines.done()) return malformed("a line has no place in it");
  STARLING_TRY(roster.validate());
  if (write_body(roster) != text) return malformed("it is not written in the one form it has");
  return roster;
}

// The three parts of the text, as views of it.
struct Parts {
  std::string_view body;
  std::string_view certificate;
  std::string_view signed_text;  // body and certificate
  Signature signature;
};

Result<Signature> parse_signature(std::string_view line) {
  if (!line.starts_with(kSignature)) return malformed("its last line is no signature");
  line.remove_prefix(kSignature.size());
  const auto bytes = from_hex(line);
  Signature signature;
  if (!bytes || bytes->size() != signature.size() || to_hex(*bytes) != line) {
    return malformed("its signature is not of 64 bytes in hexadecimal");
  }
  std::ranges::copy(*bytes, signature.begin());
  return signature;
}

Result<Parts> split(std::string_view text) {
  if (text.size() > kRosterBytesMax) return malformed("it is longer than 4 MiB");
  if (!text.ends_with('\n')) return malformed("its last line is cut off");
  const std::size_t last = text.rfind('\n', text.size() - 2);
  const std::size_t pem = text.find(kPemBegin);
  if (text.size() < 2 || last == std::string_view::npos || pem >= last) {
    return malformed("it has no certificate or no signature");
  }
  STARLING_ASSIGN(const Signature signature,
                  parse_signature(text.substr(last + 1, text.size() - last - 2)));
  return Parts{.body = text.substr(0, pem + 1),
               .certificate = text.substr(pem + 1, last - pem),
               .signed_text = text.substr(0, last + 1),
               .signature = signature};
}

Result<Certificate> parse_signer(std::string_view pem) {
  const auto certificate = Certificate::parse_pem(pem);
  if (!certificate || certificate->pem() != pem) {
    return malformed("what stands before the signature is not one certificate");
  }
  return *certificate;
}

Error signer_refused(const Error& why) {
  const bool foreign = why.code() == "wrong-federation";
  return rejected(foreign ? "roster-federation" : "roster-signer",
                  "the roster's signer may not issue rosters here: " + why.message());
}

// Coordinators and operators of earlier versions signed rosters.
Error role_refused(const Identity& signer, const Error& why) {
  if (signer.role == Role::kCoordinator) {
    return rejected("roster-signer", "the roster was signed by the coordinator " + signer.name +
                                         " of an earlier version: update its service first, which "
                                         "then signs it again");
  }
  if (signer.role == Role::kOperator) {
    return rejected("roster-signer",
                    "the roster was signed with the key of the operator " + signer.name +
                        ", and operators sign none any more: sign it again with "
                        "'starling-coordinator gossip sign' where the authority's key is, in the "
                        "coordinator's state directory");
  }
  return signer_refused(why);
}

Result<Identity> verify_signer(const Certificate& certificate,
                               std::span<const Certificate> authorities,
                               std::string_view federation, WallTime issued, RosterOrigin origin) {
  PeerPolicy policy{.federation = std::string(federation),
                    .roles = {Role::kIssuer},
                    .time = [issued] { return VerificationTime{.now = issued}; }};
  if (origin == RosterOrigin::kOwnDisk) policy.roles.add(Role::kCoordinator);
  auto verified = verify_peer(std::span(&certificate, 1), authorities, Side::kClient, policy);
  if (verified) return std::move(verified->identity);
  const auto who = certificate.identity();
  if (who && verified.error().code() == "wrong-role") return role_refused(*who, verified.error());
  return signer_refused(verified.error());
}

}  // namespace

Result<SignedRoster> SignedRoster::sign(const Roster& roster, const Credentials& signer) {
  STARLING_TRY(roster.validate());
  const Sha256Digest key = signer.certificate.public_key_digest();
  if (std::ranges::find(roster.revoked, key) != roster.revoked.end()) {
    return rejected("roster-revoked",
                    "the roster would revoke the key that signs it: give its signer "
                    "another key first");
  }
  std::string text = write_body(roster) + signer.certificate.pem();
  const Signature signature = identity::sign(signer.key, as_bytes(text));
  text.append(kSignature).append(to_hex(signature)).append("\n");
  return verify(as_bytes(text), signer.authorities, roster.federation);
}

Result<SignedRoster> SignedRoster::verify(ByteView bytes, std::span<const Certificate> authorities,
                                          std::string_view federation, RosterOrigin origin) {
  STARLING_ASSIGN(const Parts parts, split(as_text(bytes)));
  STARLING_ASSIGN(const Certificate certificate, parse_signer(parts.certificate));
  if (!is_signed_by(certificate, as_bytes(parts.signed_text), parts.signature)) {
    return rejected("roster-signature",
                    "the roster's signature is wrong: it was changed after it was signed");
  }
  STARLING_ASSIGN(Roster roster, parse_body(parts.body));
  if (roster.federation != federation) {
    return rejected("roster-federation", "the roster is of the federation " + roster.federation +
                                             ", not of " + std::string(federation));
  }
  STARLING_ASSIGN(Identity signer,
                  verify_signer(certificate, authorities, federation, roster.issued, origin));
  return SignedRoster(std::move(roster), std::move(signer), certificate.public_key_digest(),
                      SharedBytes::own(to_bytes(bytes)));
}

Result<void> SignedRoster::may_follow(const SignedRoster& held) const {
  const Roster& fresh = roster();
  const Roster& old = held.roster();
  const std::string epoch = "the roster of epoch " + std::to_string(fresh.epoch);
  if (!fresh.newer_than(old)) {
    return rejected("roster-old", epoch + " is not newer than the one held, of epoch " +
                                      std::to_string(old.epoch));
  }
  if (!fresh.replaces(old)) {
    return rejected("roster-changed", epoch +
                                          " says other things than the one held of the same epoch: "
                                          "its issuer must give it a later epoch");
  }
  if (fresh.epoch - old.epoch > kRosterEpochStepMax) {
    return rejected("roster-jump", epoch + " is more than " + std::to_string(kRosterEpochStepMax) +
                                       " epochs later than the one held, of epoch " +
                                       std::to_string(old.epoch) +
                                       ": its issuer must give it an earlier epoch");
  }
  const auto revokes = [](const Roster& roster, const Sha256Digest& key) {
    return std::ranges::find(roster.revoked, key) != roster.revoked.end();
  };
  if (revokes(old, signer_key_)) {
    return rejected("roster-revoked",
                    epoch + " was signed by " + signer_.name + ", whose key was revoked");
  }
  const auto is_kept = [&](const Sha256Digest& key) { return revokes(fresh, key); };
  const bool has_authority = signer_.role == Role::kIssuer && signer_.name == kOwnerName;
  if (has_authority || std::ranges::all_of(old.revoked, is_kept)) return {};
  return rejected("roster-revocations",
                  epoch +
                      " does not revoke all keys that the one held revokes; list them in "
                      "gossip/revoked of the coordinator's state directory");
}

Result<SignedRoster> SignedRoster::load(const std::filesystem::path& path,
                                        std::span<const Certificate> authorities,
                                        std::string_view federation, RosterOrigin origin) {
  STARLING_ASSIGN(const Bytes bytes, read_file(path, kRosterBytesMax));
  auto roster = verify(bytes, authorities, federation, origin);
  if (!roster) return roster.error().within(path.string());
  return roster;
}

Result<void> SignedRoster::save(const std::filesystem::path& path) const {
  return write_durably(path, bytes_.view());
}

}  // namespace starling::identity
