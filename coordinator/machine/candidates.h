// SPDX-License-Identifier: Apache-2.0
// The admitted clients as one run sees them: who may be asked for a task, who cannot or is left
// out, and for how many of them the run waits.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/machine/client_table.h"
#include "coordinator/machine/coordinator_events.h"
#include "coordinator/machine/turn.h"
#include "core/base/deadlines.h"

namespace starling::coordinator {

class Candidates {
 public:
  // All must outlive the object. went_away() follows for each client that is away already.
  Candidates(const RunStart& run, const ClientTable& clients, const Turn& turn);

  void came(const std::string& name) { away_.clear(name); }
  void went_away(const std::string& name, const ClientTable::Client& client);
  void revoked(const std::string& name) { away_.clear(name); }

  // Who may be asked to train in the next round, in order of name; nothing while they are too few:
  // then the run waits, until stop_waiting().
  std::optional<std::vector<std::string>> to_train();
  // Who may be asked to evaluate, in order of name; of `needed` or more only those in time. Where
  // it `may_wait`, nothing while fewer than `wanted` are free and others that can evaluate are at
  // work: then the run waits, until stop_waiting().
  std::optional<std::vector<std::string>> to_evaluate(std::size_t needed, std::size_t wanted,
                                                      bool may_wait);
  std::string why_too_few_evaluate() const;
  // Whether all of them are connected and free.
  bool all_connected(const std::vector<std::string>& names);
  // Admitted clients whose data and program suit the run.
  std::uint64_t count_able() const;
  // As "1 of 3 clients cannot take part in this run (b: it has more classes)"; empty: all can.
  std::string describe_unable() const;

  // For how many clients the run waits; 0: it does not.
  std::size_t awaited() const { return awaited_; }
  void stop_waiting() { awaited_ = 0; }
  // For which kind of task. Requires: the run waits.
  protocol::TaskKind awaited_for() const { return awaited_for_; }
  // Whether it waits and too few clients for it are connected, free or not.
  bool lacks_connected() const { return awaited_ > 0 && count_connected_able() < awaited_; }
  // As "4 clients (3 connected, 2 of them can do this run)". Requires: the run waits.
  std::string describe_awaited() const;
  // Whether it waits though enough clients for it are connected: they are at work for other runs.
  bool held_up_by_others() const;

  struct Reach {
    struct LeftOut {
      std::string client;
      std::string reason;
      bool trains = false;  // it may be asked to train: it is among the able ones
    };
    std::size_t admitted = 0;
    std::size_t able = 0;  // as far as they said what they can
    std::size_t connected = 0;
    std::size_t connected_able = 0;
    std::vector<LeftOut> left_out;  // in order of name
  };
  Reach reach() const;

  // How many clients were looked at.
  std::uint64_t work() const { return work_; }

 private:
  std::string inability(const ClientTable::Client& client, protocol::TaskKind kind) const;
  std::vector<std::string> who_may_be_asked(protocol::TaskKind kind,
                                            bool or_is_at_work = false) const;
  void prefer_those_in_time(std::vector<std::string>& names, Round round, std::size_t needed) const;
  void wait_for(std::size_t awaited, protocol::TaskKind kind);
  bool still_waits_to_evaluate();
  std::size_t count_connected_able() const;

  const RunStart& run_;
  const ClientTable& clients_;
  const Turn& turn_;
  Deadlines<std::string> away_;  // clients that were seen and may come back, until when
  std::size_t awaited_ = 0;
  protocol::TaskKind awaited_for_ = protocol::TaskKind::kTrain;
  std::uint64_t looked_at_version_ = 0;   // of the clients' table, when too few were there
  std::uint64_t looked_at_presence_ = 0;  // likewise, of an evaluation
  mutable std::pair<std::uint64_t, bool> held_up_;  // by the clients' presence_version()
  std::string missing_;                             // of those that all_connected() looked for last
  mutable std::uint64_t work_ = 0;
};

}  // namespace starling::coordinator
