// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/data_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "core/base/counted.h"
#include "core/base/list_some.h"

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

// How many clients announce each number of classes, the largest first.
using ClassCounts = std::map<int, std::size_t, std::greater<>>;

std::size_t count_all(const ClassCounts& classes) {
  std::size_t count = 0;
  for (const auto& [number, clients] : classes) count += clients;
  return count;
}

int enough_classes(const ClassCounts& classes) {
  const std::size_t all = count_all(classes);
  const std::size_t needed = all < 3 ? 1 : std::max<std::size_t>(2, all / 4 + 1);
  std::size_t reached = 0;
  for (const auto& [number, clients] : classes) {
    reached += clients;
    if (reached >= needed) return number;
  }
  return 0;
}

// Whether the client's shape is one that a job which says `said` may have.
bool suits(const client::DataShape& said, const AnnouncedShape& announced) {
  return is_shape(announced) && allows(said, to_data_shape(announced));
}

}  // namespace

client::DataShape shape_of(const Greeting& greeting) {
  return to_data_shape({greeting.input, greeting.classes});
}

bool lacks_shape(const Job& job) {
  if (job.training.model.is_external()) return false;  // it needs none
  const client::DataShape& said = job.training.data;
  return (said.input.empty() || said.classes == 0) && !job.evaluate.on_dataset();
}

Result<void> check_scale_said(const Job& job) {
  const client::DataShape& said = job.training.data;
  if (!said.scales() || !said.scale_offsets.empty() || job.evaluate.on_dataset()) return {};
  return wrong_setting(
      "no-scale",
      fmt::format("data.scale = \"{}\" has no numbers: set data.scale-offsets and "
                  "data.scale-divisors, or an evaluate.dataset to compute them from, with "
                  "evaluate.every above 0",
                  said.scale));
}

std::string LearnedShape::line() const {
  const std::string clients = fmt::format("{} of {}", agreed, counted(admitted, "client"));
  if (with_classes == agreed) {
    return fmt::format("data: {}, {} classes, as {} announced", describe(shape.input),
                       shape.classes, clients);
  }
  std::string text = fmt::format("data: {}, as {} announced; {} classes, as {} of them did",
                                 describe(shape.input), clients, shape.classes, with_classes);
  if (with_more > 0) {
    text += fmt::format("; {} announced more and {} left out", with_more,
                        with_more == 1 ? "is" : "are");
  }
  return text;
}

Result<LearnedShape> learn_shape(const Job& job, const ClientTable& clients) {
  const client::DataShape& said = job.training.data;
  std::map<std::vector<int>, ClassCounts> shapes;
  LearnedShape learned{.admitted = clients.size()};
  for (const auto& [shape, count] : clients.shapes()) {
    if (!suits(said, shape)) continue;
    const client::DataShape announced = to_data_shape(shape);
    shapes[announced.input][announced.classes] += count;
    learned.announced += count;
  }
  if (shapes.empty()) return retry("no-data-shape", "no client says the shape of its data");
  const auto most = std::ranges::max_element(
      shapes, {}, [](const auto& entry) { return count_all(entry.second); });
  const ClassCounts& classes = most->second;
  learned.agreed = count_all(classes);
  if (2 * learned.agreed <= learned.announced) {
    return retry("shapes-differ", "no shape of data is that of more than half of the clients");
  }
  learned.shape = said;
  learned.shape.input = most->first;
  if (said.classes == 0) learned.shape.classes = enough_classes(classes);
  for (const auto& [number, count] : classes) {
    if (said.classes > 0 || number == learned.shape.classes) learned.with_classes += count;
    if (number > learned.shape.classes) learned.with_more += count;
  }
  return learned;
}

std::string describe_disagreement(const Job& job, const ClientTable& clients) {
  constexpr std::size_t kShown = 5;
  constexpr std::size_t kNamed = 3;
  std::map<std::vector<int>, std::vector<std::string>> shapes;
  std::uint64_t announced = 0;
  for (const auto& [name, client] : clients.all()) {
    const AnnouncedShape shape{client.greeting.input, client.greeting.classes};
    if (!suits(job.training.data, shape)) continue;
    shapes[to_data_shape(shape).input].push_back(name);
    ++announced;
  }
  std::string text;
  std::size_t shown = 0;
  for (const auto& [input, names] : shapes) {
    if (++shown > kShown) break;
    const std::size_t most = names.size() > kNamed + 1 ? kNamed : names.size();
    text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", describe(input),
                        list_some(names, most, std::identity()));
  }
  if (shapes.size() > kShown) text += fmt::format("; and {} more", shapes.size() - kShown);
  return fmt::format(
      "no shape of data is that of more than half of the {} that say theirs: {}; set data.input "
      "and data.classes",
      counted(announced, "client"), text);
}

Result<void> check_learned_size(const LearnedShape& learned, std::uint64_t parameters) {
  constexpr std::uint64_t kParametersMax = std::uint64_t{1} << 26;
  if (parameters <= kParametersMax) return {};
  return wrong_setting(
      "model-too-large",
      fmt::format("with {} and {} classes, as {} of {} announced, the model would have {} "
                  "parameters; more than {} need data.input and data.classes in the job",
                  describe(learned.shape.input), learned.shape.classes, learned.with_classes,
                  counted(learned.admitted, "client"), parameters, kParametersMax));
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
