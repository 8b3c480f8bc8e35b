// SPDX-License-Identifier: Apache-2.0
// What strangers and one bad device can do to a coordinator, beside an honest operator who pings it
// over one connection, or connects anew, throughout. Loopback only; see network_attacks.sh.
// usage: network_attacks STATE resets COUNT | updates SECONDS
//        network_attacks STATE half-open SECONDS ADDRESSES PER-SECOND [hello]
//        network_attacks STATE pongs SECONDS DEVICE-STATE
//        network_attacks STATE peer-pongs SECONDS PEER-STATE PORT RATE
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "core/identity/identity_directory.h"
#include "core/link/message_link.h"
#include "core/net/connect.h"

namespace starling {
namespace {

using namespace std::chrono_literals;

constexpr int kResetThreads = 30;
constexpr int kUpdateConnections = 8;
constexpr double kPingMillisecondsMax = 200;
constexpr double kConnectMillisecondsMax = 1000;

[[noreturn]] void fail(const std::string& why) {
  fmt::print(stderr, "network_attacks: {}\n", why);
  std::exit(1);
}

// A connected TCP socket from 127.0.0.`from`.
class Socket {
 public:
  Socket(std::uint16_t port, int from) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in mine = address(from, 0);
    const sockaddr_in theirs = address(1, port);
    connected_ = ::bind(fd_, reinterpret_cast<const sockaddr*>(&mine), sizeof mine) == 0 &&
                 ::connect(fd_, reinterpret_cast<const sockaddr*>(&theirs), sizeof theirs) == 0;
  }
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void reset_when_closed() const {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

 private:
  static sockaddr_in address(int host, std::uint16_t port) {
    sockaddr_in result{};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    result.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + static_cast<unsigned>(host));
    return result;
  }

  int fd_;
  bool connected_ = false;
};

// A member of the federation with one connection.
class Member {
 public:
  explicit Member(const std::string& directory)
      : identity_(identity::IdentityDirectory::load(directory).value()) {}
  ~Member() {
    if (connection_) connection_->abort();
  }

  std::uint16_t port() const { return identity_.coordinator().port; }
  Result<void> connect() {
    return dial(port(), net::Protocol::kSession, identity::Role::kCoordinator);
  }
  Result<void> connect_to_peer(std::uint16_t at) {
    return dial(at, net::Protocol::kPeer, identity::Role::kPeer);
  }
  Result<void> send(protocol::Message message) {
    return link::send(*connection_, {std::move(message), {}});
  }
  // Waits for the next frame.
  Result<void> receive() {
    auto frame = net::run_task(loop_, connection_->read_frame(limits_));
    if (!frame) return frame.error();
    return {};
  }
  // Lets the loop send what is queued.
  void flush() {
    while (connection_->queued_bytes() > 0) loop_.run_task(turn());
  }

 private:
  static net::Async<void> turn() { co_return; }
  Result<void> dial(std::uint16_t at, net::Protocol protocol, identity::Role role) {
    connection_.reset();
    identity::PeerPolicy policy;
    policy.federation = identity_.identity().federation;
    policy.roles = {role};
    policy.time = [this] { return identity::VerificationTime{.now = clock_.wall_now()}; };
    STARLING_ASSIGN(auto tls,
                    net::TlsContext::make_client(protocol, identity_.credentials(), policy));
    auto dialling = net::connect(loop_, "127.0.0.1", at, std::move(tls), {});
    STARLING_ASSIGN(connection_, net::run_task(loop_, std::move(dialling)));
    return {};
  }

  SystemClock clock_;
  identity::IdentityDirectory identity_;
  net::EventLoop loop_;
  std::unique_ptr<net::Connection> connection_;
  link::MessageLimits limits_{wire::to_operator()};
};

void print(const std::string& what, std::vector<double> milliseconds) {
  std::ranges::sort(milliseconds);
  if (milliseconds.empty()) fail("nothing was measured");
  fmt::print("{}: {} times, median {:.1f} ms, 99 % {:.1f} ms, longest {:.1f} ms\n", what,
             milliseconds.size(), milliseconds[milliseconds.size() / 2],
             milliseconds[milliseconds.size() * 99 / 100], milliseconds.back());
}

template <class Act>
std::vector<double> measure(Duration time, Duration pause, Act act) {
  std::vector<double> milliseconds;
  const SystemClock clock;
  const TimePoint end = clock.now() + time;
  while (clock.now() < end) {
    const TimePoint begin = clock.now();
    if (const Result<void> done = act(); !done) fail("the honest one: " + done.error().message());
    milliseconds.push_back(1000 * to_seconds(clock.now() - begin));
    std::this_thread::sleep_for(pause);
  }
  return milliseconds;
}

std::vector<double> ping(Member& honest, Duration time) {
  return measure(time, 10ms, [&]() -> Result<void> {
    STARLING_TRY(honest.send(protocol::Ping{}));
    return honest.receive();
  });
}

// Fails where one took longer than operators are promised.
void print_bounded(const std::string& what, const std::vector<double>& milliseconds, double most) {
  print(what, milliseconds);
  const double longest = std::ranges::max(milliseconds);
  if (longest > most) {
    fail(fmt::format("{}: one took {:.0f} ms; at most {:.0f} are allowed", what, longest, most));
  }
}

void print_pings(const std::string& what, const std::vector<double>& milliseconds) {
  print_bounded(what, milliseconds, kPingMillisecondsMax);
}

std::vector<double> connect_anew(Member& honest, Duration time) {
  return measure(time, 100ms, [&] { return honest.connect(); });
}

// --- attacks ------------------------------------------------------------------------------------

void resets(Member& honest, long count) {
  std::atomic<long> left = count;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kResetThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const SystemClock clock;
      for (long i = --left; i >= 0; i = --left) {
        const Socket socket(honest.port(), 1 + thread);
        if (!socket.connected()) fail("cannot connect any more");
        socket.reset_when_closed();
        const TimePoint moment = clock.now() + std::chrono::microseconds(i % 151);
        while (clock.now() < moment) {
        }
      }
    });
  }
  threads.clear();
  fmt::print("{} connections were reset 0 to 150 us after connecting\n", count);
}

// Full handshakes without a certificate, then nothing but new keys; again as soon as it is cut.
void send_updates(std::uint16_t port, const std::atomic<bool>& stop, std::atomic<long>& updates,
                  std::atomic<long>& connections) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  while (!stop) {
    const Socket socket(port, 2);
    SSL* ssl = SSL_new(context);
    const std::string offer = "\x10starling-enrol/1";
    SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(offer.data()),
                        static_cast<unsigned>(offer.size()));
    SSL_set_fd(ssl, socket.fd());
    if (socket.connected() && SSL_connect(ssl) == 1) {
      ++connections;
      while (!stop && SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
             SSL_do_handshake(ssl) == 1) {
        ++updates;
      }
    }
    SSL_free(ssl);
  }
  SSL_CTX_free(context);
}

void updates(Member& honest, Duration time) {
  std::atomic<bool> stop = false;
  std::atomic<long> sent = 0;
  std::atomic<long> connections = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kUpdateConnections; ++i) {
    threads.emplace_back([&] { send_updates(honest.port(), stop, sent, connections); });
  }
  const auto pings = ping(honest, time);
  stop = true;
  threads.clear();
  fmt::print("{} key updates on {} connections in {} s\n", sent.load(), connections.load(),
             to_seconds(time));
  print_pings("honest ping", pings);
}

// What a client says first; its answer is never read.
std::string first_words() {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl = SSL_new(context);
  const std::string offer = "\x0astarling/1";
  SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(offer.data()),
                      static_cast<unsigned>(offer.size()));
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
  SSL_connect(ssl);
  std::string words(static_cast<std::size_t>(BIO_pending(out)), '\0');
  BIO_read(out, words.data(), static_cast<int>(words.size()));
  SSL_free(ssl);
  SSL_CTX_free(context);
  return words;
}

struct HalfOpen {
  int addresses = 8;
  int per_second = 150;
  std::string words;  // with which each begins
};

void half_open(Member& honest, const HalfOpen& attack, Duration time) {
  std::atomic<bool> stop = false;
  std::jthread attacker([&] {
    const SystemClock clock;
    const TimePoint begin = clock.now();
    std::deque<std::unique_ptr<Socket>> open;
    for (int i = 0; !stop; ++i) {
      open.push_back(std::make_unique<Socket>(honest.port(), 2 + i % attack.addresses));
      ::send(open.back()->fd(), attack.words.data(), attack.words.size(), MSG_NOSIGNAL);
      // As long as the coordinator would wait for them.
      if (open.size() > 6 * static_cast<std::size_t>(attack.per_second)) open.pop_front();
      std::this_thread::sleep_until(begin + from_seconds((i + 1.0) / attack.per_second));
    }
  });
  std::this_thread::sleep_for(3s);  // all slots are taken by then
  const auto connects = connect_anew(honest, time);
  stop = true;
  print_bounded(
      fmt::format("beside {} half-open connections a second from {} addresses, connecting",
                  attack.per_second, attack.addresses),
      connects, kConnectMillisecondsMax);
}

void pongs(Member& honest, Duration time, const std::string& device) {
  std::atomic<bool> stop = false;
  std::atomic<long> sent = 0;
  std::jthread attacker([&] {
    Member bad(device);
    if (const auto connected = bad.connect(); !connected) fail(connected.error().message());
    (void)bad.send(protocol::Hello{.software = "attack"});
    while (!stop) {
      for (int i = 0; i < 100; ++i) {
        if (!bad.send(protocol::Pong{})) break;
        ++sent;
      }
      bad.flush();
    }
  });
  const auto pings = ping(honest, time);
  stop = true;
  print_pings("honest ping", pings);
  fmt::print("the device had sent {} pongs in {} s\n", sent.load(), to_seconds(time));
}

// So many pongs a second for one gossip peer, as one member of its network. What they cost the
// others is for the script to see.
void peer_pongs(const std::string& member, std::uint16_t port, double rate, Duration time) {
  constexpr Duration kPeriod = 10ms;
  Member bad(member);
  const SystemClock clock;
  const TimePoint begin = clock.now();
  double sent = 0;
  int connections = 0;
  bool connected = false;
  while (clock.now() < begin + time) {
    if (!connected) {
      if (const auto dialled = bad.connect_to_peer(port); !dialled) fail(dialled.error().message());
      connected = bad.send(protocol::PeerHello{.software = "attack"}).has_value();
      ++connections;
    }
    for (const double due = rate * to_seconds(clock.now() - begin); connected && sent < due;) {
      connected = bad.send(protocol::Pong{}).has_value();
      ++sent;
    }
    bad.flush();
    std::this_thread::sleep_for(kPeriod);
  }
  fmt::print("{:.0f} pongs in {:.0f} s on {} connections\n", sent, to_seconds(time), connections);
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) fail("needs STATE, an attack, and how much of it");
  ::signal(SIGPIPE, SIG_IGN);
  Member honest(arguments[0] + "/operator");
  if (const auto connected = honest.connect(); !connected) fail(connected.error().message());
  const std::string& attack = arguments[1];
  const long amount = std::atol(arguments[2].c_str());
  const Duration time = std::chrono::seconds(amount);
  if (attack == "resets") {
    resets(honest, amount);
    print_pings("honest ping afterwards", ping(honest, 1s));
  } else if (attack == "updates") {
    updates(honest, time);
  } else if (attack == "half-open" && arguments.size() >= 5) {
    half_open(honest,
              {.addresses = std::atoi(arguments[3].c_str()),
               .per_second = std::atoi(arguments[4].c_str()),
               .words = arguments.size() == 6 ? first_words() : std::string()},
              time);
  } else if (attack == "pongs" && arguments.size() == 4) {
    pongs(honest, time, arguments[3] + "/identity");
  } else if (attack == "peer-pongs" && arguments.size() == 6) {
    peer_pongs(arguments[3] + "/identity",
               static_cast<std::uint16_t>(std::atoi(arguments[4].c_str())),
               std::atof(arguments[5].c_str()), time);
  } else {
    fail("knows no attack " + attack);
  }
  return 0;
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) { return starling::run({argv + 1, argv + argc}); }
