// SPDX-License-Identifier: Apache-2.0
#include "core/store/rules.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <unordered_set>

#include "core/base/check.h"

namespace starling::store::rules {
namespace {

std::string describe(const AttemptKey& key) {
  const std::string_view evaluation = key.kind == PhaseKind::kEvaluate ? ", evaluation" : "";
  return fmt::format("run {}, round {}{}, attempt {}", key.run.value(), key.round, evaluation,
                     key.attempt);
}

Error wrong_state(const Run& run, std::string_view wish) {
  return rejected("run-state", fmt::format("run {} is {} and cannot be {}", run.id.value(),
                                           to_string(run.state), wish));
}

std::optional<double> without_nan(std::optional<double> value) {
  return value && std::isnan(*value) ? std::nullopt : value;
}

MetricValues without_nan(MetricValues metrics) {
  std::erase_if(metrics, [](const auto& metric) { return std::isnan(metric.second); });
  return metrics;
}

}  // namespace

TokenState token_state_at(const Token& token, WallTime now) {
  const bool over = token.state == TokenState::kOpen && now >= token.expires;
  return over ? TokenState::kExpired : token.state;
}

Result<void> may_join(std::string_view name, const std::optional<Client>& holder, WallTime now) {
  if (!holder || holder->state == ClientState::kRevoked) return {};
  if (now >= holder->certificate_expires) return {};
  return rejected("client-exists",
                  fmt::format("{} has already joined (its certificate is valid until {}); if its "
                              "device is lost or was reset, first: client revoke {}",
                              name, format_rfc3339(holder->certificate_expires), name));
}

Result<void> may_create(const Token& token, bool id_known) {
  STARLING_CHECK(token.state == TokenState::kOpen && token.bad_tries == 0);
  for (const std::string& address : token.addresses) {
    STARLING_CHECK(address.find('\n') == std::string::npos);
  }
  if (!id_known) return {};
  return rejected("token-exists", fmt::format("token {} exists already; draw another", token.id));
}

Result<void> may_revoke(const Token& token) {
  if (token.state != TokenState::kUsed) return {};
  return rejected("token-used", fmt::format("token {} was used by {}; to shut that client out: "
                                            "client revoke {}",
                                            token.id, token.client, token.client));
}

Token after_bad_try(Token token, WallTime now) {
  ++token.bad_tries;
  if (token_state_at(token, now) == TokenState::kOpen && token.bad_tries >= Token::kBadTriesMax) {
    token.state = TokenState::kLocked;
  }
  return token;
}

Result<RedeemStep> check_redemption(const Token& token, const Sha256Digest& csr_sha256,
                                    WallTime now) {
  switch (token_state_at(token, now)) {
    case TokenState::kOpen:
      return RedeemStep::kIssue;
    case TokenState::kUsed:
      if (token.csr_sha256 == csr_sha256) return RedeemStep::kRepeat;
      return rejected("token-used",
                      "this token was already used, with another key; ask the "
                      "operator for a new one");
    case TokenState::kRevoked:
      return rejected("token-revoked",
                      "this token was revoked or replaced by a newer one; ask "
                      "the operator for a new one");
    case TokenState::kLocked:
      return rejected("token-locked", fmt::format("this token is locked after {} bad tries; ask "
                                                  "the operator for a new one",
                                                  token.bad_tries));
    case TokenState::kExpired:
      break;
  }
  return rejected("token-expired", fmt::format("this token was valid until {}; ask the operator "
                                               "for a new one",
                                               format_rfc3339(token.expires)));
}

Result<Certificate> may_return_again(const Token& token, const std::optional<Certificate>& issued) {
  STARLING_CHECK(issued.has_value());
  if (!issued->revoked_at) return *issued;
  return rejected("certificate-revoked",
                  fmt::format("the certificate that {} got by this token was revoked at {}; ask "
                              "the operator for a new token",
                              token.client, format_rfc3339(*issued->revoked_at)));
}

Result<void> may_certify(const Certificate& certificate, bool serial_known, bool key_revoked) {
  if (serial_known) {
    return rejected("certificate-exists",
                    fmt::format("a certificate with serial {} was already issued; draw another "
                                "serial for {}",
                                certificate.serial, certificate.client));
  }
  if (key_revoked) {
    return rejected("key-revoked", fmt::format("the key of {} was revoked; make a new key and "
                                               "join again",
                                               certificate.client));
  }
  return {};
}

Result<void> may_renew(std::string_view name, const std::optional<Client>& client) {
  if (!client) return client_unknown(name);
  if (client->state == ClientState::kActive) return {};
  return rejected("client-revoked",
                  fmt::format("{} was revoked; it needs a new token to join again", name));
}

Error client_unknown(std::string_view name) {
  return rejected("client-unknown", fmt::format("no client of the name {} has joined; see: "
                                                "client list",
                                                name));
}

Error token_unknown(std::string_view id) {
  return rejected("token-unknown", fmt::format("there is no token {}; see: token list", id));
}

Result<void> same_submission(const Run& run, const NewRun& again) {
  if (run.name == again.name && run.seed == again.seed && run.job == again.job) return {};
  return rejected("submit-token-reused",
                  fmt::format("submit token '{}' belongs to run {}, which is another job; choose "
                              "another token for this one",
                              run.submit_token, run.id.value()))
      .as(ErrorCategory::kUsage);
}

Result<void> may_start(const Run& run) {
  if (run.state == RunState::kPending) return {};
  return wrong_state(run, "started");
}

Result<void> may_finish(const Run& run, const RunEnd& end) {
  STARLING_CHECK(is_finished(end.state));
  if (!is_finished(run.state)) return {};
  return wrong_state(run, to_string(end.state));
}

Error run_unknown(RunId id) {
  return rejected("run-unknown", fmt::format("there is no run {}; see: run list", id.value()));
}

Abandonment run_ended(RunState state) {
  return {"run-ended", fmt::format("the run was {} while this attempt was open", to_string(state))};
}

Abandonment base_withdrawn(Round round) {
  return {"base-withdrawn", fmt::format("round {}, from which this attempt started, was withdrawn "
                                        "because its model is damaged",
                                        round)};
}

Round next_round(PhaseKind kind, Round last_round) {
  return kind == PhaseKind::kTrain ? last_round + 1 : last_round;
}

Result<void> may_open(const NewAttempt& attempt, const Progress& progress) {
  const AttemptKey& key = attempt.key;
  if (progress.run != RunState::kRunning) {
    return rejected("run-state", fmt::format("{} cannot open: the run is {}", describe(key),
                                             to_string(progress.run)));
  }
  if (progress.attempt_open) {
    return rejected("attempt-open",
                    fmt::format("{} cannot open: another attempt is open", describe(key)));
  }
  const Round next = next_round(key.kind, progress.last_round);
  if (next == 0) {
    return rejected("round-order",
                    fmt::format("{} cannot open: no round is committed yet", describe(key)));
  }
  if (key.round != next || key.attempt != progress.last_attempt + 1 ||
      attempt.base_model != progress.last_model) {
    return rejected("round-order", fmt::format("{} cannot open: next is round {}, attempt {}, from "
                                               "model {}",
                                               describe(key), next, progress.last_attempt + 1,
                                               progress.last_model.hex()));
  }
  if (key.kind == PhaseKind::kEvaluate && progress.evaluated) {
    return rejected("round-evaluated",
                    fmt::format("{} cannot open: the round is evaluated already", describe(key)));
  }
  std::unordered_set<TaskId> tasks;
  std::set<std::string_view> clients;
  for (const CohortMember& member : attempt.cohort) {
    if (member.task == TaskId{} || !tasks.insert(member.task).second) {
      return task_exists(member.task);
    }
    if (!clients.insert(member.client).second) {
      return rejected("cohort-duplicate", fmt::format("{} cannot open: {} stands twice in its "
                                                      "cohort",
                                                      describe(key), member.client));
    }
  }
  return {};
}

Result<void> may_close(const AttemptKey& key, std::optional<RoundState> state) {
  if (state == RoundState::kOpen) return {};
  return rejected("attempt-closed",
                  fmt::format("{} cannot close: it is {}", describe(key),
                              state ? to_string(*state) : std::string_view("unknown")));
}

Result<void> check_contributions(const AttemptKey& key, const AttemptResult& result,
                                 const FindTask& find) {
  std::set<std::string_view> clients;
  for (const Contribution& contribution : result.contributions) {
    if (!(contribution.weight > 0) || !std::isfinite(contribution.weight)) {
      return rejected("weight-range",
                      fmt::format("{}: the weight {} of {} is not a positive "
                                  "number",
                                  describe(key), contribution.weight, contribution.client));
    }
    STARLING_ASSIGN(const std::optional<TaskRecord> task, find(contribution.task));
    if (!task || task->client != contribution.client || task->attempt.run != key.run ||
        task->attempt.round != key.round || task->attempt.kind != key.kind ||
        !clients.insert(contribution.client).second) {
      return rejected(
          "task-mismatch",
          fmt::format("{}: {} does not answer a task of this phase once by task {:016x}",
                      describe(key), contribution.client, contribution.task.value()));
    }
  }
  return {};
}

AttemptResult normalized(AttemptResult result) {
  result.train_loss = without_nan(result.train_loss);
  result.train_metrics = without_nan(std::move(result.train_metrics));
  result.evaluation = normalized(std::move(result.evaluation));
  return result;
}

Evaluation normalized(Evaluation evaluation) {
  return {without_nan(evaluation.loss), without_nan(evaluation.accuracy),
          without_nan(std::move(evaluation.metrics))};
}

Result<void> may_withdraw(RunId run, Round round, Round last_round) {
  if (round == last_round && round > 0) return {};
  return rejected("round-order", fmt::format("round {} of run {} cannot be withdrawn: the last "
                                             "committed one is {}",
                                             round, run.value(), last_round));
}

Error task_exists(TaskId task) {
  return rejected("task-exists",
                  fmt::format("task {:016x} was already issued or is 0", task.value()));
}

}  // namespace starling::store::rules
