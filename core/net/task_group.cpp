// SPDX-License-Identifier: Apache-2.0
#include "core/net/task_group.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <list>

#include "core/base/check.h"

namespace starling::net {

namespace asio = boost::asio;

struct TaskGroup::Impl {
  explicit Impl(asio::io_context& io) : context(io), changed(io, TimePoint::max()) {}

  asio::io_context& context;
  asio::steady_timer changed;  // never expires; cancelled whenever a task ends
  std::list<asio::cancellation_signal> tasks;
  bool refusing = false;
};

namespace {

// Begins in a later turn, and sees a cancellation as an error of what it awaits, not as an
// exception.
Async<void> run(asio::io_context& context, Async<void> task) {
  co_await asio::this_coro::throw_if_cancelled(false);
  co_await asio::post(context, asio::use_awaitable);
  co_await std::move(task);
}

void check_no_exception(const std::exception_ptr& exception) {
  if (!exception) return;
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& thrown) {
    check_failed(thrown.what(), __FILE__, __LINE__);
  } catch (...) {
    check_failed("a task threw", __FILE__, __LINE__);
  }
}

}  // namespace

TaskGroup::TaskGroup(EventLoop& loop) : impl_(std::make_shared<Impl>(loop.context())) {}

TaskGroup::~TaskGroup() { STARLING_CHECK(impl_->tasks.empty()); }

void TaskGroup::spawn(Async<void> task) {
  if (impl_->refusing) return;
  const auto signal = impl_->tasks.emplace(impl_->tasks.end());
  const auto on_end = [impl = impl_, signal](const std::exception_ptr& exception) {
    check_no_exception(exception);
    impl->tasks.erase(signal);
    impl->changed.cancel();
  };
  asio::co_spawn(impl_->context, run(impl_->context, std::move(task)),
                 asio::bind_cancellation_slot(signal->slot(), on_end));
}

void TaskGroup::refuse() { impl_->refusing = true; }

// In a turn of the loop, where a task hears of it at once: from elsewhere it would hear of it
// later, when it may have ended, and its signal with it.
void TaskGroup::cancel() {
  asio::dispatch(impl_->context, [impl = impl_] {
    for (asio::cancellation_signal& signal : impl->tasks) {
      signal.emit(asio::cancellation_type::terminal);
    }
  });
}

Async<void> TaskGroup::wait() {
  const std::shared_ptr<Impl> impl = impl_;
  while (!impl->tasks.empty()) {
    auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
    auto [error] = co_await impl->changed.async_wait(asio::as_tuple(asio::use_awaitable));
    static_cast<void>(error);
  }
}

Async<void> TaskGroup::stop() {
  refuse();
  cancel();
  co_await wait();
}

std::size_t TaskGroup::size() const { return impl_->tasks.size(); }

}  // namespace starling::net
