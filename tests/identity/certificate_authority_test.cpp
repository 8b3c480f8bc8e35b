// SPDX-License-Identifier: Apache-2.0
#include "core/identity/certificate_authority.h"

#include <gtest/gtest.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "core/base/durable_file.h"
#include "core/identity/identity_directory.h"
#include "tests/support/as_nobody.h"
#include "tests/support/temporary_directory.h"

namespace starling::identity {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

const WallTime kNow = *parse_rfc3339("2026-11-20T09:00:00Z");

CertificateAuthority authority() {
  return *CertificateAuthority::make({.federation = "kitchen"}, kNow);
}

// The extension as OpenSSL prints it, with "critical" in front where it is.
std::string extension(const Certificate& certificate, int nid) {
  const int at = X509_get_ext_by_NID(certificate.native(), nid, -1);
  if (at < 0) return "absent";
  X509_EXTENSION* found = X509_get_ext(certificate.native(), at);
  BIO* bio = BIO_new(BIO_s_mem());
  X509V3_EXT_print(bio, found, 0, 0);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return (X509_EXTENSION_get_critical(found) == 1 ? "critical " : "") + text;
}

unsigned mode(const std::filesystem::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 0777;
}

TEST(CertificateAuthority, SignsItselfForTenYears) {
  const Certificate certificate = authority().certificate();
  EXPECT_EQ(extension(certificate, NID_basic_constraints), "critical CA:TRUE, pathlen:0");
  EXPECT_EQ(extension(certificate, NID_key_usage), "critical Certificate Sign, CRL Sign");
  EXPECT_EQ(extension(certificate, NID_subject_alt_name), "URI:starling://kitchen");
  EXPECT_EQ(certificate.validity().not_before, kNow - minutes(5));
  EXPECT_EQ(certificate.validity().not_after, kNow + hours(24 * 365 * 10));
  // It is nobody's identity.
  EXPECT_EQ(certificate.identity().error().code(), "bad-identity");
}

TEST(CertificateAuthority, DecidesWhatStandsInADevicesCertificate) {
  const PrivateKey key = PrivateKey::generate();
  const auto issued = authority().issue(SigningRequest::make(key), {.name = "cam-7"}, kNow);
  ASSERT_TRUE(issued);
  EXPECT_EQ(extension(*issued, NID_basic_constraints), "critical CA:FALSE");
  EXPECT_EQ(extension(*issued, NID_key_usage), "critical Digital Signature");
  EXPECT_EQ(extension(*issued, NID_ext_key_usage), "TLS Web Client Authentication");
  EXPECT_EQ(extension(*issued, NID_subject_alt_name), "URI:starling://kitchen/device/cam-7");
  EXPECT_EQ(issued->identity()->uri(), "starling://kitchen/device/cam-7");
  EXPECT_EQ(issued->validity().not_before, kNow - minutes(5));
  EXPECT_EQ(issued->validity().not_after, kNow + hours(24 * 30));
  EXPECT_EQ(issued->public_key_digest(), key.public_key_digest());
}

TEST(CertificateAuthority, GivesServersTheirAddresses) {
  const auto credentials =
      authority().issue_credentials({.role = Role::kCoordinator,
                                     .name = "hub",
                                     .addresses = {"fl.example.org", "10.0.0.1", "::1"}},
                                    kNow);
  ASSERT_TRUE(credentials);
  EXPECT_EQ(extension(credentials->certificate, NID_subject_alt_name),
            "URI:starling://kitchen/coordinator/hub, DNS:fl.example.org, IP Address:10.0.0.1, "
            "IP Address:0:0:0:0:0:0:0:1");
  EXPECT_EQ(credentials->certificate.hosts(),
            (std::vector<std::string>{"fl.example.org", "10.0.0.1", "::1"}));
  EXPECT_EQ(credentials->certificate.uris().size(), 1U);
  EXPECT_EQ(extension(credentials->certificate, NID_ext_key_usage),
            "TLS Web Server Authentication, TLS Web Client Authentication");
}

TEST(CertificateAuthority, RefusesProfilesThatSayTooMuchOrTooLittle) {
  const CertificateAuthority ca = authority();
  const SigningRequest request = SigningRequest::make(PrivateKey::generate());
  const auto code = [&](const CertificateProfile& profile) {
    const auto issued = ca.issue(request, profile, kNow);
    return issued ? std::string("issued") : issued.error().code();
  };
  EXPECT_EQ(code({.name = ""}), "bad-name");
  EXPECT_EQ(code({.name = "a/b"}), "bad-name");
  EXPECT_EQ(code({.name = "."}), "bad-name");
  EXPECT_EQ(code({.name = ".."}), "bad-name");
  EXPECT_EQ(code({.name = "cam-7", .addresses = {"10.0.0.1"}}), "bad-address");
  EXPECT_EQ(code({.role = Role::kOperator, .name = "ada", .addresses = {"x"}}), "bad-address");
  EXPECT_EQ(code({.role = Role::kCoordinator, .name = "hub"}), "bad-address");
  EXPECT_EQ(code({.role = Role::kPeer, .name = "p", .addresses = {"a,DNS:b"}}), "bad-address");
  EXPECT_EQ(code({.role = Role::kPeer, .name = "p"}), "issued");
}

TEST(CertificateAuthority, NeverOutlivesItself) {
  const auto ca = CertificateAuthority::make({.federation = "k", .lifetime = hours(48)}, kNow);
  const SigningRequest request = SigningRequest::make(PrivateKey::generate());
  const auto late = ca->issue(request, {.name = "cam-7"}, kNow + hours(47));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->validity().not_after, kNow + hours(48));
  EXPECT_EQ(ca->issue(request, {.name = "cam-7"}, kNow + hours(49)).error().code(),
            "authority-expired");
}

TEST(CertificateAuthority, DrawsEverySerialAnew) {
  const CertificateAuthority ca = authority();
  const SigningRequest request = SigningRequest::make(PrivateKey::generate());
  std::set<std::string> serials;
  std::size_t digits = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string serial = ca.issue(request, {.name = "cam-7"}, kNow)->serial();
    serials.insert(serial);
    digits = std::max(digits, serial.size());
  }
  EXPECT_EQ(serials.size(), 50U);
  EXPECT_EQ(digits, 32U);  // 128 bits, of which one draw in 256 has a leading zero byte
}

TEST(CertificateAuthority, ComesBackFromItsDirectory) {
  const testing::TemporaryDirectory home;
  const auto directory = home.path() / "ca";
  const auto made = CertificateAuthority::create(directory, {.federation = "kitchen"}, kNow);
  ASSERT_TRUE(made);
  EXPECT_EQ(mode(directory), 0700U);
  EXPECT_EQ(mode(directory / "key.pem"), 0600U);
  const auto loaded = CertificateAuthority::load(directory);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->federation(), "kitchen");
  EXPECT_EQ(loaded->certificate().fingerprint(), made->certificate().fingerprint());
  EXPECT_EQ(CertificateAuthority::create(directory, {.federation = "kitchen"}, kNow).error().code(),
            "authority-exists");
}

TEST(CertificateAuthority, RefusesADirectoryThatDoesNotBelongTogether) {
  const testing::TemporaryDirectory home;
  const auto directory = home.path() / "ca";
  EXPECT_EQ(CertificateAuthority::load(directory).error().code(), "file-missing");
  ASSERT_TRUE(CertificateAuthority::create(directory, {.federation = "kitchen"}, kNow));
  ASSERT_TRUE(PrivateKey::generate().save(directory / "key.pem"));
  EXPECT_EQ(CertificateAuthority::load(directory).error().code(), "bad-key");
}

TEST(SigningRequest, ProvesThePossessionOfItsKey) {
  const PrivateKey key = PrivateKey::generate();
  const SigningRequest request = SigningRequest::make(key);
  const auto parsed = SigningRequest::parse(request.der());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->public_key_digest(), key.public_key_digest());
  EXPECT_EQ(parsed->digest(), sha256(request.der()));
}

TEST(SigningRequest, RefusesEveryChangedByte) {
  const Bytes good = SigningRequest::make(PrivateKey::generate()).der();
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (unsigned flip : {1U, 0x80U}) {
      Bytes bad = good;
      bad[i] ^= static_cast<std::byte>(flip);
      const auto parsed = SigningRequest::parse(bad);
      ASSERT_FALSE(parsed) << "byte " << i;
      EXPECT_EQ(parsed.error().code(), "bad-request");
    }
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(SigningRequest::parse(longer));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(SigningRequest::parse(ByteView(good).first(size)));
  }
  EXPECT_FALSE(SigningRequest::parse(Bytes(SigningRequest::kBytesMax + 1)));
}

TEST(SigningRequest, TakesNoOtherKindOfKey) {
  for (const char* kind : {"RSA", "ED25519", "P-384"}) {
    EVP_PKEY* key = kind == std::string("RSA")       ? EVP_RSA_gen(2048)
                    : kind == std::string("ED25519") ? EVP_PKEY_Q_keygen(nullptr, nullptr, kind)
                                                     : EVP_EC_gen(kind);
    X509_REQ* request = X509_REQ_new();
    X509_REQ_set_pubkey(request, key);
    const EVP_MD* digest = kind == std::string("ED25519") ? nullptr : EVP_sha256();
    ASSERT_GT(X509_REQ_sign(request, key, digest), 0);
    unsigned char* der = nullptr;
    const int size = i2d_X509_REQ(request, &der);
    const auto parsed = SigningRequest::parse(
        {reinterpret_cast<const std::byte*>(der), static_cast<std::size_t>(size)});
    EXPECT_FALSE(parsed) << kind;
    OPENSSL_free(der);
    X509_REQ_free(request);
    EVP_PKEY_free(key);
  }
}

TEST(PrivateKey, KeepsToItselfOnDisk) {
  const testing::TemporaryDirectory home;
  const PrivateKey key = PrivateKey::generate();
  const auto path = home.path() / "key.pem";
  ASSERT_TRUE(key.save(path));
  EXPECT_EQ(mode(path), 0600U);
  EXPECT_EQ(PrivateKey::load(path)->public_key_digest(), key.public_key_digest());
  EXPECT_NE(PrivateKey::generate().public_key_digest(), key.public_key_digest());
  EXPECT_EQ(PrivateKey::parse_pem("").error().code(), "bad-key");
  EXPECT_EQ(PrivateKey::parse_pem(authority().certificate().pem()).error().code(), "bad-key");
}

TEST(Certificate, ReadsOnlyWholeCertificates) {
  const Certificate one = authority().certificate();
  const Certificate two = authority().certificate();
  EXPECT_EQ(Certificate::parse_pem(one.pem())->fingerprint(), one.fingerprint());
  EXPECT_EQ(one.fingerprint(), sha256(one.der()));
  EXPECT_FALSE(Certificate::parse_pem(one.pem() + two.pem()));
  EXPECT_EQ(parse_certificates(one.pem() + two.pem())->size(), 2U);
  EXPECT_FALSE(parse_certificates(one.pem() + two.pem() + one.pem(), 2));
  EXPECT_FALSE(parse_certificates(""));
}

TEST(IdentityDirectory, ComesBackAsItWasSaved) {
  const testing::TemporaryDirectory home;
  const auto directory = home.path() / "identity";
  EXPECT_EQ(IdentityDirectory::load(directory).error().code(), "not-joined");
  const auto credentials = authority().issue_credentials({.name = "cam-7"}, kNow);
  ASSERT_TRUE(IdentityDirectory::save(directory, *credentials, {"10.0.0.1", 7443}));
  EXPECT_EQ(mode(directory / "key.pem"), 0600U);
  const auto loaded = IdentityDirectory::load(directory);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->identity().uri(), "starling://kitchen/device/cam-7");
  EXPECT_EQ(loaded->coordinator(), (HostPort{"10.0.0.1", 7443}));
  EXPECT_EQ(loaded->credentials().authorities.front().fingerprint(),
            credentials->authorities.front().fingerprint());
  ASSERT_TRUE(PrivateKey::generate().save(directory / "key.pem"));
  EXPECT_EQ(IdentityDirectory::load(directory).error().code(), "bad-certificate");
}

TEST(IdentityDirectory, OneThatMayNotBeReadIsNotTakenForNone) {
  const testing::TemporaryDirectory home;
  const auto directory = home.path() / "identity";
  const auto credentials = authority().issue_credentials({.name = "cam-7"}, kNow);
  ASSERT_TRUE(IdentityDirectory::save(directory, *credentials, {"10.0.0.1", 7443}));
  ASSERT_EQ(::chmod(directory.c_str(), 0), 0);
  {
    const testing::AsNobody nobody;
    const auto refused = IdentityDirectory::load(directory);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), "no-permission");
    EXPECT_NE(refused.error().message().find("Permission denied"), std::string::npos);
  }
  ASSERT_EQ(::chmod(directory.c_str(), 0700), 0);
  EXPECT_TRUE(IdentityDirectory::load(directory));
}

TEST(IdentityDirectory, ADamagedFileIsNamedAndAPipeIsNotWaitedFor) {
  const testing::TemporaryDirectory home;
  const auto credentials = authority().issue_credentials({.name = "cam-7"}, kNow);
  for (const char* name : {"key.pem", "certificate.pem", "ca.pem", "coordinator"}) {
    const auto file = home.path() / name;
    for (const bool pipe : {false, true}) {
      ASSERT_TRUE(IdentityDirectory::save(home.path(), *credentials, {"10.0.0.1", 7443}));
      if (pipe) {
        std::filesystem::remove(file);
        ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
      } else {
        std::ofstream(file) << "damaged";
      }
      const auto refused = IdentityDirectory::load(home.path());
      ASSERT_FALSE(refused) << name;
      EXPECT_NE(refused.error().message().find(file.string()), std::string::npos)
          << refused.error().message();
      std::filesystem::remove(file);
    }
  }
}

TEST(IdentityDirectory, RemembersTheTimeThatACoordinatorToldLast) {
  const testing::TemporaryDirectory home;
  const auto credentials = authority().issue_credentials({.name = "cam-7"}, kNow);
  ASSERT_TRUE(IdentityDirectory::save(home.path(), *credentials, {"10.0.0.1", 7443}));
  auto directory = IdentityDirectory::load(home.path());
  EXPECT_EQ(directory->last_authenticated(), kNow - minutes(5));
  ASSERT_TRUE(directory->record_authenticated(kNow + hours(1)));
  EXPECT_EQ(directory->last_authenticated(), kNow + hours(1));
  EXPECT_EQ(IdentityDirectory::load(home.path())->last_authenticated(), kNow + hours(1));
  ASSERT_TRUE(directory->record_authenticated(kNow + hours(24 * 200)));
  ASSERT_TRUE(directory->record_authenticated(kNow + hours(2)));  // the clock had run ahead
  EXPECT_EQ(directory->last_authenticated(), kNow + hours(2));
  EXPECT_EQ(IdentityDirectory::load(home.path())->last_authenticated(), kNow + hours(2));
  ASSERT_TRUE(directory->record_authenticated(kNow - hours(9)));
  EXPECT_EQ(directory->last_authenticated(), kNow - minutes(5)) << "not before its own beginning";
  ASSERT_TRUE(write_durably(home.path() / "last-seen", as_bytes("rubbish")));
  EXPECT_EQ(IdentityDirectory::load(home.path())->last_authenticated(), kNow - minutes(5));
}

}  // namespace
}  // namespace starling::identity
