// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/store_ledger.h"

#include <gtest/gtest.h>

#include "core/identity/certificate_authority.h"
#include "core/store/sqlite_store.h"

namespace starling::coordinator {
namespace {

using identity::CertificateAuthority;
using identity::JoinToken;
using identity::SigningRequest;

SigningRequest new_request() { return SigningRequest::make(identity::PrivateKey::generate()); }

class StoreLedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(store->create_token({.id = to_string(token.id),
                                     .client = "cam-7",
                                     .role = store::Role::kPeer,
                                     .addresses = {"10.0.0.7:7000", "[::1]:7000"},
                                     .mac_key = to_bytes(token.key().bytes()),
                                     .created = now,
                                     .expires = now + std::chrono::hours(1)}));
  }
  Result<std::string> redeem(const SigningRequest& request, WallTime when) {
    const auto issue = [&](const enrol::Grant& grant) -> Result<std::string> {
      ++issued;
      EXPECT_EQ(grant.addresses, (std::vector<std::string>{"10.0.0.7", "::1"})) << "without ports";
      STARLING_ASSIGN(const auto certificate,
                      authority.issue(request, {.role = grant.role, .name = grant.name}, when));
      return certificate.pem();
    };
    return ledger.redeem(token.id, request.digest(), when, issue);
  }

  const SystemClock clock;
  const WallTime now = clock.wall_now();
  const CertificateAuthority authority =
      CertificateAuthority::make({.federation = "test"}, now).value();
  const JoinToken token = JoinToken::make(authority.certificate().public_key_digest(), "h", 1);
  const std::unique_ptr<store::Store> store = store::open_store_in_memory();
  std::vector<std::string> admitted;
  int issued = 0;
  std::string taken;  // an address
  std::optional<Error> unreadable;
  std::string broken;
  StoreLedger ledger{*store, clock,
                     [this](const std::string& name, const std::string& address) -> Result<void> {
                       EXPECT_EQ(name, "cam-7");
                       if (unreadable) return *unreadable;
                       if (address != taken) return {};
                       return rejected("address-taken", address + " is taken");
                     },
                     [this](const std::string& name, store::Role role) {
                       admitted.push_back(name + " " + std::string(store::to_string(role)));
                     },
                     [this](const Error& error) {
                       EXPECT_TRUE(unreadable) << error.message();
                       broken = error.code();
                     }};
};

TEST_F(StoreLedgerTest, ATokenAdmitsOneKeyWhateverIsRepeated) {
  const SigningRequest request = new_request();
  const auto first = redeem(request, now);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(redeem(request, now).value(), *first);
  EXPECT_EQ(issued, 1);
  EXPECT_EQ(admitted, std::vector<std::string>{"cam-7 peer"});
  EXPECT_EQ(redeem(new_request(), now).error().code(), "token-used");
  const auto client = store->find_client("cam-7").value().value();
  const auto certificate = identity::Certificate::parse_pem(*first).value();
  EXPECT_EQ(client.certificate_serial, certificate.serial());
  EXPECT_EQ(client.certificate_fingerprint, certificate.public_key_digest());
  EXPECT_EQ(client.certificate_expires, certificate.validity().not_after);
  EXPECT_EQ(certificate.identity().value().uri(), "starling://test/peer/cam-7");
}

TEST_F(StoreLedgerTest, AnAddressThatAnotherMemberHasAdmitsNobody) {
  taken = "[::1]:7000";
  const SigningRequest request = new_request();
  EXPECT_EQ(redeem(request, now).error().code(), "address-taken");
  EXPECT_EQ(issued, 0);
  EXPECT_TRUE(admitted.empty());
  taken.clear();
  ASSERT_TRUE(redeem(request, now)) << "the token is as it was";
  taken = "[::1]:7000";
  EXPECT_TRUE(redeem(request, now)) << "the same request again, of who has joined";
}

TEST_F(StoreLedgerTest, AStoreThatCannotBeReadForTheAddressIsBroken) {
  unreadable = internal("db-failed", "disk I/O error");
  EXPECT_EQ(redeem(new_request(), now).error().code(), "db-failed");
  EXPECT_EQ(broken, "db-failed");
  EXPECT_TRUE(admitted.empty());
  unreadable.reset();
  EXPECT_TRUE(redeem(new_request(), now));
}

TEST_F(StoreLedgerTest, TheKeyOfATokenIsTheOneThatWasStored) {
  const auto key = ledger.key(token.id);
  ASSERT_TRUE(key);
  EXPECT_TRUE(std::ranges::equal(key->bytes(), token.key().bytes()));
  EXPECT_EQ(ledger.key(identity::TokenId(42)).error().code(), "token-unknown");
}

TEST_F(StoreLedgerTest, FiveWrongMacsLockATokenForGood) {
  for (int i = 0; i < enrol::EnrolmentLedger::kBadMacsMax; ++i) {
    EXPECT_TRUE(ledger.record_bad_mac(token.id));
  }
  EXPECT_EQ(redeem(new_request(), now).error().code(), "token-locked");
  EXPECT_TRUE(admitted.empty());
}

TEST_F(StoreLedgerTest, AnExpiredTokenAdmitsNobody) {
  EXPECT_EQ(redeem(new_request(), now + std::chrono::hours(2)).error().code(), "token-expired");
  EXPECT_EQ(issued, 0);
}

}  // namespace
}  // namespace starling::coordinator
