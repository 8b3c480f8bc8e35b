// SPDX-License-Identifier: Apache-2.0
// coordinator.toml: every limit and deadline of the service, with its default, unit and range.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/client/trainer_host.h"
#include "core/config/binder.h"
#include "core/identity/host_port.h"

namespace starling::coordinator {

struct ServiceSettings {
  std::string listen = "0.0.0.0:7443";
  std::string names;
  int threads = 0;
  std::uint64_t runs_max = 4;
  Duration drain = std::chrono::seconds(10);
  Duration goodbye = std::chrono::seconds(2);
  Duration disk_retry = std::chrono::seconds(5);
  std::uint64_t held_actions_max = 100'000;
};

struct EnrolSettings {
  Duration token_valid = std::chrono::hours(1);
  Duration certificate_lifetime = std::chrono::hours(24 * 365);
  Duration operator_lifetime = std::chrono::hours(24 * 365);
  Duration server_lifetime = std::chrono::hours(24 * 90);
  Duration exchange = std::chrono::seconds(10);
  double tries_per_second = 10;
  double tries_burst = 20;
};

struct ConnectionSettings {
  double per_second = 200;
  double burst = 500;
  unsigned handshakes_max = 256;
  unsigned handshakes_per_address = 64;
  Duration handshake = std::chrono::seconds(5);
  std::uint64_t queue_bytes = 4 << 20;
  std::uint64_t queue_frames = 4096;
  Duration idle = std::chrono::seconds(120);
  Duration frame = std::chrono::seconds(60);
  Duration stall = std::chrono::seconds(30);
};

struct SessionSettings {
  std::uint64_t sessions_max = 20'000;
  std::uint64_t per_client = 4;
  double frames_per_second = 2000;
  Duration heartbeat = std::chrono::seconds(10);
  Duration silence = std::chrono::seconds(60);
  Duration greeting = std::chrono::seconds(10);
  std::uint64_t chunk_bytes = 64 * 1024;
  std::uint64_t window_bytes = 1024 * 1024;
  Duration upload_retry = std::chrono::milliseconds(200);
};

struct OperatorSettings {
  std::uint64_t sessions_max = 64;
  std::uint64_t requests_max = 16;
};

struct SpoolSettings {
  std::uint64_t memory_bytes = std::uint64_t{32} << 20;
  std::uint64_t disk_bytes = std::uint64_t{16} << 30;
};

struct CoordinatorSettings {
  ServiceSettings service;
  EnrolSettings enrol;
  ConnectionSettings connection;
  SessionSettings session;
  OperatorSettings operators;
  SpoolSettings spool;
  client::TrainerOptions trainer;  // the coordinator's own

  // Binds every key of coordinator.toml to this object, which must outlive the binder's use.
  void bind(config::Binder& binder);
  // What the ranges of single keys cannot say.
  [[nodiscard]] Result<void> validate() const;

  // Where to listen; port 0 stands for any free one.
  [[nodiscard]] Result<identity::HostPort> listen_address() const;
  // service.names, taken apart; the first is the address in join tokens.
  std::vector<std::string> names() const;
};

template <class V>
void describe(V& visit, ServiceSettings& o) {
  visit("listen", o.listen, FieldInfo{.help = "where to listen, HOST:PORT, the host numeric"});
  visit("names", o.names,
        FieldInfo{.help = "DNS names and addresses that devices dial, with commas between; the "
                          "first stands in join tokens"});
  visit("threads", o.threads,
        FieldInfo{
            .help = "threads that evaluate models; 0: one per processor", .min = 0, .max = 4096});
  visit("runs-max", o.runs_max,
        FieldInfo{.help = "runs that are active at a time; a run that waits for clients is not",
                  .unit = "runs",
                  .min = 1,
                  .max = 64});
  visit("drain", o.drain,
        FieldInfo{.help = "how long a stop waits for a commit under way and for goodbyes",
                  .min = 0,
                  .max = 3600});
  visit("goodbye", o.goodbye,
        FieldInfo{.help = "how long a connection that is closed may take to deliver its last words",
                  .min = 0,
                  .max = 60});
  visit("disk-retry", o.disk_retry,
        FieldInfo{.help = "pause before writing again to a full disk", .min = 0.01, .max = 3600});
  visit("held-actions-max", o.held_actions_max,
        FieldInfo{.help = "what may wait for a full disk before the service gives up",
                  .unit = "actions",
                  .min = 1000,
                  .max = 1e9});
}

template <class V>
void describe(V& visit, EnrolSettings& o) {
  visit("token-valid", o.token_valid,
        FieldInfo{
            .help = "life of a join token, unless --valid says it", .min = 1, .max = 2'592'000});
  visit("certificate-lifetime", o.certificate_lifetime,
        FieldInfo{.help = "life of the certificates of devices and peers; they are not renewed: "
                          "when one ends, its device joins again",
                  .min = 60,
                  .max = 315'360'000});
  visit("operator-lifetime", o.operator_lifetime,
        FieldInfo{.help = "life of the operators' certificates; the one in operator/ is renewed "
                          "by the service",
                  .min = 60,
                  .max = 315'360'000});
  visit("server-lifetime", o.server_lifetime,
        FieldInfo{.help = "life of the coordinator's own certificates, which it renews in time",
                  .min = 60,
                  .max = 315'360'000});
  visit("exchange", o.exchange,
        FieldInfo{.help = "from the handshake to the certificate", .min = 0.01, .max = 600});
  visit("tries-per-second", o.tries_per_second,
        FieldInfo{.help = "attempts to join, per address, on average", .min = 0.001, .max = 1e6});
  visit("tries-burst", o.tries_burst,
        FieldInfo{.help = "attempts to join, per address, at once", .min = 1, .max = 1e6});
}

template <class V>
void describe(V& visit, ConnectionSettings& o) {
  visit("per-second", o.per_second,
        FieldInfo{.help = "new connections per address, on average", .min = 0.001, .max = 1e6});
  visit("burst", o.burst,
        FieldInfo{.help = "new connections per address, at once", .min = 1, .max = 1e6});
  visit(
      "handshakes-max", o.handshakes_max,
      FieldInfo{.help = "handshakes at a time; when there are more, those that got least far make "
                        "room, or newcomers wait",
                .min = 1,
                .max = 1e6});
  visit("handshakes-per-address", o.handshakes_per_address,
        FieldInfo{.help = "the same of one IPv4 address or IPv6 /64; more are refused",
                  .min = 1,
                  .max = 1e6});
  visit("handshake", o.handshake,
        FieldInfo{.help = "from accepting to authenticated", .min = 0.01, .max = 600});
  visit("queue-bytes", o.queue_bytes,
        FieldInfo{.help = "what may wait to be sent on one connection; more closes it",
                  .unit = "bytes",
                  .min = 256 * 1024,
                  .max = 1e12});
  visit("queue-frames", o.queue_frames,
        FieldInfo{.help = "the same in frames", .unit = "frames", .min = 64, .max = 1e9});
  visit("idle", o.idle,
        FieldInfo{.help = "a connection on which nothing comes for so long is closed",
                  .min = 0.1,
                  .max = 86400});
  visit("frame", o.frame,
        FieldInfo{.help = "from a frame's first byte to its last", .min = 0.1, .max = 86400});
  visit("stall", o.stall,
        FieldInfo{.help = "how long a connection may take none of what it is sent",
                  .min = 0.1,
                  .max = 86400});
}

template <class V>
void describe(V& visit, SessionSettings& o) {
  visit("sessions-max", o.sessions_max,
        FieldInfo{.help = "connections of devices and peers", .min = 1, .max = 1e7});
  visit("per-client", o.per_client,
        FieldInfo{.help = "connections of one client at a time", .min = 1, .max = 1000});
  visit(
      "frames-per-second", o.frames_per_second,
      FieldInfo{.help = "frames of less than 16 KiB that are read of one client, on average and at "
                        "once; one that sends more is read more slowly",
                .unit = "frames",
                .min = 10,
                .max = 1e9});
  visit("heartbeat", o.heartbeat,
        FieldInfo{.help = "how often a client is to be heard", .min = 0.01, .max = 86400});
  visit(
      "silence", o.silence,
      FieldInfo{
          .help = "a client that is silent for so long is disconnected", .min = 0.1, .max = 86400});
  visit("greeting", o.greeting,
        FieldInfo{.help = "from connected to greeted", .min = 0.01, .max = 600});
  visit("chunk-bytes", o.chunk_bytes,
        FieldInfo{.help = "pieces in which models are sent",
                  .unit = "bytes",
                  .min = 1024,
                  .max = 64 * 1024});
  visit("window-bytes", o.window_bytes,
        FieldInfo{.help = "how far a client may run ahead of what was taken of its update",
                  .unit = "bytes",
                  .min = 64 * 1024,
                  .max = 4 << 20});
  visit("upload-retry", o.upload_retry,
        FieldInfo{.help = "pause before asking a full spool again", .min = 0.001, .max = 600});
}

template <class V>
void describe(V& visit, OperatorSettings& o) {
  visit("sessions-max", o.sessions_max,
        FieldInfo{.help = "connections of operators", .min = 1, .max = 1e6});
  visit("requests-max", o.requests_max,
        FieldInfo{.help = "requests under way on one connection", .min = 1, .max = 1e6});
}

template <class V>
void describe(V& visit, SpoolSettings& o) {
  visit("memory-bytes", o.memory_bytes,
        FieldInfo{.help = "memory for uploads in progress; those beyond it go to disk",
                  .unit = "bytes",
                  .min = 0,
                  .max = 1e15});
  visit(
      "disk-bytes", o.disk_bytes,
      FieldInfo{
          .help = "disk for uploads in progress; 0: none", .unit = "bytes", .min = 0, .max = 1e15});
}

}  // namespace starling::coordinator
