// SPDX-License-Identifier: Apache-2.0
// What the `[model]` table of a job says.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/fields.h"

namespace starling::model {

inline constexpr std::string_view kExternalKind = "external";  // external_model.h
inline constexpr std::array<std::string_view, 4> kModelKinds = {"softmax-regression", "mlp", "cnn",
                                                                kExternalKind};

struct ModelSpec {
  std::string kind = "mlp";
  std::vector<int> hidden = {200, 200};  // mlp: widths of the hidden layers (the 2NN of FedAvg)
  // cnn: the defaults are the MNIST network of McMahan et al. (AISTATS'17), 1,663,370 parameters.
  std::vector<int> channels = {32, 64};
  int kernel_size = 5;
  std::vector<int> dense = {512};
  std::string initial;  // external; built-in models of gossip networks: spread=DISTANCE
  std::string layout;   // external

  bool is_external() const { return kind == kExternalKind; }
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

template <class V>
void describe(V& visit, ModelSpec& o) {
  visit("kind", o.kind,
        FieldInfo{
            .help = "family of models; external: one that the clients' own trainers compute with",
            .choices = kModelKinds});
  visit("hidden", o.hidden,
        FieldInfo{.help = "mlp: widths of the hidden layers", .min = 1, .max = 1 << 20});
  visit(
      "channels", o.channels,
      FieldInfo{.help = "cnn: output channels of the convolutions, each followed by a 2x2 max-pool",
                .min = 1,
                .max = 4096});
  visit("kernel-size", o.kernel_size,
        FieldInfo{.help = "cnn: width of the square kernels, odd; padding keeps the size",
                  .min = 1,
                  .max = 31});
  visit("dense", o.dense,
        FieldInfo{
            .help = "cnn: widths of the dense layers before the last", .min = 1, .max = 1 << 20});
  visit("initial", o.initial,
        FieldInfo{.help = "external: safetensors file of the initial model, at the coordinator; "
                          "empty: a trainer makes it. Built-in models of gossip networks: "
                          "spread=DISTANCE, how far from the common model each node begins"});
  visit("layout", o.layout,
        FieldInfo{.help = "external: SHA-256 of the tensors' names, shapes and roles; empty: that "
                          "of model.initial, else they must be these"});
}

}  // namespace starling::model
