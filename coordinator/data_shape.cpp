// SPDX-License-Identifier: Apache-2.0
#include "coordinator/data_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/base/counted.h"

namespace starling::coordinator {
namespace {

// What data.input and data.classes may say: a client cannot ask for a larger model than an
// operator.
constexpr std::uint32_t kDimensionMax = 1 << 24;
constexpr std::uint32_t kClassesMax = 1 << 20;

bool is_shape(const ClientTable::AnnouncedShape& shape) {
  const bool known = shape.input.size() == 1 || shape.input.size() == 3;
  return known && shape.classes >= 2 && shape.classes <= kClassesMax &&
         std::ranges::all_of(shape.input,
                             [](auto size) { return size >= 1 && size <= kDimensionMax; });
}

bool allows(const client::DataShape& said, const client::DataShape& announced) {
  return (said.input.empty() || said.input == announced.input) &&
         (said.classes == 0 || announced.classes <= said.classes);
}

std::string describe(const std::vector<int>& input) {
  if (input.size() == 1) return counted(static_cast<std::uint64_t>(input[0]), "feature");
  const std::string image = fmt::format("{}x{}", input[1], input[2]);
  return input[0] == 1 ? image : fmt::format("{}x{}", input[0], image);
}

}  // namespace

bool lacks_shape(const Job& job) {
  const client::DataShape& said = job.training.data;
  const bool evaluates = !job.evaluate.dataset.empty() && job.evaluate.every > 0;
  return (said.input.empty() || said.classes == 0) && !evaluates;
}

std::string LearnedShape::line() const {
  return fmt::format("data: {}, {} classes, as {} of {} announced", describe(shape.input),
                     shape.classes, agreed, counted(admitted, "client"));
}

std::optional<LearnedShape> learn_shape(const Job& job, const ClientTable& clients) {
  const client::DataShape& said = job.training.data;
  struct Announced {
    std::size_t clients = 0;
    std::vector<int> classes;  // that each announces, but of equal ones two at most
  };
  std::map<std::vector<int>, Announced> shapes;
  LearnedShape learned{.admitted = clients.size()};
  for (const auto& [shape, count] : clients.shapes()) {
    if (!is_shape(shape)) continue;
    const client::DataShape announced{{shape.input.begin(), shape.input.end()},
                                      static_cast<int>(shape.classes)};
    if (!allows(said, announced)) continue;
    learned.announced += count;
    Announced& same = shapes[announced.input];
    same.clients += count;
    same.classes.insert(same.classes.end(), std::min<std::size_t>(count, 2), announced.classes);
  }
  if (shapes.empty()) return std::nullopt;
  const auto most =
      std::ranges::max_element(shapes, {}, [](const auto& entry) { return entry.second.clients; });
  auto& [agreed, classes] = most->second;
  std::ranges::sort(classes, std::greater());
  // Of three and more, two must have it: one alone does not say how large everyone's model is.
  const int widest = classes[agreed < 3 ? 0 : 1];
  learned.shape = {most->first, said.classes > 0 ? said.classes : widest};
  learned.agreed = agreed;
  return learned;
}

bool shape_may_come(const ClientTable& clients) {
  return clients.size() == 0 || std::ranges::any_of(clients.all(), [](const auto& entry) {
           return !entry.second.greeted;
         });
}

}  // namespace starling::coordinator
