// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/peer_node.h"

namespace starling::gossip {
namespace {

PeerShell::Options shell_options(const PeerNode::Options& options) {
  PeerShell::Options shell = options;
  shell.listens = options.links.listen.has_value();
  return shell;
}

}  // namespace

PeerNode::PeerNode(World world, Options options, PeerData data, PeerShell::Issuer issuer,
                   RelayLine::Carrier relay)
    : loop_(world.loop),
      training_(world.loop, 1),
      disk_work_(world.loop, 1),
      shell_({.scheduler = world.loop,
              .clock = world.clock,
              .log = world.log,
              .identity = world.identity,
              .training = training_,
              .mixing = training_,
              .disk_work = disk_work_,
              .disk = disk_,
              .connect =
                  [&](PeerTransport::Handlers handlers) {
                    const Rng backoff({.seed = options.seed,
                                       .purpose = Purpose::kBackoff,
                                       .node = hash_name(world.identity.identity().name)});
                    auto links = std::make_unique<PeerLinks>(
                        world, options.links, std::move(handlers), std::move(relay), backoff);
                    links_ = links.get();
                    return links;
                  }},
             shell_options(options), std::move(data), std::move(issuer)),
      sleeping_(world.loop) {}

Result<void> PeerNode::start() {
  STARLING_TRY(links_->listen());
  auto started = shell_.start();
  if (!started) loop_.run_task(links_->stop());  // else who listens would outlive nothing
  return started;
}

net::Async<void> PeerNode::sleep_until(const bool& happened) {
  while (!happened) {
    const TimePoint tomorrow = loop_.now() + std::chrono::hours(24);
    co_await net::sleep_until(loop_, tomorrow);
  }
}

net::Async<void> PeerNode::run() {
  sleeping_.spawn(sleep_until(stopping_));
  co_await sleeping_.wait();
  co_await links_->stop();
  sleeping_.spawn(sleep_until(closed_));
  co_await sleeping_.wait();
}

void PeerNode::request_stop() {
  if (stopping_) return;
  stopping_ = true;
  shell_.close([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    closed_ = true;
    sleeping_.cancel();
  });
  sleeping_.cancel();
}

}  // namespace starling::gossip
