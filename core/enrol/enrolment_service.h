// SPDX-License-Identifier: Apache-2.0
// The coordinator's half of joining: takes a connection under ALPN "starling-enrol/1", reads one
// request, checks its MAC against the token and this channel, and answers with the certificate.
#pragma once

#include <map>
#include <memory>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/enrol/enrolment_ledger.h"
#include "core/identity/certificate_authority.h"
#include "core/net/arrival_slots.h"
#include "core/net/connection.h"
#include "core/net/rate_limiter.h"
#include "core/net/refusal_log.h"

namespace starling::enrol {

struct EnrolmentOptions {
  Duration certificate_lifetime = std::chrono::hours(24 * 30);
  Duration exchange_max = std::chrono::seconds(10);  // from the handshake to the last byte
  // At a time, shared by address: when there are as many, the oldest of those that have not sent
  // their request makes room, or newcomers are refused "too-many-enrolments".
  std::size_t connections_max = 64;
  Duration undisturbed = std::chrono::milliseconds(500);  // see net/arrival_slots.h
  net::RateLimiter::Options tries = {};                   // per address
};

class EnrolmentService {
 public:
  // All references must outlive the service, and the service every serve().
  EnrolmentService(net::EventLoop& loop, const identity::CertificateAuthority& authority,
                   EnrolmentLedger& ledger, const Clock& clock, Log& log,
                   const EnrolmentOptions& options);

  // Serves one connection to its end; run it in a TaskGroup. Requires: its protocol() is
  // kEnrolment.
  net::Async<void> serve(std::unique_ptr<net::Connection> connection);

  // For connections from now on.
  void set_options(const EnrolmentOptions& options);

 private:
  net::Async<void> turn_away(std::unique_ptr<net::Connection> connection);
  bool make_room(const std::string& address);
  // Whether the device was admitted and told so.
  net::Async<Result<bool>> exchange(net::Connection& connection);
  Result<std::string> admit(const net::Connection& connection, const net::Frame& frame);
  Result<std::string> issue(const Grant& grant, ByteView signing_request) const;

  net::EventLoop& loop_;
  const identity::CertificateAuthority& authority_;
  EnrolmentLedger& ledger_;
  const Clock& clock_;
  Log& log_;
  EnrolmentOptions options_;
  net::RateLimiter tries_;
  net::RefusalLog refusals_;
  net::ArrivalSlots slots_;
  std::map<net::ArrivalSlots::Id, net::Connection*> exchanging_;  // those that hold a slot
};

}  // namespace starling::enrol
