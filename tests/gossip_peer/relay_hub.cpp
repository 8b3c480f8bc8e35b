// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip_peer/relay_hub.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/wire/codec.h"

namespace starling::testing {
namespace {

constexpr std::size_t kLowWater = 128 * 1024;  // as of a connection

std::size_t bytes_of(const protocol::Envelope& envelope) {
  const auto* relay = std::get_if<protocol::Relay>(&envelope.message);
  return envelope.payload.size() + (relay ? relay->header.size() + 64 : 64);
}

// As the other end reads it.
protocol::Message over_the_wire(const protocol::Message& message) {
  const auto header = wire::encode_header(message);
  EXPECT_TRUE(header) << header.error().message();
  auto read = wire::decode_header(static_cast<std::uint16_t>(wire::frame_type(message)), *header);
  EXPECT_TRUE(read) << read.error().message();
  return std::move(*read);
}

}  // namespace

RelayHub::RelayHub(net::EventLoop& loop)
    : loop_(loop),
      self_(std::make_shared<RelayHub*>(this)),
      desk_({},
            {.send =
                 [this](SessionId session, const protocol::Envelope& envelope) {
                   for (auto& [name, device] : devices_) {
                     if (device.session == session) push(name, &Device::out, envelope);
                   }
                 },
             .queued_bytes =
                 [this](SessionId session) {
                   const Device* const device = connected(session);
                   return device ? device->out.bytes : 0;
                 },
             .on_report = [](const std::string&, const protocol::PeerReport&) {},
             .wants_model = [](const std::string&, const protocol::WholeModel&) -> Result<void> {
               return rejected("not-wanted", "no models here");
             },
             .on_model = [](const std::string&, protocol::Exchange, SharedBytes) {}},
            log_) {}

RelayHub::Device* RelayHub::connected(SessionId session) {
  for (auto& [name, device] : devices_) {
    if (device.session == session) return &device;
  }
  return nullptr;
}

gossip::RelayLine::Carrier RelayHub::carrier(const std::string& name) {
  const std::weak_ptr<RelayHub*> weak = self_;
  return {.send =
              [weak, name](const protocol::Envelope& envelope) {
                const auto self = weak.lock();
                if (self && (*self)->devices_[name].session != SessionId{0}) {
                  (*self)->push(name, &Device::in, envelope);
                }
              },
          .queued_bytes = [weak, name]() -> std::size_t {
            const auto self = weak.lock();
            return self ? (*self)->devices_[name].in.bytes : 0;
          }};
}

void RelayHub::attach(const std::string& name, End end) { devices_[name].end = std::move(end); }

void RelayHub::publish(const identity::SignedRoster& roster) {
  const auto published = desk_.publish(roster);
  EXPECT_TRUE(published) << published.error().message();
}

void RelayHub::connect(const std::string& name) {
  Device& device = devices_[name];
  if (device.session != SessionId{0}) {  // the desk hears nothing of the old one's end
    device.in = {};
    device.out = {};
    device.end.down();
  }
  device.session = SessionId(++last_session_);
  desk_.opened(device.session, name);
  device.end.up();
}

void RelayHub::disconnect(const std::string& name) {
  Device& device = devices_[name];
  const SessionId session = std::exchange(device.session, SessionId{0});
  device.in = {};
  device.out = {};
  desk_.closed(session);
  device.end.down();
}

void RelayHub::hold_out(const std::string& name, bool held) {
  devices_[name].out.held = held;
  move(name, &Device::out);
}

void RelayHub::hold_in(const std::string& name, bool held) {
  devices_[name].in.held = held;
  move(name, &Device::in);
}

bool RelayHub::is_quiet() const {
  return std::ranges::none_of(devices_, [](const auto& named) {
    return named.second.in.moving || named.second.out.moving;
  });
}

void RelayHub::push(const std::string& name, Way Device::*way, protocol::Envelope envelope) {
  Way& to = devices_[name].*way;
  to.bytes += bytes_of(envelope);
  to.bytes_most = std::max(to.bytes_most, to.bytes);
  to.frames.push_back(std::move(envelope));
  move(name, way);
}

void RelayHub::move(const std::string& name, Way Device::*way) {
  Way& the = devices_[name].*way;
  if (the.held || the.frames.empty() || std::exchange(the.moving, true)) return;
  loop_.post([weak = std::weak_ptr(self_), name, way] {
    if (const auto self = weak.lock()) (*self)->deliver(name, way);
  });
}

void RelayHub::deliver(const std::string& name, Way Device::*way) {
  Device& device = devices_[name];
  Way& from = device.*way;
  from.moving = false;
  if (from.held || from.frames.empty()) return;
  const protocol::Envelope envelope = std::move(from.frames.front());
  from.frames.pop_front();
  from.bytes -= bytes_of(envelope);
  move(name, way);
  const protocol::Message message = over_the_wire(envelope.message);
  const Bytes payload = to_bytes(envelope.payload.view());  // holds for the call only
  const SharedBytes borrowed(nullptr, payload);
  if (way == &Device::in) {
    if (device.end.drained && from.bytes < kLowWater) device.end.drained();
    const auto taken = desk_.take(device.session, {message, borrowed});
    EXPECT_TRUE(taken) << taken.error().message();
  } else if (const auto* relay = std::get_if<protocol::Relay>(&message)) {
    ++relayed_;
    device.end.take(*relay, borrowed);
  }
}

}  // namespace starling::testing
