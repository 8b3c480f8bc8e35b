// SPDX-License-Identifier: Apache-2.0
// Who must not get in, over real sockets: each is refused before an application byte is read, with
// a reason on the serving side and one on the refused side. A refused connection is never handed
// on, and only a handed-on connection can be read from.
#include <gtest/gtest.h>

#include <future>

#include "core/base/rng.h"
#include "tests/identity/forged_certificate.h"
#include "tests/net/loopback.h"
#include "tests/net/raw_client.h"

namespace starling::net {
namespace {

using identity::CertificateAuthority;
using identity::Credentials;
using identity::PeerPolicy;
using identity::Role;
using std::chrono::hours;
using testing::client_policy;
using testing::client_tls;
using testing::coordinator_policy;
using testing::kNow;
using testing::Loopback;

struct Reasons {
  std::string server;
  std::string client;
  friend bool operator==(const Reasons&, const Reasons&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Reasons& reasons) {
    return out << "server: " << reasons.server << ", client: " << reasons.client;
  }
};

Async<Reasons> try_to_connect(Loopback& net, std::shared_ptr<const TlsContext> tls) {
  auto connected = co_await net.dial(std::move(tls));
  Reasons reasons;
  reasons.client = connected ? std::string("connected") : connected.error().code();
  auto refusal = co_await net.refusals.next();
  reasons.server = refusal.error.code();
  co_return reasons;
}

class RefusalTest : public ::testing::Test, protected Loopback {
 protected:
  Reasons reasons_for(std::shared_ptr<const TlsContext> tls) {
    Reasons reasons = run_task(loop, try_to_connect(*this, std::move(tls)));
    EXPECT_EQ(connections.size(), 0U) << "a refused connection was handed on";
    return reasons;
  }
  Reasons reasons_for(const Credentials& credentials) {
    return reasons_for(client_tls(credentials));
  }
  // What the refusing server says about a client in a thread of its own.
  template <class Client>
  std::pair<std::string, std::invoke_result_t<Client>> refuse(Client client) {
    auto outcome = std::async(std::launch::async, client);
    const Refusal refusal = run_task(loop, refusals.next());
    // The other side is still being told: the loop goes on until it has heard.
    while (outcome.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      loop.run_task(pause());
    }
    EXPECT_EQ(connections.size(), 0U) << "a refused connection was handed on";
    return {refusal.error.code(), outcome.get()};
  }
  Async<void> pause() {
    boost::asio::steady_timer turn(loop.context(), std::chrono::milliseconds(1));
    auto [error] = co_await turn.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    static_cast<void>(error);
  }
  // Trusts our server, but shows a certificate from elsewhere.
  Credentials with_our_authority(Credentials credentials) const {
    credentials.authorities = {authority.certificate()};
    return credentials;
  }
};

TEST_F(RefusalTest, LetsAGoodDeviceIn) {
  listen();
  auto pair = connect_pair();
  EXPECT_EQ(pair.server->peer()->identity.uri(), "starling://kitchen/device/cam-7");
  EXPECT_EQ(pair.client->peer()->identity.uri(), "starling://kitchen/coordinator/hub");
  EXPECT_EQ(pair.server->protocol(), Protocol::kSession);
  EXPECT_EQ(pair.server->remote_address(), "127.0.0.1");
  EXPECT_EQ(pair.server->export_key("test"), pair.client->export_key("test"));
  EXPECT_NE(pair.server->export_key("test"), pair.client->export_key("other"));
}

TEST_F(RefusalTest, WrongAuthority) {
  listen();
  const auto other = CertificateAuthority::make({.federation = "kitchen"}, kNow);
  const Credentials stranger = *other->issue_credentials({.name = "cam-7"}, kNow);
  EXPECT_EQ(reasons_for(with_our_authority(stranger)),
            (Reasons{"unknown-authority", "refused-unknown-authority"}));
  // A stranger that does not know our authority either leaves first.
  EXPECT_EQ(reasons_for(stranger), (Reasons{"refused-unknown-authority", "unknown-authority"}));
}

TEST_F(RefusalTest, SelfSigned) {
  listen();
  Credentials own = device();
  own.certificate =
      testing::forge(testing::device_forgery("URI:starling://kitchen/device/cam-7", kNow), own.key,
                     nullptr, own.key);
  EXPECT_EQ(reasons_for(own), (Reasons{"self-signed", "refused-unknown-authority"}));
}

TEST_F(RefusalTest, Expired) {
  listen();
  EXPECT_EQ(reasons_for(device("cam-7", kNow - hours(24 * 30))),
            (Reasons{"certificate-expired", "refused-certificate-expired"}));
}

TEST_F(RefusalTest, NotYetValid) {
  listen();
  EXPECT_EQ(reasons_for(device("cam-7", kNow + hours(1))),
            (Reasons{"certificate-not-yet-valid", "refused-bad-certificate"}));
}

TEST_F(RefusalTest, Revoked) {
  const Credentials stolen = device();
  PeerPolicy devices = client_policy();
  devices.is_revoked = [&](const std::string& serial, const Sha256Digest&) {
    return serial == stolen.certificate.serial();
  };
  listen_for({{.protocol = Protocol::kSession, .client = devices}});
  EXPECT_EQ(reasons_for(stolen), (Reasons{"certificate-revoked", "refused-certificate-revoked"}));
  connect_pair();  // another certificate of the same device is good
}

TEST_F(RefusalTest, WrongRole) {
  listen();
  const Credentials peer = *authority.issue_credentials({.role = Role::kPeer, .name = "p"}, kNow);
  EXPECT_EQ(reasons_for(peer), (Reasons{"wrong-role", "refused-wrong-role"}));
  EXPECT_EQ(reasons_for(coordinator), (Reasons{"wrong-role", "refused-wrong-role"}));
}

TEST_F(RefusalTest, ADeviceCannotServe) {
  coordinator = device();
  listen();
  EXPECT_EQ(reasons_for(device()), (Reasons{"refused-wrong-role", "wrong-role"}));
}

TEST_F(RefusalTest, WrongFederation) {
  const auto garden = CertificateAuthority::make({.federation = "garden"}, kNow);
  coordinator.authorities.push_back(garden->certificate());
  listen();
  const Credentials neighbour = *garden->issue_credentials({.name = "cam-7"}, kNow);
  EXPECT_EQ(reasons_for(with_our_authority(neighbour)),
            (Reasons{"wrong-federation", "refused-wrong-federation"}));
}

TEST_F(RefusalTest, NotAMember) {
  PeerPolicy members = client_policy();
  members.admit = [](const identity::Identity&, const Sha256Digest&) -> Result<void> {
    return rejected("not-a-member", "it is not in the roster");
  };
  listen_for({{.protocol = Protocol::kSession, .client = members}});
  EXPECT_EQ(reasons_for(device()), (Reasons{"not-a-member", "refused-wrong-federation"}))
      << "nothing is wrong with its certificate";
}

TEST_F(RefusalTest, WrongAddress) {
  coordinator = *authority.issue_credentials(
      {.role = Role::kCoordinator, .name = "hub", .addresses = {"10.0.0.1"}}, kNow);
  listen();
  EXPECT_EQ(reasons_for(device()), (Reasons{"refused-bad-certificate", "wrong-address"}));
}

TEST_F(RefusalTest, TheServersCertificateMustBeValidToo) {
  coordinator = *authority.issue_credentials(
      {.role = Role::kCoordinator, .name = "hub", .addresses = {"127.0.0.1"}, .lifetime = hours(1)},
      kNow);
  listen();
  PeerPolicy late = coordinator_policy();
  late.time = [] { return identity::VerificationTime{.now = kNow + hours(2)}; };
  EXPECT_EQ(reasons_for(client_tls(device(), late)),
            (Reasons{"refused-certificate-expired", "certificate-expired"}));
  // A device that knows its clock to be wrong goes by what the coordinator told it last.
  late.time = [] {
    return identity::VerificationTime{.now = kNow + hours(24 * 3650), .last_authenticated = kNow};
  };
  EXPECT_TRUE(run_task(loop, dial(client_tls(device(), late))));
}

TEST_F(RefusalTest, Plaintext) {
  listen();
  const std::uint16_t port = listener->port();
  for (const char* words : {"GET / HTTP/1.1\r\n\r\n", "hello", "\x01", "\x80\x2e\x01\x03\x01"}) {
    const auto [reason, heard] = refuse([=] {
      testing::RawSocket socket(port);
      socket.send(words);
      return socket.receive_all();
    });
    EXPECT_EQ(reason, "not-tls") << words;
    EXPECT_EQ(heard, "");
  }
}

TEST_F(RefusalTest, OlderTls) {
  listen();
  const std::uint16_t port = listener->port();
  const Credentials good = device();
  for (int version : {TLS1_2_VERSION, TLS1_1_VERSION}) {
    const auto [reason, outcome] = refuse([&, version] {
      return testing::talk_tls(port, {.version_max = version, .credentials = &good}, "words");
    });
    EXPECT_EQ(reason, "tls-version");
    EXPECT_FALSE(outcome.handshake);
  }
}

TEST_F(RefusalTest, NoCertificate) {
  listen();
  const std::uint16_t port = listener->port();
  // To this client its handshake is complete, so it sends what it has to say.
  const auto [reason, outcome] = refuse([=] { return testing::talk_tls(port, {}, "words"); });
  EXPECT_EQ(reason, "no-certificate");
  EXPECT_TRUE(outcome.handshake);
  EXPECT_EQ(outcome.received, "");
  EXPECT_NE(outcome.error.find("certificate required"), std::string::npos) << outcome.error;
}

TEST_F(RefusalTest, WrongAlpn) {
  listen();
  const std::uint16_t port = listener->port();
  const Credentials good = device();
  for (const char* alpn : {"http/1.1", "", "starling/2", "starling-enrol/1"}) {
    const auto [reason, outcome] = refuse(
        [&] { return testing::talk_tls(port, {.alpn = alpn, .credentials = &good}, "words"); });
    EXPECT_EQ(reason, "wrong-alpn") << alpn;
    EXPECT_FALSE(outcome.handshake) << alpn;
    EXPECT_NE(outcome.error.find("no application protocol"), std::string::npos) << outcome.error;
  }
  EXPECT_EQ(reasons_for(client_tls(good, coordinator_policy(), Protocol::kPeer)),
            (Reasons{"wrong-alpn", "refused-wrong-alpn"}));
}

TEST_F(RefusalTest, EnrolmentOpensNoSession) {
  listen_for({{.protocol = Protocol::kSession, .client = client_policy()},
              {.protocol = Protocol::kEnrolment}});
  const std::uint16_t port = listener->port();
  // Naming both protocols does not carry the leniency of the one over to the other.
  const auto [reason, outcome] = refuse([=] { return testing::talk_tls(port, {}, "words"); });
  EXPECT_EQ(reason, "no-certificate");
}

TEST_F(RefusalTest, NothingToResumeWithAndNoResumption) {
  listen();
  const std::uint16_t port = listener->port();
  const Credentials good = device();
  for (int i = 0; i < 2; ++i) {
    auto outcome = std::async(std::launch::async,
                              [&] { return testing::talk_tls(port, {.credentials = &good}, ""); });
    auto server = run_task(loop, connections.next());
    loop.run_task(server->close(loop.now() + std::chrono::seconds(5)));
    const auto heard = outcome.get();
    EXPECT_TRUE(heard.handshake);
    EXPECT_FALSE(heard.was_offered_ticket);
    EXPECT_FALSE(heard.resumed);
    EXPECT_EQ(heard.received, std::string(8, '\0'));  // the word that all is well
  }
}

TEST_F(RefusalTest, AServerThatSpeaksPlaintextIsNamed) {
  const testing::RawListener plain;
  auto heard = std::async(std::launch::async, [&] {
    testing::RawSocket socket = plain.accept();
    socket.send("220 smtp ready\r\n");
    return socket.receive_all();
  });
  const auto connected =
      run_task(loop, connect(loop, "127.0.0.1", plain.port(), client_tls(device()), {}));
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code(), "not-tls");
  EXPECT_EQ(heard.get().substr(0, 1), "\x16");  // a hello, and nothing else
}

TEST_F(RefusalTest, GarbageInTheMiddleOfAHandshakeNamesAReason) {
  listen();
  const std::uint16_t port = listener->port();
  Rng rng({.seed = 7, .purpose = starling::Purpose::kTest});
  for (int i = 0; i < 50; ++i) {
    std::string words = "\x16\x03\x01";
    const std::uint64_t size = 2 + rng.below(600);
    for (std::uint64_t k = 0; k < size; ++k) words.push_back(static_cast<char>(rng.below(256)));
    const auto [reason, heard] = refuse([&] {
      testing::RawSocket socket(port);
      socket.send(words);
      ::shutdown(socket.fd(), SHUT_WR);
      return socket.receive_all();
    });
    EXPECT_NE(reason, "");
    EXPECT_NE(reason, "deadline");
  }
}

}  // namespace
}  // namespace starling::net
