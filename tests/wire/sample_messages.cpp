// SPDX-License-Identifier: Apache-2.0
#include "tests/wire/sample_messages.h"

#include <chrono>

#include "core/wire/limits.h"

namespace starling::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Sha256Digest digest(unsigned first) {
  std::array<std::byte, Sha256Digest::kBytes> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(first + i);
  return Sha256Digest(bytes);
}

const TaskId kTask(0x1122334455667788);
const RunId kRun(7);
const update::ModelVersion kBase{.run = kRun, .round = 2, .sha256 = digest(0x10)};

const protocol::NamedMean kMean{
    .attempt = 2, .members = {0, 2}, .sha256 = digest(0x90), .weak = true};

protocol::ReduceNote note(protocol::reduce::What what) {
  return {.epoch = 3, .at = {.backed = 40, .exchange = 41}, .attempt = 6, .what = std::move(what)};
}

protocol::RoundPlan round_plan() {
  return {.task = kTask,
          .run = kRun,
          .run_name = "fashion-2nn",
          .round = 3,
          .rounds = 20,
          .attempt = 2,
          .seed = 0xFEDCBA9876543210,
          .base = kBase,
          .model_bytes = 796'840,
          .settings = {{"model.kind", "mlp"},
                       {"model.hidden", "200,200"},
                       {"train.learning-rate", "0.1"},
                       {"strategy.name", ""}},
          .schema = {.vectors = {{"model", update::Encoding::kFloat32Delta, 199'210},
                                 {"control", update::Encoding::kFloat32Delta, 10}},
                     .bounds = {.value_max = 0.5, .weight_max = 60'000, .contributions_max = 12}},
          .deadline = milliseconds(59'750)};
}

protocol::RoundPlan round_plan_v2() {
  protocol::RoundPlan plan = round_plan();
  plan.schema.vectors[1].encoding = update::Encoding::kFloat32;
  plan.schema.scalars = {"steps", "train_loss"};
  plan.kind = protocol::TaskKind::kEvaluate;
  plan.inputs = {{"control", digest(0x30), 796'840}, {"momentum", digest(0x50), 796'840}};
  return plan;
}

protocol::RoundPlan round_plan_v3() {
  protocol::RoundPlan plan = round_plan_v2();
  plan.base.run_key = 0x01020304;
  plan.last_counted = {TaskId(0x2233445566778899), 2};
  return plan;
}

protocol::RoundPlan round_plan_v4() {
  protocol::RoundPlan plan = round_plan_v3();
  plan.schema.vectors[0].encoding = update::Encoding::kSparseFloat32Delta;
  plan.schema.vectors[1].encoding = update::Encoding::kSparseFloat32;
  plan.inputs[1].encoding = update::Encoding::kSparseFloat32;
  return plan;
}

protocol::UpdateOffer update_offer() {
  return {{.task = kTask,
           .base = kBase,
           .weight = 6000,
           .vectors = {{"model", update::Encoding::kFloat32Delta, 199'210},
                       {"control", update::Encoding::kFloat32Delta, 10}},
           .scalars = {{"train_loss", 0.4127}, {"train_accuracy", 0.8421}, {"samples", 12'000}},
           .payload_bytes = 796'880,
           .payload_checksum = 0x0123456789ABCDEF}};
}

protocol::Swim swim_v1() {
  using protocol::SwimNews;
  return {
      .kind = protocol::Swim::Kind::kPingRequest,
      .epoch = 3,
      .sequence = 77,
      .target = 31,
      .news = {
          {.member = 5, .state = SwimNews::State::kAlive, .incarnation = 2},
          {.member = 9, .state = SwimNews::State::kDead, .incarnation = wire::kIncarnationMax}}};
}
protocol::Swim swim_v2() {
  protocol::Swim swim = swim_v1();
  swim.beats = {12, 0, 1ULL << 40};
  return swim;
}

protocol::UpdateOffer update_offer_v2() {
  protocol::UpdateOffer offer = update_offer();
  offer.head.base.run_key = 0x01020304;
  return offer;
}

protocol::UpdateOffer update_offer_v3() {
  protocol::UpdateOffer offer = update_offer_v2();
  offer.head.vectors[0].encoding = update::Encoding::kSparseFloat32Delta;
  offer.head.vectors[0].bytes = 24'904 + 4 * 50'000;
  offer.head.payload_bytes = 24'904 + 4 * 50'000 + 40;
  return offer;
}

protocol::ReducePiece reduce_piece() {
  return {.exchange = 41, .attempt = 1, .place = 6, .floats = 250'001};
}

protocol::PeerReport peer_report() {
  return {.epoch = 3,
          .exchange = 41,
          .step = 164,
          .state = "training",
          .loss = 0.5,
          .loss_steps = 4,
          .neighbours = 2,
          .expected = 3,
          .reachable = 15,
          .bytes_sent = 1'000'000,
          .bytes_received = 999'999,
          .messages = 82,
          .problem = "node-0003 was not heard"};
}

protocol::PeerReport peer_report_v2() {
  protocol::PeerReport report = peer_report();
  report.arrived = 80;
  report.late = 3;
  report.lost = 2;
  report.staleness = 5;
  return report;
}

protocol::PeerReport peer_report_v3() {
  protocol::PeerReport report = peer_report_v2();
  report.linked = 9;
  return report;
}

}  // namespace

std::vector<Sample> sample_messages() {
  using namespace protocol;
  return {
      {"hello_v1",
       Hello{.version_min = 1, .version_max = 3, .software = "starling-edge 0.1.0", .rows = 60'000},
       false},
      {"hello_v2",
       Hello{.version_min = 1,
             .version_max = 3,
             .software = "starling-edge 0.2.0",
             .rows = 60'000,
             .abilities = {"evaluate", "scaffold"},
             .input = {1, 28, 28},
             .classes = 10},
       false},
      {"hello_v3", Hello{.version_min = 1,
                         .version_max = 3,
                         .software = "starling-edge 0.3.0",
                         .rows = 48'000,
                         .abilities = {"evaluate", "scaffold"},
                         .input = {1, 28, 28},
                         .classes = 10,
                         .held_out = 12'000}},
      {"welcome_v1",
       Welcome{.version = 1,
               .federation = "murmuration",
               .client = "cam-7",
               .heartbeat = seconds(10),
               .wall_time_ms = 1'795'165'811'123},
       false},
      {"welcome_v2", Welcome{.version = 1,
                             .federation = "murmuration",
                             .client = "cam-7",
                             .heartbeat = seconds(10),
                             .wall_time_ms = 1'795'165'811'123,
                             .reads_sparse = true}},
      {"round_plan_v1", round_plan(), false},
      {"round_plan_v2", round_plan_v2(), false},
      {"round_plan_v3", round_plan_v3(), false},
      {"round_plan_v4", round_plan_v4()},
      {"model_request_v1", ModelRequest{.task = kTask, .offset = 65'536, .limit = 1'114'112},
       false},
      {"model_request_v2",
       ModelRequest{.task = kTask, .offset = 65'536, .limit = 1'114'112, .input = 2}},
      {"chunk_v1", Chunk{.task = kTask, .offset = 131'072}, false},
      {"chunk_v2", Chunk{.task = kTask, .offset = 131'072, .input = 2}},
      {"credit_v1", Credit{.task = kTask, .limit = 2'097'152}},
      {"update_offer_v1", update_offer(), false},
      {"update_offer_v2", update_offer_v2(), false},
      {"update_offer_v3", update_offer_v3()},
      {"update_accept_v1", UpdateAccept{.task = kTask, .offset = 4096, .limit = 796'880}},
      {"update_received_v1", UpdateReceived{.task = kTask}},
      {"round_committed_v1",
       RoundCommitted{.task = kTask, .run = kRun, .round = 3, .model_sha256 = digest(0x80)}},
      {"task_ended_v1",
       TaskEnded{.task = kTask,
                 .code = "round-closed",
                 .message = "the round closed with the 10 updates that it wanted"}},
      {"task_failed_v1",
       TaskFailed{.task = kTask,
                  .code = "not-finite",
                  .message = "vector 'model' has an infinite element"},
       false},
      {"task_failed_v2", TaskFailed{.task = kTask,
                                    .code = "unknown-strategy",
                                    .message = "this program has no strategy 'fedmagic'",
                                    .permanent = true}},
      {"ping_v1", Ping{.nonce = 42}},
      {"pong_v1", Pong{.nonce = 42}},
      {"bye_v1", Bye{.code = "stopped", .message = "sch\xC3\xB6nen Tag"}},
      {"operator_request_v1",
       OperatorRequest{.id = 5,
                       .command = "run-submit",
                       .arguments = {{"submit-token", "nightly"}, {"name", "fashion-2nn"}}}},
      {"operator_reply_v1",
       OperatorReply{.id = 5,
                     .last = true,
                     .code = "unknown-key",
                     .message = "the job has no key 'rouns'; 'rounds' is near"}},
      {"operator_reply_v2", OperatorReply{.id = 5,
                                          .last = true,
                                          .code = "unknown-key",
                                          .message = "the job has no key 'rouns'; 'rounds' is near",
                                          .category = ErrorCategory::kUsage}},
      {"peer_hello_v1",
       PeerHello{.version_min = 1,
                 .version_max = 2,
                 .software = "starling-edge 0.1.0",
                 .epoch = 3,
                 .exchange = 1000,
                 .begun = true},
       false},
      {"peer_hello_v2",
       PeerHello{.version_min = 1,
                 .version_max = 2,
                 .software = "starling-edge 0.1.0",
                 .epoch = 3,
                 .exchange = 1000,
                 .begun = true,
                 .support = {.minority = true, .quorum_seconds = 300, .backed = 40}},
       false},
      {"peer_hello_v3",
       PeerHello{.version_min = 1,
                 .version_max = 2,
                 .software = "starling-edge 0.1.0",
                 .epoch = 3,
                 .exchange = 1000,
                 .begun = true,
                 .support = {.minority = true, .quorum_seconds = 300, .backed = 40},
                 .elements = 7850,
                 .refusal = "its loss is no number"}},
      {"roster_ask_v1", RosterAsk{.epoch = 3, .issued_ms = 1'795'161'600'000, .offset = 1 << 20}},
      {"roster_part_v1",
       RosterPart{.epoch = 4, .offset = 65'536, .total = 70'000, .issued_ms = 1'795'161'600'000}},
      {"swim_v1", swim_v1(), false},
      {"swim_v2", swim_v2()},
      // A piece, beside it what a piece does not have and what nobody reads.
      {"parcel_v1", VectorTransfer{.id = kTask, .epoch = 3, .content = reduce_piece()}, false},
      {"parcel_v2",
       VectorTransfer{.id = kTask,
                      .epoch = 3,
                      .content = reduce_piece(),
                      .support = {.minority = true, .quorum_seconds = 300, .backed = 40}},
       false},
      {"transfer_mix_v1",
       VectorTransfer{.id = kTask,
                      .epoch = 3,
                      .content = protocol::MixMessage{.exchange = 41,
                                                      .state = protocol::Eras{2, 44},
                                                      .first = 250'001,
                                                      .second = 7,
                                                      .packed = 12,
                                                      .scalar = 0.75},
                      .support = {.minority = true, .quorum_seconds = 300, .backed = 40}}},
      {"transfer_pair_v1",
       VectorTransfer{.id = kTask,
                      .epoch = 3,
                      .content = protocol::PairMessage{.kind = protocol::PairMessage::Kind::kReply,
                                                       .number = 41,
                                                       .edge = {2, 5},
                                                       .phases = 17,
                                                       .floats = 250'001,
                                                       .packed = 12,
                                                       .scalar = 0.75}}},
      {"transfer_edge_mix_v1",
       VectorTransfer{.id = kTask,
                      .epoch = 3,
                      .content =
                          protocol::MixMessage{
                              .exchange = 41, .state = protocol::Incarnations{2, 5}, .packed = 12},
                      .support = {.quorum_seconds = 300, .backed = 40}}},
      {"transfer_introduction_v1",
       VectorTransfer{.id = kTask,
                      .epoch = 3,
                      .content = protocol::Introduction{.edge = {2, 5}, .exchange = 41},
                      .support = {.quorum_seconds = 300, .backed = 40}}},
      {"transfer_confirmation_v1",
       VectorTransfer{
           .id = kTask,
           .epoch = 3,
           .content = protocol::Confirmation{.number = 41, .edge = {2, 5}, .phases = 17}}},
      {"transfer_piece_v1", VectorTransfer{.id = kTask, .epoch = 3, .content = reduce_piece()}},
      {"transfer_columns_v1",
       VectorTransfer{
           .id = kTask,
           .epoch = 3,
           .content = protocol::ModelColumns{.exchange = 41, .begin = 1000, .floats = 250'001}}},
      {"transfer_model_v1",
       VectorTransfer{
           .id = kTask,
           .epoch = 3,
           .content = protocol::WholeModel{.exchange = 41, .step = 210, .floats = 250'001}}},
      {"columns_ask_v1", ColumnsAsk{.epoch = 3, .begin = 1000, .end = 2000}},
      {"columns_put_off_v1", ColumnsPutOff{.epoch = 3}},
      {"mix_ask_v1", MixAsk{.epoch = 3,
                            .exchange = 41,
                            .support = {.minority = true, .quorum_seconds = 9, .backed = 40}}},
      {"mix_answer_v1", MixAnswer{.epoch = 3,
                                  .exchange = 41,
                                  .asked = 40,
                                  .sent = true,
                                  .support = {.quorum_seconds = 600, .backed = 41}}},
      {"reduce_note_v3",
       note(reduce::Register{.lost = {2}, .blame = Blame{.member = 2, .pieces = 5}}), false},
      {"reduce_note_v5",
       note(reduce::Commit{.members = {0, 2}, .sha256 = digest(0x90), .support = 2, .holder = 2})},
      {"reduce_note_v6", note(reduce::Register{.lost = {2}, .blame = Blame{2, 1, true}})},
      {"reduce_register_v1",
       note(reduce::Register{
           .held = kMean, .blame = Blame{.member = 2, .pieces = 5}, .fresh = true})},
      {"reduce_register_lost_v1", note(reduce::Register{.lost = {1, 2}})},
      {"reduce_list_v1",
       note(reduce::List{.members = {0, 2, 3}, .weak = true, .apart = Member{1}})},
      {"reduce_standing_v1", note(reduce::Standing{.mean = kMean, .holder = 2})},
      {"reduce_done_v1", note(reduce::Done{digest(0x90)})},
      {"reduce_done_v2",
       note(reduce::Done{digest(0x90),
                         protocol::Waited{.of = 2, .piece = 3, .milliseconds = 2510}})},
      {"reduce_want_v1", note(reduce::Want{digest(0x90)})},
      {"reduce_not_yet_v1", note(reduce::NotYet{})},
      {"reduce_ask_v1", note(reduce::Ask{})},
      {"reduce_ask_progress_v1", note(reduce::AskProgress{})},
      {"reduce_wait_v1", note(reduce::Wait{})},
      {"reduce_ahead_v1", note(reduce::Ahead{{0, 2}})},
      {"peer_report_v1", peer_report(), false},
      {"peer_report_v2", peer_report_v2()},
      {"peer_report_v3", peer_report_v3()},
      {"relay_v1", Relay{.peer = "cam-7", .type = 21, .header = Bytes(16, std::byte{0x5A})}},
  };
}

}  // namespace starling::testing
