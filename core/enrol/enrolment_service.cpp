// SPDX-License-Identifier: Apache-2.0
#include "core/enrol/enrolment_service.h"

#include "core/base/check.h"
#include "core/enrol/messages.h"
#include "core/identity/wipe.h"
#include "core/net/deadline.h"

namespace starling::enrol {
namespace {

// Nobody has to show who he is to be refused, so it must not hold a connection for long.
constexpr Duration kGoodbyeOfRefused = std::chrono::milliseconds(300);

// The token stays valid, so that it can be used with the right program.
Error wrong_role(const Grant& grant) {
  const bool is_operator = grant.role == identity::Role::kOperator;
  return rejected("token-role", "this token admits the " + std::string(to_string(grant.role)) +
                                    " " + grant.name + "; take it up with '" +
                                    (is_operator ? "starling-coordinator" : "starling-edge") +
                                    " join TOKEN'; it has not been used");
}

// What failed here is ours to know; the device can only try again.
Error for_the_device(const Error& error) {
  if (error.kind() != ErrorKind::kInternal) return error;
  return retry("coordinator-failed",
               "the coordinator could not record the new identity; try again later");
}

Error too_many_enrolments() {
  return overloaded("too-many-enrolments",
                    "as many devices are joining as may at a time; try again later");
}

}  // namespace

EnrolmentService::EnrolmentService(net::EventLoop& loop,
                                   const identity::CertificateAuthority& authority,
                                   EnrolmentLedger& ledger, const Clock& clock, Log& log,
                                   const EnrolmentOptions& options)
    : loop_(loop),
      authority_(authority),
      ledger_(ledger),
      clock_(clock),
      log_(log),
      options_(options),
      tries_(options.tries),
      refusals_(loop, log, "joining refused:"),
      slots_({.slots_max = options.connections_max,
              .per_address_max = options.connections_max,
              .undisturbed = options.undisturbed}) {}

void EnrolmentService::set_options(const EnrolmentOptions& options) {
  options_ = options;
  tries_ = net::RateLimiter(options.tries);
}

bool EnrolmentService::make_room(const std::string& address) {
  const auto verdict = slots_.verdict_on(address, loop_.now());
  if (verdict.answer == net::ArrivalSlots::Answer::kFree) return true;
  if (verdict.answer != net::ArrivalSlots::Answer::kEvict) return false;
  exchanging_.at(verdict.victim)->abort();
  exchanging_.erase(verdict.victim);
  slots_.leave(verdict.victim);
  return true;
}

net::Async<void> EnrolmentService::serve(std::unique_ptr<net::Connection> connection) {
  STARLING_CHECK(connection->protocol() == net::Protocol::kEnrolment);
  const std::string address = connection->remote_address();
  if (!make_room(address)) {
    auto refused = turn_away(std::move(connection));
    co_await std::move(refused);
    co_return;
  }
  const auto slot = slots_.take(address, connection->counters(), loop_.now());
  exchanging_.emplace(slot, connection.get());
  const TimePoint deadline = loop_.now() + options_.exchange_max;
  auto work = exchange(*connection);
  auto admitted = co_await net::with_deadline(loop_, deadline, "joining", std::move(work));
  // Whoever only takes leave now holds no slot.
  const bool evicted = !slots_.leave(slot);
  exchanging_.erase(slot);
  if (!admitted) refusals_.say(address, evicted ? too_many_enrolments() : admitted.error());
  const bool welcome = admitted && *admitted;
  const TimePoint gone = welcome ? deadline : loop_.now() + kGoodbyeOfRefused;
  co_await connection->close(gone);
}

net::Async<void> EnrolmentService::turn_away(std::unique_ptr<net::Connection> connection) {
  const Error reason = too_many_enrolments();
  refusals_.say(connection->remote_address(), reason);
  // Best effort: a connection that cannot take even this is dropped with it.
  (void)connection->send(encode(reason));
  const TimePoint deadline = loop_.now() + kGoodbyeOfRefused;
  co_await connection->close(deadline);
}

net::Async<Result<bool>> EnrolmentService::exchange(net::Connection& connection) {
  const RequestLimits limits;
  auto frame = co_await connection.read_frame(limits);
  if (!frame) co_return frame.error();
  const Result<std::string> certificate = admit(connection, *frame);
  if (!certificate) {
    refusals_.say(connection.remote_address(), certificate.error());
    const Result<void> told = connection.send(encode(for_the_device(certificate.error())));
    if (!told) co_return told.error();
    co_return false;
  }
  const Admission admission{.time = clock_.wall_now(),
                            .certificates = *certificate + authority_.certificate().pem()};
  const Result<void> told = connection.send(encode(admission));
  if (!told) co_return told.error();
  co_return true;
}

Result<std::string> EnrolmentService::admit(const net::Connection& connection,
                                            const net::Frame& frame) {
  if (!tries_.allow(connection.remote_address(), loop_.now())) {
    return overloaded("rate-limited", "too many tries to join from " + connection.remote_address() +
                                          "; try again in a second");
  }
  STARLING_ASSIGN(const Request request, decode_request(frame));
  STARLING_ASSIGN(const identity::TokenKey key, ledger_.key(request.token));
  auto exporter = connection.export_key(kExporterLabel);
  const identity::WipeAtEnd wiped(exporter);
  const Sha256Digest digest = sha256(request.signing_request);
  if (!key.verify(request.mac, exporter, digest)) {
    STARLING_TRY(ledger_.record_bad_mac(request.token));
    return rejected("bad-mac", "the join token is not the one that was issued; copy it again");
  }
  const auto make = [&](const Grant& grant) -> Result<std::string> {
    if (!request.roles.contains(grant.role)) return wrong_role(grant);
    return issue(grant, request.signing_request);
  };
  STARLING_ASSIGN(std::string certificate,
                  ledger_.redeem(request.token, digest, clock_.wall_now(), make));
  log_.info("the token {} was redeemed from {}", to_string(request.token),
            connection.remote_address());
  return certificate;
}

Result<std::string> EnrolmentService::issue(const Grant& grant, ByteView signing_request) const {
  STARLING_ASSIGN(const identity::SigningRequest request,
                  identity::SigningRequest::parse(signing_request));
  const identity::CertificateProfile profile{.role = grant.role,
                                             .name = grant.name,
                                             .addresses = grant.addresses,
                                             .lifetime = options_.certificate_lifetime};
  STARLING_ASSIGN(const identity::Certificate certificate,
                  authority_.issue(request, profile, clock_.wall_now()));
  return certificate.pem();
}

}  // namespace starling::enrol
