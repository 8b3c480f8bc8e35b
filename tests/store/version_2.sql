-- SPDX-License-Identifier: Apache-2.0
-- A database that schema version 2 wrote: the dump of its SQLite file. Never edited: it stands for
-- the databases of that version.
PRAGMA application_id=1398035020;
PRAGMA user_version=2;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE federation(
  only INTEGER PRIMARY KEY CHECK(only = 1),
  name TEXT NOT NULL,
  created INTEGER NOT NULL
) STRICT;
INSERT INTO federation VALUES(1,'kitchen',1800000000000);
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
INSERT INTO clients VALUES('a','device','active',1800000001000,NULL,0,'0a');
INSERT INTO clients VALUES('b','device','active',1800000001000,NULL,0,'0b');
CREATE TABLE certificates(
  serial TEXT PRIMARY KEY,
  client TEXT NOT NULL REFERENCES clients(name),
  fingerprint BLOB NOT NULL CHECK(length(fingerprint) = 32),
  pem TEXT NOT NULL,
  not_before INTEGER NOT NULL,
  not_after INTEGER NOT NULL,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO certificates VALUES('0a','a',X'f23fb245ef4af7724957eec3adc9ba18c49ec1692dd2d742649c51b058a81c8f',replace('-----BEGIN CERTIFICATE-----\n0a','\n',char(10)),1800000000000,1802592000000,NULL);
INSERT INTO certificates VALUES('0b','b',X'335da023fa696eec38d32b8b73ed9838ce96436dfb37b6634321179d5ce7fd28',replace('-----BEGIN CERTIFICATE-----\n0b','\n',char(10)),1800000000000,1802592000000,NULL);
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
INSERT INTO tokens VALUES('ta','a','device','',X'76592b9de6d38238a52a3651867871e5c670e6320a8ef46a84b5590f8933f33e',1800000000000,1800003600000,'used',0,X'ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb','0a');
INSERT INTO tokens VALUES('tb','b','device','',X'7aa5ae9ecf82f6fc5208ecd0940fd71d50cd4ac596fccac2ede05af806a87b6e',1800000000000,1800003600000,'used',0,X'3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d','0b');
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
INSERT INTO runs VALUES(1,'done','completed',1,'T','rounds = 2',1800000002000,1800000003000,1800000030000,'','',0);
INSERT INTO runs VALUES(2,'going on','running',2,NULL,'rounds = 9',1800000004000,1800000031000,NULL,'','',0);
CREATE TABLE models(
  run INTEGER NOT NULL REFERENCES runs(id),
  round INTEGER NOT NULL,
  sha256 BLOB NOT NULL CHECK(length(sha256) = 32),
  file TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY(run, round)
) STRICT, WITHOUT ROWID;
INSERT INTO models VALUES(1,0,X'e4223ed20d7ea5740a326e2b268ca6db91d041cf5194f577e393a8ba3b85d8e9','0.safetensors',2);
INSERT INTO models VALUES(1,1,X'ca0df2c95aa144c1d0ff2ff3c8f967fdc1de9ef0c4120b3726416701b519d619','1.safetensors',2);
INSERT INTO models VALUES(2,0,X'e4223ed20d7ea5740a326e2b268ca6db91d041cf5194f577e393a8ba3b85d8e9','0.safetensors',2);
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
INSERT INTO attempts VALUES(1,1,1,'abandoned',X'e4223ed20d7ea5740a326e2b268ca6db91d041cf5194f577e393a8ba3b85d8e9',1800000010000,0.5,NULL,NULL,1.5,100,200,'too-few-updates','1 of 2');
INSERT INTO attempts VALUES(1,1,2,'committed',X'e4223ed20d7ea5740a326e2b268ca6db91d041cf5194f577e393a8ba3b85d8e9',1800000010000,0.25,0.5,0.875,2.0,5,6,NULL,NULL);
INSERT INTO attempts VALUES(2,1,1,'open',X'e4223ed20d7ea5740a326e2b268ca6db91d041cf5194f577e393a8ba3b85d8e9',1800000010000,NULL,NULL,NULL,0.0,7,900,NULL,NULL);
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
INSERT INTO tasks VALUES(-9223372036854775807,1,1,2,0,'b','committed');
INSERT INTO tasks VALUES(-9223372036854775806,1,1,2,1,'a','committed');
INSERT INTO tasks VALUES(1,1,1,1,0,'a','committed');
INSERT INTO tasks VALUES(2,1,1,1,1,'b','abandoned');
INSERT INTO tasks VALUES(9,2,1,1,0,'a','open');
INSERT INTO tasks VALUES(10,2,1,1,1,'b','open');
CREATE TABLE contributions(
  run INTEGER NOT NULL,
  round INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  position INTEGER NOT NULL,
  client TEXT NOT NULL,
  task INTEGER NOT NULL REFERENCES tasks(id),
  weight REAL NOT NULL CHECK(weight > 0), norm REAL,
  PRIMARY KEY(run, round, attempt, position),
  UNIQUE(run, round, attempt, client),
  FOREIGN KEY(run, round, attempt) REFERENCES attempts(run, round, attempt)
) STRICT, WITHOUT ROWID;
INSERT INTO contributions VALUES(1,1,1,0,'a',1,600.0,0.75);
INSERT INTO contributions VALUES(1,1,2,0,'a',1,600.0,0.75);
INSERT INTO contributions VALUES(1,1,2,1,'b',-9223372036854775807,30.0,NULL);
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
INSERT INTO failures VALUES(1,1,1,0,'b','deadline','no update within 60 s',10,20);
CREATE TABLE run_log(
  run INTEGER NOT NULL REFERENCES runs(id),
  sequence INTEGER NOT NULL,
  time INTEGER NOT NULL,
  line TEXT NOT NULL,
  PRIMARY KEY(run, sequence)
) STRICT, WITHOUT ROWID;
INSERT INTO run_log VALUES(1,1,1800000020000,'round 1 committed');
CREATE INDEX certificates_by_client ON certificates(client);
CREATE INDEX revocations ON certificates(fingerprint) WHERE revoked_at IS NOT NULL;
CREATE UNIQUE INDEX one_open_token ON tokens(client) WHERE state = 'open';
CREATE UNIQUE INDEX one_open_attempt ON attempts(run) WHERE state = 'open';
CREATE UNIQUE INDEX one_committed_attempt ON attempts(run, round) WHERE state = 'committed';
CREATE UNIQUE INDEX cohorts ON tasks(run, round, attempt, position);
COMMIT;
