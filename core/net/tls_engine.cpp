// SPDX-License-Identifier: Apache-2.0
#include "core/net/tls_engine.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/identity/host_port.h"
#include "core/net/tls_errors.h"

namespace starling::net {
namespace {

constexpr std::byte kAlertRecord{0x15};
constexpr std::byte kHandshakeRecord{0x16};

// A call of OpenSSL reads on until it finds data, through records that hold none and cost some 20
// microseconds each: after so many it is made to stop.
constexpr unsigned kRecordsPerCall = 32;

Error wrong_alpn() {
  return rejected("wrong-alpn", "the other side does not speak this protocol of Starling")
      .as(ErrorCategory::kNotConnected);
}

}  // namespace

MutableByteView ByteQueue::space() {
  if (!buffer_) buffer_ = pool_.borrow();
  if (parked_) {
    std::ranges::copy(view(), buffer_.get());
    end_ -= std::exchange(begin_, 0);
    parked_.reset();
  }
  if (empty()) {
    begin_ = end_ = 0;
  } else if (begin_ > 0 && end_ == pool_.buffer_bytes()) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, size());
    end_ -= begin_;
    begin_ = 0;
  }
  return {buffer_.get() + end_, pool_.buffer_bytes() - end_};
}

void ByteQueue::release() {
  STARLING_CHECK(empty());
  buffer_.reset();
  parked_.reset();
  begin_ = end_ = 0;
}

void ByteQueue::park() {
  if (parked_ || empty()) return;
  auto place = std::make_unique_for_overwrite<std::byte[]>(size());
  std::ranges::copy(view(), place.get());
  end_ -= std::exchange(begin_, 0);
  parked_ = std::move(place);
  buffer_.reset();
}

TlsEngine::TlsEngine(std::shared_ptr<const TlsContext> context, BufferPool& pool,
                     const std::string& host)
    : context_(std::move(context)),
      settings_(settings_of(*context_)),
      ssl_(SSL_new(settings_.context.get())),
      input_(pool),
      output_(pool),
      protocol_(settings_.protocol) {
  STARLING_CHECK(ssl_ != nullptr);
  BIO* bio = BIO_new(bio_method());
  STARLING_CHECK(bio != nullptr);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  SSL_set_msg_callback(ssl_.get(), on_message);
  SSL_set_msg_callback_arg(ssl_.get(), this);
  if (settings_.side == identity::Side::kServer) {
    SSL_set_accept_state(ssl_.get());
    return;
  }
  SSL_set_connect_state(ssl_.get());
  SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
  policy_ = settings_.server;
  if (!policy_->address) policy_->address = host;
  if (identity::is_dns_name(host) && !identity::is_numeric_address(host)) {
    STARLING_CHECK(SSL_set_tlsext_host_name(ssl_.get(), host.c_str()) == 1);
  }
  const std::string_view name = alpn_name(protocol_);
  std::string offer(1, static_cast<char>(name.size()));
  offer += name;
  STARLING_CHECK(SSL_set_alpn_protos(ssl_.get(), identity::uchars(as_bytes(offer).data()),
                                     static_cast<unsigned>(offer.size())) == 0);
}

TlsEngine::Status TlsEngine::fail(Error error) {
  error_ = std::move(error);
  identity::clear_openssl_errors();
  return Status::kFailed;
}

TlsEngine::Status TlsEngine::status_of(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return input_.empty() ? Status::kWantsInput : Status::kSpent;
    case SSL_ERROR_ZERO_RETURN:
      return Status::kClosed;
    default:
      return fail(refusal_ ? *refusal_ : take_tls_error());
  }
}

// Tells plaintext from TLS by the first byte, before OpenSSL waits for five.
bool TlsEngine::looks_like_tls() {
  if (saw_first_byte_ || input_.empty()) return true;
  saw_first_byte_ = true;
  const std::byte first = input_.view().front();
  return first == kHandshakeRecord ||
         (first == kAlertRecord && settings_.side == identity::Side::kClient);
}

TlsEngine::Status TlsEngine::handshake() {
  if (!looks_like_tls()) return fail(not_tls());
  identity::clear_openssl_errors();
  records_of_call_ = 0;
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) return finish_handshake();
  const Status status = status_of(result);
  if (status == Status::kClosed)
    return fail(not_connected("connection-lost", "the connection broke off"));
  return status;
}

TlsEngine::Status TlsEngine::finish_handshake() {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &name, &size);
  if (std::string_view(reinterpret_cast<const char*>(name), size) != alpn_name(protocol_)) {
    return fail(wrong_alpn());
  }
  // Not reachable by what stands above; but nothing else stands between a stranger and a session.
  STARLING_CHECK(peer_.has_value() == policy_.has_value());
  return Status::kDone;
}

TlsEngine::Transfer TlsEngine::read(MutableByteView into) {
  identity::clear_openssl_errors();
  records_of_call_ = 0;
  std::size_t bytes = 0;
  const int result = SSL_read_ex(ssl_.get(), into.data(), into.size(), &bytes);
  if (result == 1) return {.status = Status::kDone, .bytes = bytes};
  return {.status = status_of(result), .bytes = 0};
}

bool TlsEngine::write(ByteView bytes) {
  identity::clear_openssl_errors();
  std::size_t written = 0;
  const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written);
  if (result == 1) {
    STARLING_CHECK(written == bytes.size());  // partial writes are not switched on
    return true;
  }
  status_of(result);
  return false;
}

void TlsEngine::shut_down() {
  identity::clear_openssl_errors();
  SSL_shutdown(ssl_.get());
  identity::clear_openssl_errors();
}

void TlsEngine::renew_keys() {
  STARLING_CHECK(SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
}

std::array<std::byte, 32> TlsEngine::export_key(std::string_view label) const {
  std::array<std::byte, 32> key{};
  STARLING_CHECK(SSL_export_keying_material(ssl_.get(), identity::uchars(key.data()), key.size(),
                                            label.data(), label.size(), nullptr, 0, 0) == 1);
  return key;
}

std::optional<identity::Certificate> TlsEngine::pinned_authority(
    std::span<const identity::Certificate> presented) const {
  for (const identity::Certificate& certificate : presented) {
    if (certificate.public_key_digest() == *settings_.authority_pin) return certificate;
  }
  return {};
}

Result<void> TlsEngine::verify_peer(std::span<const identity::Certificate> presented) {
  std::vector<identity::Certificate> authorities = settings_.authorities;
  if (settings_.authority_pin) {
    const auto pinned = pinned_authority(presented);
    if (!pinned) {
      refusal_ =
          not_authorised("unknown-authority",
                         "the server does not show the authority that the join token names; "
                         "nothing was sent to it. Check the address, or ask for a new token");
      return *refusal_;
    }
    authorities.push_back(*pinned);
  }
  const identity::Side theirs =
      settings_.side == identity::Side::kServer ? identity::Side::kClient : identity::Side::kServer;
  Result<identity::VerifiedPeer> peer =
      identity::verify_peer(presented, authorities, theirs, *policy_);
  if (!peer) {
    refusal_ = peer.error();
    return peer.error();
  }
  peer_ = std::move(*peer);
  return {};
}

bool TlsEngine::accept_protocol(std::string_view alpn) {
  for (const AcceptedProtocol& accepted : settings_.accepted) {
    if (alpn_name(accepted.protocol) != alpn) continue;
    protocol_ = accepted.protocol;
    policy_ = accepted.client;
    const int mode = policy_ ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : SSL_VERIFY_NONE;
    SSL_set_verify(ssl_.get(), mode, nullptr);
    return true;
  }
  return false;
}

void TlsEngine::refuse_protocol() { refusal_ = wrong_alpn(); }

void TlsEngine::on_message(int is_ours, int /*version*/, int type, const void* bytes,
                           std::size_t size, SSL* /*ssl*/, void* engine) {
  if (is_ours != 0) return;
  auto& self = *static_cast<TlsEngine*>(engine);
  if (type == SSL3_RT_HEADER) ++self.records_of_call_;
  const bool says_content = type == SSL3_RT_INNER_CONTENT_TYPE && size == 1;
  if (says_content && *static_cast<const unsigned char*>(bytes) != SSL3_RT_APPLICATION_DATA) {
    ++self.dataless_records_;
  }
}

const BIO_METHOD* TlsEngine::bio_method() {
  static const BIO_METHOD* const kMethod = [] {
    BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "starling");
    STARLING_CHECK(method != nullptr && BIO_meth_set_read(method, bio_read) == 1 &&
                   BIO_meth_set_write(method, bio_write) == 1 &&
                   BIO_meth_set_ctrl(method, bio_control) == 1);
    return method;
  }();
  return kMethod;
}

int TlsEngine::bio_read(BIO* bio, char* into, int size) {
  auto& engine = *static_cast<TlsEngine*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const std::size_t bytes = std::min(engine.input_.size(), static_cast<std::size_t>(size));
  const bool spent = engine.records_of_call_ >= kRecordsPerCall;
  if (bytes == 0 || spent) {
    if (engine.input_ended_ && !spent) return 0;
    BIO_set_retry_read(bio);
    return -1;
  }
  std::memcpy(into, engine.input_.view().data(), bytes);
  engine.input_.consume(bytes);
  return static_cast<int>(bytes);
}

int TlsEngine::bio_write(BIO* bio, const char* from, int size) {
  auto& engine = *static_cast<TlsEngine*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const auto bytes = static_cast<std::size_t>(size);
  const MutableByteView space = engine.output_.space();
  if (space.size() < bytes)
    return -1;  // the writer keeps room; who floods us with alerts gets none
  std::memcpy(space.data(), from, bytes);
  engine.output_.commit(bytes);
  return size;
}

long TlsEngine::bio_control(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  const auto& engine = *static_cast<TlsEngine*>(BIO_get_data(bio));
  switch (command) {
    case BIO_CTRL_FLUSH:
      return 1;
    case BIO_CTRL_EOF:
      return engine.input_ended_ && engine.input_.empty() ? 1 : 0;
    default:
      return 0;
  }
}

}  // namespace starling::net
