// SPDX-License-Identifier: Apache-2.0
// The `[algorithm]` table: which algorithm, and the constants that its equations leave open.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/settings.h"

namespace starling::topologies {
class TopologyCatalogue;
}

namespace starling::gossip {

inline constexpr std::array<std::string_view, 14> kAlgorithms = {
    "dpsgd",    "sgp",     "gradient-tracking", "choco",  "d2",    "epidemic",   "qg-dsgdm",
    "relaysgd", "ad-psgd", "push-sum",          "diloco", "detag", "all-reduce", "diloco-all"};
inline constexpr std::array<std::string_view, 2> kOrders = {"adapt-then-combine",
                                                            "combine-while-adapt"};
inline constexpr std::array<std::string_view, 4> kCompressors = {"none", "top-k", "sign", "qsgd"};

class AlgorithmCatalogue;  // algorithm_catalogue.h

// The built-in ones, and those of the catalogue unless it is null.
std::span<const std::string_view> algorithm_names(const AlgorithmCatalogue* own);
// Its topologies; null without a catalogue.
const topologies::TopologyCatalogue* own_topologies(const AlgorithmCatalogue* own);

// A name, perhaps with parameters after a colon: "all-reduce:group=8". The choices of the setting
// are those of the name alone; what may follow, group_size() says.
class AlgorithmName : public std::string {
 public:
  using std::string::string;
  AlgorithmName(std::string text) : std::string(std::move(text)) {}
};

struct AlgorithmOptions {
  AlgorithmName name = "dpsgd";              // with its parameters: "all-reduce:group=8"
  std::string order = "adapt-then-combine";  // dpsgd, choco
  double momentum = 0.9;                     // qg-dsgdm: mu = beta
  std::string compressor = "top-k";          // choco
  double ratio = 0.01;                       // choco top-k: k / d
  int bits = 4;                              // choco qsgd: bits an element, sign included
  double consensus_step = 0;                 // choco gamma; 0: from the compressor
  double outer_rate = 0.7;                   // diloco, diloco-all: eta_o
  double outer_momentum = -1;  // diloco, diloco-all: mu; negative: as outer_momentum()
  int gossip_rounds = 0;       // detag: R; 0: from the topology's slem
  // Algorithms beside the built-in ones; not a key. Must outlive the options. Null: none.
  const AlgorithmCatalogue* own = nullptr;
};

// The name without parameters.
inline std::string_view kind_of(const AlgorithmOptions& o) {
  return std::string_view(o.name).substr(0, o.name.find(':'));
}
// G of "all-reduce:group=G"; 0: all nodes are one group. Fails with "algorithm-options" where the
// name has other parameters, or any that its algorithm does not know.
[[nodiscard]] Result<std::uint32_t> group_size(const AlgorithmOptions& options);

// Over gossip much less momentum is stable than where everybody is in step.
inline double outer_momentum(const AlgorithmOptions& o) {
  if (o.outer_momentum >= 0) return o.outer_momentum;
  return o.name == "diloco" ? 0.3 : 0.9;
}

template <class V>
void describe(V& visit, AlgorithmOptions& o) {
  visit("name", o.name,
        FieldInfo{.help = "see gossip/README.md; all-reduce:group=G averages in groups of G nodes "
                          "that are drawn for each exchange",
                  .choices = algorithm_names(o.own)});
  visit("order", o.order,
        FieldInfo{.help = "dpsgd: mix the models after the local steps, or those from before them "
                          "while they run; choco: mix with the copies after this step's messages, "
                          "or with those from before",
                  .choices = kOrders});
  visit("momentum", o.momentum,
        FieldInfo{.help = "qg-dsgdm: mu and beta, the decay of the quasi-global momentum",
                  .min = 0,
                  .max = 0.9999});
  visit("compressor", o.compressor,
        FieldInfo{.help = "choco: what differences are sent as", .choices = kCompressors});
  visit("ratio", o.ratio,
        FieldInfo{
            .help = "choco, top-k: fraction of the elements that is sent", .min = 1e-6, .max = 1});
  visit("bits", o.bits,
        FieldInfo{.help = "choco, qsgd: bits an element, its sign included",
                  .unit = "bits",
                  .min = 2,
                  .max = 16});
  visit("consensus-step", o.consensus_step,
        FieldInfo{.help = "choco: gamma; 0: chosen from the compressor", .min = 0, .max = 1});
  visit("outer-rate", o.outer_rate,
        FieldInfo{.help = "diloco, diloco-all: eta_o of the outer step", .min = 0, .max = 10});
  visit("outer-momentum", o.outer_momentum,
        FieldInfo{.help = "diloco, diloco-all: mu of the outer step; -1: 0.3 of diloco, 0.9 of "
                          "diloco-all, as their authors",
                  .min = -1,
                  .max = 0.9999});
  visit("gossip-rounds", o.gossip_rounds,
        FieldInfo{.help = "detag: mixings a phase, R; 0: chosen from the topology",
                  .unit = "rounds",
                  .min = 0,
                  .max = 10000});
}

}  // namespace starling::gossip

template <>
struct starling::FieldText<starling::gossip::AlgorithmName> {
  static constexpr FieldType kType = FieldType::kText;
  static std::string write(const gossip::AlgorithmName& value) { return value; }
  static Result<gossip::AlgorithmName> read(std::string_view text, const FieldInfo& info) {
    STARLING_TRY(FieldText<std::string>::read(text.substr(0, text.find(':')), info));
    return gossip::AlgorithmName(std::string(text));
  }
};
