// SPDX-License-Identifier: Apache-2.0
// For rounds.sh: devices without data beside a running coordinator, all in this process and on one
// thread, and the same bytes over bare TLS before and after.
//   rounds_bench PARAMETERS DEVICE-DIRECTORY...
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/net/alarm.h"
#include "tests/bench/bare_rounds.h"
#include "tests/bench/ready_client.h"

namespace starling::bench {
namespace {

using Seconds = std::chrono::duration<double>;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// When the clients learned what.
class Rounds {
 public:
  explicit Rounds(std::size_t clients) : clients_(clients) {}

  void hear(const protocol::Message& message, TimePoint now) {
    if (const auto* plan = std::get_if<protocol::RoundPlan>(&message)) {
      if (plan->round != round_) begun_.push_back(now);
      round_ = plan->round;
      rounds_ = plan->rounds;
    } else if (std::holds_alternative<protocol::UpdateAccept>(message)) {
      accepted_.resize(begun_.size());
      accepted_.back() = now;
    } else if (std::holds_alternative<protocol::UpdateReceived>(message)) {
      summed_.resize(begun_.size());
      summed_.back() = now;
    } else if (std::holds_alternative<protocol::RoundCommitted>(message)) {
      told_ += round_ == rounds_ ? 1U : 0U;
    } else if (const auto* ended = std::get_if<protocol::TaskEnded>(&message)) {
      std::fprintf(stderr, "a task ended (%s): %s\n", ended->code.c_str(), ended->message.c_str());
      std::exit(1);
    }
  }
  bool over() const { return told_ == clients_; }

  // Seconds, of all but the first round. From the first plan until every update is in the sum.
  std::vector<double> transfers() const { return between(begun_, summed_, 0); }
  // Of the last update alone, from the coordinator's answer to its offer.
  std::vector<double> uploads() const { return between(accepted_, summed_, 0); }
  // From there until the plan of the next round: the new model is durable by then.
  std::vector<double> commits() const { return between(summed_, begun_, 1); }

 private:
  static std::vector<double> between(const std::vector<TimePoint>& from,
                                     const std::vector<TimePoint>& to, std::size_t later) {
    std::vector<double> seconds;
    for (std::size_t i = 1; i + later < to.size(); ++i) {
      seconds.push_back(Seconds(to[i + later] - from[i]).count());
    }
    return seconds;
  }

  std::size_t clients_;
  Round round_ = 0;
  Round rounds_ = 0;
  std::size_t told_ = 0;
  std::vector<TimePoint> begun_;
  std::vector<TimePoint> accepted_;  // the last offer
  std::vector<TimePoint> summed_;
};

net::Async<void> take_part(net::EventLoop& loop, const std::vector<std::string>& directories,
                           const ReadyUpdate& update, Rounds& rounds) {
  std::vector<std::unique_ptr<ReadyClient>> clients;
  net::TaskGroup waiting(loop);
  const auto wait = [](net::EventLoop& on) -> net::Async<void> {
    co_await net::sleep_until(on, on.now() + std::chrono::hours(1));
  };
  waiting.spawn(wait(loop));
  for (const std::string& directory : directories) {
    clients.push_back(std::make_unique<ReadyClient>(loop, directory, update,
                                                    [&](const protocol::Message& message) {
                                                      rounds.hear(message, loop.now());
                                                      if (rounds.over()) waiting.cancel();
                                                    }));
    clients.back()->start();
  }
  co_await waiting.wait();
  for (const auto& client : clients) co_await client->stop();
}

int run(std::uint64_t parameters, const std::vector<std::string>& directories) {
  const auto device =
      identity::IdentityDirectory::load(std::filesystem::path(directories.front()) / "identity");
  STARLING_CHECK(device);
  const std::uint64_t bytes = directories.size() * parameters * sizeof(float);
  const int repetitions = static_cast<int>(std::clamp<std::uint64_t>((4ULL << 30) / bytes, 3, 200));
  const auto bare = [&](std::uint64_t down, std::uint64_t up) {
    return bare_rounds(device->credentials(), down, up, repetitions);
  };
  std::vector<double> loop_seconds = bare(bytes, bytes);
  std::vector<double> one_upload = bare(1, parameters * sizeof(float));
  const double empty = median(bare(1, 1));
  Rounds rounds(directories.size());
  {
    net::EventLoop loop;
    const ReadyUpdate update(parameters);
    loop.run_task(take_part(loop, directories, update, rounds));
  }
  for (const double seconds : bare(bytes, bytes)) loop_seconds.push_back(seconds);
  for (const double seconds : bare(1, parameters * sizeof(float))) one_upload.push_back(seconds);
  const double transfer = median(rounds.transfers());
  const double bare_round = median(loop_seconds);
  std::printf("%8zu %12llu %10.2f %10.2f %7.2f %10.2f %9.3f", directories.size(),
              static_cast<unsigned long long>(parameters), 1e3 * transfer, 1e3 * bare_round,
              transfer / bare_round, 1e3 * median(rounds.commits()), 1e3 * empty);
  if (directories.size() == 1) {
    const double upload = median(rounds.uploads());
    std::printf(" %10.2f %10.2f %7.2f", 1e3 * upload, 1e3 * median(one_upload),
                median(one_upload) / upload);
  } else {
    std::printf(" %10s %10s %7s", "", "", "");
  }
  std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: rounds_bench PARAMETERS DEVICE-DIRECTORY...\n", stderr);
    return 2;
  }
  return starling::bench::run(std::strtoull(argv[1], nullptr, 10), {argv + 2, argv + argc});
}
