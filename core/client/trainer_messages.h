// SPDX-License-Identifier: Apache-2.0
// The lines of the trainer protocol (TRAINER.md): made and read, without any I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/parameters.h"
#include "core/train/evaluator.h"

namespace starling::client {

inline constexpr std::size_t kTrainerLineBytesMax = std::size_t{4} << 20;
inline constexpr std::string_view kTrainerProtocol = "trainer-protocol";

enum class TrainerOperation { kInitialize, kFit, kEvaluate, kGradient };

std::string_view to_string(TrainerOperation operation);

// What a trainer keeps to itself.
struct PrivateTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype;  // for people; may be empty
  friend bool operator==(const PrivateTensor&, const PrivateTensor&) = default;
};

struct TrainerDescription {
  std::string name;                          // "the trainer 'train.py'", as sentences begin
  std::vector<TrainerOperation> operations;  // kFit among them
  std::uint64_t rows = 0;                    // 0: not said
  std::uint64_t held_out = 0;
  std::shared_ptr<const model::Layout> layout;  // of model::external_layout: what travels
  std::vector<PrivateTensor> private_tensors = {};

  bool can(TrainerOperation operation) const;
};

// "unsupported-operation", with what the trainer offers.
Error cannot_do(const TrainerDescription& description, TrainerOperation operation);

// "the trainer 'train.py': fit, evaluate; 10 tensors, 199210 values; 600 rows, 100 held out;
// private, and never sent: head.weight [10, 64] float32"
std::string summarize(const TrainerDescription& description);

// A task as the protocol has it, but for its tensors.
struct TrainerTask {
  std::string client;
  std::uint32_t round = 0;
  std::uint32_t rounds = 0;
  std::uint64_t seed = 0;       // below 2^53
  std::string train = "{}";     // a JSON object in one line
  std::string settings = "{}";  // a JSON object
};

// What fit, evaluate and gradient answer; 0 where an operation does not say it.
struct TrainerAnswer {
  double weight = 0;  // of an evaluation or gradient: its rows
  double loss = 0;
  std::optional<double> accuracy = {};
  std::uint64_t steps = 0;
  train::Metrics metrics = {};
};

// Where the vectors of a task lie in the shared memory.
struct TensorPlaces {
  struct Place {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  std::uint64_t memory_bytes = 0;
  std::optional<Place> parameters;
  std::optional<Place> result;
};

// Requests, each with the end of its line. "setting-invalid" where the settings are no JSON object.
[[nodiscard]] Result<std::string> describe_request(std::uint64_t id, std::string_view client,
                                                   std::string_view directory,
                                                   std::string_view settings);
// `step` is a gradient's; nothing: all rows.
[[nodiscard]] Result<std::string> task_request(std::uint64_t id, TrainerOperation operation,
                                               const TrainerTask& task, const TensorPlaces& places,
                                               std::optional<std::uint64_t> step);
std::string cancel_request(std::uint64_t id);
std::string stop_request();

// Of the trainer; `what` follows "the trainer".
Error protocol_error(std::string_view what);

// Answers to the request `id`. Fail with "trainer-protocol", with "diverged" where a number is NaN
// or infinite, and with the code and sentence with which the trainer answers.
[[nodiscard]] Result<TrainerDescription> read_description(std::string_view line, std::uint64_t id);
[[nodiscard]] Result<TrainerAnswer> read_answer(std::string_view line, std::uint64_t id,
                                                TrainerOperation operation);

}  // namespace starling::client
