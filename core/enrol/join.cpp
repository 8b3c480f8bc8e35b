// SPDX-License-Identifier: Apache-2.0
#include "core/enrol/join.h"

#include <algorithm>
#include <span>

#include "core/base/durable_file.h"
#include "core/enrol/messages.h"
#include "core/identity/signing_request.h"
#include "core/identity/wipe.h"
#include "core/net/alarm.h"
#include "core/net/deadline.h"

namespace starling::enrol {
namespace {

namespace fs = std::filesystem;
using identity::Certificate;
using identity::Credentials;
using identity::IdentityDirectory;
using identity::PrivateKey;
using identity::Role;
using identity::SigningRequest;
using identity::VerificationTime;

using Joined = Result<IdentityDirectory>;

constexpr std::size_t kTokenBytesMax = 64;

fs::path key_path(const fs::path& directory) { return directory / "key.pem"; }
fs::path request_path(const fs::path& directory) { return directory / "request.der"; }
fs::path token_path(const fs::path& directory) { return directory / "token"; }

struct Applicant {
  PrivateKey key;
  SigningRequest request;
};

Result<PrivateKey> load_or_make_key(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return PrivateKey::load(path);
  PrivateKey key = PrivateKey::generate();
  STARLING_TRY(key.save(path));
  return key;
}

// A signature differs each time it is made, and the coordinator knows us by the request's digest:
// so the request is kept as well as the key.
Result<SigningRequest> load_or_make_request(const fs::path& path, const PrivateKey& key) {
  const Result<Bytes> kept = read_file(path, SigningRequest::kBytesMax);
  if (kept) {
    Result<SigningRequest> request = SigningRequest::parse(*kept);
    if (request && request->public_key_digest() == key.public_key_digest()) return request;
  }
  SigningRequest request = SigningRequest::make(key);
  STARLING_TRY(write_durably(path, request.der()));
  return request;
}

// A crash between the certificate's arrival and the end of joining leaves both files.
Joined finish_interrupted(const fs::path& directory, const identity::JoinToken& token) {
  STARLING_ASSIGN(IdentityDirectory joined, IdentityDirectory::load(directory));
  std::error_code ignored;
  const bool interrupted = fs::exists(request_path(directory), ignored);
  if (!interrupted || !begun_with(directory, token)) {
    return rejected("already-joined", directory.string() + " already holds the identity " +
                                          joined.identity().uri() +
                                          "; take another directory to join once more");
  }
  STARLING_TRY(remove_durably(request_path(directory)));
  return joined;
}

// Another token's key may be certified already, and revoked with what that token admitted to.
Result<void> begin(const fs::path& directory, const identity::JoinToken& token) {
  STARLING_TRY(make_directory(directory, true));
  if (begun_with(directory, token)) return {};
  STARLING_TRY(remove_durably(request_path(directory)));
  STARLING_TRY(remove_durably(key_path(directory)));
  return write_durably(token_path(directory), as_bytes(to_string(token.id)));
}

Result<Applicant> prepare(const fs::path& directory, const identity::JoinToken& token) {
  STARLING_TRY(begin(directory, token));
  STARLING_ASSIGN(PrivateKey key, load_or_make_key(key_path(directory)));
  STARLING_ASSIGN(SigningRequest request, load_or_make_request(request_path(directory), key));
  return Applicant{.key = std::move(key), .request = std::move(request)};
}

// Where the clock is wrong, nobody has told the time yet: the coordinator's certificate counts as
// just begun. Whoever holds an old one cannot admit us, having neither the token nor the authority.
std::function<VerificationTime()> first_contact_time(const Clock& clock) {
  return [&clock] {
    return VerificationTime{.now = clock.wall_now(), .last_authenticated = WallTime()};
  };
}

// That the certificate is for our key, and from the authority that the token names.
Result<Credentials> check_admission(const Admission& admission, const PrivateKey& key,
                                    const identity::VerifiedPeer& coordinator,
                                    const identity::RoleSet& roles) {
  STARLING_ASSIGN(std::vector<Certificate> certificates,
                  identity::parse_certificates(admission.certificates, 5));
  const Certificate own = certificates.front();
  if (own.public_key_digest() != key.public_key_digest()) {
    return not_authorised("bad-certificate",
                          "the coordinator answered with somebody else's certificate");
  }
  const identity::PeerPolicy policy{
      .federation = coordinator.identity.federation, .roles = roles, .time = [&] {
        return VerificationTime{.now = own.validity().not_before};
      }};
  STARLING_TRY(identity::verify_peer(std::span(&own, 1), std::span(&coordinator.authority, 1),
                                     identity::Side::kClient, policy));
  certificates.front() = coordinator.authority;  // pinned, and so always among them
  const Sha256Digest pinned = coordinator.authority.fingerprint();
  certificates.erase(std::remove_if(certificates.begin() + 1, certificates.end(),
                                    [&](const Certificate& authority) {
                                      return authority.fingerprint() == pinned;
                                    }),
                     certificates.end());
  return Credentials{.key = key, .certificate = own, .authorities = std::move(certificates)};
}

Joined keep(const fs::path& directory, const Credentials& credentials,
            const identity::JoinToken& token, WallTime coordinators_time) {
  STARLING_TRY(
      IdentityDirectory::save(directory, credentials, {.host = token.host, .port = token.port}));
  STARLING_ASSIGN(IdentityDirectory kept, IdentityDirectory::load(directory));
  STARLING_TRY(kept.record_authenticated(coordinators_time));
  STARLING_TRY(remove_durably(request_path(directory)));
  return kept;
}

identity::Mac mac_for(const net::Connection& connection, const identity::JoinToken& token,
                      const SigningRequest& request) {
  auto exporter = connection.export_key(kExporterLabel);
  const identity::WipeAtEnd wiped(exporter);
  return token.key().mac(exporter, request.digest());
}

net::Async<Result<Admission>> ask(net::Connection& connection, identity::JoinToken token,
                                  SigningRequest request, identity::RoleSet roles) {
  const Request message{.token = token.id,
                        .mac = mac_for(connection, token, request),
                        .signing_request = request.der(),
                        .roles = roles};
  const Result<void> sent = connection.send(encode(message));
  if (!sent) co_return sent.error();
  const AnswerLimits limits;
  auto frame = co_await connection.read_frame(limits);
  if (!frame) co_return frame.error();
  co_return decode_answer(*frame);
}

// What a busy coordinator or a bad line is the reason for. An address at which nobody listens is
// more likely a wrong one.
bool may_pass(const Error& error) {
  return error.kind() == ErrorKind::kOverloaded || error.code() == "connection-lost" ||
         error.code() == "closed" || error.code() == "deadline";
}

net::Async<Joined> join_now(net::EventLoop& loop, identity::JoinToken token, fs::path directory,
                            const Clock& clock, TimePoint deadline, JoinOptions options) {
  if (IdentityDirectory::is_joined(directory)) co_return finish_interrupted(directory, token);
  const Result<Applicant> applicant = prepare(directory, token);
  if (!applicant) co_return applicant.error();
  identity::PeerPolicy policy{.roles = {Role::kCoordinator}, .time = first_contact_time(clock)};
  const auto tls = net::TlsContext::make_enrolment_client(token.authority, std::move(policy));
  if (!tls) co_return tls.error();
  auto connection = co_await net::connect(loop, token.host, token.port, *tls, options.connect);
  if (!connection) co_return connection.error();
  auto admission = co_await ask(**connection, token, applicant->request, options.roles);
  if (!admission) co_return admission.error();
  const Result<Credentials> credentials =
      check_admission(*admission, applicant->key, *(*connection)->peer(), options.roles);
  if (!credentials) co_return credentials.error();
  auto joined = keep(directory, *credentials, token, admission->time);
  co_await (*connection)->close(deadline);
  co_return std::move(joined);
}

}  // namespace

std::string describe_retry(const Error& error, Duration pause) {
  return "not joined yet (" + error.code() + ": " + error.message() + "); trying again in " +
         format_duration(std::chrono::round<std::chrono::milliseconds>(pause));
}

bool begun_with(const fs::path& directory, const identity::JoinToken& token) {
  const Result<std::string> kept = read_text_file(token_path(directory), kTokenBytesMax);
  return kept && *kept == to_string(token.id);
}

net::Async<Joined> join(net::EventLoop& loop, identity::JoinToken token, fs::path directory,
                        const Clock& clock, JoinOptions options) {
  const TimePoint end = loop.now() + options.deadline;
  Backoff backoff(options.backoff, Rng({.seed = token.id.value(), .purpose = Purpose::kBackoff}));
  for (;;) {
    const TimePoint deadline = std::min(end, loop.now() + options.attempt_deadline);
    auto work = join_now(loop, token, directory, clock, deadline, options);
    auto joined = co_await net::with_deadline(loop, deadline, "joining", std::move(work));
    if (joined || !may_pass(joined.error())) co_return std::move(joined);
    const Duration pause = backoff.next();
    if (loop.now() + pause >= end) co_return std::move(joined);
    if (options.on_retry) options.on_retry(joined.error(), pause);
    auto slept = co_await net::sleep_until(loop, loop.now() + pause);
    if (!slept) co_return std::move(joined);
  }
}

}  // namespace starling::enrol
