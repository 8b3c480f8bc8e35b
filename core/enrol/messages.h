// SPDX-License-Identifier: Apache-2.0
// The three messages of joining, each one frame with a fixed header (all little-endian; what is not
// listed is zero):
//   1 request      u16 version, 2: u16 roles that the program can hold (1 operator, 2 device, 4
//   peer;
//                  0, of older programs: any), 8: u64 token id, 16: 32 bytes MAC; payload: PKCS#10
//                  DER
//   2 certificate  u16 version, 8: i64 coordinator's time in milliseconds since 1970; payload: PEM
//                  of the new certificate, then of the federation's authorities
//   3 refusal      u16 version, u16 kind of error; payload: reason code, newline, sentence
// For sources of this folder only.
#pragma once

#include <string>

#include "core/base/clock.h"
#include "core/identity/identity.h"
#include "core/identity/join_token.h"
#include "core/net/frame.h"

namespace starling::enrol {

inline constexpr std::uint16_t kRequestFrame = 1;
inline constexpr std::uint16_t kCertificateFrame = 2;
inline constexpr std::uint16_t kRefusalFrame = 3;
// Names the keying material of the channel that the MAC covers.
inline constexpr std::string_view kExporterLabel = "EXPORTER-starling-enrol";

inline constexpr identity::RoleSet kAnyRole = {identity::Role::kOperator, identity::Role::kDevice,
                                               identity::Role::kPeer};

struct Request {
  identity::TokenId token;
  identity::Mac mac{};
  ByteView signing_request;
  identity::RoleSet roles = kAnyRole;
};

struct Admission {
  WallTime time;
  std::string certificates;  // PEM: one's own, then the authorities
};

net::OutgoingFrame encode(const Request& request);
net::OutgoingFrame encode(const Admission& admission);
net::OutgoingFrame encode(const Error& refusal);

// "bad-message" for anything malformed, "unsupported-version" for a later version.
[[nodiscard]] Result<Request> decode_request(const net::Frame& frame);
// The refusal's error where the frame is one.
[[nodiscard]] Result<Admission> decode_answer(const net::Frame& frame);

// What each side may receive.
class RequestLimits final : public net::FrameLimits {
 public:
  std::optional<net::FrameBound> bound(std::uint16_t type) const override;
};
class AnswerLimits final : public net::FrameLimits {
 public:
  std::optional<net::FrameBound> bound(std::uint16_t type) const override;
};

}  // namespace starling::enrol
