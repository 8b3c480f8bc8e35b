// SPDX-License-Identifier: Apache-2.0
// Two nodes behind their proxies: a condition is of the direction between them, whoever dialled.
#include "gossip/launch/proxy_network.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

namespace starling::gossip {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

class ProxyNetworkTest : public ::testing::Test {
 protected:
  ProxyNetworkTest() {
    std::vector<ProxyNetwork::Endpoint> nodes;
    for (const auto& listener : listeners_) {
      const auto endpoint = listener.local_endpoint();
      nodes.push_back({endpoint.address().to_string(), endpoint.port()});
    }
    auto opened = ProxyNetwork::open(nodes, 1);
    network_ = std::move(*opened);
  }

  tcp::acceptor listen(const char* address) {
    return tcp::acceptor(context_, tcp::endpoint(asio::ip::make_address_v4(address), 0));
  }
  asio::ip::address address(std::size_t node) {
    return listeners_[node].local_endpoint().address();
  }

  // Both ends of a connection that `from` dialled: [0] is from's.
  std::array<tcp::socket, 2> connect(std::size_t from, std::size_t to) {
    tcp::socket near(context_);
    near.open(tcp::v4());
    near.bind(tcp::endpoint(address(from), 0));
    near.connect(tcp::endpoint(address(to), network_->port(to)));
    tcp::socket far = listeners_[to].accept();
    return {std::move(near), std::move(far)};
  }

  static bool readable(tcp::socket& socket, int wait_ms) {
    pollfd waiting{.fd = socket.native_handle(), .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, wait_ms) == 1;
  }
  static bool passes(tcp::socket& from, tcp::socket& to, int wait_ms) {
    asio::write(from, asio::buffer("x", 1));
    if (!readable(to, wait_ms)) return false;
    char byte = 0;
    boost::system::error_code error;
    return to.read_some(asio::buffer(&byte, 1), error) == 1 && byte == 'x';
  }

  asio::io_context context_;
  std::array<tcp::acceptor, 2> listeners_{listen("127.0.5.1"), listen("127.0.5.2")};
  std::unique_ptr<ProxyNetwork> network_;
};

TEST_F(ProxyNetworkTest, AOneWayCutIsOfTheDirectionWhoeverDialled) {
  auto forth = connect(0, 1);
  auto back = connect(1, 0);
  EXPECT_TRUE(passes(forth[0], forth[1], 10'000));
  EXPECT_TRUE(passes(back[0], back[1], 10'000));
  network_->set(0, 1, {.held = true});
  EXPECT_FALSE(passes(forth[0], forth[1], 100));
  EXPECT_FALSE(passes(back[1], back[0], 100));
  EXPECT_TRUE(passes(forth[1], forth[0], 10'000));
  EXPECT_TRUE(passes(back[0], back[1], 10'000));
  network_->set(0, 1, {});
  EXPECT_TRUE(readable(forth[1], 10'000));
  EXPECT_TRUE(readable(back[0], 10'000));
}

TEST_F(ProxyNetworkTest, AResetIsOfBothConnections) {
  auto forth = connect(0, 1);
  auto back = connect(1, 0);
  network_->reset(0, 1);
  for (tcp::socket* socket : {&forth[0], &forth[1], &back[0], &back[1]}) {
    ASSERT_TRUE(readable(*socket, 10'000));
    char byte = 0;
    boost::system::error_code error;
    socket->read_some(asio::buffer(&byte, 1), error);
    EXPECT_EQ(error, asio::error::connection_reset);
  }
}

}  // namespace
}  // namespace starling::gossip
