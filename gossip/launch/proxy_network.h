// SPDX-License-Identifier: Apache-2.0
// The proxies in front of all nodes, on a thread of their own: what else the launcher does must not
// show in the links.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gossip/launch/tcp_proxy.h"

namespace starling::gossip {

class ProxyNetwork {
 public:
  struct Endpoint {
    std::string address;     // of the node, numeric: where it listens and dials from
    std::uint16_t port = 0;  // where it listens
  };

  // A proxy for each node, at the node's own address; "cannot-listen".
  [[nodiscard]] static Result<std::unique_ptr<ProxyNetwork>> open(std::vector<Endpoint> nodes,
                                                                  std::uint64_t seed);
  ~ProxyNetwork();
  ProxyNetwork(const ProxyNetwork&) = delete;
  ProxyNetwork& operator=(const ProxyNetwork&) = delete;

  // Where others reach the node through its proxy.
  std::uint16_t port(std::size_t node) const { return ports_[node]; }
  // For all bytes from one node to another, whoever of them dialled.
  void set(std::size_t from, std::size_t to, const LinkCondition& condition);
  // Breaks the connections between the two, whoever dialled.
  void reset(std::size_t a, std::size_t b);

 private:
  explicit ProxyNetwork(std::vector<Endpoint> nodes);
  net::Async<void> serve();
  net::Async<void> close();

  std::vector<Endpoint> nodes_;
  std::vector<std::uint16_t> ports_;
  net::EventLoop loop_;
  // The thread's, once it runs.
  std::vector<std::unique_ptr<TcpProxy>> proxies_;
  boost::asio::steady_timer stopping_;  // never expires
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace starling::gossip
