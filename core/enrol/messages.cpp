// SPDX-License-Identifier: Apache-2.0
#include "core/enrol/messages.h"

#include <algorithm>
#include <array>

#include "core/identity/signing_request.h"

namespace starling::enrol {
namespace {

constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kRequestHeaderBytes = 48;
constexpr std::size_t kAdmissionHeaderBytes = 16;
constexpr std::size_t kRefusalHeaderBytes = 8;
constexpr std::uint32_t kCertificatesBytesMax = 32 * 1024;
constexpr std::uint32_t kRefusalBytesMax = 1024;
constexpr std::size_t kCodeBytesMax = 64;

Bytes make_header(std::size_t bytes) {
  Bytes header(bytes);
  store_little(header.data(), kVersion);
  return header;
}

// The payload is kept alive by the frame itself.
net::OutgoingFrame make_frame(std::uint16_t type, Bytes header, ByteView payload) {
  const auto owner = std::make_shared<const Bytes>(to_bytes(payload));
  return {.type = type, .header = std::move(header), .payload = {.owner = owner, .bytes = *owner}};
}

Result<void> check_header(const net::Frame& frame, std::size_t bytes) {
  if (frame.header.size() != bytes) {
    return rejected("bad-message", "a message of the enrolment has a header of the wrong size");
  }
  if (load_little<std::uint16_t>(frame.header.data()) != kVersion) {
    return unsupported("unsupported-version",
                       "the other side speaks a later version of the enrolment; update this side");
  }
  return {};
}

struct RoleBit {
  identity::Role role;
  std::uint16_t bit;
};
constexpr std::array<RoleBit, 3> kRoleBits = {
    {{identity::Role::kOperator, 1}, {identity::Role::kDevice, 2}, {identity::Role::kPeer, 4}}};

std::uint16_t encode_roles(const identity::RoleSet& roles) {
  std::uint16_t bits = 0;
  for (const RoleBit& each : kRoleBits) {
    if (roles.contains(each.role)) bits |= each.bit;
  }
  return bits;
}

identity::RoleSet decode_roles(std::uint16_t bits) {
  if (bits == 0) return kAnyRole;
  identity::RoleSet roles;
  for (const RoleBit& each : kRoleBits) {
    if ((bits & each.bit) != 0) roles.add(each.role);
  }
  return roles;
}

bool is_code_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

// A refusal carries no category, and coordinators of every version say its kind.
ErrorCategory category_of_refusal(ErrorKind kind) {
  if (kind == ErrorKind::kRejected) return ErrorCategory::kNotAuthorised;
  if (kind == ErrorKind::kOverloaded) return ErrorCategory::kNotConnected;
  return ErrorCategory::kFailed;
}

bool is_printable(char c) { return c >= ' ' && c <= '~'; }

// Only what our own coordinator would write; the rest would reach a terminal.
Error decode_refusal(const net::Frame& frame) {
  const std::string_view text = as_text(frame.payload);
  const std::string_view code = text.substr(0, text.find('\n'));
  const std::string_view sentence = text.substr(std::min(text.size(), code.size() + 1));
  const auto kind = load_little<std::uint16_t>(frame.header.data() + 2);
  if (code.empty() || code.size() > kCodeBytesMax ||
      !std::ranges::all_of(code, is_code_character) ||
      !std::ranges::all_of(sentence, is_printable) ||
      kind > static_cast<std::uint16_t>(ErrorKind::kInternal)) {
    return rejected("bad-message", "the coordinator refused with an unreadable message");
  }
  return {static_cast<ErrorKind>(kind), std::string(code), std::string(sentence),
          category_of_refusal(static_cast<ErrorKind>(kind))};
}

}  // namespace

net::OutgoingFrame encode(const Request& request) {
  Bytes header = make_header(kRequestHeaderBytes);
  store_little(header.data() + 2, encode_roles(request.roles));
  store_little(header.data() + 8, request.token.value());
  std::ranges::copy(request.mac, header.begin() + 16);
  return make_frame(kRequestFrame, std::move(header), request.signing_request);
}

net::OutgoingFrame encode(const Admission& admission) {
  Bytes header = make_header(kAdmissionHeaderBytes);
  store_little(header.data() + 8,
               static_cast<std::int64_t>(admission.time.time_since_epoch().count()));
  return make_frame(kCertificateFrame, std::move(header), as_bytes(admission.certificates));
}

net::OutgoingFrame encode(const Error& refusal) {
  Bytes header = make_header(kRefusalHeaderBytes);
  store_little(header.data() + 2, static_cast<std::uint16_t>(refusal.kind()));
  const std::string text = refusal.code() + "\n" + refusal.message();
  return make_frame(kRefusalFrame, std::move(header),
                    as_bytes(std::string_view(text).substr(0, kRefusalBytesMax)));
}

Result<Request> decode_request(const net::Frame& frame) {
  STARLING_TRY(check_header(frame, kRequestHeaderBytes));
  Request request;
  request.roles = decode_roles(load_little<std::uint16_t>(frame.header.data() + 2));
  request.token = identity::TokenId(load_little<std::uint64_t>(frame.header.data() + 8));
  std::ranges::copy(frame.header.subspan(16, request.mac.size()), request.mac.begin());
  request.signing_request = frame.payload;
  return request;
}

Result<Admission> decode_answer(const net::Frame& frame) {
  if (frame.type == kRefusalFrame) {
    STARLING_TRY(check_header(frame, kRefusalHeaderBytes));
    return decode_refusal(frame);
  }
  STARLING_TRY(check_header(frame, kAdmissionHeaderBytes));
  const auto milliseconds = load_little<std::int64_t>(frame.header.data() + 8);
  return Admission{.time = WallTime(std::chrono::milliseconds(milliseconds)),
                   .certificates = std::string(as_text(frame.payload))};
}

std::optional<net::FrameBound> RequestLimits::bound(std::uint16_t type) const {
  if (type != kRequestFrame) return {};
  return net::FrameBound{.header_words_max = kRequestHeaderBytes / 8,
                         .payload_bytes_max = identity::SigningRequest::kBytesMax};
}

std::optional<net::FrameBound> AnswerLimits::bound(std::uint16_t type) const {
  if (type == kCertificateFrame) {
    return net::FrameBound{.header_words_max = kAdmissionHeaderBytes / 8,
                           .payload_bytes_max = kCertificatesBytesMax};
  }
  if (type != kRefusalFrame) return {};
  return net::FrameBound{.header_words_max = kRefusalHeaderBytes / 8,
                         .payload_bytes_max = kRefusalBytesMax};
}

}  // namespace starling::enrol
