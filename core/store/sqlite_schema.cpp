// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_schema.h"

#include <fmt/format.h>

#include <array>

namespace starling::store {
namespace {

// Times are milliseconds since 1970 UTC; unsigned 64-bit numbers are stored as the signed ones of
// the same bits. Published versions never change: append.
constexpr std::array<const char*, kSchemaVersion> kMigrations = {R"sql(
CREATE TABLE federation(
  only INTEGER PRIMARY KEY CHECK(only = 1),
  name TEXT NOT NULL,
  created INTEGER NOT NULL
) STRICT;
CREATE TABLE facts(
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE clients(
  name TEXT PRIMARY KEY,
  role TEXT NOT NULL CHECK(role IN ('device', 'peer', 'operator')),
  state TEXT NOT NULL CHECK(state IN ('active', 'revoked')),
  joined INTEGER NOT NULL,
  last_seen INTEGER,
  training_rows INTEGER NOT NULL DEFAULT 0,
  certificate TEXT NOT NULL REFERENCES certificates(serial) DEFERRABLE INITIALLY DEFERRED
) STRICT, WITHOUT ROWID;
CREATE TABLE certificates(
  serial TEXT PRIMARY KEY,
  client TEXT NOT NULL REFERENCES clients(name),
  fingerprint BLOB NOT NULL CHECK(length(fingerprint) = 32),
  pem TEXT NOT NULL,
  not_before INTEGER NOT NULL,
  not_after INTEGER NOT NULL,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX certificates_by_client ON certificates(client);
CREATE INDEX revocations ON certificates(fingerprint) WHERE revoked_at IS NOT NULL;
CREATE TABLE tokens(
  id TEXT PRIMARY KEY,
  client TEXT NOT NULL,
  role TEXT NOT NULL CHECK(role IN ('device', 'peer', 'operator')),
  addresses TEXT NOT NULL,
  mac_key BLOB NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  state TEXT NOT NULL CHECK(state IN ('open', 'used', 'revoked', 'locked')),
  bad_tries INTEGER NOT NULL DEFAULT 0,
  csr_sha256 BLOB CHECK(length(csr_sha256) = 32),
  certificate TEXT REFERENCES certificates(serial),
  CHECK((state = 'used') = (csr_sha256 IS NOT NULL AND certificate IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_open_token ON tokens(client) WHERE state = 'open';

CREATE TABLE runs(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  state TEXT NOT NULL CHECK(state IN ('pending', 'running', 'completed', 'failed', 'stopped')),
  seed INTEGER NOT NULL,
  submit_token TEXT UNIQUE,
  job TEXT NOT NULL,
  submitted INTEGER NOT NULL,
  started INTEGER,
  ended INTEGER,
  error_code TEXT NOT NULL DEFAULT '',
  error TEXT NOT NULL DEFAULT '',
  stop_requested INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE models(
  run INTEGER NOT NULL REFERENCES runs(id),
  round INTEGER NOT NULL,
  sha256 BLOB NOT NULL CHECK(length(sha256) = 32),
  file TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY(run, round)
) STRICT, WITHOUT ROWID;
CREATE TABLE attempts(
  run INTEGER NOT NULL REFERENCES runs(id),
  round INTEGER NOT NULL CHECK(round >= 1),
  attempt INTEGER NOT NULL CHECK(attempt >= 1),
  state TEXT NOT NULL CHECK(state IN ('open', 'committed', 'abandoned')),
  base_model BLOB NOT NULL CHECK(length(base_model) = 32),
  started INTEGER NOT NULL,
  train_loss REAL,
  eval_loss REAL,
  eval_accuracy REAL,
  seconds REAL NOT NULL DEFAULT 0,
  bytes_in INTEGER NOT NULL DEFAULT 0,
  bytes_out INTEGER NOT NULL DEFAULT 0,
  abandon_code TEXT,
  abandon_reason TEXT,
  PRIMARY KEY(run, round, attempt),
  CHECK((state = 'abandoned') = (abandon_code IS NOT NULL AND abandon_reason IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_open_attempt ON attempts(run) WHERE state = 'open';
CREATE UNIQUE INDEX one_committed_attempt ON attempts(run, round) WHERE state = 'committed';
CREATE TABLE tasks(
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL,
  round INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  position INTEGER NOT NULL,
  client TEXT NOT NULL,
  outcome TEXT NOT NULL CHECK(outcome IN ('open', 'committed', 'expired', 'abandoned')),
  FOREIGN KEY(run, round, attempt) REFERENCES attempts(run, round, attempt)
) STRICT;
CREATE UNIQUE INDEX cohorts ON tasks(run, round, attempt, position);
CREATE TABLE contributions(
  run INTEGER NOT NULL,
  round INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  position INTEGER NOT NULL,
  client TEXT NOT NULL,
  task INTEGER NOT NULL REFERENCES tasks(id),
  weight REAL NOT NULL CHECK(weight > 0),
  PRIMARY KEY(run, round, attempt, position),
  UNIQUE(run, round, attempt, client),
  FOREIGN KEY(run, round, attempt) REFERENCES attempts(run, round, attempt)
) STRICT, WITHOUT ROWID;
CREATE TABLE failures(
  run INTEGER NOT NULL,
  round INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  position INTEGER NOT NULL,
  client TEXT NOT NULL,
  code TEXT NOT NULL,
  reason TEXT NOT NULL,
  bytes_in INTEGER NOT NULL,
  bytes_out INTEGER NOT NULL,
  PRIMARY KEY(run, round, attempt, position),
  FOREIGN KEY(run, round, attempt) REFERENCES attempts(run, round, attempt)
) STRICT, WITHOUT ROWID;
CREATE TABLE run_log(
  run INTEGER NOT NULL REFERENCES runs(id),
  sequence INTEGER NOT NULL,
  time INTEGER NOT NULL,
  line TEXT NOT NULL,
  PRIMARY KEY(run, sequence)
) STRICT, WITHOUT ROWID;
)sql",
                                                                 R"sql(
ALTER TABLE contributions ADD COLUMN norm REAL;
)sql",
                                                                 R"sql(
ALTER TABLE attempts RENAME TO old_attempts;
ALTER TABLE tasks RENAME TO old_tasks;
ALTER TABLE contributions RENAME TO old_contributions;
ALTER TABLE failures RENAME TO old_failures;
CREATE TABLE phases(
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES runs(id),
  kind TEXT NOT NULL CHECK(kind IN ('train', 'evaluate')),
  round INTEGER NOT NULL CHECK(round >= 1),
  attempt INTEGER NOT NULL CHECK(attempt >= 1),
  state TEXT NOT NULL CHECK(state IN ('open', 'committed', 'abandoned')),
  base_model BLOB NOT NULL CHECK(length(base_model) = 32),
  population INTEGER NOT NULL,
  started INTEGER NOT NULL,
  train_loss REAL,
  eval_loss REAL,
  eval_accuracy REAL,
  seconds REAL NOT NULL DEFAULT 0,
  bytes_in INTEGER NOT NULL DEFAULT 0,
  bytes_out INTEGER NOT NULL DEFAULT 0,
  abandon_code TEXT,
  abandon_reason TEXT,
  UNIQUE(run, kind, round, attempt),
  CHECK((state = 'abandoned') = (abandon_code IS NOT NULL AND abandon_reason IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX one_open_phase ON phases(run) WHERE state = 'open';
CREATE UNIQUE INDEX one_committed_phase ON phases(run, kind, round) WHERE state = 'committed';
CREATE TABLE tasks(
  id INTEGER PRIMARY KEY,
  phase INTEGER NOT NULL REFERENCES phases(id),
  position INTEGER NOT NULL,
  client TEXT NOT NULL,
  outcome TEXT NOT NULL CHECK(outcome IN ('open', 'committed', 'expired', 'abandoned'))
) STRICT;
CREATE UNIQUE INDEX phase_cohorts ON tasks(phase, position);
CREATE TABLE contributions(
  phase INTEGER NOT NULL REFERENCES phases(id),
  position INTEGER NOT NULL,
  client TEXT NOT NULL,
  task INTEGER NOT NULL REFERENCES tasks(id),
  weight REAL NOT NULL CHECK(weight > 0),
  norm REAL,
  PRIMARY KEY(phase, position),
  UNIQUE(phase, client)
) STRICT, WITHOUT ROWID;
CREATE TABLE failures(
  phase INTEGER NOT NULL REFERENCES phases(id),
  position INTEGER NOT NULL,
  client TEXT NOT NULL,
  code TEXT NOT NULL,
  reason TEXT NOT NULL,
  bytes_in INTEGER NOT NULL,
  bytes_out INTEGER NOT NULL,
  PRIMARY KEY(phase, position)
) STRICT, WITHOUT ROWID;
INSERT INTO phases(run, kind, round, attempt, state, base_model, population, started, train_loss,
                   eval_loss, eval_accuracy, seconds, bytes_in, bytes_out, abandon_code,
                   abandon_reason)
  SELECT run, 'train', round, attempt, state, base_model, 0, started, train_loss, eval_loss,
         eval_accuracy, seconds, bytes_in, bytes_out, abandon_code, abandon_reason
  FROM old_attempts ORDER BY run, round, attempt;
INSERT INTO tasks
  SELECT o.id, p.id, o.position, o.client, o.outcome
  FROM old_tasks o JOIN phases p USING(run, round, attempt);
INSERT INTO contributions
  SELECT p.id, o.position, o.client, o.task, o.weight, o.norm
  FROM old_contributions o JOIN phases p USING(run, round, attempt);
INSERT INTO failures
  SELECT p.id, o.position, o.client, o.code, o.reason, o.bytes_in, o.bytes_out
  FROM old_failures o JOIN phases p USING(run, round, attempt);
DROP TABLE old_failures;
DROP TABLE old_contributions;
DROP TABLE old_tasks;
DROP TABLE old_attempts;
ALTER TABLE clients ADD COLUMN abilities TEXT NOT NULL DEFAULT '';
ALTER TABLE clients ADD COLUMN input TEXT NOT NULL DEFAULT '';
ALTER TABLE clients ADD COLUMN classes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN settings TEXT NOT NULL DEFAULT '';
ALTER TABLE models ADD COLUMN state_sha256 BLOB CHECK(length(state_sha256) = 32);
ALTER TABLE models ADD COLUMN state_bytes INTEGER
  CHECK((state_bytes IS NULL) = (state_sha256 IS NULL));
)sql",
                                                                 R"sql(
ALTER TABLE clients ADD COLUMN held_out INTEGER NOT NULL DEFAULT 0;
CREATE INDEX clients_by_certificate ON clients(certificate);  -- which a new certificate looks for
)sql",
                                                                 R"sql(
ALTER TABLE runs ADD COLUMN initial_sha256 BLOB CHECK(length(initial_sha256) = 32);
)sql",
                                                                 R"sql(
CREATE TABLE metrics(
  phase INTEGER NOT NULL REFERENCES phases(id),
  name TEXT NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY(phase, name)
) STRICT, WITHOUT ROWID;
)sql",
                                                                 R"sql(
CREATE TABLE train_metrics(
  phase INTEGER NOT NULL REFERENCES phases(id),
  name TEXT NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY(phase, name)
) STRICT, WITHOUT ROWID;
)sql"};

Result<std::int64_t> number(Database& database, const char* sql) {
  STARLING_ASSIGN(Query query, database.query(sql));
  STARLING_ASSIGN(const bool found, query.next());
  std::int64_t value = 0;
  if (found) STARLING_TRY(query.into(value));
  return value;
}

Result<void> migrate(Database& database, const char* script, std::size_t version) {
  STARLING_TRY(database.script(script));
  return database.script(
      fmt::format("PRAGMA application_id={}; PRAGMA user_version={}", kApplicationId, version));
}

}  // namespace

Result<void> check_origin(Database& database) {
  STARLING_ASSIGN(const std::int64_t application, number(database, "PRAGMA application_id"));
  STARLING_ASSIGN(const std::int64_t version, number(database, "PRAGMA user_version"));
  STARLING_ASSIGN(const std::int64_t tables,
                  number(database, "SELECT count(*) FROM sqlite_schema"));
  const bool blank = application == 0 && version == 0 && tables == 0;
  if (!blank && application != kApplicationId) {
    return rejected("database-foreign", database.file().string() +
                                            " is a database of another program; choose another "
                                            "state directory");
  }
  if (version > kSchemaVersion) {
    return unsupported("schema-newer",
                       fmt::format("{} was written by a newer Starling (schema {}, this one knows "
                                   "up to {}); use that version or a newer one",
                                   database.file().string(), version, kSchemaVersion));
  }
  return {};
}

Result<void> bring_up_to_date(Database& database) {
  STARLING_ASSIGN(const std::int64_t found, number(database, "PRAGMA user_version"));
  for (auto version = static_cast<std::size_t>(found); version < kMigrations.size(); ++version) {
    Result<void> migrated = database.transact(
        Durability::kFull, [&] { return migrate(database, kMigrations.at(version), version + 1); });
    if (!migrated) return migrated;
  }
  return {};
}

Result<void> check_structure(Database& database) {
  STARLING_ASSIGN(Query query, database.query("PRAGMA quick_check(1)"));
  STARLING_ASSIGN(const bool found, query.next());
  std::string answer = "no answer";
  if (found) STARLING_TRY(query.into(answer));
  if (answer == "ok") return {};
  return internal("database-damaged",
                  database.file().string() + " is damaged: " + answer + "; restore a backup of it");
}

}  // namespace starling::store
