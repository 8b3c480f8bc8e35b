// SPDX-License-Identifier: Apache-2.0
// The shape of the data of a job that does not say it: the one that most admitted clients announce.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "coordinator/client_table.h"
#include "coordinator/job.h"

namespace starling::coordinator {

// Whether neither data.input and data.classes nor an evaluation data set say it.
bool lacks_shape(const Job& job);

struct LearnedShape {
  client::DataShape shape;
  std::size_t agreed = 0;     // clients that announce this shape
  std::size_t announced = 0;  // ... or another one that the job allows
  std::size_t admitted = 0;

  // "data: 784 features, 10 classes, as 9 of 10 clients announced"
  std::string line() const;
};

// The shape that most clients announced when they last connected, of equally many the first in
// lexicographic order; of the classes that these clients announced the largest number, from three
// clients on the largest that two of them reach. What the job
// says stays, and clients that contradict it are passed over. Nothing where no client says a shape.
std::optional<LearnedShape> learn_shape(const Job& job, const ClientTable& clients);

// Whether a client may still say it: one that has not connected to this process, or will join.
bool shape_may_come(const ClientTable& clients);

}  // namespace starling::coordinator
