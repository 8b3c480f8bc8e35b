// SPDX-License-Identifier: Apache-2.0
// The federation, its clients, tokens and certificates.
#include "tests/store/store_fixture.h"

namespace starling::store {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

class ClientsTest : public StoreTest {};

TEST_F(ClientsTest, HoldsOneFederationAndItsFacts) {
  EXPECT_EQ(code_of(store().federation()), "federation-missing");
  const Federation kitchen{"kitchen", at(5)};
  ASSERT_TRUE(store().create_federation(kitchen));
  EXPECT_EQ(code_of(store().create_federation({"garden", at(6)})), "federation-exists");
  ASSERT_TRUE(store().set_fact("join.address", "localhost:1"));
  ASSERT_TRUE(store().set_fact("join.address", "localhost:2"));
  ASSERT_TRUE(store().set_fact("empty", ""));
  reopen();
  EXPECT_EQ(store().federation().value(), kitchen);
  EXPECT_EQ(store().fact("join.address").value(), "localhost:2");
  EXPECT_EQ(store().fact("empty").value(), "");
  EXPECT_EQ(store().fact("absent").value(), std::nullopt);
}

TEST_F(ClientsTest, JoinsByTokenOnce) {
  ASSERT_TRUE(store().create_token(token("a1", "cam-7")));
  EXPECT_EQ(store().find_client("cam-7").value(), std::nullopt);
  const auto joined = store().redeem_token("a1", digest("csr"), at(10), issuing("01"));
  ASSERT_TRUE(joined);
  EXPECT_FALSE(joined->repeated);
  EXPECT_EQ(joined->certificate, certificate("01", "cam-7"));
  reopen();
  const Client client = store().find_client("cam-7").value().value();
  EXPECT_EQ(client.role, Role::kDevice);
  EXPECT_EQ(client.state, ClientState::kActive);
  EXPECT_EQ(client.joined, at(10));
  EXPECT_EQ(client.last_seen, std::nullopt);
  EXPECT_EQ(client.certificate_serial, "01");
  EXPECT_EQ(client.certificate_fingerprint, digest("key of 01"));
  EXPECT_EQ(client.certificate_expires, at(30 * 86400));
  const Token used = store().find_token("a1", at(20)).value().value();
  EXPECT_EQ(used.state, TokenState::kUsed);
  EXPECT_EQ(used.csr_sha256, digest("csr"));
  EXPECT_EQ(used.certificate_serial, "01");
  EXPECT_EQ(used.mac_key, token("a1", "cam-7").mac_key);
  EXPECT_EQ(store().find_certificate("01").value(), certificate("01", "cam-7"));
  EXPECT_EQ(store().find_certificate("02").value(), std::nullopt);
}

TEST_F(ClientsTest, GivesALostReplyAgainButNoSecondIdentity) {
  ASSERT_TRUE(store().create_token(token("a1", "cam-7")));
  const IssueCertificate never = [](const Token&) -> Result<Certificate> {
    ADD_FAILURE() << "a second certificate was issued";
    return internal("x", "x");
  };
  const auto first = store().redeem_token("a1", digest("csr"), at(10), issuing("01"));
  ASSERT_TRUE(first);
  reopen();
  for (const int second : {11, 7200}) {  // also after the token's life
    const auto again = store().redeem_token("a1", digest("csr"), at(second), never);
    ASSERT_TRUE(again);
    EXPECT_TRUE(again->repeated);
    EXPECT_EQ(again->certificate, first->certificate);
  }
  EXPECT_EQ(code_of(store().redeem_token("a1", digest("other"), at(12), never)), "token-used");
  ASSERT_TRUE(store().revoke_client("cam-7", at(13)));
  EXPECT_EQ(code_of(store().redeem_token("a1", digest("csr"), at(14), never)),
            "certificate-revoked");
  EXPECT_EQ(store().clients().value().size(), 1U);
}

TEST_F(ClientsTest, RefusesTokensThatAreNotOpen) {
  const Sha256Digest csr = digest("csr");
  EXPECT_EQ(code_of(store().redeem_token("none", csr, at(1), issuing("01"))), "token-unknown");
  ASSERT_TRUE(store().create_token(token("e1", "late", 0, 100)));
  EXPECT_EQ(code_of(store().redeem_token("e1", csr, at(100), issuing("01"))), "token-expired");
  EXPECT_EQ(store().find_token("e1", at(99)).value()->state, TokenState::kOpen);
  EXPECT_EQ(store().find_token("e1", at(100)).value()->state, TokenState::kExpired);
  ASSERT_TRUE(store().create_token(token("r1", "gone")));
  ASSERT_TRUE(store().revoke_token("r1", at(2)));
  ASSERT_TRUE(store().revoke_token("r1", at(2)));
  EXPECT_EQ(code_of(store().revoke_token("none", at(2))), "token-unknown");
  EXPECT_EQ(code_of(store().redeem_token("r1", csr, at(3), issuing("01"))), "token-revoked");
  EXPECT_THAT(store().clients().value(), IsEmpty());
  EXPECT_EQ(store().find_certificate("01").value(), std::nullopt);
}

TEST_F(ClientsTest, LocksATokenAfterFiveBadTries) {
  ASSERT_TRUE(store().create_token(token("a1", "cam-7")));
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ(store().record_bad_try("a1", at(i)).value(), TokenState::kOpen);
  }
  reopen();
  EXPECT_EQ(store().record_bad_try("a1", at(5)).value(), TokenState::kLocked);
  EXPECT_EQ(code_of(store().redeem_token("a1", digest("csr"), at(6), issuing("01"))),
            "token-locked");
  EXPECT_EQ(store().find_token("a1", at(9999)).value()->bad_tries, 5U);
  EXPECT_EQ(code_of(store().record_bad_try("none", at(5))), "token-unknown");
  ASSERT_TRUE(
      store().create_token(token("a2", "cam-7", 7)));  // never joined: a new one may be made
  EXPECT_TRUE(store().redeem_token("a2", digest("csr"), at(8), issuing("01")));
  for (int i = 0; i < 6; ++i) {  // whoever guesses later does not take the client's reply away
    EXPECT_EQ(store().record_bad_try("a2", at(9)).value(), TokenState::kUsed);
  }
  EXPECT_TRUE(store().redeem_token("a2", digest("csr"), at(10), issuing("02"))->repeated);
}

TEST_F(ClientsTest, AFailedIssueLeavesTheTokenOpen) {
  ASSERT_TRUE(store().create_token(token("a1", "cam-7")));
  const IssueCertificate fails = [](const Token&) -> Result<Certificate> {
    return rejected("csr-malformed", "no");
  };
  EXPECT_EQ(code_of(store().redeem_token("a1", digest("x"), at(1), fails)), "csr-malformed");
  reopen();
  EXPECT_EQ(store().find_token("a1", at(2)).value(), token("a1", "cam-7"));
  EXPECT_THAT(store().clients().value(), IsEmpty());
  EXPECT_TRUE(store().redeem_token("a1", digest("y"), at(3), issuing("01")));
}

TEST_F(ClientsTest, ANewTokenReplacesTheOpenOneOfItsName) {
  ASSERT_TRUE(store().create_token(token("b1", "cam-7", 0)));
  ASSERT_TRUE(store().create_token(token("a2", "cam-7", 1)));
  ASSERT_TRUE(store().create_token(token("a3", "cam-8", 1)));
  EXPECT_EQ(code_of(store().create_token(token("a3", "cam-9", 2))), "token-exists");
  EXPECT_THAT(store().tokens(at(5)).value(), ElementsAre(Field(&Token::state, TokenState::kRevoked),
                                                         Field(&Token::state, TokenState::kOpen),
                                                         Field(&Token::state, TokenState::kOpen)));
  EXPECT_THAT(
      store().tokens(at(5)).value(),
      ElementsAre(Field(&Token::id, "b1"), Field(&Token::id, "a2"), Field(&Token::id, "a3")));
  EXPECT_EQ(code_of(store().redeem_token("b1", digest("csr"), at(6), issuing("01"))),
            "token-revoked");
}

TEST_F(ClientsTest, ANameThatJoinedIsTakenUntilItIsRevoked) {
  ASSERT_TRUE(store().create_token(token("a1", "cam-7")));
  ASSERT_TRUE(store().redeem_token("a1", digest("csr"), at(1), issuing("01")));
  EXPECT_EQ(code_of(store().create_token(token("a2", "cam-7"))), "client-exists");
  EXPECT_EQ(
      code_of(store().add_client("cam-7", Role::kOperator, certificate("02", "cam-7"), at(2))),
      "client-exists");
  EXPECT_EQ(code_of(store().revoke_token("a1", at(2))), "token-used");
  ASSERT_TRUE(store().revoke_client("cam-7", at(3)));
  Token peer = token("a3", "cam-7", 4);
  peer.role = Role::kPeer;
  peer.addresses = {"cam-7.local:7400", "[::1]:7400"};
  ASSERT_TRUE(store().create_token(peer));
  EXPECT_EQ(code_of(store().redeem_token("a3", digest("csr"), at(5), issuing("03", "key of 01"))),
            "key-revoked");
  ASSERT_TRUE(store().redeem_token("a3", digest("new"), at(6), issuing("04")));
  reopen();
  const Client client = store().find_client("cam-7").value().value();
  EXPECT_EQ(store().find_token("a3", at(7)).value()->addresses, peer.addresses);
  EXPECT_EQ(client.role, Role::kPeer);
  EXPECT_EQ(client.state, ClientState::kActive);
  EXPECT_EQ(client.joined, at(6));
  EXPECT_EQ(client.certificate_serial, "04");
  EXPECT_THAT(store().revocations().value(),
              ElementsAre(Revocation{"01", digest("key of 01"), at(3)}));
}

TEST_F(ClientsTest, ANameWhoseCertificateExpiredMayJoinAgain) {
  constexpr int kExpires = 30 * 86400;
  ASSERT_TRUE(store().create_token(token("a1", "cam-7")));
  ASSERT_TRUE(store().redeem_token("a1", digest("csr"), at(1), issuing("01")));
  EXPECT_EQ(code_of(store().create_token(token("a2", "cam-7", kExpires - 1))), "client-exists");
  ASSERT_TRUE(store().create_token(token("a3", "cam-7", kExpires, kExpires + 100)));
  ASSERT_TRUE(store().redeem_token("a3", digest("new"), at(kExpires + 1), issuing("02")));
  reopen();
  const Client client = store().find_client("cam-7").value().value();
  EXPECT_EQ(client.state, ClientState::kActive);
  EXPECT_EQ(client.joined, at(kExpires + 1));
  EXPECT_EQ(client.certificate_serial, "02");
}

TEST_F(ClientsTest, RevokesEverythingOfAClient) {
  ASSERT_TRUE(store().add_client("boss", Role::kOperator, certificate("0b", "boss"), at(0)));
  ASSERT_TRUE(store().create_token(token("a1", "cam-7")));
  ASSERT_TRUE(store().redeem_token("a1", digest("csr"), at(1), issuing("01")));
  ASSERT_TRUE(store().add_certificate(certificate("02", "cam-7")));
  EXPECT_EQ(store().find_client("cam-7").value()->certificate_serial, "02");
  EXPECT_EQ(code_of(store().add_certificate(certificate("02", "cam-7"))), "certificate-exists");
  EXPECT_EQ(code_of(store().add_certificate(certificate("03", "nobody"))), "client-unknown");
  EXPECT_EQ(code_of(store().revoke_client("nobody", at(2))), "client-unknown");

  const std::vector<Revocation> expected = {{"01", digest("key of 01"), at(3)},
                                            {"02", digest("key of 02"), at(3)}};
  EXPECT_EQ(store().revoke_client("cam-7", at(3)).value(), expected);
  reopen();
  EXPECT_EQ(store().revoke_client("cam-7", at(4)).value(), expected) << "the first time stays";
  EXPECT_EQ(store().revocations().value(), expected);
  EXPECT_EQ(code_of(store().add_certificate(certificate("04", "cam-7"))), "client-revoked");
  EXPECT_EQ(store().find_client("cam-7").value()->state, ClientState::kRevoked);
  EXPECT_EQ(store().find_client("boss").value()->state, ClientState::kActive);
}

TEST_F(ClientsTest, RevokingAClientRevokesTheTokenOfItsReturn) {
  ASSERT_TRUE(store().add_client("cam-7", Role::kDevice, certificate("01", "cam-7"), at(0)));
  ASSERT_TRUE(store().revoke_client("cam-7", at(1)));
  ASSERT_TRUE(store().create_token(token("a1", "cam-7")));
  ASSERT_TRUE(store().revoke_client("cam-7", at(2)));
  EXPECT_EQ(code_of(store().redeem_token("a1", digest("csr"), at(3), issuing("02"))),
            "token-revoked");
}

TEST_F(ClientsTest, RemembersWhoWasSeen) {
  for (const char* name : {"b", "a", "c"}) {
    ASSERT_TRUE(
        store().add_client(name, Role::kDevice, certificate(std::string("0") + name, name), at(0)));
  }
  ASSERT_TRUE(store().record_seen(
      "a", at(7), Greeting{.rows = 600, .abilities = {"fednova", "scaffold"}, .input = {3}}));
  const Greeting last{.rows = 700,
                      .abilities = {"evaluate", "scaffold"},
                      .input = {1, 28, 28},
                      .classes = 10,
                      .held_out = 70};
  ASSERT_TRUE(store().record_seen("a", at(7), last));
  ASSERT_TRUE(store().record_seen("a", at(8), std::nullopt));
  const Greeting many{.rows = std::uint64_t{1} << 63, .input = {UINT32_MAX}, .classes = UINT32_MAX};
  ASSERT_TRUE(store().record_seen("b", at(9), many));
  EXPECT_EQ(code_of(store().record_seen("nobody", at(9), last)), "client-unknown");
  reopen();
  const std::vector<Client> clients = store().clients().value();
  EXPECT_THAT(clients, ElementsAre(Field(&Client::name, "a"), Field(&Client::name, "b"),
                                   Field(&Client::name, "c")));
  EXPECT_EQ(clients[0].last_seen, at(8));
  EXPECT_EQ(clients[0].greeting, last);
  EXPECT_EQ(clients[1].greeting, many);
  EXPECT_EQ(clients[2].last_seen, std::nullopt);
  EXPECT_EQ(clients[2].greeting, Greeting());
  ASSERT_TRUE(store().revoke_client("a", at(10)));
  ASSERT_TRUE(store().add_client("a", Role::kDevice, certificate("1a", "a"), at(11)));
  EXPECT_EQ(store().find_client("a").value()->greeting, Greeting()) << "perhaps another device";
}

TEST_F(ClientsTest, RemembersWhenManyWereHeard) {
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(
        store().add_client(name, Role::kDevice, certificate(std::string("0") + name, name), at(0)));
  }
  ASSERT_TRUE(store().record_seen("a", at(7), Greeting{.rows = 600}));
  const std::vector<ClientHeard> heard = {{"a", at(8)}, {"nobody", at(9)}, {"b", at(10)}};
  ASSERT_TRUE(store().record_heard(heard));
  reopen();
  const std::vector<Client> clients = store().clients().value();
  ASSERT_EQ(clients.size(), 2U);
  EXPECT_EQ(clients[0].last_seen, at(8));
  EXPECT_EQ(clients[0].greeting.rows, 600U) << "as it was declared";
  EXPECT_EQ(clients[1].last_seen, at(10));
}

TEST(Records, RolesHaveWords) {
  for (const Role role : {Role::kDevice, Role::kPeer, Role::kOperator}) {
    EXPECT_EQ(parse_role(to_string(role)).value(), role);
  }
  EXPECT_EQ(code_of(parse_role("root")), "role-unknown");
}

}  // namespace
}  // namespace starling::store
