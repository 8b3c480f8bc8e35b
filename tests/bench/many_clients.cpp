// SPDX-License-Identifier: Apache-2.0
// Many devices in one process, for many_clients.sh: each has its own identity, TLS connection,
// client machine and files, as `starling-edge start` has; they share one network thread, one thread
// for files and one for training, which leaves the model as it is. The clients that have no
// identity yet join with tokens, made with the operator's certificate of STATE. Stays until it is
// killed. usage: many_clients STATE DIRECTORY FIRST COUNT FEATURES
#include <fmt/format.h>

#include <cstdlib>
#include <deque>
#include <string>

#include "coordinator/commands/operator_client.h"
#include "core/base/durable_file.h"
#include "core/client/abilities.h"
#include "core/client/client_shell.h"
#include "core/client/local_trainer.h"
#include "core/enrol/join.h"
#include "core/link/message_link.h"
#include "core/net/task_group.h"
#include "edge_client/coordinator_link.h"
#include "edge_client/pending_files.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// Of this process at a time, so that the coordinator's limit to one address holds several.
constexpr std::size_t kHandshakesMax = 12;
constexpr std::uint64_t kRows = 10;
constexpr std::uint32_t kClasses = 10;

[[noreturn]] void fail(const std::string& why) {
  fmt::print(stderr, "many_clients: {}\n", why);
  std::exit(1);
}

template <class T>
T value_or_fail(Result<T> result) {
  if (!result) fail(result.error().message());
  return std::move(*result);
}

void require(const Result<void>& result) {
  if (!result) fail(result.error().message());
}

class NoTraining final : public client::Trainer {
 public:
  Result<client::TrainingReport> train(const client::TrainingRequest&, std::span<float>,
                                       const train::TrainingHooks<float>&,
                                       const std::atomic<bool>&) override {
    return client::TrainingReport{.weight = kRows, .train_loss = 0, .steps = 1, .rate = 1};
  }
};

// What the devices of this process share.
struct Host {
  SystemClock clock;
  SystemDisk disk;
  NoTraining trainer;
  net::EventLoop loop;
  PooledComputation files{loop, 1};
  PooledComputation training{loop, 1};
};

client::ClientOptions client_options(std::uint32_t features) {
  client::ClientOptions options;
  options.rows = kRows;
  options.abilities = client::abilities_of(strategy::builtin_strategies(), false);
  std::erase(options.abilities, client::kSparseAbility);  // its updates are zeros, of full size
  options.input = {features};
  options.classes = kClasses;
  return options;
}

class Device final : private client::Link {
 public:
  Device(Host& host, const fs::path& directory, std::uint32_t features,
         std::function<void()> on_connected)
      : host_(host),
        identity_(value_or_fail(
            identity::IdentityDirectory::load(edge_client::StateDirectory{directory}.identity()))),
        pending_(edge_client::pending_files(host.disk, edge_client::StateDirectory{directory})),
        on_connected_(std::move(on_connected)),
        tasks_(host.loop),
        shell_({host.loop, *this, pending_, host.files, host.training, make_update(host.trainer)},
               client_options(features),
               Rng({.seed = 1, .purpose = Purpose::kBackoff, .node = hash_name(name())}), {},
               {.on_say = [this](const client::Say& line) { say(line); }}) {
    require(make_directory(edge_client::StateDirectory{directory}.pending(), true));
  }

  void start() { shell_.handle(client::Tick{}); }

 private:
  static client::MakeUpdate make_update(client::Trainer& trainer) {
    return [&trainer](const client::Train& task, client::Trainer*, const std::atomic<bool>& stop,
                      unsigned) { return client::make_update(task, trainer, {}, stop); };
  }

  const std::string& name() const { return identity_.identity().name; }

  void say(const client::Say& line) const {
    if (line.level >= LogLevel::kWarning) fmt::print(stderr, "{}: {}\n", name(), line.line);
  }

  void dial() override { tasks_.spawn(serve()); }
  void hang_up() override { connection_.reset(); }
  void send(const protocol::Envelope& envelope) override {
    if (!connection_) return;
    if (!link::send(*connection_, envelope)) connection_->abort();
  }

  net::Async<void> serve() {
    const net::ConnectOptions options;
    auto connected =
        co_await edge_client::connect_to_coordinator(host_.loop, identity_, host_.clock, options);
    if (!connected) {
      shell_.handle(client::Disconnected{connected.error()});
      co_return;
    }
    const std::shared_ptr<net::Connection> connection = std::move(*connected);
    connection_ = connection;
    shell_.handle(client::Connected{});
    link::MessageLimits limits(wire::from_coordinator(false));
    while (connection_ == connection) {
      auto frame = co_await connection->read_frame(limits);
      if (connection_ == connection) take(frame);
      limits.expect(wire::from_coordinator(is_up()));
    }
  }

  void take(const Result<net::Frame>& frame) {
    auto envelope = frame ? link::decode(*frame) : Result<protocol::Envelope>(frame.error());
    if (!envelope) {
      connection_.reset();
      return shell_.handle(client::Disconnected{envelope.error()});
    }
    shell_.handle(client::Received{std::move(*envelope)});
    if (is_up() && on_connected_) std::exchange(on_connected_, nullptr)();
  }

  bool is_up() const { return shell_.machine().link() == client::ClientMachine::Link::kUp; }

  Host& host_;
  identity::IdentityDirectory identity_;
  client::PendingStore pending_;
  std::function<void()> on_connected_;  // the first time
  std::shared_ptr<net::Connection> connection_;
  net::TaskGroup tasks_;
  client::ClientShell shell_;
};

// --- joining ------------------------------------------------------------------------------------

struct Applicant {
  fs::path directory;
  identity::JoinToken token;
};

std::deque<Applicant> make_tokens(const Clock& clock, const fs::path& state, const fs::path& into,
                                  const std::vector<std::string>& names) {
  std::deque<Applicant> applicants;
  const auto coordinator = value_or_fail(coordinator::OperatorClient::connect(state, clock));
  for (const std::string& name : names) {
    const auto made = value_or_fail(coordinator->ask("token-new", {{"client", name}}));
    const auto& text = made.as_object().at("token").as_string();
    const auto token = value_or_fail(identity::JoinToken::parse(std::string_view(text)));
    const edge_client::StateDirectory directory{into / name};
    require(make_directory(directory.path));
    applicants.push_back({directory.identity(), token});
  }
  return applicants;
}

net::Async<void> join_in_turn(Host& host, std::deque<Applicant>& applicants) {
  while (!applicants.empty()) {
    Applicant next = std::move(applicants.front());
    applicants.pop_front();
    enrol::JoinOptions options;
    auto joining = enrol::join(host.loop, next.token, std::move(next.directory), host.clock,
                               std::move(options));
    auto joined = co_await std::move(joining);
    if (!joined) fail(joined.error().message());
  }
}

void join_all(Host& host, std::deque<Applicant> applicants) {
  net::TaskGroup tasks(host.loop);
  for (std::size_t i = 0; i < kHandshakesMax; ++i) tasks.spawn(join_in_turn(host, applicants));
  host.loop.run_task(tasks.wait());
}

// --- connecting ---------------------------------------------------------------------------------

// Each that has connected lets the next one dial.
class Crowd {
 public:
  Crowd(Host& host, const std::vector<std::string>& names, const fs::path& directory,
        std::uint32_t features) {
    for (const std::string& name : names) {
      devices_.emplace_back(host, directory / name, features, [this] { connected(); });
    }
  }
  void start() {
    while (started_ < std::min(kHandshakesMax, devices_.size())) devices_[started_++].start();
  }

 private:
  void connected() {
    if (started_ < devices_.size()) devices_[started_++].start();
    if (++connected_ == devices_.size()) {
      fmt::print("all connected\n");
      std::fflush(stdout);
    }
  }

  std::deque<Device> devices_;
  std::size_t started_ = 0;
  std::size_t connected_ = 0;
};

std::vector<std::string> client_names(const std::string& first, const std::string& count) {
  std::vector<std::string> names;
  const int begin = std::atoi(first.c_str());
  for (int i = 0; i < std::atoi(count.c_str()); ++i) {
    names.push_back(fmt::format("client-{}", begin + i));
  }
  return names;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5) fail("needs join or start, and four arguments");
  Host host;
  const auto& a = arguments;
  if (a[0] == "join") {
    join_all(host, make_tokens(host.clock, a[1], a[2], client_names(a[3], a[4])));
  } else {
    const auto features = static_cast<std::uint32_t>(std::atoi(a[4].c_str()));
    Crowd crowd(host, client_names(a[2], a[3]), a[1], features);
    crowd.start();
    host.loop.run();
  }
  return 0;
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) { return starling::run({argv + 1, argv + argc}); }
