// SPDX-License-Identifier: Apache-2.0
// The shape of the data of a job that does not say it: the one that more than half of the admitted
// clients announce.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/client_table.h"
#include "coordinator/job.h"

namespace starling::coordinator {

// Whether neither data.input and data.classes nor an evaluation data set say it.
bool lacks_shape(const Job& job);

// The clients that announce a shape.
struct Announcers {
  std::size_t count = 0;
  std::vector<std::string> first;  // names of some of them, to be shown
};

struct LearnedShape {
  client::DataShape shape;
  Announcers agreed;
  std::size_t announced = 0;  // how many announce it or another one that the job allows
  std::size_t admitted = 0;

  // "data: 784 features, 10 classes, as 9 of 10 clients announced"
  std::string line() const;
};

// The shape that more than half announced of the clients that announced one when they last
// connected: a minority decides neither how large everyone's model is nor who can train it. What
// the job says stays, and clients that contradict it are passed over. "no-data-shape" (retry) where
// no client says a shape; "shapes-differ", with who has which, where no shape has the majority.
[[nodiscard]] Result<LearnedShape> learn_shape(const Job& job, const ClientTable& clients);

// "model-too-large" where clients alone ask for a model that needs an operator's word.
[[nodiscard]] Result<void> check_learned_size(const LearnedShape& learned,
                                              std::uint64_t parameters);

// What a client announced.
client::DataShape shape_of(const Greeting& greeting);
// "[1, 28, 28], 10 classes"
std::string describe_shape(const client::DataShape& shape);

// Whether a client may still say it: one that has not connected to this process, or will join.
bool shape_may_come(const ClientTable& clients);

}  // namespace starling::coordinator
