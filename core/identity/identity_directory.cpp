// SPDX-License-Identifier: Apache-2.0
#include "core/identity/identity_directory.h"

#include <algorithm>

#include "core/base/durable_file.h"

namespace starling::identity {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTextBytesMax = 64 * 1024;
constexpr auto kRecordStep = std::chrono::minutes(1);

fs::path key_path(const fs::path& directory) { return directory / "key.pem"; }
fs::path certificate_path(const fs::path& directory) { return directory / "certificate.pem"; }
fs::path authorities_path(const fs::path& directory) { return directory / "ca.pem"; }
fs::path coordinator_path(const fs::path& directory) { return directory / "coordinator"; }
fs::path last_seen_path(const fs::path& directory) { return directory / "last-seen"; }

Result<std::string> read_line(const fs::path& path) {
  STARLING_ASSIGN(std::string text, read_text_file(path, kTextBytesMax));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// What a damaged or missing file says is nothing: the certificate's own beginning then stands.
WallTime last_seen(const fs::path& directory, WallTime at_least) {
  const Result<std::string> text = read_line(last_seen_path(directory));
  if (!text) return at_least;
  const Result<WallTime> time = parse_rfc3339(*text);
  return time ? std::max(*time, at_least) : at_least;
}

}  // namespace

IdentityDirectory::IdentityDirectory(fs::path directory, Identity identity, Credentials credentials,
                                     HostPort coordinator, WallTime last_authenticated)
    : directory_(std::move(directory)),
      identity_(std::move(identity)),
      credentials_(std::move(credentials)),
      coordinator_(std::move(coordinator)),
      last_authenticated_(last_authenticated) {}

bool IdentityDirectory::is_joined(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(certificate_path(directory), ignored);
}

Result<IdentityDirectory> IdentityDirectory::load(const fs::path& directory) {
  Result<Certificate> certificate = Certificate::load(certificate_path(directory));
  if (!certificate) {
    if (certificate.error().code() != "file-missing") return certificate.error();
    return rejected("not-joined",
                    directory.string() + " holds no identity; join a federation first");
  }
  STARLING_ASSIGN(PrivateKey key, PrivateKey::load(key_path(directory)));
  STARLING_ASSIGN(const std::string bundle,
                  read_text_file(authorities_path(directory), kTextBytesMax));
  auto authorities = parse_certificates(bundle);
  if (!authorities) return authorities.error().within(authorities_path(directory).string());
  STARLING_ASSIGN(const std::string line, read_line(coordinator_path(directory)));
  auto coordinator = parse_host_port(line);
  if (!coordinator) return coordinator.error().within(coordinator_path(directory).string());
  STARLING_ASSIGN(Identity identity, certificate->identity());
  if (key.public_key_digest() != certificate->public_key_digest()) {
    return not_authorised(
        "bad-certificate",
        "key.pem and certificate.pem in " + directory.string() +
            " do not belong together; join the federation again in a new directory");
  }
  const WallTime seen = last_seen(directory, certificate->validity().not_before);
  Credentials credentials{.key = std::move(key),
                          .certificate = *std::move(certificate),
                          .authorities = *std::move(authorities)};
  return IdentityDirectory(directory, std::move(identity), std::move(credentials),
                           *std::move(coordinator), seen);
}

Result<void> IdentityDirectory::save(const fs::path& directory, const Credentials& credentials,
                                     const HostPort& coordinator) {
  STARLING_TRY(make_directory(directory, true));
  STARLING_TRY(credentials.key.save(key_path(directory)));
  std::string bundle;
  for (const Certificate& authority : credentials.authorities) bundle += authority.pem();
  STARLING_TRY(write_durably(authorities_path(directory), as_bytes(bundle)));
  const std::string line = coordinator.text() + "\n";
  STARLING_TRY(write_durably(coordinator_path(directory), as_bytes(line)));
  const std::string pem = credentials.certificate.pem();
  return write_durably(certificate_path(directory), as_bytes(pem));
}

Result<void> IdentityDirectory::record_authenticated(WallTime time) {
  time = std::max(time, credentials_.certificate.validity().not_before);
  if (std::chrono::abs(time - last_authenticated_) < kRecordStep) return {};
  const std::string line = format_rfc3339(time) + "\n";
  STARLING_TRY(write_durably(last_seen_path(directory_), as_bytes(line)));
  last_authenticated_ = time;
  return {};
}

}  // namespace starling::identity
