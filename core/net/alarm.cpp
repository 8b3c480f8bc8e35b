// SPDX-License-Identifier: Apache-2.0
#include "core/net/alarm.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace starling::net {

namespace asio = boost::asio;

struct Alarm::Impl {
  Impl(asio::io_context& context, std::function<void()> callback)
      : timer(context), on_time(std::move(callback)) {}

  asio::steady_timer timer;
  std::function<void()> on_time;
  std::uint64_t setting = 0;  // a timer's handler may already be under way when it is set anew
};

Alarm::Alarm(EventLoop& loop, std::function<void()> on_time)
    : impl_(std::make_shared<Impl>(loop.context(), std::move(on_time))) {}

Alarm::~Alarm() { clear(); }

void Alarm::set(TimePoint when) {
  const std::uint64_t setting = ++impl_->setting;
  impl_->timer.expires_at(when);
  impl_->timer.async_wait([impl = impl_, setting](boost::system::error_code) {
    if (impl->setting == setting) impl->on_time();
  });
}

void Alarm::clear() {
  ++impl_->setting;
  impl_->timer.cancel();
}

Async<bool> sleep_until(EventLoop& loop, TimePoint when) {
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return false;
  asio::steady_timer timer(loop.context(), when);
  auto [error] = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  co_return !error;
}

}  // namespace starling::net
