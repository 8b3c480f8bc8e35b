// SPDX-License-Identifier: Apache-2.0
#include "tests/coordinator/framed_coordinator.h"

#include <gtest/gtest.h>

#include "coordinator/rounds/run_records.h"
#include "core/wire/codec.h"

namespace starling::testing {
namespace {

constexpr std::size_t kFrameHeadBytes = 8;
constexpr RunId kRecordedRun(1);

coordinator::RunContext recorded_context() {
  coordinator::Job job;
  job.job = {.name = "recorded", .seed = 7, .rounds = 2};
  job.training.model.kind = "softmax-regression";
  job.training.data = {{6}, 4};
  job.training.train.learning_rate = 0.25;
  job.training.train.batch_size = 5;
  job.evaluate.every = 0;
  job.round.cohort = 3;
  job.round.min_updates = 2;
  job.round.wait_for = 3;
  return coordinator::prepare_run(job, nullptr).value();
}

}  // namespace

Bytes to_frame(const protocol::Envelope& envelope) {
  const Bytes header = wire::encode_header(envelope.message).value();
  Bytes frame(kFrameHeadBytes);
  store_little(frame.data(), static_cast<std::uint32_t>(envelope.payload.size()));
  store_little(frame.data() + 4, static_cast<std::uint16_t>(header.size() / 8));
  store_little(frame.data() + 6, static_cast<std::uint16_t>(wire::frame_type(envelope.message)));
  frame.insert(frame.end(), header.begin(), header.end());
  const ByteView payload = envelope.payload.view();
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

protocol::Envelope from_frame(ByteView frame) {
  const std::size_t header_bytes = load_little<std::uint16_t>(frame.data() + 4) * 8U;
  const Bytes header = to_bytes(frame.subspan(kFrameHeadBytes, header_bytes));
  auto message = wire::decode_header(load_little<std::uint16_t>(frame.data() + 6), header);
  return {std::move(message).value(),
          SharedBytes::own(to_bytes(frame.subspan(kFrameHeadBytes + header_bytes)))};
}

FramedCoordinator::FramedCoordinator()
    : context_(recorded_context()), machine_({.federation = "flock", .transfer = kTransfer}) {}

void FramedCoordinator::submit() {
  const auto model = std::make_shared<model::Parameters>(
      model::initial_parameters(*context_.model, context_.job.job.seed));
  const update::ModelVersion version{kRecordedRun, 0, model->sha256()};
  feed(coordinator::RunSubmitted{coordinator::to_run_start(
      kRecordedRun, context_, {version, model, {}, {}}, {}, std::nullopt)});
}

void FramedCoordinator::advance(Duration duration) {
  now_ += duration;
  feed(coordinator::Tick{});
}

void FramedCoordinator::feed(coordinator::Event event) {
  answers_.push_back(std::move(event));
  while (!answers_.empty()) {
    coordinator::Event next = std::move(answers_.front());
    answers_.erase(answers_.begin());
    for (coordinator::Action& action : machine_.on(std::move(next), now_)) perform(action);
  }
}

void FramedCoordinator::perform(coordinator::Action& action) {
  if (const auto* send = std::get_if<coordinator::Send>(&action)) {
    sent_.push_back({send->session.value(), to_frame(send->envelope)});
  } else if (const auto* begin = std::get_if<coordinator::BeginRound>(&action)) {
    aggregate_ = coordinator::RoundAggregate::begin(
                     std::make_shared<const coordinator::RunContext>(context_), *begin)
                     .value();
  } else if (const auto* open = std::get_if<coordinator::OpenUpload>(&action)) {
    Upload& upload = uploads_[open->task];
    upload.bytes.resize(open->bytes);
    answers_.emplace_back(coordinator::UploadOpened{open->task, upload.received});
  } else if (const auto* write = std::get_if<coordinator::WriteUpload>(&action)) {
    Upload& upload = uploads_.at(write->task);
    std::ranges::copy(write->bytes.view(),
                      upload.bytes.begin() + static_cast<std::ptrdiff_t>(write->offset));
    upload.received = write->offset + write->bytes.size();
  } else if (const auto* drop = std::get_if<coordinator::DropUpload>(&action)) {
    uploads_.erase(drop->task);
  } else if (auto* sum = std::get_if<coordinator::SumUpload>(&action)) {
    const TaskId task = sum->head.task;
    SharedBytes payload = SharedBytes::own(std::move(uploads_.at(task).bytes));
    uploads_.erase(task);
    answers_.emplace_back(
        coordinator::UploadSummed{task, aggregate_->add(std::move(sum->head), std::move(payload))});
  } else if (const auto* ended = std::get_if<coordinator::CommitRound>(&action)) {
    commit(*ended);
  } else if (std::holds_alternative<coordinator::LookUpTask>(action)) {
    ADD_FAILURE() << "every task of the recording is of the open round";
  }
}

void FramedCoordinator::commit(const coordinator::CommitRound& commit) {
  auto outcome = std::move(*std::exchange(aggregate_, nullptr)).finish(nullptr).value();
  answers_.emplace_back(coordinator::RoundDurable{
      commit.summary.run, coordinator::Durable{std::move(outcome.next), outcome.measured}});
}

}  // namespace starling::testing
