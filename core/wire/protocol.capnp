# SPDX-License-Identifier: Apache-2.0
# What travels in the headers of frames, one struct per message of core/protocol/messages.h, where
# the meanings stand. The ordinals (@n) of version 1 are frozen: a field is never renumbered, retyped
# or reused. A new field is appended, and its zero means "an earlier version sent this".
@0x8019037fad9d25dc;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("starling::wire::schema");

struct Hello {
  versionMin @0 :UInt16;
  versionMax @1 :UInt16;
  software @2 :Text;
  rows @3 :UInt64;
  # Words with one blank between them.
  abilities @4 :Text;
  input @5 :List(UInt32);
  classes @6 :UInt32;
  heldOut @7 :UInt64;
}

struct Welcome {
  version @0 :UInt16;
  federation @1 :Text;
  client @2 :Text;
  heartbeatNs @3 :UInt64;
  wallTimeMs @4 :UInt64;
  readsSparse @5 :Bool;
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
  kind @12 :UInt8;
  inputs @13 :List(TaskInput);
  lastCounted @14 :UInt64;
  lastCountedRound @15 :UInt32;
}

struct ModelRequest {
  task @0 :UInt64;
  offset @1 :UInt64;
  limit @2 :UInt64;
  input @3 :UInt16;
}

struct Chunk {
  task @0 :UInt64;
  offset @1 :UInt64;
  input @2 :UInt16;
}

struct Credit {
  task @0 :UInt64;
  limit @1 :UInt64;
}

struct UpdateOffer {
  task @0 :UInt64;
  base @1 :ModelVersion;
  weight @2 :Float64;
  vectors @3 :List(VectorSpec);
  scalars @4 :List(Scalar);
  payloadBytes @5 :UInt64;
  payloadChecksum @6 :UInt64;
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

struct TaskFailed {
  task @0 :UInt64;
  code @1 :Text;
  message @2 :Text;
  permanent @3 :Bool;
}

struct Ping {
  nonce @0 :UInt64;
}

struct Pong {
  nonce @0 :UInt64;
}

struct Bye {
  code @0 :Text;
  message @1 :Text;
}

struct OperatorRequest {
  id @0 :UInt64;
  command @1 :Text;
  arguments @2 :List(Setting);
}

struct OperatorReply {
  id @0 :UInt64;
  last @1 :Bool;
  code @2 :Text;
  message @3 :Text;
  category @4 :UInt8;
}

struct PeerHello {
  versionMin @0 :UInt16;
  versionMax @1 :UInt16;
  software @2 :Text;
  epoch @3 :UInt64;
  exchange @4 :UInt64;
  begun @5 :Bool;
  minority @6 :Bool;
  quorumSeconds @7 :UInt16;
  backed @8 :UInt64;
  elements @9 :UInt64;
  refusal @10 :Text;
}

struct RosterAsk {
  epoch @0 :UInt64;
  issuedMs @1 :UInt64;
  offset @2 :UInt64;
}

struct RosterPart {
  epoch @0 :UInt64;
  offset @1 :UInt64;
  total @2 :UInt64;
  issuedMs @3 :UInt64;
}

struct Swim {
  kind @0 :UInt8;
  epoch @1 :UInt64;
  sequence @2 :UInt64;
  target @3 :UInt32;
  # One word each: member in bits 0 to 15, by in 16 to 31, incarnation in 32 to 61,
  # state in 62 and 63.
  news @4 :List(UInt64);
  beats @5 :List(UInt64);
}

struct VectorTransfer {
  transfer @0 :UInt64;
  kind @1 :UInt8;
  hasScalar @2 :Bool;
  era @3 :UInt32;
  attempt @4 :UInt32;
  epoch @5 :UInt64;
  exchange @6 :UInt64;
  place @7 :UInt64;
  first @8 :UInt64;
  second @9 :UInt64;
  packed @10 :UInt64;
  scalar @11 :Float64;
  minority @12 :Bool;
  quorumSeconds @13 :UInt16;
  backed @14 :UInt64;
}

struct ColumnsAsk {
  epoch @0 :UInt64;
  begin @1 :UInt64;
  end @2 :UInt64;
}

struct ColumnsPutOff {
  epoch @0 :UInt64;
}

struct MixAsk {
  epoch @0 :UInt64;
  exchange @1 :UInt64;
  minority @2 :Bool;
  quorumSeconds @3 :UInt16;
  backed @4 :UInt64;
}

struct MixAnswer {
  epoch @0 :UInt64;
  exchange @1 :UInt64;
  asked @2 :UInt64;
  sent @3 :Bool;
  minority @4 :Bool;
  quorumSeconds @5 :UInt16;
  backed @6 :UInt64;
}

# By kind, what a note says and the fields that it has; the others are zero.
#   0  Register: held, members and sha256 and weak of the mean, or members that are lost; other and
#      count of the blame, fresh
#   1  List: members, weak, other that is kept apart (count is 1);
#      Standing (held is not 0): held, members, sha256 and weak of the mean, other that holds it
#   2  Done: sha256; other, count and held as milliseconds of the longest wait (count is 0: none)
#   3  Commit: members, sha256, other that holds it, count of the support
#   4  Want: sha256, held as attempt
#   5  Ask
#   6  NotYet: held as attempt
#   7  Wait
#   8  Ahead: members that are donors
struct ReduceNote {
  kind @0 :UInt8;
  held @1 :UInt32;
  attempt @2 :UInt32;
  epoch @3 :UInt64;
  exchange @4 :UInt64;
  members @5 :List(UInt32);
  backed @6 :UInt64;
  other @7 :UInt32;
  count @8 :UInt16;
  fresh @9 :Bool;
  weak @10 :Bool;
  sha256 @11 :Data;  # empty: none
  wrong @12 :Bool;
}

struct PeerReport {
  epoch @0 :UInt64;
  exchange @1 :UInt64;
  step @2 :UInt64;
  state @3 :Text;
  loss @4 :Float64;
  lossSteps @5 :UInt64;
  neighbours @6 :UInt32;
  expected @7 :UInt32;
  reachable @8 :UInt32;
  bytesSent @9 :UInt64;
  bytesReceived @10 :UInt64;
  messages @11 :UInt64;
  problem @12 :Text;
  arrived @13 :UInt64;
  late @14 :UInt64;
  lost @15 :UInt64;
  staleness @16 :UInt64;
  linked @17 :UInt32;  # 0: not said
}

struct Relay {
  peer @0 :Text;
  type @1 :UInt16;
  header @2 :Data;
}

# Parts of the messages above.

struct Setting {
  key @0 :Text;
  value @1 :Text;
}

struct Scalar {
  name @0 :Text;
  value @1 :Float64;
}

enum Encoding {
  none @0;
  float32Delta @1;
  float32 @2;
  sparseFloat32Delta @3;
  sparseFloat32 @4;
}

struct VectorSpec {
  name @0 :Text;
  encoding @1 :Encoding;
  elements @2 :UInt64;
  bytes @3 :UInt64;
}

struct TaskInput {
  name @0 :Text;
  sha256 @1 :Data;
  bytes @2 :UInt64;
  # none: float32.
  encoding @3 :Encoding;
}

struct ModelVersion {
  run @0 :UInt64;
  round @1 :UInt32;
  sha256 @2 :Data;
  runKey @3 :UInt32;
}

struct Bounds {
  valueMax @0 :Float64;
  weightMax @1 :Float64;
  contributionsMax @2 :UInt32;
}

struct Schema {
  vectors @0 :List(VectorSpec);
  bounds @1 :Bounds;
  scalars @2 :List(Text);
}
