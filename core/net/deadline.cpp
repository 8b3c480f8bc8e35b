// SPDX-License-Identifier: Apache-2.0
#include "core/net/deadline.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace starling::net {

namespace asio = boost::asio;

namespace {

// The operator starts a coroutine thread of its own, in which a cancelled wait would throw.
Async<void> without_exceptions(Async<void> task) {
  co_await asio::this_coro::throw_if_cancelled(false);
  co_await std::move(task);
}

}  // namespace

Async<bool> run_until(EventLoop& loop, TimePoint deadline, Async<void> task) {
  asio::steady_timer timer(loop.context(), deadline);
  using namespace asio::experimental::awaitable_operators;  // for the operator below
  auto work = without_exceptions(std::move(task));
  auto expiry = timer.async_wait(asio::as_tuple(asio::use_awaitable));
  auto first = co_await (std::move(work) || std::move(expiry));
  if (first.index() == 0) co_return true;
  // An aborted timer is no deadline: somebody cancelled us and the work together.
  auto [error] = std::get<1>(first);
  co_return error ? true : false;
}

}  // namespace starling::net
