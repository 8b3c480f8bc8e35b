// SPDX-License-Identifier: Apache-2.0
#include "core/net/resolve.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>

namespace starling::net {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// Shared with the resolver's handler, which may run after the one who asked has gone.
struct LookUp {
  explicit LookUp(asio::io_context& context)
      : resolver(context), answered(context, TimePoint::max()) {}

  tcp::resolver resolver;
  asio::steady_timer answered;  // cancelled by the answer
  bool has_answer = false;
  boost::system::error_code error;
  std::vector<tcp::endpoint> endpoints;
};

void start(const std::shared_ptr<LookUp>& look_up, const std::string& host, std::uint16_t port) {
  look_up->resolver.async_resolve(
      host, std::to_string(port), tcp::resolver::numeric_service,
      [look_up](boost::system::error_code error, const tcp::resolver::results_type& results) {
        look_up->has_answer = true;
        look_up->error = error;
        for (const auto& result : results) look_up->endpoints.push_back(result.endpoint());
        look_up->answered.cancel();
      });
}

}  // namespace

Async<Result<std::vector<tcp::endpoint>>> resolve(EventLoop& loop, std::string host,
                                                  std::uint16_t port) {
  boost::system::error_code not_numeric;
  const asio::ip::address address = asio::ip::make_address(host, not_numeric);
  if (!not_numeric) {
    std::vector<tcp::endpoint> only(1, tcp::endpoint(address, port));
    co_return only;
  }
  const auto look_up = std::make_shared<LookUp>(loop.context());
  start(look_up, host, port);
  auto [cancelled] = co_await look_up->answered.async_wait(asio::as_tuple(asio::use_awaitable));
  static_cast<void>(cancelled);
  if (!look_up->has_answer) {
    co_return retry("cancelled", "the look-up of " + host + " was given up");
  }
  if (look_up->error || look_up->endpoints.empty()) {
    co_return not_connected("cannot-resolve", "the name " + host + " cannot be resolved (" +
                                                  look_up->error.message() +
                                                  "); check it and the network");
  }
  co_return std::move(look_up->endpoints);
}

}  // namespace starling::net
