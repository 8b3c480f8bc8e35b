// SPDX-License-Identifier: Apache-2.0
// What operators may ask of a running service, by the name of the command. Each group of commands
// has its source file; every answer is JSON with the fields of the design, or a file.
#pragma once

#include <boost/json/value.hpp>
#include <functional>
#include <optional>
#include <string>

#include "coordinator/job/job.h"
#include "coordinator/machine/run_machine.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/service/client_registry.h"
#include "coordinator/service/coordinator_options.h"
#include "coordinator/service/gossip_issuer.h"
#include "coordinator/service/operator_answer.h"
#include "coordinator/service/state_directory.h"
#include "core/base/clock.h"
#include "core/base/computation.h"
#include "core/base/log.h"
#include "core/store/store.h"

namespace starling::coordinator {

class OperatorDesk {
 public:
  // All must outlive the desk.
  struct Parts {
    const Clock& clock;
    store::Store& store;
    const StateDirectory& state;
    const CoordinatorSettings& settings;
    ClientRegistry& registry;
    GossipIssuer& gossip;
    Log& log;
  };
  struct Handlers {
    // Of a client that is connected.
    std::function<std::optional<TimePoint>(const std::string& client)> heard_at;
    std::function<void(const std::string& client)> on_revoked;  // the registry knows already
    // Whether a run of this job could begin; `done` is called later, with the job as far as the
    // shape of its data is known.
    std::function<void(const Job&, Completion<TriedJob> done)> try_job;
    std::function<void()> on_submitted;
    std::function<void()> on_answered;   // an answer that had nothing has something now
    std::function<void(RunId)> on_stop;  // the store knows already
    // What a run that has not ended waits for; empty: for nothing.
    std::function<std::string(const store::Run&)> waits_for;
    // Null where the machine does not hold the run.
    std::function<const RunMachine*(RunId)> find_run;
    // What an operator should know of a job that is accepted all the same.
    std::function<std::vector<std::string>(const Job&)> warnings;
    std::function<void()> on_gossip_stopped;
    std::function<void(const Error&)> on_broken;
  };

  // `authority` and `port` stand in join tokens.
  OperatorDesk(const Parts& parts, Handlers handlers, Sha256Digest authority, std::uint16_t port);

  // "unknown-command", and the errors of each.
  [[nodiscard]] Answer respond(const std::string& command, const OperatorCall& call);

 private:
  Answer token_new(const OperatorCall& call);
  Answer token_list(const OperatorCall& call);
  Answer token_revoke(const OperatorCall& call);
  Answer client_list(const OperatorCall& call);
  Answer client_show(const OperatorCall& call);
  Answer client_revoke(const OperatorCall& call);
  Answer run_submit(const OperatorCall& call);
  Answer run_list(const OperatorCall& call);
  Answer run_show(const OperatorCall& call);
  Answer run_state(const OperatorCall& call);
  Answer run_log(const OperatorCall& call);
  Answer run_stop(const OperatorCall& call);
  Answer run_model(const OperatorCall& call);
  Answer run_export(const OperatorCall& call);
  Answer gossip_start(const OperatorCall& call);
  Answer gossip_show(const OperatorCall& call);
  Answer gossip_stop(const OperatorCall& call);
  Answer backup(const OperatorCall& call);

  Answer store_run(const std::string& caller, const store::NewRun& run,
                   const std::vector<std::string>& warnings);
  // Tells the service where the answer says that the store is broken.
  Answer noted(Answer answer);
  // null, or what the run waits for
  boost::json::value waits_for(const store::Run& run) const;
  // null, or who can do the run
  boost::json::value clients_of(RunId run) const;
  Result<store::Run> find_run(const OperatorCall& call);
  Result<store::ModelRecord> find_model(const store::Run& run, const OperatorCall& call);

  Parts parts_;
  Handlers handlers_;
  Sha256Digest authority_;
  std::uint16_t port_;
};

}  // namespace starling::coordinator
