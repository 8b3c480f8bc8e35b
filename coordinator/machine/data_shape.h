// SPDX-License-Identifier: Apache-2.0
// The shape of the data of a job that does not say it: that of the rows of more than half of the
// clients that announced one, with as many classes as enough of these have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/job/job.h"
#include "coordinator/machine/client_table.h"

namespace starling::coordinator {

// Whether neither data.input and data.classes nor an evaluation data set say it.
bool lacks_shape(const Job& job);

// "no-scale" where data.scale has numbers neither in the job nor in an evaluation data set.
[[nodiscard]] Result<void> check_scale_said(const Job& job);

struct LearnedShape {
  client::DataShape shape;
  std::size_t agreed = 0;        // clients that announce rows of this shape
  std::size_t with_classes = 0;  // of them, with this number of classes, or where the job says it
  std::size_t with_more = 0;     // of them, with more classes: they are left out
  std::size_t announced = 0;     // how many announce it or another one that the job allows
  std::size_t admitted = 0;

  // "data: 784 features, 10 classes, as 9 of 10 clients announced"
  std::string line() const;
};

// By what the clients announced when they last connected. The shape of the rows is that of more
// than half of those that announced one: a minority decides neither how large everyone's model is
// nor who can train it. Not every client has rows of every class, so the number of classes is the
// largest that more than a quarter of these, and two at least, announce or exceed; of one or two
// clients the larger one. What the job says stays, and clients that contradict it are passed over.
// "no-data-shape" (retry) where no client says a shape; "shapes-differ" where none has the
// majority. Its cost is that of the distinct shapes.
[[nodiscard]] Result<LearnedShape> learn_shape(const Job& job, const ClientTable& clients);

// The sentence for learn_shape's "shapes-differ": which clients announced which shape. Walks all
// clients.
std::string describe_disagreement(const Job& job, const ClientTable& clients);

// "model-too-large" where what clients announced, without a setting of the job, leads to a model of
// more parameters than the limit.
[[nodiscard]] Result<void> check_learned_size(const LearnedShape& learned,
                                              std::uint64_t parameters);

// What a client announced.
client::DataShape shape_of(const Greeting& greeting);
// "[1, 28, 28], 10 classes"
std::string describe_shape(const client::DataShape& shape);

// Whether a client may still say it: one that has not connected to this process, or will join.
bool shape_may_come(const ClientTable& clients);

}  // namespace starling::coordinator
