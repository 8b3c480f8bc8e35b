// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/base/durable_file.h"
#include "core/enrol/enrolment_service.h"
#include "core/enrol/join.h"
#include "core/enrol/messages.h"
#include "core/identity/signing_request.h"
#include "tests/enrol/memory_ledger.h"
#include "tests/net/loopback.h"
#include "tests/support/temporary_directory.h"

namespace starling::enrol {
namespace {

using identity::IdentityDirectory;
using identity::JoinToken;
using identity::Role;
using identity::SigningRequest;
using net::Async;
using net::run_task;
using std::chrono::hours;
using testing::kNow;

// Wall time stands still where the test has put it; steady time is real.
class FixedClock final : public Clock {
 public:
  TimePoint now() const override { return SystemClock().now(); }
  WallTime wall_now() const override { return wall; }
  WallTime wall = kNow;
};

struct Reply {
  std::string code;  // "certificate" or the reason
  std::string certificates;
};

class EnrolmentTest : public ::testing::Test, protected testing::Loopback {
 public:
  EnrolmentTest() : tasks(loop) {}
  ~EnrolmentTest() override {
    if (listener) loop.run_task(listener->close());
    loop.run_task(tasks.stop());
    listener = nullptr;
  }

  void serve(EnrolmentOptions options = {}) {
    service.emplace(loop, authority, ledger, coordinators_clock, log, options);
    net::ListenerHandlers handlers;
    handlers.on_connection = [this](std::unique_ptr<net::Connection> connection) {
      ++admitted;
      tasks.spawn(service->serve(std::move(connection)));
    };
    handlers.on_refused = [this](const net::Refusal& refusal) { refusals.push(refusal); };
    const auto tls = net::TlsContext::make_server(
        coordinator, {{.protocol = net::Protocol::kSession, .client = testing::client_policy()},
                      {.protocol = net::Protocol::kEnrolment}});
    listener = *net::Listener::open(loop, *tls, {.host = "127.0.0.1"}, handlers);
  }

  JoinToken new_token(const Grant& grant = {.name = "cam-7"}) {
    JoinToken token =
        JoinToken::make(authority.certificate().public_key_digest(), "127.0.0.1", listener->port());
    ledger.tokens.emplace(token.id.value(),
                          testing::MemoryLedger::Token{
                              .key = token.key(), .grant = grant, .expires = kNow + hours(1)});
    return token;
  }

  Result<IdentityDirectory> join_from(const JoinToken& token, const std::filesystem::path& path) {
    return run_task(loop, join(loop, token, path, devices_clock, join_options));
  }
  std::string join_code(const JoinToken& token, const std::filesystem::path& path) {
    const auto joined = join_from(token, path);
    return joined ? joined->identity().uri() : joined.error().code();
  }

  // A client that is not of our making: any request over a real enrolment channel.
  using MakeRequest = std::function<Request(const net::Connection&)>;
  Async<Reply> send_request(MakeRequest make, Bytes signing_request) {
    auto connection = co_await dial(enrolment_tls());
    Request request = make(**connection);
    request.signing_request = signing_request;
    EXPECT_TRUE((*connection)->send(encode(request)));
    const AnswerLimits limits;
    auto frame = co_await (*connection)->read_frame(limits);
    Reply reply;
    if (!frame) {
      reply.code = frame.error().code();
      co_return reply;
    }
    const auto answer = decode_answer(*frame);
    reply.code = answer ? std::string("certificate") : answer.error().code();
    if (answer) reply.certificates = answer->certificates;
    co_return reply;
  }
  Reply ask(const MakeRequest& make, const Bytes& signing_request) {
    return run_task(loop, send_request(make, signing_request));
  }
  static MakeRequest honest(const JoinToken& token, const Bytes& signing_request) {
    return [=](const net::Connection& connection) {
      return Request{
          .token = token.id,
          .mac = token.key().mac(connection.export_key(kExporterLabel), sha256(signing_request)),
          .signing_request = {},
          .roles = kAnyRole};
    };
  }

  std::shared_ptr<const net::TlsContext> enrolment_tls() {
    return *net::TlsContext::make_enrolment_client(authority.certificate().public_key_digest(),
                                                   testing::coordinator_policy());
  }
  // What the coordinator says to any frame.
  Async<std::string> send_frame(net::OutgoingFrame frame) {
    auto connection = co_await dial(enrolment_tls());
    EXPECT_TRUE((*connection)->send(std::move(frame)));
    const AnswerLimits limits;
    auto answer = co_await (*connection)->read_frame(limits);
    if (!answer) co_return answer.error().code();
    co_return decode_answer(*answer).error().code();
  }
  std::string code_for(net::OutgoingFrame frame) {
    return run_task(loop, send_frame(std::move(frame)));
  }
  // The code for a request that comes while another connection is open.
  Async<std::string> second_at_a_time() {
    auto first = co_await dial(enrolment_tls());
    auto frame = send_frame({.type = kRequestFrame, .header = Bytes(48)});
    auto code = co_await std::move(frame);
    co_return code;
  }

  Async<std::string> wait_silently() {
    auto connection = co_await dial(enrolment_tls());
    const AnswerLimits limits;
    auto answer = co_await (*connection)->read_frame(limits);
    co_return answer.error().code();
  }

  NullLog log;
  FixedClock coordinators_clock;
  FixedClock devices_clock;
  JoinOptions join_options;
  testing::MemoryLedger ledger;
  std::optional<EnrolmentService> service;
  net::TaskGroup tasks;
  testing::TemporaryDirectory home;
  int admitted = 0;
};

unsigned mode(const std::filesystem::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 0777;
}

TEST_F(EnrolmentTest, OneTokenMakesOneIdentityThatTheCoordinatorLetsIn) {
  serve();
  const JoinToken token = *JoinToken::parse(new_token().text());
  const auto joined = join_from(token, home.path() / "identity");
  ASSERT_TRUE(joined) << joined.error().message();
  EXPECT_EQ(joined->identity().uri(), "starling://kitchen/device/cam-7");
  EXPECT_EQ(joined->coordinator().port, token.port);
  EXPECT_EQ(joined->last_authenticated(), kNow);
  EXPECT_EQ(joined->credentials().authorities.size(), 1U);
  EXPECT_EQ(joined->credentials().certificate.pem(),
            ledger.tokens.at(token.id.value()).certificate);
  EXPECT_EQ(mode(home.path() / "identity"), 0700U);
  EXPECT_EQ(mode(home.path() / "identity" / "key.pem"), 0600U);
  EXPECT_FALSE(std::filesystem::exists(home.path() / "identity" / "request.der"));
  EXPECT_EQ(join_code(token, home.path() / "identity"), "already-joined");

  loop.run_task(listener->close());
  listen();
  const auto session = run_task(loop, dial(testing::client_tls(joined->credentials())));
  EXPECT_TRUE(session);
}

TEST_F(EnrolmentTest, APeerGetsItsAddress) {
  serve();
  const JoinToken token =
      new_token({.name = "node-3", .role = Role::kPeer, .addresses = {"10.0.0.3"}});
  EXPECT_EQ(join_code(token, home.path()), "starling://kitchen/peer/node-3");
}

TEST_F(EnrolmentTest, NothingIsSentToAnotherAuthority) {
  const auto rogue = identity::CertificateAuthority::make({.federation = "kitchen"}, kNow);
  const identity::CertificateProfile hub{
      .role = Role::kCoordinator, .name = "hub", .addresses = {"127.0.0.1"}};
  const identity::Credentials ours = coordinator;
  identity::Credentials foreign = *rogue->issue_credentials(hub, kNow);
  identity::Credentials behind_our_root = foreign;
  behind_our_root.authorities = {authority.certificate()};
  for (const identity::Credentials& shown : {foreign, behind_our_root}) {
    coordinator = shown;
    serve();
    const JoinToken token = new_token();
    EXPECT_EQ(join_code(token, home.path()), "unknown-authority");
    EXPECT_EQ(run_task(loop, refusals.next()).error.code(), "refused-unknown-authority");
    EXPECT_EQ(admitted, 0) << "the server could read from a device that must not have spoken";
    EXPECT_EQ(ledger.calls, 0);
    loop.run_task(listener->close());
  }
}

TEST_F(EnrolmentTest, NothingIsSentToWhoeverIsNoCoordinatorHere) {
  struct Case {
    identity::CertificateProfile shown;
    std::string reason;
  };
  for (const Case& each :
       {Case{{.role = Role::kPeer, .name = "p", .addresses = {"127.0.0.1"}}, "wrong-role"},
        Case{{.role = Role::kDevice, .name = "cam-8"}, "wrong-role"},
        Case{{.role = Role::kIssuer, .name = "hub"}, "wrong-role"},
        Case{{.role = Role::kCoordinator, .name = "hub", .addresses = {"10.0.0.1"}},
             "wrong-address"}}) {
    coordinator = *authority.issue_credentials(each.shown, kNow);
    serve();
    EXPECT_EQ(join_code(new_token(), home.path()), each.reason);
    EXPECT_EQ(admitted, 0);
    loop.run_task(listener->close());
  }
}

TEST_F(EnrolmentTest, ADeviceWithoutAClockJoins) {
  serve();
  for (int years : {-56, -10, 10, 50}) {
    devices_clock.wall = kNow + hours(24 * 365 * years);
    const auto joined = join_from(new_token(), home.path() / std::to_string(years));
    ASSERT_TRUE(joined) << years << ": " << joined.error().message();
    EXPECT_EQ(joined->last_authenticated(), kNow);
  }
}

TEST_F(EnrolmentTest, AMacIsGoodOnItsOwnChannelOnly) {
  serve();
  const JoinToken token = new_token();
  const Bytes request = SigningRequest::make(identity::PrivateKey::generate()).der();
  std::optional<Request> intercepted;
  const auto own = [&](const net::Connection& connection) {
    intercepted = honest(token, request)(connection);
    intercepted->mac[0] ^= std::byte{1};  // not yet accepted, so that the token stays unused
    return *intercepted;
  };
  EXPECT_EQ(ask(own, request).code, "bad-mac");
  intercepted->mac[0] ^= std::byte{1};
  const auto replay = [&](const net::Connection&) { return *intercepted; };
  EXPECT_EQ(ask(replay, request).code, "bad-mac");
  EXPECT_EQ(ledger.identities, 0);
  EXPECT_EQ(ask(honest(token, request), request).code, "certificate");
}

TEST_F(EnrolmentTest, AMacIsGoodForItsOwnRequestOnly) {
  serve();
  const JoinToken token = new_token();
  const Bytes request = SigningRequest::make(identity::PrivateKey::generate()).der();
  const Bytes other = SigningRequest::make(identity::PrivateKey::generate()).der();
  EXPECT_EQ(ask(honest(token, request), other).code, "bad-mac");
  EXPECT_EQ(ledger.identities, 0);
}

TEST_F(EnrolmentTest, ABrokenRequestWithAGoodMacUsesNothingUp) {
  serve();
  const JoinToken token = new_token();
  const Bytes rubbish(100, std::byte{0x30});
  EXPECT_EQ(ask(honest(token, rubbish), rubbish).code, "bad-request");
  EXPECT_EQ(ledger.identities, 0);
  EXPECT_EQ(join_code(token, home.path()), "starling://kitchen/device/cam-7");
}

TEST_F(EnrolmentTest, FiveBadMacsLockTheToken) {
  serve();
  const JoinToken token = new_token();
  JoinToken forged = token;
  forged.secret[0] ^= std::byte{1};
  for (int i = 0; i < EnrolmentLedger::kBadMacsMax; ++i) {
    EXPECT_EQ(join_code(forged, home.path()), "bad-mac");
  }
  EXPECT_EQ(join_code(token, home.path()), "token-locked");
  EXPECT_EQ(ledger.identities, 0);
}

TEST_F(EnrolmentTest, RefusesUnknownAndExpiredTokens) {
  serve();
  const JoinToken unknown =
      JoinToken::make(authority.certificate().public_key_digest(), "127.0.0.1", listener->port());
  EXPECT_EQ(join_code(unknown, home.path()), "token-unknown");
  const JoinToken token = new_token();
  coordinators_clock.wall = kNow + hours(1);
  EXPECT_EQ(join_code(token, home.path()), "token-expired");
}

TEST_F(EnrolmentTest, RefusalsSayTheirCategory) {
  const JoinToken nobody_there =
      JoinToken::make(authority.certificate().public_key_digest(), "127.0.0.1", 1);
  EXPECT_EQ(join_from(nobody_there, home.path()).error().category(), ErrorCategory::kNotConnected);
  serve({.tries = {.per_second = 0.001, .burst = 1}});
  join_options.backoff = {.minimum = hours(1), .maximum = hours(1)};  // longer than it may take
  const JoinToken unknown =
      JoinToken::make(authority.certificate().public_key_digest(), "127.0.0.1", listener->port());
  EXPECT_EQ(join_from(unknown, home.path()).error().category(), ErrorCategory::kNotAuthorised);
  EXPECT_EQ(join_from(unknown, home.path()).error().category(), ErrorCategory::kNotConnected)
      << "too many tries";
}

TEST_F(EnrolmentTest, AUsedTokenAdmitsNobodyElse) {
  serve();
  const JoinToken token = new_token();
  EXPECT_EQ(join_code(token, home.path() / "a"), "starling://kitchen/device/cam-7");
  EXPECT_EQ(join_code(token, home.path() / "b"), "token-used");
  EXPECT_EQ(ledger.identities, 1);
}

TEST_F(EnrolmentTest, ATokenOfAnotherRoleIsRefusedAndStaysGood) {
  serve();
  const JoinOptions as_operator{.roles = {Role::kOperator}};
  const JoinToken operators = new_token({.name = "ops-2", .role = Role::kOperator});
  const JoinToken devices = new_token();

  const auto device_refused = join_from(operators, home.path() / "device");
  ASSERT_FALSE(device_refused);
  EXPECT_EQ(device_refused.error().code(), "token-role");
  EXPECT_NE(device_refused.error().message().find("starling-coordinator join"), std::string::npos);
  const auto operator_refused =
      run_task(loop, join(loop, devices, home.path() / "operator", devices_clock, as_operator));
  ASSERT_FALSE(operator_refused);
  EXPECT_EQ(operator_refused.error().code(), "token-role");
  EXPECT_NE(operator_refused.error().message().find("starling-edge join"), std::string::npos);
  EXPECT_EQ(ledger.identities, 0);

  EXPECT_EQ(join_code(devices, home.path() / "device"), "starling://kitchen/device/cam-7");
  const auto joined =
      run_task(loop, join(loop, operators, home.path() / "operator", devices_clock, as_operator));
  ASSERT_TRUE(joined) << joined.error().message();
  EXPECT_EQ(joined->identity().role, Role::kOperator);
}

TEST_F(EnrolmentTest, AnOlderProgramThatNamesNoRoleIsAdmittedAsAny) {
  serve();
  const JoinToken token = new_token({.name = "ops-2", .role = Role::kOperator});
  const Bytes signing_request = SigningRequest::make(identity::PrivateKey::generate()).der();
  const auto older = [&](const net::Connection& connection) {
    Request request = honest(token, signing_request)(connection);
    request.roles = {};
    return request;
  };
  EXPECT_EQ(ask(older, signing_request).code, "certificate");
}

TEST_F(EnrolmentTest, ALostReplyIsMadeGoodByTryingAgain) {
  serve();
  const JoinToken token = new_token();
  ledger.lose_next_reply = true;
  const auto lost = join_from(token, home.path());
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().kind(), ErrorKind::kRetry);
  EXPECT_EQ(lost.error().code(), "coordinator-failed");
  EXPECT_EQ(lost.error().category(), ErrorCategory::kFailed);
  EXPECT_EQ(lost.error().message().find("lights"), std::string::npos) << "an internal detail";
  const auto joined = join_from(token, home.path());
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->credentials().certificate.pem(),
            ledger.tokens.at(token.id.value()).certificate);
  EXPECT_EQ(ledger.identities, 1);
}

// The operator may have revoked the name, and the key with it, before giving out the new token.
TEST_F(EnrolmentTest, AfterALostReplyAnotherTokenGetsAnotherKey) {
  serve();
  const JoinToken lost = new_token();
  ledger.lose_next_reply = true;
  EXPECT_EQ(join_code(lost, home.path()), "coordinator-failed");
  const auto abandoned = identity::PrivateKey::load(home.path() / "key.pem");
  const auto joined = join_from(new_token({.name = "cam-8"}), home.path());
  ASSERT_TRUE(joined) << joined.error().message();
  EXPECT_EQ(joined->identity().name, "cam-8");
  EXPECT_NE(joined->credentials().key.public_key_digest(), abandoned->public_key_digest());
}

TEST_F(EnrolmentTest, TwoDevicesThatRaceMakeOneIdentity) {
  serve();
  const JoinToken token = new_token();
  std::optional<Result<IdentityDirectory>> first;
  std::optional<Result<IdentityDirectory>> second;
  net::TaskGroup racers(loop);
  racers.spawn(net::store_result(join(loop, token, home.path() / "a", devices_clock, {}), first));
  racers.spawn(net::store_result(join(loop, token, home.path() / "b", devices_clock, {}), second));
  loop.run_task(racers.wait());
  EXPECT_EQ(ledger.identities, 1);
  EXPECT_NE(first->has_value(), second->has_value());
  const auto& loser = *first ? *second : *first;
  EXPECT_EQ(loser.error().code(), "token-used");
}

TEST_F(EnrolmentTest, ACrashAtAnyPointOfJoiningIsMadeGood) {
  serve();
  const auto path = home.path() / "identity";
  // After the key was written.
  ASSERT_TRUE(make_directory(path, true));
  const auto key = identity::PrivateKey::generate();
  ASSERT_TRUE(key.save(path / "key.pem"));
  JoinToken token = new_token();
  ASSERT_TRUE(write_durably(path / "token", as_bytes(to_string(token.id))));
  auto joined = join_from(token, path);
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->credentials().key.public_key_digest(), key.public_key_digest());
  // Before the request was removed.
  ASSERT_TRUE(write_durably(path / "request.der", SigningRequest::make(key).der()));
  EXPECT_EQ(join_code(token, path), "starling://kitchen/device/cam-7");
  EXPECT_EQ(join_code(token, path), "already-joined");
  // The same, but then another token is taken up.
  ASSERT_TRUE(write_durably(path / "request.der", SigningRequest::make(key).der()));
  EXPECT_EQ(join_code(new_token({.name = "cam-8"}), path), "already-joined");
  // With a request that is of another key.
  const auto other = home.path() / "other";
  ASSERT_TRUE(make_directory(other, true));
  ASSERT_TRUE(write_durably(other / "request.der", SigningRequest::make(key).der()));
  EXPECT_EQ(join_code(new_token(), other), "starling://kitchen/device/cam-7");
}

TEST_F(EnrolmentTest, TriesFromOneAddressAreCounted) {
  serve({.tries = {.per_second = 0.001, .burst = 2}});
  join_options.backoff = {.minimum = hours(1), .maximum = hours(1)};  // longer than it may take
  JoinToken forged = new_token();
  forged.secret[0] ^= std::byte{1};
  EXPECT_EQ(join_code(forged, home.path()), "bad-mac");
  EXPECT_EQ(join_code(forged, home.path()), "bad-mac");
  EXPECT_EQ(join_code(forged, home.path()), "rate-limited");
  EXPECT_EQ(ledger.tokens.at(forged.id.value()).bad_macs, 2);
}

TEST_F(EnrolmentTest, MalformedRequestsReachNoLedger) {
  serve();
  const Bytes rubbish(SigningRequest::kBytesMax + 8);
  const auto owner = std::make_shared<const Bytes>(rubbish);
  net::OutgoingFrame later{.type = kRequestFrame, .header = Bytes(48)};
  later.header[0] = std::byte{2};
  EXPECT_EQ(code_for(later), "unsupported-version");
  EXPECT_EQ(code_for({.type = kRequestFrame, .header = Bytes(40)}), "bad-message");
  EXPECT_EQ(code_for({.type = kRequestFrame}), "bad-message");
  // Beyond the limits nothing is answered at all.
  EXPECT_EQ(code_for({.type = kRequestFrame, .header = Bytes(56)}), "closed");
  EXPECT_EQ(code_for({.type = kRefusalFrame, .header = Bytes(8)}), "closed");
  EXPECT_EQ(code_for({.type = kRequestFrame,
                      .header = Bytes(48),
                      .payload = {.owner = owner, .bytes = *owner}}),
            "closed");
  EXPECT_EQ(ledger.calls, 0);
}

TEST_F(EnrolmentTest, ASilentClientIsCut) {
  serve({.exchange_max = std::chrono::milliseconds(50)});
  EXPECT_EQ(run_task(loop, wait_silently()), "closed");
}

TEST_F(EnrolmentTest, OneMoreThanMayJoinAtATimeIsRefusedByName) {
  serve({.connections_max = 1, .undisturbed = hours(1)});
  EXPECT_EQ(run_task(loop, second_at_a_time()), "too-many-enrolments");
}

TEST_F(EnrolmentTest, ConnectionsThatSayNothingMakeRoomForWhoJoins) {
  serve({.exchange_max = hours(1), .connections_max = 2, .undisturbed = Duration::zero()});
  std::vector<Result<std::unique_ptr<net::Connection>>> silent;
  for (int i = 0; i < 2; ++i) silent.push_back(run_task(loop, dial(enrolment_tls())));
  join_options.backoff = {.minimum = hours(1), .maximum = hours(1)};
  EXPECT_EQ(join_code(new_token(), home.path()), "starling://kitchen/device/cam-7");
}

TEST_F(EnrolmentTest, JoiningIsTriedAgainWhileTheCoordinatorIsBusy) {
  serve({.exchange_max = hours(1), .connections_max = 1, .undisturbed = hours(1)});
  auto silent = run_task(loop, dial(enrolment_tls()));
  std::vector<std::string> told;
  join_options.on_retry = [&](const Error& error, Duration pause) {
    told.push_back(describe_retry(error, pause));
    (*silent)->abort();
  };
  EXPECT_EQ(join_code(new_token(), home.path()), "starling://kitchen/device/cam-7");
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(told.front().starts_with("not joined yet (too-many-enrolments: ")) << told.front();
}

// A coordinator that answers what it should not.
class HostileAnswerTest : public ::testing::Test, protected testing::Loopback {
 public:
  HostileAnswerTest() {
    listen_for({{.protocol = net::Protocol::kEnrolment}});
    token =
        JoinToken::make(authority.certificate().public_key_digest(), "127.0.0.1", listener->port());
  }

  std::string join_answered(const net::OutgoingFrame& frame) {
    net::TaskGroup server(loop);
    server.spawn(answer(frame));
    const auto joined = run_task(loop, join(loop, token, home.path(), clock, {}));
    loop.run_task(server.wait());
    return joined ? "joined" : joined.error().code();
  }

  Async<void> answer(net::OutgoingFrame frame) {
    auto connection = co_await connections.next();
    const RequestLimits limits;
    auto request = co_await connection->read_frame(limits);
    EXPECT_TRUE(request);
    EXPECT_TRUE(connection->send(std::move(frame)));
    co_await connection->close(loop.now() + std::chrono::seconds(5));
  }

  net::OutgoingFrame certificates(const std::string& pem) {
    return encode(Admission{.time = kNow, .certificates = pem});
  }

  JoinToken token;
  FixedClock clock;
  testing::TemporaryDirectory home;
};

TEST_F(HostileAnswerTest, OnlyACertificateForOurKeyFromThePinnedAuthorityIsKept) {
  EXPECT_EQ(join_answered(certificates("")), "bad-certificate");
  EXPECT_EQ(join_answered(certificates("rubbish")), "bad-certificate");
  EXPECT_EQ(join_answered(certificates(device().certificate.pem())), "bad-certificate");
  // For our key, but from elsewhere.
  const auto key = identity::PrivateKey::load(home.path() / "key.pem");
  const SigningRequest request = SigningRequest::make(*key);
  const auto rogue = identity::CertificateAuthority::make({.federation = "kitchen"}, kNow);
  const auto foreign = rogue->issue(request, {.name = "cam-7"}, kNow);
  EXPECT_EQ(join_answered(certificates(foreign->pem() + rogue->certificate().pem())),
            "unknown-authority");
  // A role that nobody joins as.
  const auto hub = authority.issue(
      request, {.role = Role::kCoordinator, .name = "hub", .addresses = {"127.0.0.1"}}, kNow);
  EXPECT_EQ(join_answered(certificates(hub->pem())), "wrong-role");
  EXPECT_FALSE(IdentityDirectory::is_joined(home.path()));
  // And the same directory joins as soon as the answer is right.
  const auto good = authority.issue(request, {.name = "cam-7"}, kNow);
  EXPECT_EQ(join_answered(certificates(good->pem())), "joined");
}

TEST_F(HostileAnswerTest, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(join_answered({.type = kCertificateFrame, .header = Bytes(8)}), "bad-message");
  EXPECT_EQ(join_answered({.type = kCertificateFrame, .header = Bytes(16)}), "unsupported-version");
  EXPECT_EQ(join_answered({.type = 99}), "unexpected-frame");
  EXPECT_EQ(join_answered({.type = kRefusalFrame, .header = Bytes(800)}), "header-too-large");
  EXPECT_EQ(join_answered(encode(rejected("bad code", "x"))), "bad-message");
  EXPECT_EQ(join_answered(encode(rejected("code", "\x1b[2J"))), "bad-message");
  EXPECT_EQ(join_answered(encode(rejected("token-used", "it is used"))), "token-used");
}

}  // namespace
}  // namespace starling::enrol
