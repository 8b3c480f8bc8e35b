// SPDX-License-Identifier: Apache-2.0
// A Store on a disk that can be closed and opened again, and small makers of records.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/store/sqlite_store.h"
#include "tests/support/temporary_directory.h"

namespace starling::store {

inline WallTime at(int seconds) { return WallTime(std::chrono::seconds(1'800'000'000 + seconds)); }
inline Sha256Digest digest(std::string_view text) { return sha256(as_bytes(text)); }

inline Certificate certificate(std::string serial, std::string client, std::string_view key = "") {
  const std::string own_key = "key of " + serial;
  return {.serial = serial,
          .client = std::move(client),
          .fingerprint = digest(key.empty() ? own_key : key),
          .pem = "-----BEGIN CERTIFICATE-----\n" + serial,
          .not_before = at(0),
          .not_after = at(30 * 86400),
          .revoked_at = std::nullopt};
}

inline Token token(std::string id, std::string client, int created = 0, int expires = 3600) {
  Token made;
  made.id = std::move(id);
  made.client = std::move(client);
  made.mac_key = to_bytes(digest(made.id).bytes());
  made.created = at(created);
  made.expires = at(expires);
  return made;
}

inline IssueCertificate issuing(std::string serial, std::string_view key = "") {
  return [serial, key = std::string(key)](const Token& used) -> Result<Certificate> {
    return certificate(serial, used.client, key);
  };
}

inline ModelRecord model(Round round, std::string_view content) {
  return {.round = round, .sha256 = digest(content)};
}

inline NewAttempt attempt(RunId run, Round round, Attempt number, std::uint64_t first_task,
                          std::vector<std::string> clients, std::string_view base) {
  NewAttempt opened{{run, round, number}, {}, digest(base), at(10)};
  for (std::string& client : clients) {
    opened.cohort.push_back({std::move(client), TaskId(first_task++)});
  }
  return opened;
}

// The same at an evaluate phase.
inline NewAttempt evaluation(RunId run, Round round, Attempt number, std::uint64_t first_task,
                             std::vector<std::string> clients, std::string_view base) {
  NewAttempt opened = attempt(run, round, number, first_task, std::move(clients), base);
  opened.key.kind = PhaseKind::kEvaluate;
  return opened;
}

template <class T>
std::string code_of(const Result<T>& result) {
  return result ? "ok" : result.error().code();
}

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override { open(); }

  // A restart.
  void reopen() {
    store_.reset();
    open();
  }
  Store& store() { return *store_; }

  // A run that is under way from the model "m0".
  RunId started_run() {
    const RunId id = store().submit_run({"job", 1, "", "rounds = 3"}, at(0)).value();
    EXPECT_TRUE(store().start_run(id, model(0, "m0"), "", at(1)));
    return id;
  }

 private:
  void open() {
    auto opened = open_sqlite_store(directory_.path() / "starling.db", {.create = true});
    ASSERT_TRUE(opened) << opened.error().message();
    store_ = std::move(*opened);
  }

  testing::TemporaryDirectory directory_;
  std::unique_ptr<Store> store_;
};

}  // namespace starling::store
