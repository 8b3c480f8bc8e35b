// SPDX-License-Identifier: Apache-2.0
// Programs on devices are older than their coordinator: the frames of a client as it was built
// earlier lead today's coordinator through the same run, and every frame that it sends tells that
// client the same. What the client would not read may change.
//
// A file in recorded/ is never changed. A later client adds its own: see MakesARecording.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/coordinator/framed_coordinator.h"
#include "tests/coordinator/recording.h"
#include "tests/support/paths.h"

namespace starling::testing {
namespace {

Recording read_recording(const std::string& name) {
  std::ifstream file(source_root() / "tests/coordinator/recorded" / name);
  std::ostringstream text;
  text << file.rdbuf();
  return Recording::parse(text.str());
}

// Plays the clients' side again, and compares what the coordinator sends.
class Replay {
 public:
  explicit Replay(const Recording& recording) : recording_(recording) {}

  void run() {
    for (const RecordedStep& step : recording_.steps) {
      if (step.kind == "coordinator") {
        expect(step);
      } else {
        play(step);
      }
      if (::testing::Test::HasFailure()) return;  // what follows would only say it again
    }
    for (const auto& [session, frames] : sent_) {
      for (const Bytes& frame : frames) {
        ADD_FAILURE() << "not recorded, to session " << session << ": "
                      << read_by_recorded_client(frame);
      }
    }
  }

 private:
  void play(const RecordedStep& step) {
    if (step.kind == "admit") coordinator_.admit(step.client);
    if (step.kind == "submit") coordinator_.submit();
    if (step.kind == "open") coordinator_.open(step.number, step.client);
    if (step.kind == "close") coordinator_.close(step.number);
    if (step.kind == "advance") coordinator_.advance(std::chrono::milliseconds(step.number));
    if (step.kind == "client") coordinator_.receive(step.number, step.frame);
    if (step.kind == "drain") coordinator_.drain();
    for (FramedCoordinator::Sent& sent : coordinator_.take_sent()) {
      sent_[sent.session].push_back(std::move(sent.frame));
    }
  }

  void expect(const RecordedStep& step) {
    std::deque<Bytes>& frames = sent_[step.number];
    const std::string wanted = read_by_recorded_client(step.frame);
    ASSERT_FALSE(frames.empty()) << "not sent: " << wanted;
    EXPECT_EQ(read_by_recorded_client(frames.front()), wanted);
    expect_settings(settings_read_by_recorded_client(frames.front()),
                    settings_read_by_recorded_client(step.frame));
    frames.pop_front();
  }

  // The recorded client takes its own defaults where a setting does not travel.
  void expect_settings(const Settings& sent, const Settings& recorded) const {
    for (const auto& setting : sent) {
      EXPECT_TRUE(std::ranges::count(recorded, setting)) << setting.first << ' ' << setting.second;
    }
    for (const auto& setting : recorded) {
      const bool is_default = std::ranges::count(recording_.defaults, setting) > 0;
      EXPECT_TRUE(is_default || std::ranges::count(sent, setting)) << setting.first;
    }
  }

  const Recording& recording_;
  FramedCoordinator coordinator_;
  std::map<std::uint64_t, std::deque<Bytes>> sent_;  // by session
};

TEST(RecordedClient, TakesPartInARunOfTodaysCoordinator) {
  const Recording recording = read_recording("fedavg_v1.frames");
  ASSERT_GT(recording.steps.size(), 100U);
  Replay(recording).run();
}

// The way to record the client of today, once it has learned something:
//   STARLING_RECORD_TO=tests/coordinator/recorded/fedavg_v2.frames
//     recorded_client_test --gtest_filter=*MakesARecording
TEST(RecordedClient, MakesARecording) {
  const Recording recording = record_fedavg();
  Replay(Recording::parse(recording.to_text())).run();
  const char* path = std::getenv("STARLING_RECORD_TO");
  if (path == nullptr) return;
  ASSERT_FALSE(std::filesystem::exists(path)) << "what was recorded is never replaced: " << path;
  std::ofstream(path) << recording.to_text();
}

}  // namespace
}  // namespace starling::testing
