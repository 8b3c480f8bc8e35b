// SPDX-License-Identifier: Apache-2.0
// Long random lives, mostly of calls that are out of place: both stores must answer each alike.
#include "tests/store/sim_disk.h"
#include "tests/store/store_fixture.h"
#include "tests/store/store_script.h"

namespace starling::store {
namespace {

// A call and its answer as text, so that all kinds compare alike.
class RandomLife {
 public:
  explicit RandomLife(std::uint64_t seed) : rng_({.seed = seed, .purpose = Purpose::kTest}) {}

  std::function<std::string(Store&)> next() {
    ++now_;
    return rng_.below(3) == 0 ? next_of_clients() : next_of_runs();
  }

 private:
  template <class T>
  static std::string word(const Result<T>& result) {
    return result ? "ok" : result.error().code() + ": " + result.error().message();
  }

  std::string name() { return std::string(1, static_cast<char>('a' + rng_.below(4))); }
  std::string id() { return "0" + std::string(1, "0123456789abcdef"[rng_.below(16)]); }

  std::function<std::string(Store&)> next_of_clients() {
    const std::string who = name();
    const std::string what = id();
    const std::string key = "key " + std::to_string(rng_.below(40));
    const WallTime now = at(now_);
    switch (rng_.below(8)) {
      case 0:
        return [=, made = token(what, who, now_, now_ + 40)](Store& s) {
          return word(s.create_token(made));
        };
      case 1:
      case 2:
        return [=, serial = id(), csr = digest(name())](Store& s) {
          const auto result = s.redeem_token(what, csr, now, issuing(serial, key));
          return word(result) + (result ? result->certificate.serial : "");
        };
      case 3:
        return [=](Store& s) {
          const auto state = s.record_bad_try(what, now);
          return word(state) + (state ? std::string(to_string(*state)) : "");
        };
      case 4:
        return [=](Store& s) { return word(s.revoke_token(what, now)); };
      case 5:
        return [=](Store& s) {
          const auto revoked = s.revoke_client(who, now);
          return word(revoked) + (revoked ? std::to_string(revoked->size()) : "");
        };
      case 6:
        return [=](Store& s) { return word(s.add_certificate(certificate(what, who, key))); };
      default:
        return [=](Store& s) { return word(s.record_seen(who, now, std::nullopt)); };
    }
  }

  AttemptResult random_result() {
    AttemptResult result;
    for (std::uint64_t i = rng_.below(3); i > 0; --i) {
      result.contributions.push_back({name(), TaskId(1 + rng_.below(task_)), 1});
    }
    for (std::uint64_t i = rng_.below(2); i > 0; --i) {
      result.failures.push_back({name(), "deadline", "late", rng_.below(9), rng_.below(9)});
    }
    return result;
  }

  // Half of the calls follow what the store says, so that lives get on.
  std::function<std::string(Store&)> next_of_runs() {
    const RunId run(1 + rng_.below(3));
    const WallTime now = at(now_);
    const bool sensible = rng_.below(4) != 0;
    const AttemptKey wild{run, static_cast<Round>(rng_.below(4)),
                          static_cast<Attempt>(1 + rng_.below(3))};
    const std::string made = "model " + std::to_string(now_);
    const Abandonment why{"too-few-updates", made};
    switch (rng_.below(12)) {
      case 0:
        return [=, submit = name()](Store& s) {
          const auto id = s.submit_run({"job", 1, submit, ""}, now);
          return word(id) + (id ? std::to_string(id->value()) : "");
        };
      case 1:
        return [=](Store& s) { return word(s.start_run(run, model(0, made), now)); };
      case 2:
        if (rng_.below(20) != 0) break;
        return [=](Store& s) {
          return word(s.finish_run(run, {RunState::kFailed, "x", "y"}, now));
        };
      case 3:
        if (rng_.below(20) != 0) break;
        return [=](Store& s) { return word(s.request_stop(run, now)); };
      case 4:
        return [=](Store& s) { return word(s.withdraw_round(run, wild.round, why)); };
      case 5:
        return [=](Store& s) { return word(s.record_evaluation(run, wild.round, {0.5, {}})); };
      case 6:
        return
            [=](Store& s) { return word(s.append_log(run, std::vector<std::string>{made}, now)); };
      default:
        break;
    }
    if (rng_.below(2) == 0) {
      task_ += 2;
      return [=, first = task_ - rng_.below(3), one = name(), two = name()](Store& s) {
        return word(s.open_attempt(following(
            s, attempt(run, wild.round, wild.attempt, first, {one, two}, made), sensible)));
      };
    }
    return [=, result = random_result(), commits = rng_.below(2) == 0](Store& s) {
      AttemptKey key = wild;
      const auto open = s.find_open_attempt(run);
      if (sensible && open && *open) key = (**open).key;
      if (commits) return word(s.commit_attempt(key, result, model(key.round, made)));
      return word(s.abandon_attempt(key, result, why));
    };
  }

  static NewAttempt following(Store& store, NewAttempt wish, bool sensible) {
    const auto models = store.models(wish.key.run);
    if (!sensible || !models || models->empty()) return wish;
    wish.key.round = models->back().round + 1;
    wish.base_model = models->back().sha256;
    wish.key.attempt = 1;
    for (const RoundRecord& record : store.rounds(wish.key.run, wish.key.round).value()) {
      if (record.key.round == wish.key.round) wish.key.attempt = record.key.attempt + 1;
    }
    return wish;
  }

  Rng rng_;
  int now_ = 0;
  std::uint64_t task_ = 1;
};

TEST(Differential, BothStoresAnswerAlike) {
  const testing::TemporaryDirectory directory;
  std::size_t accepted = 0;
  std::size_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimDisk disk;
    const auto memory = make_memory_store();
    const auto sqlite =
        open_sqlite_store(directory.path() / "starling.db", {.create = true, .vfs = disk.vfs()});
    ASSERT_TRUE(sqlite) << sqlite.error().message();
    RandomLife life(seed);
    for (int i = 0; i < 300; ++i) {
      const auto call = life.next();
      const std::string expected = call(*memory);
      ASSERT_EQ(call(**sqlite), expected) << "call " << i;
      ++(expected.starts_with("ok") ? accepted : refused);
    }
    ASSERT_EQ(content_of(*memory, 700), content_of(**sqlite, 700));
  }
  EXPECT_GT(accepted, 1500U);
  EXPECT_GT(refused, 1500U);
}

}  // namespace
}  // namespace starling::store
