// SPDX-License-Identifier: Apache-2.0
// What a running device tells `starling-edge status`: a small JSON file, replaced whole and at most
// four times a second. Nothing depends on it after a crash. Its time says when it last held: a
// process that can write it renews that every few seconds.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/net/alarm.h"

namespace starling::edge_client {

struct EdgeStatus {
  struct Task {
    std::uint64_t run = 0;
    std::string run_name;
    std::uint32_t round = 0;
    std::uint32_t rounds = 0;
    friend bool operator==(const Task&, const Task&) = default;
  };

  struct Gossip {
    std::string run_name;
    std::uint64_t epoch = 0;
    std::string state;
    std::uint64_t step = 0;
    std::uint32_t neighbours = 0;  // heard in the last exchange, of those expected
    std::uint32_t expected = 0;
    std::uint32_t links = 0;      // with other members
    std::uint32_t reachable = 0;  // members not known to be away, this device included
    std::string problem;
    std::string model;  // the file that holds that of a run that is over; empty: there is none
    friend bool operator==(const Gossip&, const Gossip&) = default;
  };

  std::string federation;
  std::string client;
  std::string coordinator;  // host:port
  std::string link;         // down, dialing, greeting, up, stopped
  std::string activity;     // idle, fetching, settling, training, storing
  std::optional<Task> task;
  std::optional<Gossip> gossip;
  std::uint64_t pending_updates = 0;
  std::uint64_t updates_counted = 0;  // since the process started
  WallTime started{};
  // Of this process or an earlier one.
  std::optional<WallTime> last_connected;
  std::string last_error;  // why the connection was last lost; empty: it never was
  std::optional<WallTime> last_error_at;

  friend bool operator==(const EdgeStatus&, const EdgeStatus&) = default;
};

std::string to_json(const EdgeStatus& status);
// "status-damaged" for anything that to_json does not write.
[[nodiscard]] Result<EdgeStatus> parse_status(std::string_view json);
[[nodiscard]] Result<EdgeStatus> read_status(const std::filesystem::path& file);

class StatusWriter {
 public:
  // How old the file of a process that runs may be; it is renewed every 5 s.
  static constexpr Duration kAgeMax = std::chrono::seconds(15);

  // The references must outlive the writer. A failure to write is logged once, and tried again.
  StatusWriter(net::EventLoop& loop, std::filesystem::path file, Log& log);

  // Written now, or a quarter of a second after the last time.
  void set(const EdgeStatus& status);
  void flush();

 private:
  void on_time();
  void write();
  void renew();

  net::EventLoop& loop_;
  std::filesystem::path file_;
  Log& log_;
  net::Alarm alarm_;
  EdgeStatus status_;
  bool stale_ = true;  // the file
  bool waiting_ = false;
  bool failed_ = false;
};

}  // namespace starling::edge_client
