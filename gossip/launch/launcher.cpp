// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <fstream>
#include <map>
#include <thread>

#include "core/base/durable_file.h"
#include "core/base/escape_controls.h"
#include "core/base/scratch_directory.h"
#include "core/net/alarm.h"
#include "core/net/signals.h"
#include "gossip/launch/child_process.h"
#include "gossip/launch/issuer_service.h"
#include "gossip/launch/node_directory.h"
#include "gossip/launch/proxy_network.h"
#include "gossip/launch/run_recorder.h"

namespace starling::gossip {

namespace asio = boost::asio;

namespace {

using Afterwards = ScratchDirectory::Afterwards;

constexpr Duration kLookEvery = std::chrono::milliseconds(250);

std::string last_line(const std::filesystem::path& path) {
  constexpr std::streamoff kTail = 4096;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size > kTail) file.seekg(size - kTail);
  if (size <= kTail) file.seekg(0);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return escape_controls(last);
}

// The issuer on a thread of its own: messages of peers are read and their time is noted while the
// launcher's thread evaluates. Handlers and log calls run on the launcher's thread.
class IssuerThread {
 public:
  struct Handlers {
    std::function<void(const std::string& member, const protocol::PeerReport&, TimePoint)>
        on_report;
    std::function<void(const std::string& member, protocol::Exchange, SharedBytes, TimePoint)>
        on_model;
  };

  // `launcher`, `clock` and `log` must outlive it.
  IssuerThread(net::EventLoop& launcher, const Clock& clock, Log& log, Handlers handlers)
      : launcher_(launcher),
        clock_(clock),
        log_(launcher, log),
        handlers_(std::move(handlers)),
        over_(loop_.context(), TimePoint::max()) {}
  ~IssuerThread() {
    if (!thread_.joinable()) {
      if (service_) loop_.run_task(service_->close());
      return;
    }
    loop_.post([this] {
      ends_ = true;
      over_.cancel();
    });
    thread_.join();
  }
  IssuerThread(const IssuerThread&) = delete;
  IssuerThread& operator=(const IssuerThread&) = delete;

  Result<void> open(std::uint64_t parameters) {
    IssuerService::Handlers handlers;
    handlers.on_report = [this](const std::string& member, const protocol::PeerReport& report) {
      launcher_.post(
          [this, member, report, now = loop_.now()] { handlers_.on_report(member, report, now); });
    };
    handlers.on_model = [this](const std::string& member, protocol::Exchange exchange,
                               const SharedBytes& values) {
      launcher_.post([this, member, exchange, values, now = loop_.now()] {
        handlers_.on_model(member, exchange, values, now);
      });
    };
    STARLING_ASSIGN(service_,
                    IssuerService::open(loop_, clock_, log_, parameters, std::move(handlers)));
    return {};
  }
  // Until start(): the service is the thread's afterwards.
  IssuerService& service() { return *service_; }
  void start() {
    thread_ = std::thread([this] { loop_.run_task(serve()); });
  }

 private:
  class PostedLog final : public Log {
   public:
    PostedLog(net::EventLoop& loop, Log& log) : loop_(loop), log_(log) {}
    void write(LogLevel level, std::string_view line) override {
      loop_.post([&log = log_, level, text = std::string(line)] { log.write(level, text); });
    }

   private:
    net::EventLoop& loop_;
    Log& log_;
  };

  net::Async<void> serve() {
    while (!ends_) {
      auto [error] = co_await over_.async_wait(asio::as_tuple(asio::use_awaitable));
      static_cast<void>(error);
    }
    co_await service_->close();
  }

  net::EventLoop& launcher_;
  const Clock& clock_;
  PostedLog log_;
  const Handlers handlers_;
  net::EventLoop loop_;
  std::unique_ptr<IssuerService> service_;
  asio::steady_timer over_;  // never expires
  bool ends_ = false;
  std::thread thread_;
};

class Launcher {
 public:
  Launcher(const LaunchRequest& request, const Clock& clock, Log& log, const LaunchHooks& hooks)
      : request_(request),
        clock_(clock),
        log_(log),
        hooks_(hooks),
        pool_(request.threads),
        over_(loop_.context(), TimePoint::max()),
        schedule_(request.script, request.links),
        alarm_(loop_, [this] { look(); }),
        signals_([this](net::Signal) {  // the launcher may be waiting for an evaluation
          const auto& trainers = request_.experiment.trainers;
          if (trainers) trainers->cancel();
          loop_.post([this] { interrupt(); });
        }) {}

  Result<LaunchResult> run() {
    if (const auto begun = begin(); !begun) {
      end(begun.error());
    } else {
      alarm_.set(loop_.now());
    }
    loop_.run_task(wait_and_stop());
    return std::move(*outcome_);
  }

 private:
  Result<void> begin();
  Result<void> make_nodes(const std::filesystem::path& logs);
  Result<void> open_proxies();
  Result<void> start(Node node);
  net::Async<void> wait_and_stop();
  net::Async<void> stop_children();

  void look();
  void interrupt();
  void ended(Node node, ChildEnd how);
  void end(Result<LaunchResult> outcome);
  Error with_logs(const Error& error) const;
  Node node_of(const std::string& member) const;
  bool any_runs() const;

  void perform(const TellFault& action) { hooks_.on_line(action.line); }
  void perform(const KillNode& action);
  void perform(const StartNode& action);
  void perform(const PauseNode& action);
  void perform(const ResumeNode& action);
  void perform(const SetLink& action);
  void perform(const ResetLink& action);

  const LaunchRequest& request_;
  const Clock& clock_;
  Log& log_;
  const LaunchHooks& hooks_;
  net::EventLoop loop_;
  ComputePool pool_;
  std::optional<ScratchDirectory> scratch_;
  std::vector<NodePlace> places_;
  std::unique_ptr<ProxyNetwork> proxies_;
  std::unique_ptr<IssuerThread> issuer_;
  std::optional<RunRecorder> recorder_;
  std::map<Node, std::string> problems_;                 // as last reported
  std::vector<std::unique_ptr<ChildProcess>> children_;  // null: not running
  asio::steady_timer over_;  // cancelled when there is an outcome or a process ends
  FaultSchedule schedule_;
  std::optional<TimePoint> first_step_;
  std::optional<Result<LaunchResult>> outcome_;
  bool hurried_ = false;  // interrupted while stopping
  net::Alarm alarm_;
  net::SignalThread signals_;
};

// --- beginning ----------------------------------------------------------------------------------

Result<void> Launcher::open_proxies() {
  std::vector<ProxyNetwork::Endpoint> endpoints;
  for (const NodePlace& place : places_) endpoints.push_back({place.address, place.port});
  STARLING_ASSIGN(proxies_,
                  ProxyNetwork::open(std::move(endpoints), request_.experiment.options.run.seed));
  for (std::size_t i = 0; i < places_.size(); ++i) places_[i].shown = proxies_->port(i);
  for (const auto& [link, condition] : request_.links) {
    proxies_->set(link.first, link.second, condition);
  }
  return {};
}

Result<void> Launcher::make_nodes(const std::filesystem::path& logs) {
  const NetOptions& options = request_.experiment.options;
  const auto& trainers = request_.experiment.trainers;
  const auto trainer = trainers ? trainers->options().command : std::vector<std::string>();
  STARLING_TRY(make_directory(logs));
  STARLING_ASSIGN(places_, plan_nodes(options.topology.nodes, static_cast<unsigned>(::getpid()),
                                      scratch_->path(), logs));
  if (request_.proxied) STARLING_TRY(open_proxies());
  std::vector<identity::RosterMember> members;
  for (Node node = 0; node < places_.size(); ++node) {
    STARLING_ASSIGN(
        auto member,
        make_node_directory(places_[node], node, options, trainer, issuer_->service().authority(),
                            issuer_->service().address(), clock_.wall_now()));
    members.push_back(std::move(member));
  }
  const bool lossy = request_.proxied || !request_.script.empty() || request_.experiment.lossy();
  return issuer_->service().publish(std::move(members), roster_settings(options, lossy));
}

Result<void> Launcher::begin() {
  const Experiment& experiment = request_.experiment;
  STARLING_ASSIGN(
      ScratchDirectory scratch,
      ScratchDirectory::make(request_.options.keep ? Afterwards::kKept : Afterwards::kRemoved));
  scratch_.emplace(std::move(scratch));
  if (request_.options.keep) {
    hooks_.on_line("the peers' state directories stay in " + scratch_->path().string());
  }
  IssuerThread::Handlers handlers;
  handlers.on_report = [this](const std::string& member, const protocol::PeerReport& report,
                              TimePoint at) {
    const Node node = node_of(member);
    std::string& problem = problems_[node];
    if (std::exchange(problem, report.problem) != report.problem && !report.problem.empty()) {
      hooks_.on_line(member + ": " + report.problem);
    }
    recorder_->reported(node, report, at);
    alarm_.set(loop_.now());
  };
  handlers.on_model = [this](const std::string& member, protocol::Exchange exchange,
                             SharedBytes values, TimePoint at) {
    recorder_->handed_in(node_of(member), exchange, std::move(values), at);
    alarm_.set(loop_.now());
  };
  issuer_ = std::make_unique<IssuerThread>(loop_, clock_, log_, std::move(handlers));
  STARLING_TRY(issuer_->open(experiment.parameters()));
  STARLING_TRY(make_nodes(request_.logs.empty() ? scratch_->path() / "logs" : request_.logs));
  std::vector<std::string> names;
  for (const NodePlace& place : places_) names.push_back(place.name);
  const RunRecorder::Options options{.hand_in_deadline = request_.options.hand_in_deadline,
                                     .patience = request_.options.patience};
  recorder_.emplace(experiment, pool_, options, std::move(names), loop_.now());
  hooks_.on_measurement(recorder_->measurements().front());
  issuer_->start();
  children_.resize(places_.size());
  for (Node node = 0; node < places_.size(); ++node) STARLING_TRY(start(node));
  return {};
}

Result<void> Launcher::start(Node node) {
  const NodePlace& place = places_[node];
  const ChildProcess::Options options{
      .arguments = {request_.edge.string(), "start", "--state", place.directory.string()},
      .log = place.log};
  STARLING_ASSIGN(children_[node], ChildProcess::start(loop_, options, [this, node](ChildEnd how) {
                    ended(node, how);
                  }));
  recorder_->started(node, loop_.now());
  return {};
}

// --- while it runs ------------------------------------------------------------------------------

Node Launcher::node_of(const std::string& member) const {
  const auto found = std::ranges::find(places_, member, &NodePlace::name);
  return static_cast<Node>(found - places_.begin());
}

bool Launcher::any_runs() const {
  return std::ranges::any_of(children_, [](const auto& child) { return child != nullptr; });
}

void Launcher::look() {
  if (outcome_) return;
  const TimePoint now = loop_.now();
  for (const Node node : recorder_->take_silent(now)) {
    hooks_.on_line(fmt::format("{} has reported nothing for {}: frozen, or the machine is too busy",
                               places_[node].name, format_duration(RunRecorder::kSilentAfter)));
  }
  if (!first_step_ && recorder_->step() > 0) first_step_ = now;
  if (first_step_) {
    for (const FaultAction& action : schedule_.on(now - *first_step_, recorder_->step())) {
      std::visit([this](const auto& what) { perform(what); }, action);
    }
    for (Node node = 0; node < places_.size(); ++node) {
      if (schedule_.gone(node)) recorder_->left(node);
    }
  }
  while (const auto measurement = recorder_->take_measurement(now)) {
    hooks_.on_measurement(*measurement);
  }
  hooks_.on_peers(recorder_->rows());
  if (recorder_->complete()) {
    if (const std::size_t left = schedule_.waiting(); left > 0) {
      hooks_.on_line(fmt::format("{} event{} did not happen: the run was over before", left,
                                 left == 1 ? "" : "s"));
    }
    std::optional<Error> unfinished = recorder_->unfinished();
    if (unfinished) unfinished = with_logs(*unfinished);
    return end(LaunchResult{std::move(*recorder_).result(now), std::move(unfinished)});
  }
  if (!schedule_.next() && !any_runs()) {
    return end(with_logs(rejected("no-progress", "no process runs, and no event starts one")));
  }
  if (const auto stalled = recorder_->stalled(now)) return end(with_logs(*stalled));
  TimePoint next = std::min(recorder_->next_deadline(), loop_.now() + kLookEvery);
  const auto fault = schedule_.next();
  if (first_step_ && fault) next = std::min(next, *first_step_ + *fault);
  if (!outcome_) alarm_.set(next);
}

void Launcher::ended(Node node, ChildEnd how) {
  children_[node].reset();
  over_.cancel();
  if (outcome_) return;
  const bool finished = recorder_->finished(node) && how.exit_code == 0;
  recorder_->stopped(node, loop_.now());
  alarm_.set(loop_.now());
  if (finished) return;
  const NodePlace& place = places_[node];
  std::string sentence = place.name + " " + how.text();
  if (const std::string word = last_line(place.log); !word.empty()) {
    sentence += "; its last word: " + word;
  }
  end(with_logs(rejected("peer-ended", std::move(sentence))));
}

Error Launcher::with_logs(const Error& error) const {
  const std::string where = request_.logs.empty()
                                ? "say --out DIR to keep the peers' logs"
                                : "the peers' logs are in " + request_.logs.string();
  return error.with_message(error.message() + "; " + where);
}

void Launcher::interrupt() {
  if (outcome_) hurried_ = true;
  end(rejected("interrupted", "the run was interrupted; every peer has been stopped"));
}

void Launcher::end(Result<LaunchResult> outcome) {
  if (!outcome_) outcome_.emplace(std::move(outcome));
  over_.cancel();
}

void Launcher::perform(const KillNode& action) {
  children_[action.node].reset();
  recorder_->stopped(action.node, loop_.now());
}

void Launcher::perform(const StartNode& action) {
  if (const auto started = start(action.node); !started) end(started.error());
}

void Launcher::perform(const PauseNode& action) {
  if (!children_[action.node]) return;
  children_[action.node]->signal(SIGSTOP);
  recorder_->paused(action.node, loop_.now());
}

void Launcher::perform(const ResumeNode& action) {
  if (!children_[action.node]) return;
  children_[action.node]->signal(SIGCONT);
  recorder_->resumed(action.node, loop_.now());
}

void Launcher::perform(const SetLink& action) {
  proxies_->set(action.from, action.to, action.condition);
}

void Launcher::perform(const ResetLink& action) { proxies_->reset(action.a, action.b); }

// --- the end ------------------------------------------------------------------------------------

net::Async<void> Launcher::wait_and_stop() {
  while (!outcome_) {
    auto [error] = co_await over_.async_wait(asio::as_tuple(asio::use_awaitable));
    static_cast<void>(error);
  }
  alarm_.clear();
  co_await stop_children();
}

net::Async<void> Launcher::stop_children() {
  for (const auto& child : children_) {
    if (!child) continue;
    child->signal(SIGTERM);
    child->signal(SIGCONT);
  }
  const TimePoint deadline = loop_.now() + request_.options.stop_deadline;
  while (any_runs() && loop_.now() < deadline && !hurried_) {
    over_.expires_at(deadline);
    auto [error] = co_await over_.async_wait(asio::as_tuple(asio::use_awaitable));
    static_cast<void>(error);
  }
  children_.clear();  // kills what is left
}

}  // namespace

Result<LaunchResult> launch(const LaunchRequest& request, const Clock& clock, Log& log,
                            const LaunchHooks& hooks) {
  Launcher launcher(request, clock, log, hooks);
  return launcher.run();
}

}  // namespace starling::gossip
