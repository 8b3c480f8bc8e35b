// SPDX-License-Identifier: Apache-2.0
#include "edge_client/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace starling::edge_client {
namespace {

constexpr std::string_view kRefused = "refused-";  // by the coordinator, see net/connect.h
constexpr std::size_t kReasonsMax = 64;
constexpr Duration kSilence = std::chrono::hours(1);

constexpr std::array<std::string_view, 6> kStrangers = {"unknown-authority", "self-signed",
                                                        "wrong-federation",  "wrong-role",
                                                        "bad-certificate",   "wrong-name"};

// A coordinator's judgement of a client, after the handshake.
constexpr std::array<std::string_view, 4> kNotAdmitted = {
    "certificate-revoked", "certificate-expired", "client-unknown", "wrong-role"};

std::string join_again(const StateDirectory& state) {
  return fmt::format(
      "ask its operator for a new token and type: starling-edge join TOKEN --replace "
      "--state {}",
      state.path.string());
}

std::string refused_advice(std::string_view code, const StateDirectory& state) {
  if (code == "certificate-revoked") {
    return "the operator revoked this device; if that was a mistake, " + join_again(state);
  }
  if (code == "certificate-expired") {
    return "this device's certificate has expired; " + join_again(state);
  }
  if (code == "certificate-not-yet-valid") {
    return "the coordinator's clock is behind; its operator has to set it";
  }
  return "the coordinator does not take this device's certificate; " + join_again(state);
}

std::string refusing_advice(std::string_view code, const std::string& where) {
  if (code == "certificate-expired" || code == "certificate-not-yet-valid") {
    return "compare this device's clock with the true time; if it is right, the operator has to "
           "renew the coordinator's certificate";
  }
  if (code == "wrong-address") {
    return fmt::format(
        "the coordinator's certificate does not name {}; its operator has to add "
        "the name",
        where);
  }
  if (std::ranges::find(kStrangers, code) != kStrangers.end()) {
    return fmt::format(
        "who answers at {} is not the coordinator that this device joined; ask its "
        "operator",
        where);
  }
  if (code == "not-tls" || code == "tls-version" || code == "wrong-alpn") {
    return fmt::format("what answers at {} is not a coordinator of Starling; ask its operator",
                       where);
  }
  if (code == "version") return "update starling-edge, or ask the operator to update";
  if (code == "replaced") {
    return "another process connects with this device's identity; stop one of them";
  }
  return "";
}

}  // namespace

std::string advice_for(const Error& error, const identity::IdentityDirectory& identity,
                       const StateDirectory& state) {
  const std::string_view code = error.code();
  if (code.starts_with(kRefused)) return refused_advice(code.substr(kRefused.size()), state);
  return refusing_advice(code, identity.coordinator().text());
}

std::string revoked_peer_advice(const StateDirectory& state, bool trains) {
  return fmt::format(
      "the operator revoked this device, and no member has a link with it{}; if that was a "
      "mistake, {}",
      trains ? ": it trains alone" : "", join_again(state));
}

Error as_refusal(const Error& said) {
  if (std::ranges::find(kNotAdmitted, said.code()) == kNotAdmitted.end()) return said;
  return {said.kind(), std::string(kRefused) + said.code(), said.message(),
          ErrorCategory::kNotAuthorised};
}

std::string expiry_warning(const identity::IdentityDirectory& identity, const StateDirectory& state,
                           WallTime now) {
  const identity::Validity validity = identity.credentials().certificate.validity();
  if (validity.not_after - now > (validity.not_after - validity.not_before) / 5) return "";
  return fmt::format("this device's certificate is good until {} only; before that, {}",
                     format_rfc3339(validity.not_after), join_again(state));
}

bool OccasionalReasons::worth_saying(std::string code, TimePoint now) {
  if (code.starts_with(kRefused)) code.erase(0, kRefused.size());
  const auto found = said_.find(code);
  if (found != said_.end() && now - found->second < kSilence) return false;
  if (said_.size() >= kReasonsMax) said_.clear();
  said_.insert_or_assign(std::move(code), now);
  return true;
}

}  // namespace starling::edge_client
