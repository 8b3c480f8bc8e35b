// SPDX-License-Identifier: Apache-2.0
// Real processes over mutual TLS on loopback: the programs as their users run them.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "core/identity/join_token.h"
#include "tests/e2e/federation.h"

namespace starling {
namespace {

using testing::Finished;
using testing::kPrograms;
using testing::Process;
namespace json = boost::json;

constexpr const char* kJob = R"(
name = "e2e"
seed = 3
rounds = 10
[model]
kind = "mlp"
hidden = [16]
[train]
batch-size = 16
[round]
cohort = 5
min-updates = 5
wait-for = 7
deadline = "60s"
[evaluate]
dataset = "synthetic:rows=500,features=12,classes=4:test"
[data]
dataset = "synthetic:rows=2000,features=12,classes=4"
partition = "dirichlet:alpha=0.5"
)";

class Federation : public testing::FederationFixture {
 protected:
  void SetUp() override {
    FederationFixture::SetUp();
    std::ofstream(path("job.toml")) << kJob;
  }

  void start(const std::string& name, int index, int of) {
    edges_.push_back(std::make_unique<Process>(std::vector<std::string>{
        kPrograms + "starling-edge", "start", "--state", path(name), "--data.dataset",
        "synthetic:rows=2000,features=12,classes=4", "--data.partition",
        "dirichlet:alpha=0.5,index=" + std::to_string(index) + ",of=" + std::to_string(of)}));
  }
  std::vector<std::string> models(const json::value& run) {
    std::vector<std::string> hashes;
    for (const json::value& round : run.at("rounds").as_array()) {
      if (round.at("state") == "committed") {
        hashes.emplace_back(round.at("model_sha256").as_string().c_str());
      }
    }
    return hashes;
  }
  std::vector<std::string> simulated(const std::string& threads) {
    const Finished done =
        testing::run({kPrograms + "starling-coordinator", "simulate", path("job.toml"), "--clients",
                      "7", "--threads", threads, "--out", path("simulated-" + threads)});
    EXPECT_EQ(done.exit_code, 0) << done.output;
    std::ifstream file(path("simulated-" + threads) + "/run.json");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    return models(json::parse(text));
  }
};

TEST_F(Federation, ServiceAndSimulationAgreeBitForBitAcrossAKilledCoordinator) {
  for (const int k : {5, 2, 7, 1, 4, 6, 3}) {
    join("client-" + std::to_string(k));
    start("client-" + std::to_string(k), k, 7);
  }
  const json::value submitted = coordinator_json({"run", "submit", path("job.toml")});
  const std::string id = std::to_string(submitted.at("id").to_number<int>());
  {
    Process log(
        {kPrograms + "starling-coordinator", "run", "log", id, "--follow", "--state", state()});
    ASSERT_TRUE(log.wait_for("[round 4/10]")) << log.output() << service_->output();
  }
  service_->signal(SIGKILL);
  ASSERT_EQ(service_->wait(), 128 + SIGKILL);
  serve();
  const Finished waited = coordinator({"run", "wait", id});
  ASSERT_EQ(waited.exit_code, 0) << waited.output << service_->output();

  const json::value run = coordinator_json({"run", "show", id});
  EXPECT_EQ(run.at("state"), "completed");
  const std::vector<std::string> real = models(run);
  ASSERT_EQ(real.size(), 10U);
  EXPECT_EQ(real, simulated("1"));
  EXPECT_EQ(real, simulated("2"));
  service_->signal(SIGTERM);
  EXPECT_EQ(service_->wait(), 0) << service_->output();
  for (const auto& edge : edges_) {
    edge->signal(SIGTERM);
    EXPECT_EQ(edge->wait(), 0) << edge->output();
  }
}

TEST_F(Federation, AKilledClientLosesNothingAndARevokedOneIsOut) {
  for (int k = 1; k <= 7; ++k) {
    join("client-" + std::to_string(k));
    start("client-" + std::to_string(k), k, 7);
  }
  const json::value submitted = coordinator_json({"run", "submit", path("job.toml")});
  const std::string id = std::to_string(submitted.at("id").to_number<int>());
  Process log(
      {kPrograms + "starling-coordinator", "run", "log", id, "--follow", "--state", state()});
  ASSERT_TRUE(log.wait_for("[round 2/10]")) << log.output();
  edges_[0]->signal(SIGKILL);
  ASSERT_EQ(edges_[0]->wait(), 128 + SIGKILL);  // until then it holds its state directory's lock
  start("client-1", 1, 7);
  const Finished waited = coordinator({"run", "wait", id});
  ASSERT_EQ(waited.exit_code, 0) << waited.output << service_->output();
  EXPECT_EQ(models(coordinator_json({"run", "show", id})), simulated("2"));

  ASSERT_EQ(coordinator({"client", "revoke", "client-3"}).exit_code, 0);
  ASSERT_TRUE(edges_[2]->wait_for("revoked")) << edges_[2]->output();
  const json::value clients = coordinator_json({"client", "list"});
  for (const json::value& client : clients.as_array()) {
    if (client.at("name") == "client-3") {
      EXPECT_EQ(client.at("state"), "revoked");
      EXPECT_EQ(client.at("connected"), false);
    }
  }
}

// Accepts connections and never says anything.
class SilentServer {
 public:
  SilentServer() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address_;
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(::bind(fd_, address, length), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    EXPECT_EQ(::getsockname(fd_, address, &length), 0);
  }
  ~SilentServer() {
    ::close(accepted_);
    ::close(fd_);
  }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;

  std::uint16_t port() const { return ntohs(address_.sin_port); }
  bool accept() {
    pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 60'000) == 1) accepted_ = ::accept(fd_, nullptr, nullptr);
    return accepted_ >= 0;
  }

 private:
  int fd_;
  sockaddr_in address_{};
  int accepted_ = -1;
};

TEST_F(Federation, TheArgumentsOfARunningProgramHoldNoToken) {
  for (const char* program : {"starling-edge", "starling-coordinator"}) {
    SilentServer server;
    const auto token =
        identity::JoinToken::make(sha256(as_bytes("authority")), "127.0.0.1", server.port());
    const Process joining(
        {kPrograms + program, "join", token.text(), "--state", path("silent") + program});
    ASSERT_TRUE(server.accept()) << joining.output();
    std::ifstream file("/proc/" + std::to_string(joining.id()) + "/cmdline", std::ios::binary);
    const std::string arguments(std::istreambuf_iterator<char>(file), {});
    EXPECT_NE(arguments.find("STJ1-***"), arguments.npos) << arguments;
    EXPECT_EQ(arguments.find(token.text().substr(5)), arguments.npos) << arguments;
  }
}

TEST_F(Federation, ExitCodesSayWhatHappened) {
  EXPECT_EQ(coordinator({"run", "show", "99"}).exit_code, 1);
  EXPECT_EQ(coordinator({"run", "sohw", "1"}).exit_code, 2);
  EXPECT_EQ(coordinator({"run", "submit", path("absent.toml")}).exit_code, 2);
  const json::value submitted = coordinator_json({"run", "submit", path("job.toml")});
  const std::string id = std::to_string(submitted.at("id").to_number<int>());
  EXPECT_EQ(coordinator({"run", "wait", id, "--timeout", "100ms"}).exit_code, 3);
  EXPECT_EQ(coordinator({"run", "stop", id}).exit_code, 0);
  EXPECT_EQ(coordinator({"run", "wait", id}).exit_code, 1);
  service_->signal(SIGTERM);
  EXPECT_EQ(service_->wait(), 0);
  const Finished refused = coordinator({"client", "list"});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_EQ(std::count(refused.output.begin(), refused.output.end(), '\n'), 1) << refused.output;
}

}  // namespace
}  // namespace starling
