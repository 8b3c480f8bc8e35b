// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/proxy_network.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace starling::gossip {

namespace asio = boost::asio;

ProxyNetwork::ProxyNetwork(std::vector<Endpoint> nodes)
    : nodes_(std::move(nodes)), stopping_(loop_.context(), TimePoint::max()) {}

Result<std::unique_ptr<ProxyNetwork>> ProxyNetwork::open(std::vector<Endpoint> nodes,
                                                         std::uint64_t seed) {
  std::unique_ptr<ProxyNetwork> network(new ProxyNetwork(std::move(nodes)));
  for (const Endpoint& node : network->nodes_) {
    TcpProxy::Options options;
    options.listen = {.host = node.address, .port = 0};
    options.target = {.host = node.address, .port = node.port};
    options.seed = seed;
    STARLING_ASSIGN(auto proxy, TcpProxy::open(network->loop_, options));
    network->ports_.push_back(proxy->port());
    network->proxies_.push_back(std::move(proxy));
  }
  network->thread_ = std::thread([loop = &network->loop_, serving = network->serve()]() mutable {
    loop->run_task(std::move(serving));
  });
  return network;
}

ProxyNetwork::~ProxyNetwork() {
  if (!thread_.joinable()) {
    loop_.run_task(close());
    return;
  }
  loop_.post([this] {
    stopped_ = true;
    stopping_.cancel();
  });
  thread_.join();
}

net::Async<void> ProxyNetwork::serve() {
  while (!stopped_) {
    auto [error] = co_await stopping_.async_wait(asio::as_tuple(asio::use_awaitable));
    static_cast<void>(error);
  }
  co_await close();
}

net::Async<void> ProxyNetwork::close() {
  for (const auto& proxy : proxies_) co_await proxy->close();
}

void ProxyNetwork::set(std::size_t from, std::size_t to, const LinkCondition& condition) {
  loop_.post([this, from, to, condition] {
    proxies_[to]->set(nodes_[from].address, TcpProxy::Direction::kToTarget, condition);
    proxies_[from]->set(nodes_[to].address, TcpProxy::Direction::kFromTarget, condition);
  });
}

void ProxyNetwork::reset(std::size_t a, std::size_t b) {
  loop_.post([this, a, b] {
    proxies_[a]->reset(nodes_[b].address);
    proxies_[b]->reset(nodes_[a].address);
  });
}

}  // namespace starling::gossip
