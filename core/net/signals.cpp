// SPDX-License-Identifier: Apache-2.0
#include "core/net/signals.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>

namespace starling::net {

struct SignalWatcher::Impl : std::enable_shared_from_this<Impl> {
  Impl(boost::asio::io_context& context, std::function<void(Signal)> callback)
      : signals(context, SIGTERM, SIGINT, SIGHUP), on_signal(std::move(callback)) {}

  void wait() {
    signals.async_wait([self = shared_from_this()](boost::system::error_code error, int number) {
      if (error || self->stopped) return;
      self->wait();
      self->on_signal(number == SIGTERM  ? Signal::kTerminate
                      : number == SIGINT ? Signal::kInterrupt
                                         : Signal::kHangUp);
    });
  }

  boost::asio::signal_set signals;
  std::function<void(Signal)> on_signal;
  bool stopped = false;
};

SignalWatcher::SignalWatcher(EventLoop& loop, std::function<void(Signal)> on_signal)
    : impl_(std::make_shared<Impl>(loop.context(), std::move(on_signal))) {
  impl_->wait();
}

SignalWatcher::~SignalWatcher() {
  impl_->stopped = true;
  boost::system::error_code ignored;
  impl_->signals.clear(ignored);
  impl_->signals.cancel(ignored);
}

SignalThread::SignalThread(std::function<void(Signal)> on_signal)
    : watcher_(loop_, std::move(on_signal)), thread_([this] { loop_.run(); }) {}

SignalThread::~SignalThread() {
  loop_.stop();
  thread_.join();
}

}  // namespace starling::net
