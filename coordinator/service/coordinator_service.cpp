// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/coordinator_service.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/machine/job_warnings.h"
#include "coordinator/rounds/coordinator_core.h"
#include "coordinator/service/backup_snapshot.h"
#include "coordinator/service/client_registry.h"
#include "coordinator/service/fallback_issuer.h"
#include "coordinator/service/gossip_issuer.h"
#include "coordinator/service/host_names.h"
#include "coordinator/service/operator_desk.h"
#include "coordinator/service/operator_sessions.h"
#include "coordinator/service/service_certificates.h"
#include "coordinator/service/store_ledger.h"
#include "coordinator/service/trainer_evaluator.h"
#include "core/base/durable_file.h"
#include "core/enrol/enrolment_service.h"
#include "core/issuer/client_sessions.h"
#include "core/net/alarm.h"
#include "core/net/listener.h"
#include "core/net/rate_limiter.h"
#include "core/net/refusal_log.h"
#include "core/net/task_group.h"
#include "core/store/sqlite_store.h"

namespace starling::coordinator {
namespace {

constexpr Duration kMaintenance = std::chrono::hours(1);
constexpr Duration kHeardStep = std::chrono::minutes(1);
constexpr Duration kDrainStep = std::chrono::milliseconds(20);

struct Opened {
  std::unique_ptr<store::Store> store;
  identity::CertificateAuthority authority;
};

Result<Opened> open_state(const StateDirectory& state) {
  STARLING_ASSIGN(auto store, store::open_sqlite_store(state.database(), {}));
  STARLING_ASSIGN(auto authority, identity::CertificateAuthority::load(state.authority()));
  STARLING_ASSIGN(const auto federation, store->federation());
  if (federation.name != authority.federation()) {
    return rejected("state-mismatched",
                    fmt::format("{} is of the federation '{}' and {} of '{}'; put files of one "
                                "state directory together",
                                state.database().string(), federation.name,
                                state.authority().string(), authority.federation()));
  }
  return Opened{std::move(store), std::move(authority)};
}

net::ConnectionOptions connection_options(const ConnectionSettings& settings) {
  net::ConnectionOptions options;
  options.queue_bytes_max = settings.queue_bytes;
  options.queue_frames_max = settings.queue_frames;
  options.idle_max = settings.idle;
  options.frame_max = settings.frame;
  options.stall_max = settings.stall;
  return options;
}

CoordinatorShell::Options shell_options(const CoordinatorSettings& settings,
                                        const std::string& federation) {
  CoordinatorShell::Options options;
  options.machine.federation = federation;
  options.machine.heartbeat = settings.session.heartbeat;
  options.machine.silence_max = settings.session.silence;
  options.machine.greeting_deadline = settings.session.greeting;
  options.machine.runs_max = settings.service.runs_max;
  options.machine.upload_retry = settings.session.upload_retry;
  options.machine.transfer = {.chunk_bytes_max = settings.session.chunk_bytes,
                              .window_bytes = settings.session.window_bytes};
  options.disk_retry = settings.service.disk_retry;
  options.held_actions_max = settings.service.held_actions_max;
  return options;
}

store::UploadSpool::Options spool_options(const StateDirectory& state,
                                          const SpoolSettings& settings) {
  return {.directory = state.spool(),
          .memory_bytes_max = settings.memory_bytes,
          .disk_bytes_max = settings.disk_bytes};
}

// A run that has begun goes on without evaluations where there is no trainer any more.
PrepareContext prepare_within(const store::UploadSpool::Options& spool, bool has_trainer) {
  return [spool, has_trainer](const Job& job, const ExternalOrigin& origin) -> Result<RunContext> {
    if (job.evaluate.by_trainer() && !has_trainer && !origin.model) {
      return wrong_setting(
          "no-trainer",
          "evaluate.dataset = \"trainer\" needs a trainer at the coordinator: set [trainer] "
          "command in coordinator.toml and start the service again, or let clients evaluate the "
          "model, evaluate.federated-every = 1");
    }
    STARLING_ASSIGN(auto context, prepare_context(job, origin));
    STARLING_TRY(check_spool(context, spool));
    return context;
  };
}

enrol::EnrolmentOptions enrolment_options(const EnrolSettings& settings) {
  enrol::EnrolmentOptions options;
  options.certificate_lifetime = settings.certificate_lifetime;
  options.exchange_max = settings.exchange;
  options.tries.per_second = settings.tries_per_second;
  options.tries.burst = settings.tries_burst;
  return options;
}

// Rounds pass between two starts of one that fails, so that it needs no pauses.
std::unique_ptr<TrainerEvaluator> make_evaluator(const StateDirectory& state,
                                                 const CoordinatorSettings& settings,
                                                 unsigned threads, Log& log) {
  if (settings.trainer.command.empty()) return nullptr;
  return std::make_unique<TrainerEvaluator>(
      client::TrainerHost::Options{.trainer = settings.trainer,
                                   .directory = state.trainer(),
                                   .client = {},
                                   .threads = static_cast<int>(threads),
                                   .pause_min = Duration::zero(),
                                   .pause_max = Duration::zero()},
      log);
}

unsigned evaluation_threads(int wanted) {
  return wanted > 0 ? static_cast<unsigned>(wanted) : available_processors();
}

}  // namespace

// Members are in the order of their dependencies: each may use those above it.
struct CoordinatorService::Impl {
  Impl(net::EventLoop& l, const Clock& c, Log& g, const StateDirectory& s,
       const CoordinatorSettings& o, OnBroken b, Opened opened)
      : loop(l),
        clock(c),
        log(g),
        state(s),
        settings(o),
        started_with(o),
        on_broken(std::move(b)),
        store(std::move(opened.store)),
        authority(std::move(opened.authority)) {}

  Result<void> start();
  // Returns where, as HOST:PORT.
  Result<std::string> listen();
  Result<void> record_address(const identity::HostPort& served);
  // What the threads are still at uses the core's uploads.
  ~Impl() {
    rounds.reset();
    loading.reset();
  }
  void put_together();
  void make_gossip();
  void make_core();
  void wake_operators();
  void take(std::unique_ptr<net::Connection> connection);
  void hear(SessionId id, protocol::Envelope envelope);
  void receive(SessionId id, protocol::Envelope envelope);
  void refused(const net::Refusal& refusal);
  void revoked(const std::string& name);
  Result<std::shared_ptr<const net::TlsContext>> make_tls();
  Result<void> renew_issuer();
  void renew();
  void broke(const Error& error);
  void check_stored(const Result<void>& stored);
  std::optional<TimePoint> heard_at(const std::string& name) const;
  void record_heard();
  net::Async<void> stop();

  net::EventLoop& loop;
  const Clock& clock;
  Log& log;
  const StateDirectory state;
  CoordinatorSettings settings;
  const CoordinatorSettings started_with;
  OnBroken on_broken;
  bool broken = false;
  WallTime heard_recorded{};

  std::unique_ptr<store::Store> store;
  const identity::CertificateAuthority authority;
  ClientRegistry registry;
  SystemDisk disk;
  ComputePool evaluators{evaluation_threads(settings.service.threads)};
  const std::unique_ptr<TrainerEvaluator> trainer =  // null: there is none
      make_evaluator(state, settings, evaluators.threads(), log);
  // A thread for each active run, for none waits until another one's model is evaluated, and one
  // for a run whose initial model is made.
  std::unique_ptr<PooledComputation> rounds = std::make_unique<PooledComputation>(
      loop, static_cast<unsigned>(settings.service.runs_max) + 1);
  std::unique_ptr<PooledComputation> loading = std::make_unique<PooledComputation>(loop, 1);
  net::RateLimiter connection_rate{
      {.per_second = settings.connection.per_second, .burst = settings.connection.burst}};
  net::RefusalLog refusals{loop, log, "refused"};
  StoreLedger ledger{*store, clock,
                     [this](const std::string& name, const std::string& address) {
                       return gossip->check_joining(name, address);
                     },
                     [this](const std::string& name, store::Role role) {
                       registry.admit(name, role);
                       log.info("{} joined as {}", name, store::to_string(role));
                       if (role == store::Role::kOperator) return;
                       core->handle(ClientAdmitted{name});
                       gossip->members_changed();
                       fallback->members_changed();
                     },
                     [this](const Error& error) { broke(error); }};
  enrol::EnrolmentService enrolment{loop,  authority, ledger,
                                    clock, log,       enrolment_options(settings.enrol)};
  net::TaskGroup enrolments{loop};
  std::unique_ptr<issuer::ClientSessions> sessions;
  std::unique_ptr<GossipIssuer> gossip;
  std::unique_ptr<FallbackIssuer> fallback;
  std::unique_ptr<OperatorDesk> desk;
  std::unique_ptr<OperatorSessions> operators;
  std::unique_ptr<CoordinatorCore> core;
  std::unique_ptr<net::Listener> listener;
  net::Alarm maintenance{loop, [this] { renew(); }};
};

void CoordinatorService::Impl::broke(const Error& error) {
  if (std::exchange(broken, true)) return;
  log.error("{}; the service stops, and the next start recovers", error.message());
  on_broken(error);
}

void CoordinatorService::Impl::put_together() {
  sessions = std::make_unique<issuer::ClientSessions>(
      loop, clock, log,
      [this](const identity::Identity& identity, const identity::Certificate& certificate) {
        return registry.check(identity, certificate, clock.wall_now());
      },
      issuer::ClientSessions::Options{.sessions_max = settings.session.sessions_max,
                                      .per_client_max = settings.session.per_client,
                                      .frames_per_second = settings.session.frames_per_second,
                                      .goodbye = settings.service.goodbye},
      issuer::ClientSessions::Handlers{
          .on_opened =
              [this](SessionId id, const std::string& client) {
                core->handle(SessionOpened{id, client});
              },
          .on_message = [this](SessionId id,
                               protocol::Envelope envelope) { hear(id, std::move(envelope)); },
          .on_closed =
              [this](SessionId id) {
                gossip->desk().closed(id);
                core->handle(SessionClosed{id});
              }});
  make_gossip();
  make_core();
  operators = std::make_unique<OperatorSessions>(
      loop, clock, registry, log,
      OperatorSessions::Options{.sessions_max = settings.operators.sessions_max,
                                .requests_max = settings.operators.requests_max,
                                .goodbye = settings.service.goodbye},
      [this](const std::string& command, const OperatorCall& call) {
        return desk->respond(command, call);
      },
      [this](const std::string& name) {
        check_stored(store->record_seen(name, clock.wall_now(), std::nullopt));
      });
}

void CoordinatorService::Impl::make_core() {
  core = std::make_unique<CoordinatorCore>(
      CoordinatorCore::World{
          loop, clock, *store, *sessions, disk,
          [this](RunId run) { return store::Checkpoints(disk, state.models(run)); },
          prepare_within(spool_options(state, settings.spool), trainer != nullptr),
          strategy::builtin_strategies(), *rounds, *loading, evaluators, log, trainer.get()},
      CoordinatorCore::Options{shell_options(settings, authority.federation()),
                               spool_options(state, settings.spool)},
      CoordinatorCore::Handlers{
          .on_line = [this](const std::string&) { wake_operators(); },
          .on_run_loaded =
              [this](const RunStart& start) {
                if (start.open || start.at.version.round > 0) {
                  fallback->run_trains(start.id, start.job);
                } else {
                  fallback->run_loaded(start.id, start.job);
                }
              },
          .on_round_began = [this](RunId run, const Job& job) { fallback->run_trains(run, job); },
          .on_run_ended =
              [this](RunId run) {
                fallback->run_ended(run);
                wake_operators();
              },
          .on_welcomed =
              [this](SessionId id, const std::string& client) {
                gossip->desk().opened(id, client);
                gossip->greeted(client);
              },
          .on_broken = [this](const Error& error) { broke(error); }});
}

void CoordinatorService::Impl::wake_operators() {
  if (operators) operators->wake();
}

void CoordinatorService::Impl::make_gossip() {
  gossip = std::make_unique<GossipIssuer>(
      GossipIssuer::Parts{loop, clock, *store, state, log}, authority.federation(),
      GossipIssuer::Handlers{
          .send = [this](SessionId id,
                         const protocol::Envelope& envelope) { sessions->send(id, envelope); },
          .queued_bytes = [this](SessionId id) { return sessions->queued_bytes(id); },
          .on_broken = [this](const Error& error) { broke(error); }});
  fallback = std::make_unique<FallbackIssuer>(*gossip, log);
}

void CoordinatorService::Impl::hear(SessionId id, protocol::Envelope envelope) {
  receive(id, std::move(envelope));
  record_heard();
}

void CoordinatorService::Impl::receive(SessionId id, protocol::Envelope envelope) {
  if (!gossip->desk().is_mine(id, envelope.message)) {
    return core->handle(MessageReceived{id, std::move(envelope)});
  }
  core->handle(SessionHeard{id});
  const auto taken = gossip->desk().take(id, envelope);
  if (taken) return;
  const Error reason = taken.error();
  sessions->send(id, {protocol::Bye{reason.code(), reason.message()}, {}});
  sessions->close(id, reason.code(), reason.message());
}

// Only a failure that a restart must mend matters.
void CoordinatorService::Impl::check_stored(const Result<void>& stored) {
  if (!stored && stored.error().kind() == ErrorKind::kInternal) broke(stored.error());
}

// Of a client or an operator that is connected.
std::optional<TimePoint> CoordinatorService::Impl::heard_at(const std::string& name) const {
  const auto as_client = core->heard_at(name);
  return as_client ? as_client : operators->heard_at(name);
}

// The store learns of a greeting and of a goodbye at once. What it is told in between is for the
// start after a crash; no older than a minute, since connected clients ping more often.
void CoordinatorService::Impl::record_heard() {
  const WallTime wall = clock.wall_now();
  if (std::chrono::abs(wall - heard_recorded) < kHeardStep) return;
  heard_recorded = wall;
  const TimePoint now = clock.now();
  std::vector<store::ClientHeard> heard;
  for (std::string& client : registry.clients()) {
    const auto at = core->heard_at(client);
    if (!at) continue;
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - *at);
    heard.push_back({std::move(client), wall - age});
  }
  check_stored(store->record_heard(heard));
}

Result<void> CoordinatorService::Impl::start() {
  BackupSnapshot::sweep(state);
  put_together();
  STARLING_TRY(registry.load(*store));
  STARLING_TRY(renew_local_operator(state, authority, settings, *store, clock.wall_now(), log));
  STARLING_ASSIGN(const auto unknown, store::set_aside_unknown_runs(*store, disk, state.models()));
  for (const std::string& sentence : unknown) log.warning("{}", sentence);
  // Before runs are resumed, which their logs record: a start that fails here is tried again.
  // Connections are accepted once the loop runs.
  STARLING_ASSIGN(const std::string served, listen());
  if (auto started = core->start(); !started) {
    loop.run_task(listener->close());
    return started;
  }
  log.info("federation {} listens on {}", authority.federation(), served);
  gossip->resume();
  fallback->begin();
  desk = std::make_unique<OperatorDesk>(
      OperatorDesk::Parts{clock, *store, state, settings, registry, *gossip, log},
      OperatorDesk::Handlers{
          .heard_at = [this](const std::string& name) { return heard_at(name); },
          .on_revoked = [this](const std::string& name) { revoked(name); },
          .try_job = [this](
                         const Job& job,
                         Completion<TriedJob> done) { core->runs().try_job(job, std::move(done)); },
          .on_submitted = [this] { core->runs().load_next(); },
          .on_answered = [this] { operators->wake(); },
          .on_stop = [this](RunId run) { core->stop(run); },
          .waits_for = [this](const store::Run& run) { return core->waits_for(run); },
          .find_run = [this](RunId run) { return core->machine().find_run(run); },
          .warnings =
              [this](const Job& job) { return job_warnings(job, core->machine().clients()); },
          .on_gossip_stopped = [this] { fallback->network_stopped(); },
          .on_broken = [this](const Error& error) { broke(error); }},
      authority.certificate().public_key_digest(), listener->port());
  core->runs().load_next();
  maintenance.set(loop.now() + kMaintenance);
  return {};
}

Result<std::shared_ptr<const net::TlsContext>> CoordinatorService::Impl::make_tls() {
  STARLING_ASSIGN(const auto credentials,
                  server_credentials(state, authority, settings, clock.wall_now()));
  return make_service_tls(credentials, authority.federation(), clock, registry);
}

// What signs rosters.
Result<void> CoordinatorService::Impl::renew_issuer() {
  STARLING_ASSIGN(auto issuer, issuer_credentials(state, authority, settings, clock.wall_now()));
  gossip->set_credentials(std::move(issuer));
  return {};
}

Result<std::string> CoordinatorService::Impl::listen() {
  STARLING_TRY(renew_issuer());
  STARLING_ASSIGN(auto tls, make_tls());
  STARLING_ASSIGN(const auto address, settings.listen_address());
  net::ListenerOptions options;
  options.host = address.host;
  options.port = address.port;
  options.handshakes_max = settings.connection.handshakes_max;
  options.handshakes_per_address_max = settings.connection.handshakes_per_address;
  options.handshake_max = settings.connection.handshake;
  options.connection = connection_options(settings.connection);
  net::ListenerHandlers handlers;
  handlers.on_connection = [this](std::unique_ptr<net::Connection> connection) {
    take(std::move(connection));
  };
  handlers.on_refused = [this](const net::Refusal& refusal) { refused(refusal); };
  handlers.may_connect = [this](const std::string& remote) {
    return connection_rate.allow(remote, loop.now());
  };
  STARLING_ASSIGN(listener, net::Listener::open(loop, std::move(tls), options, handlers));
  const identity::HostPort served{address.host, listener->port()};
  if (const auto recorded = record_address(served); !recorded) {
    loop.run_task(listener->close());
    return recorded.error();
  }
  return served.text();
}

Result<void> CoordinatorService::Impl::record_address(const identity::HostPort& served) {
  const auto before = read_address(state);
  if (before && *before == served) return {};
  if (before && before->port != served.port) {
    log.warning(
        "the port was {} and is {} now: earlier tokens, and devices that joined with them, dial "
        "port {}; serve that port again, or make new tokens",
        before->port, served.port, before->port);
  }
  const auto names = settings.names();
  if (!names.empty() && identity::is_numeric_address(names.front()) && !is_wildcard(served.host) &&
      names.front() != served.host) {
    log.warning(
        "devices dial {} (the first of service.names), but the service listens only on {}: unless "
        "the one is forwarded to the other, join tokens do not work",
        names.front(), served.host);
  }
  return write_durably(state.address(), as_bytes(served.text() + "\n"));
}

void CoordinatorService::Impl::take(std::unique_ptr<net::Connection> connection) {
  if (connection->protocol() == net::Protocol::kEnrolment) {
    return enrolments.spawn(enrolment.serve(std::move(connection)));
  }
  if (connection->peer()->identity.role == identity::Role::kOperator) {
    return operators->add(std::move(connection));
  }
  sessions->add(std::move(connection));
}

void CoordinatorService::Impl::refused(const net::Refusal& refusal) {
  refusals.say(refusal.remote_address, refusal.error);
}

void CoordinatorService::Impl::revoked(const std::string& name) {
  core->handle(ClientRevoked{name});
  core->runs().clients_changed();  // the others may agree on the shape of their data
  operators->cut(name);
  gossip->members_changed();
  fallback->members_changed();
}

void CoordinatorService::Impl::renew() {
  maintenance.set(loop.now() + kMaintenance);
  const auto renewed =
      renew_local_operator(state, authority, settings, *store, clock.wall_now(), log);
  if (!renewed) log.error("the operator's certificate: {}", renewed.error().message());
  if (const auto issuer = renew_issuer(); !issuer) {
    log.error("the issuer's certificate stays as it was: {}", issuer.error().message());
  }
  auto tls = make_tls();
  if (tls) return listener->set_tls(std::move(*tls));
  log.error("the certificate stays as it was: {}", tls.error().message());
}

net::Async<void> CoordinatorService::Impl::stop() {
  maintenance.clear();
  co_await listener->close();
  core->drain();
  if (trainer) trainer->stop();  // the round is committed without its evaluation
  const TimePoint deadline = loop.now() + settings.service.drain;
  while (core->commits() && !broken && loop.now() < deadline) {
    const TimePoint next = loop.now() + kDrainStep;
    co_await net::sleep_until(loop, next);
  }
  co_await operators->stop();
  co_await sessions->stop();
  co_await enrolments.stop();
  while (trainer && !trainer->stopped()) {  // it has two seconds to end by itself
    const TimePoint next = loop.now() + kDrainStep;
    co_await net::sleep_until(loop, next);
  }
}

// ------------------------------------------------------------------------------------------------

Result<std::unique_ptr<CoordinatorService>> CoordinatorService::start(
    net::EventLoop& loop, const Clock& clock, Log& log, const StateDirectory& state,
    const CoordinatorSettings& settings, OnBroken on_broken) {
  STARLING_TRY(settings.validate());
  STARLING_ASSIGN(Opened opened, open_state(state));
  auto impl = std::make_unique<Impl>(loop, clock, log, state, settings, std::move(on_broken),
                                     std::move(opened));
  STARLING_TRY(impl->start());
  return std::unique_ptr<CoordinatorService>(new CoordinatorService(std::move(impl)));
}

CoordinatorService::CoordinatorService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CoordinatorService::~CoordinatorService() = default;

std::uint16_t CoordinatorService::port() const { return impl_->listener->port(); }

bool CoordinatorService::is_computing() const { return impl_->core->computes(); }

void CoordinatorService::reload(const CoordinatorSettings& settings) {
  CoordinatorSettings next = impl_->started_with;
  next.service.names = settings.service.names;
  next.enrol = settings.enrol;
  CoordinatorSettings wanted = settings;
  config::Binder of_next;
  config::Binder of_wanted;
  next.bind(of_next);
  wanted.bind(of_wanted);
  const Settings now = of_next.settings();
  const Settings asked = of_wanted.settings();
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] != asked[i]) impl_->log.warning("{} changes at the next start", now[i].first);
  }
  impl_->settings = next;
  impl_->enrolment.set_options(enrolment_options(next.enrol));
  impl_->renew();
  impl_->log.info("settings and certificates were read again");
}

net::Async<void> CoordinatorService::stop() { return impl_->stop(); }

}  // namespace starling::coordinator
