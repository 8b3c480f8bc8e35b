// SPDX-License-Identifier: Apache-2.0
// How fast frames travel over loopback, beside plain TCP and blocking OpenSSL in the same run.
//   net_throughput [MEGABYTES [REPEATS]]      then handshakes and the memory of idle connections
// One thread sends, one receives; "send" and "receive" are the processor seconds of each per GB.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/base/check.h"
#include "tests/net/loopback.h"
#include "tests/net/raw_client.h"
#include "tests/net/raw_transfer.h"

namespace starling::net {
namespace {

using testing::Figures;
using testing::measure;
using testing::RawListener;
using testing::RawSocket;
using testing::seconds;

constexpr std::size_t kChunkBytes = 64 * 1024;
constexpr std::size_t kHeaderBytes = 128;

Figures plain_tcp(std::size_t bytes) {
  const RawListener listener;
  return measure(
      [&] {
        RawSocket socket(listener.port());
        const std::vector<char> chunk(kChunkBytes);
        for (std::size_t sent = 0; sent < bytes;) {
          const ssize_t count = ::send(socket.fd(), chunk.data(), chunk.size(), MSG_NOSIGNAL);
          STARLING_CHECK(count > 0);
          sent += static_cast<std::size_t>(count);
        }
      },
      [&] {
        RawSocket socket = listener.accept();
        std::vector<char> chunk(kChunkBytes);
        while (::recv(socket.fd(), chunk.data(), chunk.size(), 0) > 0) {
        }
      });
}

// Sends its next chunk whenever the queue has run low.
class BulkSender {
 public:
  BulkSender(Connection& connection, std::size_t frames)
      : connection_(connection),
        frames_(frames),
        chunk_(std::make_shared<const Bytes>(kChunkBytes)) {
    connection_.set_drain_handler([this] { fill(); });
    fill();
  }

 private:
  void fill() {
    while (frames_ > 0 && connection_.queued_bytes() < 2 * kChunkBytes) {
      --frames_;
      STARLING_CHECK(connection_.send(
          {.type = 1, .header = Bytes(kHeaderBytes), .payload = {chunk_, *chunk_}}));
    }
  }

  Connection& connection_;
  std::size_t frames_;
  std::shared_ptr<const Bytes> chunk_;
};

Async<void> send_all(testing::Loopback& net, EventLoop& loop, std::uint16_t port,
                     std::size_t frames) {
  const ConnectOptions options;
  const auto tls = testing::client_tls(net.device());
  auto connection = co_await connect(loop, "127.0.0.1", port, tls, options);
  BulkSender sender(**connection, frames);
  const testing::OpenLimits limits;
  auto answer = co_await (*connection)->read_frame(limits);
  STARLING_CHECK(answer);
  co_await (*connection)->close(loop.now() + std::chrono::seconds(5));
}

Async<void> receive_all(testing::Loopback& net, std::size_t frames) {
  auto connection = co_await net.connections.next();
  const testing::OpenLimits limits;
  for (std::size_t i = 0; i < frames; ++i) {
    auto frame = co_await connection->read_frame(limits);
    STARLING_CHECK(frame && frame->payload.size() == kChunkBytes);
  }
  STARLING_CHECK(connection->send({.type = 2}));
  co_await connection->close(net.loop.now() + std::chrono::seconds(5));
}

Figures starling_frames(testing::Loopback& net, std::size_t bytes) {
  const std::size_t frames = bytes / kChunkBytes;
  net.listen();
  const std::uint16_t port = net.listener->port();
  const Figures figures = measure(
      [&] {
        EventLoop loop;
        loop.run_task(send_all(net, loop, port, frames));
      },
      [&] { net.loop.run_task(receive_all(net, frames)); });
  net.loop.run_task(net.listener->close());
  net.listener = nullptr;
  return figures;
}

template <class Run>
void report(const char* name, std::size_t bytes, int repeats, Run run) {
  std::vector<Figures> all;
  for (int i = 0; i < repeats; ++i) all.push_back(run());
  std::ranges::sort(all, {}, &Figures::wall);
  const Figures& median = all[all.size() / 2];
  const double gigabytes = 1e-9 * static_cast<double>(bytes);
  std::printf("%-16s %7.0f MB/s   send %.3f s/GB   receive %.3f s/GB\n", name,
              1000 * gigabytes / median.wall, median.send / gigabytes, median.receive / gigabytes);
}

// Of this process, in KB.
double resident_kilobytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long total = 0;
  long resident = 0;
  STARLING_CHECK(file != nullptr && std::fscanf(file, "%ld %ld", &total, &resident) == 2);
  std::fclose(file);
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / 1000;
}

Async<void> wait_for_frame(Connection& connection, const FrameLimits& limits) {
  auto frame = co_await connection.read_frame(limits);
  static_cast<void>(frame);
}

// Both ends in one process and one thread, each waiting for a frame.
void idle_connections(testing::Loopback& net, int count) {
  net.listen();
  const testing::OpenLimits limits;
  TaskGroup readers(net.loop);
  std::vector<testing::Loopback::Pair> pairs;
  const auto tls = testing::client_tls(net.device());
  pairs.push_back(net.connect_pair(tls));  // what is needed once is not counted
  const double before = resident_kilobytes();
  const double start = seconds(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < count; ++i) pairs.push_back(net.connect_pair(tls));
  const double each = (seconds(CLOCK_THREAD_CPUTIME_ID) - start) / count;
  for (auto& [client, server] : pairs) {
    readers.spawn(wait_for_frame(*client, limits));
    readers.spawn(wait_for_frame(*server, limits));
  }
  net.loop.run_task(net.turns(10));
  const double kilobytes = (resident_kilobytes() - before) / (2.0 * count);
  std::printf("%-16s %7.0f /s     (both ends)\n", "handshakes", 1 / each);
  std::printf("%-16s %7.1f KB     each end, %d connections\n", "idle memory", kilobytes, count);
  net.loop.run_task(readers.stop());
  pairs.clear();
  net.loop.run_task(net.listener->close());
  net.listener = nullptr;
}

int run(std::size_t bytes, int repeats) {
  testing::Loopback net;
  report("plain TCP", bytes, repeats, [&] { return plain_tcp(bytes); });
  report("raw OpenSSL", bytes, repeats,
         [&] { return testing::bare_tls(net.device(), net.coordinator, bytes); });
  report("Starling frames", bytes, repeats, [&] { return starling_frames(net, bytes); });
  idle_connections(net, 1000);
  return 0;
}

}  // namespace

int throughput(std::size_t bytes, int repeats) { return run(bytes, repeats); }

}  // namespace starling::net

int main(int argc, char** argv) {
  const std::size_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1024;
  return starling::net::throughput(megabytes << 20, argc > 2 ? std::atoi(argv[2]) : 5);
}
