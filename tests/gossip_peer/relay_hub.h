// SPDX-License-Identifier: Apache-2.0
// A roster's issuer in this process, without sockets: a desk that relays, and for each device a way
// there and a way back, which deliver a frame in a turn of the loop, or hold it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/issuer/issuer_desk.h"
#include "core/net/event_loop.h"
#include "gossip/peer/relay_line.h"

namespace starling::testing {

class RelayHub {
 public:
  // What a device's link with its issuer tells it.
  struct End {
    std::function<void()> up;
    std::function<void()> down;
    std::function<void()> drained;
    std::function<void(const protocol::Relay&, const SharedBytes&)> take;
  };

  explicit RelayHub(net::EventLoop& loop);
  RelayHub(const RelayHub&) = delete;
  RelayHub& operator=(const RelayHub&) = delete;

  // Of the device of this name; may outlive the hub.
  gossip::RelayLine::Carrier carrier(const std::string& name);
  void attach(const std::string& name, End end);
  void publish(const identity::SignedRoster& roster);
  void connect(const std::string& name);  // again: in the place of the session before
  void disconnect(const std::string& name);

  void hold_out(const std::string& name, bool held);  // what is for it waits here
  void hold_in(const std::string& name, bool held);   // what it sends waits at the device
  bool is_quiet() const;                              // nothing moves any more
  std::size_t waiting_out_most(const std::string& name) { return devices_[name].out.bytes_most; }
  std::size_t waiting_in_most(const std::string& name) { return devices_[name].in.bytes_most; }
  std::size_t relayed() const { return relayed_; }  // frames

 private:
  struct Way {
    std::deque<protocol::Envelope> frames = {};
    std::size_t bytes = 0;
    std::size_t bytes_most = 0;
    bool held = false;
    bool moving = false;
  };
  struct Device {
    End end;
    SessionId session{0};  // 0: not connected
    Way in;
    Way out;
  };

  Device* connected(SessionId session);
  void push(const std::string& name, Way Device::*way, protocol::Envelope envelope);
  void move(const std::string& name, Way Device::*way);
  void deliver(const std::string& name, Way Device::*way);

  net::EventLoop& loop_;
  NullLog log_;
  std::map<std::string, Device> devices_;
  std::uint64_t last_session_ = 0;
  std::size_t relayed_ = 0;
  std::shared_ptr<RelayHub*> self_;
  issuer::IssuerDesk desk_;
};

}  // namespace starling::testing
