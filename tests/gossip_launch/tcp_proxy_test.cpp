// SPDX-License-Identifier: Apache-2.0
// The proxy between real sockets on loopback: bytes are exact and in order whatever the link
// suffers. Times are only compared with what must have passed at least.
#include "gossip/launch/tcp_proxy.h"

#include <gtest/gtest.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <numeric>

#include "core/net/alarm.h"
#include "core/net/deadline.h"
#include "core/net/task_group.h"
#include "tests/support/machine_stopwatch.h"

namespace starling::gossip {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using net::Async;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Direction = TcpProxy::Direction;

const std::string kDialler = "127.0.3.1";
const std::string kOther = "127.0.3.2";

std::vector<char> numbered(std::size_t count) {
  std::vector<char> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  return bytes;
}

class TcpProxyTest : public ::testing::Test {
 protected:
  TcpProxyTest()
      : acceptor_(loop_.context(), tcp::endpoint(asio::ip::make_address_v4("127.0.4.1"), 0)) {
    TcpProxy::Options options{
        .listen = {.host = "127.0.4.1"},
        .target = {.host = "127.0.4.1", .port = acceptor_.local_endpoint().port()},
        .buffer_bytes_max = 256 * 1024};
    proxy_ = *TcpProxy::open(loop_, options);
  }
  ~TcpProxyTest() override { loop_.run_task(proxy_->close()); }

  struct Pair {
    tcp::socket near;
    tcp::socket far;
  };

  static Async<void> dial(tcp::socket& socket, tcp::endpoint to) {
    auto [error] = co_await socket.async_connect(to, asio::as_tuple(asio::use_awaitable));
    EXPECT_FALSE(error) << error.message();
  }
  static Async<void> take(tcp::acceptor& acceptor, tcp::socket& socket) {
    auto [error] = co_await acceptor.async_accept(socket, asio::as_tuple(asio::use_awaitable));
    EXPECT_FALSE(error) << error.message();
  }

  Pair connect(const std::string& from = kDialler) {
    Pair pair{tcp::socket(loop_.context()), tcp::socket(loop_.context())};
    pair.near.open(tcp::v4());
    pair.near.bind(tcp::endpoint(asio::ip::make_address_v4(from), 0));
    net::TaskGroup both(loop_);
    both.spawn(dial(pair.near, {asio::ip::make_address_v4("127.0.4.1"), proxy_->port()}));
    both.spawn(take(acceptor_, pair.far));
    loop_.run_task(both.wait());
    return pair;
  }

  static Async<void> send(tcp::socket& socket, const std::vector<char>& bytes,
                          std::size_t& written) {
    const auto buffer = asio::buffer(bytes);
    auto [error, count] =
        co_await asio::async_write(socket, buffer, asio::as_tuple(asio::use_awaitable));
    static_cast<void>(error);
    written = count;
  }
  static Async<void> receive(tcp::socket& socket, std::vector<char>& bytes, std::size_t& read) {
    const auto buffer = asio::buffer(bytes);
    auto [error, count] =
        co_await asio::async_read(socket, buffer, asio::as_tuple(asio::use_awaitable));
    static_cast<void>(error);
    read = count;
  }

  // What arrives of `bytes` within `limit`.
  std::vector<char> pass(tcp::socket& from, tcp::socket& to, const std::vector<char>& bytes,
                         Duration limit = seconds(30)) {
    std::vector<char> arrived(bytes.size());
    std::size_t written = 0;
    std::size_t read = 0;
    net::TaskGroup sending(loop_);
    sending.spawn(send(from, bytes, written));
    auto reading = receive(to, arrived, read);
    loop_.run_task(until(limit, std::move(reading)));
    loop_.run_task(sending.stop());
    arrived.resize(read);
    return arrived;
  }
  Async<void> until(Duration limit, Async<void> work) {
    auto in_time = co_await net::run_until(loop_, loop_.now() + limit, std::move(work));
    static_cast<void>(in_time);
  }

  boost::system::error_code error_of_read(tcp::socket& socket) {
    boost::system::error_code error;
    loop_.run_task(read_error(socket, error));
    return error;
  }
  static Async<void> read_error(tcp::socket& socket, boost::system::error_code& error) {
    char byte = 0;
    const auto buffer = asio::buffer(&byte, 1);
    auto [failed, count] =
        co_await socket.async_read_some(buffer, asio::as_tuple(asio::use_awaitable));
    static_cast<void>(count);
    error = failed;
  }

  net::EventLoop loop_;
  tcp::acceptor acceptor_;
  std::unique_ptr<TcpProxy> proxy_;
};

TEST_F(TcpProxyTest, PassesBytesBothWays) {
  Pair pair = connect();
  const auto bytes = numbered(3'000'001);
  EXPECT_EQ(pass(pair.near, pair.far, bytes), bytes);
  EXPECT_EQ(pass(pair.far, pair.near, bytes), bytes);
  EXPECT_EQ(proxy_->connections(), 1U);
}

TEST_F(TcpProxyTest, TheTargetSeesTheDiallersAddress) {
  const Pair pair = connect(kOther);
  EXPECT_EQ(pair.far.remote_endpoint().address().to_string(), kOther);
}

TEST_F(TcpProxyTest, AnEndIsPassedOnAfterTheBytesBeforeIt) {
  Pair pair = connect();
  proxy_->set(kDialler, Direction::kToTarget, {.delay = milliseconds(50)});
  const auto bytes = numbered(1000);
  asio::write(pair.near, asio::buffer(bytes));
  pair.near.shutdown(tcp::socket::shutdown_send);
  std::vector<char> arrived(bytes.size() + 1);
  std::size_t read = 0;
  loop_.run_task(receive(pair.far, arrived, read));
  EXPECT_EQ(read, bytes.size());
  // The other direction is still open.
  EXPECT_EQ(pass(pair.far, pair.near, bytes), bytes);
}

TEST_F(TcpProxyTest, ADelayIsAtLeastWaitedAndOneWay) {
  Pair pair = connect();
  proxy_->set(kDialler, Direction::kToTarget,
              {.delay = milliseconds(400), .jitter = milliseconds(30)});
  const auto bytes = numbered(200'000);
  const TimePoint began = loop_.now();
  EXPECT_EQ(pass(pair.near, pair.far, bytes), bytes);
  EXPECT_GE(loop_.now() - began, milliseconds(400));
  const testing::MachineStopwatch back;
  EXPECT_EQ(pass(pair.far, pair.near, bytes), bytes);
  EXPECT_LT(back.seconds(), 0.4);
}

TEST_F(TcpProxyTest, ALimitedLinkIsNoFaster) {
  Pair pair = connect();
  proxy_->set(kDialler, Direction::kToTarget, {.bytes_per_second = 1e6});
  const auto bytes = numbered(300'000);
  const TimePoint began = loop_.now();
  EXPECT_EQ(pass(pair.near, pair.far, bytes), bytes);
  // The first slice goes at once, and one may be made up for.
  EXPECT_GE(to_seconds(loop_.now() - began), 0.25);
}

TEST_F(TcpProxyTest, HeldBytesComeWhenTheLinkIsLetGo) {
  Pair pair = connect();
  proxy_->set(kDialler, Direction::kToTarget, {.held = true});
  const auto bytes = numbered(10'000);
  EXPECT_EQ(pass(pair.near, pair.far, bytes, milliseconds(100)).size(), 0U);
  EXPECT_EQ(pass(pair.far, pair.near, bytes), bytes) << "the other way is not held";
  proxy_->set(kDialler, Direction::kToTarget, {});
  std::vector<char> arrived(bytes.size());
  std::size_t read = 0;
  loop_.run_task(receive(pair.far, arrived, read));
  EXPECT_EQ(arrived, bytes);
}

TEST_F(TcpProxyTest, OnlyTheNamedDiallerSuffers) {
  proxy_->set(kDialler, Direction::kToTarget, {.held = true});
  Pair pair = connect(kOther);
  const auto bytes = numbered(1000);
  EXPECT_EQ(pass(pair.near, pair.far, bytes), bytes);
}

// What the proxy takes of a link that does not move is bounded; the rest stays with the sender.
TEST_F(TcpProxyTest, AHeldLinkPushesBack) {
  Pair pair = connect();
  boost::system::error_code ignored;
  pair.near.set_option(asio::socket_base::send_buffer_size(64 * 1024), ignored);
  proxy_->set(kDialler, Direction::kToTarget, {.held = true});
  const auto bytes = numbered(64'000'000);
  std::size_t written = bytes.size();
  net::TaskGroup sending(loop_);
  sending.spawn(send(pair.near, bytes, written));
  auto sleeping = net::sleep_until(loop_, loop_.now() + milliseconds(200));
  static_cast<void>(net::run_task(loop_, std::move(sleeping)));
  loop_.run_task(sending.stop());
  EXPECT_LT(written, 32'000'000U);
}

TEST_F(TcpProxyTest, AResetIsSeenAtBothEnds) {
  Pair pair = connect();
  Pair other = connect(kOther);
  proxy_->reset(kDialler);
  EXPECT_EQ(error_of_read(pair.near), asio::error::connection_reset);
  EXPECT_EQ(error_of_read(pair.far), asio::error::connection_reset);
  const auto bytes = numbered(1000);
  EXPECT_EQ(pass(other.near, other.far, bytes), bytes);
  EXPECT_EQ(proxy_->connections(), 1U);
  Pair again = connect();
  EXPECT_EQ(pass(again.near, again.far, bytes), bytes);
}

TEST_F(TcpProxyTest, ATargetThatIsGoneResetsTheDialler) {
  acceptor_.close();
  tcp::socket socket(loop_.context());
  loop_.run_task(dial(socket, {asio::ip::make_address_v4("127.0.4.1"), proxy_->port()}));
  EXPECT_EQ(error_of_read(socket), asio::error::connection_reset);
}

TEST_F(TcpProxyTest, APlaceThatIsTakenIsRefused) {
  const auto second =
      TcpProxy::open(loop_, {.listen = {.host = "127.0.4.1", .port = proxy_->port()},
                             .target = {.host = "127.0.4.1", .port = 9}});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), "cannot-listen");
}

}  // namespace
}  // namespace starling::gossip
