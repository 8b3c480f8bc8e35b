// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace starling::gossip {

namespace asio = boost::asio;

namespace {

Error cannot_start(const ChildProcess::Options& options, int code) {
  return rejected("cannot-start", fmt::format("{} cannot be run with its output in {}: {}",
                                              options.arguments.front(), options.log.string(),
                                              std::strerror(code)));
}

}  // namespace

struct ChildProcess::Impl : std::enable_shared_from_this<Impl> {
  Impl(asio::io_context& context, std::unique_ptr<Subprocess> started, int descriptor,
       std::function<void(ChildEnd)> told)
      : process(std::move(started)), ended(context, descriptor), on_end(std::move(told)) {}

  void watch() {
    ended.async_wait(asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](boost::system::error_code error) {
                       if (error || !self->process->running()) return;
                       const ChildEnd end = self->process->wait();
                       // It may destroy the object, and so itself.
                       const auto tell = std::move(self->on_end);
                       if (tell) tell(end);
                     });
  }

  std::unique_ptr<Subprocess> process;
  asio::posix::stream_descriptor ended;  // readable when the process has ended
  std::function<void(ChildEnd)> on_end;
};

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(net::EventLoop& loop,
                                                          const Options& options,
                                                          std::function<void(ChildEnd)> on_end) {
  const FileDescriptor log(
      ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() < 0) return cannot_start(options, errno);
  STARLING_ASSIGN(
      auto process,
      Subprocess::start({.arguments = options.arguments,
                         .descriptors = {{STDOUT_FILENO, log.get()}, {STDERR_FILENO, log.get()}}}));
  // asio closes the one that it has.
  FileDescriptor watched(::fcntl(process->pidfd(), F_DUPFD_CLOEXEC, 0));
  if (watched.get() < 0) return cannot_start(options, errno);
  auto impl = std::make_shared<Impl>(loop.context(), std::move(process), watched.release(),
                                     std::move(on_end));
  impl->watch();
  return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(impl)));
}

ChildProcess::~ChildProcess() {
  impl_->on_end = nullptr;
  signal(SIGKILL);
  impl_->process->wait();
  boost::system::error_code ignored;
  impl_->ended.close(ignored);
}

void ChildProcess::signal(int number) const { impl_->process->kill_group(number); }
bool ChildProcess::running() const { return impl_->process->running(); }
pid_t ChildProcess::id() const { return impl_->process->id(); }

}  // namespace starling::gossip
