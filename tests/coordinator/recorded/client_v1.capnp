# SPDX-License-Identifier: Apache-2.0
# What a coordinator sends to a client, as the client reads it that was recorded (fedavg_v1.frames).
# Frozen: it stands for programs on devices, so it never follows core/wire/protocol.capnp.
@0xb5f3a1c64e0d9e27;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("starling::testing::recorded_v1");

struct Welcome {
  version @0 :UInt16;
  federation @1 :Text;
  client @2 :Text;
  heartbeatNs @3 :UInt64;
  wallTimeMs @4 :UInt64;
}

struct RoundPlan {
  task @0 :UInt64;
  run @1 :UInt64;
  runName @2 :Text;
  round @3 :UInt32;
  rounds @4 :UInt32;
  attempt @5 :UInt32;
  seed @6 :UInt64;
  base @7 :ModelVersion;
  modelBytes @8 :UInt64;
  settings @9 :List(Setting);
  schema @10 :Schema;
  deadlineNs @11 :UInt64;
}

struct Chunk {
  task @0 :UInt64;
  offset @1 :UInt64;
}

struct Credit {
  task @0 :UInt64;
  limit @1 :UInt64;
}

struct UpdateAccept {
  task @0 :UInt64;
  offset @1 :UInt64;
  limit @2 :UInt64;
}

struct UpdateReceived {
  task @0 :UInt64;
}

struct RoundCommitted {
  task @0 :UInt64;
  run @1 :UInt64;
  round @2 :UInt32;
  modelSha256 @3 :Data;
}

struct TaskEnded {
  task @0 :UInt64;
  code @1 :Text;
  message @2 :Text;
}

struct Pong {
  nonce @0 :UInt64;
}

struct Bye {
  code @0 :Text;
  message @1 :Text;
}

struct ModelVersion {
  run @0 :UInt64;
  round @1 :UInt32;
  sha256 @2 :Data;
}

struct Setting {
  key @0 :Text;
  value @1 :Text;
}

struct VectorSpec {
  name @0 :Text;
  encoding @1 :Encoding;
  elements @2 :UInt64;
}

struct Schema {
  vectors @0 :List(VectorSpec);
  bounds @1 :Bounds;
}

struct Bounds {
  valueMax @0 :Float64;
  weightMax @1 :Float64;
  contributionsMax @2 :UInt32;
}

enum Encoding {
  none @0;
  float32Delta @1;
}
