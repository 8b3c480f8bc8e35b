// SPDX-License-Identifier: Apache-2.0
// How fast two peers exchange models over mutual TLS on loopback, beside bare TLS in the same run.
//   exchange_throughput [MEGABYTES [REPEATS]]      each way, at most 256
// Run by hand: figures of this machine, not a test. A thread for each peer; medians.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/base/check.h"
#include "core/net/alarm.h"
#include "gossip/peer/peer_links.h"
#include "tests/gossip_peer/peer_places.h"
#include "tests/net/raw_transfer.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using protocol::VectorTransfer;
using testing::Figures;

constexpr std::size_t kModelBytes = 4 << 20;
constexpr protocol::Epoch kEpoch = 1;

// What a peer does: sends so many models, waits for so many.
struct Part {
  std::size_t sends = 0;
  std::size_t takes = 0;
  bool in_step = false;  // the next one when the other's has come, as a synchronous exchange does
};

class Peer {
 public:
  Peer(const testing::PeerPlaces& places, Member self, Part part)
      : identity_(*identity::IdentityDirectory::load(places.peers[self].identity)),
        part_(part),
        other_(1 - self),
        model_(SharedBytes::own(Bytes(kModelBytes))),
        links_({loop_, clock_, log_, identity_}, options(places.peers[self]), handlers(), {},
               Rng({.seed = self + 1U, .purpose = Purpose::kBackoff})),
        alive_(loop_) {
    auto roster =
        identity::SignedRoster::load(places.roster, identity_.credentials().authorities, "kitchen");
    links_.set_roster(std::make_shared<const identity::SignedRoster>(std::move(*roster)));
    STARLING_CHECK(links_.listen());
  }

  void run() {
    links_.keep({other_});
    loop_.run_task(run_until_done());
  }
  void close() { loop_.run_task(links_.stop()); }

 private:
  static PeerLinks::Options options(const testing::PeerPlace& place) {
    PeerLinks::Options options;
    options.listen = identity::HostPort{place.address, place.port};
    options.bind = place.address;
    return options;
  }

  PeerLinks::Handlers handlers() {
    return {.hello = [] { return protocol::PeerHello{.epoch = kEpoch}; },
            .on_up = [this](Member, const protocol::PeerHello&) { begin(); },
            .on_down = [this](Member, const Error&) { alive_.cancel(); },
            .on_message = [this](Member, const protocol::Envelope&) { other_is_done(); },
            .check = [](Member, const VectorTransfer&) -> Result<void> { return {}; },
            .on_transfer = [this](Member, const TransferFlow::Whole&) { take(); }};
  }

  void begin() {
    if (part_.in_step) return send();
    while (sent_ < part_.sends) send();
    end_if_done();
  }

  void send() {
    constexpr std::uint64_t kFloats = kModelBytes / sizeof(float);
    const std::uint64_t number = sent_++;
    VectorTransfer transfer{.epoch = kEpoch};
    if (part_.in_step) {
      transfer.content = protocol::MixMessage{.exchange = number, .first = kFloats};
    } else {
      transfer.content = protocol::PairMessage{.number = number, .floats = kFloats};
    }
    links_.send_transfer(other_, transfer, model_, TransferFlow::Urgency::kNow);
  }

  void take() {
    ++taken_;
    if (part_.in_step && sent_ < part_.sends) send();
    if (taken_ == part_.takes)
      links_.send(other_, protocol::ReduceNote{.what = protocol::reduce::Done{}});
    end_if_done();
  }

  void other_is_done() {
    other_done_ = true;
    end_if_done();
  }

  void end_if_done() {
    const bool took_all = taken_ == part_.takes;
    const bool gave_all = other_done_ || part_.sends == 0;
    if (took_all && gave_all) alive_.cancel();
  }

  net::Async<void> sleep_until_done() {
    const TimePoint deadline = loop_.now() + std::chrono::minutes(10);
    co_await net::sleep_until(loop_, deadline);
  }

  net::Async<void> run_until_done() {
    alive_.spawn(sleep_until_done());
    co_await alive_.wait();
    STARLING_CHECK(taken_ == part_.takes && sent_ == part_.sends);
  }

  net::EventLoop loop_;
  SystemClock clock_;
  NullLog log_;
  identity::IdentityDirectory identity_;
  Part part_;
  Member other_;
  SharedBytes model_;
  std::size_t sent_ = 0;
  std::size_t taken_ = 0;
  bool other_done_ = false;
  PeerLinks links_;
  net::TaskGroup alive_;
};

Figures exchange(const testing::PeerPlaces& places, Part first, Part second) {
  Peer a(places, 0, first);
  Peer b(places, 1, second);
  const Figures figures = testing::measure([&] { a.run(); }, [&] { b.run(); });
  std::thread closing([&] { a.close(); });
  b.close();
  closing.join();
  return figures;
}

// Two transfers at once, one each way.
Figures bare_both_ways(const identity::Credentials& a, const identity::Credentials& b,
                       std::size_t bytes) {
  Figures there;
  Figures back;
  const double start = testing::seconds(CLOCK_MONOTONIC);
  std::thread other([&] { back = testing::bare_tls(b, a, bytes); });
  there = testing::bare_tls(a, b, bytes);
  other.join();
  return {.wall = testing::seconds(CLOCK_MONOTONIC) - start,
          .send = there.send + back.receive,
          .receive = there.receive + back.send};
}

Figures median(std::vector<Figures> all) {
  std::ranges::sort(all, {}, &Figures::wall);
  return all[all.size() / 2];
}

struct Speed {
  double megabytes = 0;  // a second
  double processor = 0;  // seconds a GB, of both ends
};

Speed report(const char* name, std::size_t bytes, const std::vector<Figures>& all) {
  const Figures figures = median(all);
  const double gigabytes = 1e-9 * static_cast<double>(bytes);
  const Speed speed{1000 * gigabytes / figures.wall, (figures.send + figures.receive) / gigabytes};
  std::printf("%-28s %7.0f MB/s   processor %.3f s/GB\n", name, speed.megabytes, speed.processor);
  return speed;
}

// The second ratio is what the first would be if the processor were all that counts: other work on
// the machine hardly moves it.
void compare(const char* name, const Speed& ours, const Speed& bare) {
  std::printf("%-28s %7.2f of bare TLS; by processor time %.2f\n", name,
              ours.megabytes / bare.megabytes, bare.processor / ours.processor);
}

int run(std::size_t bytes, int repeats) {
  const testing::TemporaryDirectory directory;
  const testing::PeerPlaces places = testing::make_peer_places(directory.path(), 2);
  const auto a = identity::IdentityDirectory::load(places.peers[0].identity)->credentials();
  const auto b = identity::IdentityDirectory::load(places.peers[1].identity)->credentials();
  const std::size_t models = bytes / kModelBytes;
  const Part gives{.sends = models};
  const Part takes{.takes = models};
  const Part both{.sends = models, .takes = models, .in_step = true};
  std::vector<Figures> figures[4];
  for (int i = 0; i < repeats; ++i) {
    figures[0].push_back(testing::bare_tls(a, b, bytes));
    figures[1].push_back(exchange(places, gives, takes));
    figures[2].push_back(bare_both_ways(a, b, bytes));
    figures[3].push_back(exchange(places, both, both));
  }
  const Speed bare = report("bare TLS, one way", bytes, figures[0]);
  const Speed pushed = report("models, one way", bytes, figures[1]);
  const Speed bare_both = report("bare TLS, both ways", 2 * bytes, figures[2]);
  const Speed exchanged = report("models, exchanged in step", 2 * bytes, figures[3]);
  compare("one way", pushed, bare);
  compare("both ways", exchanged, bare_both);
  return 0;
}

}  // namespace

int exchange_throughput(std::size_t bytes, int repeats) { return run(bytes, repeats); }

}  // namespace starling::gossip

int main(int argc, char** argv) {
  const std::size_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 256;
  STARLING_CHECK(megabytes >= 4 && megabytes <= 256);
  return starling::gossip::exchange_throughput(megabytes / 4 * 4 << 20,
                                               argc > 2 ? std::atoi(argv[2]) : 5);
}
