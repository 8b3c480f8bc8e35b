// SPDX-License-Identifier: Apache-2.0
#include "coordinator/data_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/base/counted.h"

namespace starling::coordinator {
namespace {

// What data.input and data.classes may say: a client cannot ask for a larger model than an
// operator.
constexpr std::uint32_t kDimensionMax = 1 << 24;
constexpr std::uint32_t kClassesMax = 1 << 20;

using AnnouncedShape = ClientTable::AnnouncedShape;

bool is_shape(const AnnouncedShape& shape) {
  const bool known = shape.input.size() == 1 || shape.input.size() == 3;
  return known && shape.classes >= 2 && shape.classes <= kClassesMax &&
         std::ranges::all_of(shape.input,
                             [](auto size) { return size >= 1 && size <= kDimensionMax; });
}

client::DataShape to_data_shape(const AnnouncedShape& shape) {
  return {{shape.input.begin(), shape.input.end()}, static_cast<int>(shape.classes)};
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

constexpr std::size_t kNamed = 3;

// "a, b and 3 more"
std::string some_of(const Announcers& clients) {
  const std::size_t named = clients.count <= kNamed + 1 ? clients.first.size() : kNamed;
  std::string text = fmt::format(
      "{}", fmt::join(clients.first.begin(),
                      clients.first.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (named < clients.count) text += fmt::format(" and {} more", clients.count - named);
  return text;
}

// Up to as many as some_of() shows: not all clients are looked at where many announced the shape.
void add_first_names(const ClientTable& clients, const AnnouncedShape& shape,
                     std::vector<std::string>& names) {
  for (const auto& [name, client] : clients.all()) {
    if (names.size() > kNamed) return;
    const Greeting& greeting = client.greeting;
    if (greeting.input == shape.input && greeting.classes == shape.classes) names.push_back(name);
  }
}

template <class Shapes>
Error no_majority(const Shapes& shapes, std::size_t announced) {
  constexpr std::size_t kShown = 5;
  std::string text;
  std::size_t shown = 0;
  for (const auto& [shape, announcers] : shapes) {
    if (++shown > kShown) break;
    text += fmt::format("{}{} with {} classes ({})", text.empty() ? "" : "; ",
                        describe(shape.first), shape.second, some_of(announcers));
  }
  if (shapes.size() > kShown) text += fmt::format("; and {} more", shapes.size() - kShown);
  return retry("shapes-differ",
               fmt::format("no shape of data is that of more than half of the {} that say theirs: "
                           "{}; set data.input and data.classes",
                           counted(announced, "client"), text));
}

}  // namespace

client::DataShape shape_of(const Greeting& greeting) {
  return to_data_shape({greeting.input, greeting.classes});
}

bool lacks_shape(const Job& job) {
  const client::DataShape& said = job.training.data;
  const bool evaluates = !job.evaluate.dataset.empty() && job.evaluate.every > 0;
  return (said.input.empty() || said.classes == 0) && !evaluates;
}

std::string LearnedShape::line() const {
  return fmt::format("data: {}, {} classes, as {} of {} announced", describe(shape.input),
                     shape.classes, agreed.count, counted(admitted, "client"));
}

Result<LearnedShape> learn_shape(const Job& job, const ClientTable& clients) {
  const client::DataShape& said = job.training.data;
  std::map<std::pair<std::vector<int>, int>, Announcers> shapes;
  LearnedShape learned{.admitted = clients.size()};
  for (const auto& [shape, count] : clients.shapes()) {
    if (!is_shape(shape)) continue;
    const client::DataShape announced = to_data_shape(shape);
    if (!allows(said, announced)) continue;
    learned.announced += count;
    Announcers& same =
        shapes[{announced.input, said.classes > 0 ? said.classes : announced.classes}];
    same.count += count;
    add_first_names(clients, shape, same.first);
  }
  if (shapes.empty()) return retry("no-data-shape", "no client says the shape of its data");
  const auto most =
      std::ranges::max_element(shapes, {}, [](const auto& entry) { return entry.second.count; });
  if (2 * most->second.count <= learned.announced) return no_majority(shapes, learned.announced);
  learned.shape = {most->first.first, most->first.second};
  learned.agreed = std::move(most->second);
  return learned;
}

Result<void> check_learned_size(const LearnedShape& learned, std::uint64_t parameters) {
  constexpr std::uint64_t kParametersMax = std::uint64_t{1} << 26;
  if (parameters <= kParametersMax) return {};
  return wrong_setting(
      "model-too-large",
      fmt::format("with {} and {} classes, which {} announced, the model would have {} parameters; "
                  "more than {} need data.input and data.classes in the job",
                  describe(learned.shape.input), learned.shape.classes, some_of(learned.agreed),
                  parameters, kParametersMax));
}

std::string describe_shape(const client::DataShape& shape) {
  return fmt::format("[{}], {} classes", fmt::join(shape.input, ", "), shape.classes);
}

bool shape_may_come(const ClientTable& clients) {
  return clients.size() == 0 || std::ranges::any_of(clients.all(), [](const auto& entry) {
           return !entry.second.greeted;
         });
}

}  // namespace starling::coordinator
