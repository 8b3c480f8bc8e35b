// SPDX-License-Identifier: Apache-2.0
#include "core/net/event_loop.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "core/net/alarm.h"
#include "core/net/buffer_pool.h"
#include "core/net/task_group.h"

namespace starling::net {

namespace asio = boost::asio;

// The pools are destroyed last: what handlers still own when the context drops them goes back to
// them.
struct EventLoop::Impl {
  BufferPools buffers;
  asio::io_context context{1};
  // For the loop's whole life: a context that runs out of work counts as stopped.
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(context);
};

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() { impl_->context.run(); }

void EventLoop::stop() { impl_->context.stop(); }

void EventLoop::post(std::function<void()> work) { asio::post(impl_->context, std::move(work)); }

void EventLoop::run_task(Async<void> task) {
  TaskGroup group(*this);
  group.spawn(std::move(task));
  while (group.size() > 0 && impl_->context.run_one() > 0) {
  }
}

TimePoint EventLoop::now() const { return std::chrono::steady_clock::now(); }
std::unique_ptr<Timer> EventLoop::make_timer(std::function<void()> on_time) {
  return std::make_unique<Alarm>(*this, std::move(on_time));
}
asio::io_context& EventLoop::context() { return impl_->context; }
BufferPools& EventLoop::buffers() { return impl_->buffers; }

}  // namespace starling::net
