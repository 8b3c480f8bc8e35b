// SPDX-License-Identifier: Apache-2.0
#include "core/model/external_model.h"

#include <algorithm>

#include "core/model/safetensors.h"

namespace starling::model {
namespace {

Result<Parameters> in_order_of_names(SafetensorsFile file) {
  const Parameters& read = file.parameters;
  STARLING_ASSIGN(const auto layout, external_layout(read.layout()->tensors()));
  if (*layout == *read.layout()) return std::move(file.parameters);
  Parameters sorted(layout);
  for (const TensorInfo& tensor : layout->tensors()) {
    std::ranges::copy(read.values(*read.layout()->find(tensor.name)),
                      sorted.values(tensor).begin());
  }
  return sorted;
}

}  // namespace

Result<std::shared_ptr<const Layout>> external_layout(std::vector<TensorInfo> tensors) {
  if (tensors.empty()) return rejected("bad-layout", "the model has no tensors");
  for (const TensorInfo& tensor : tensors) {
    const bool has_controls =
        std::ranges::any_of(tensor.name, [](unsigned char c) { return c < ' ' || c == 0x7F; });
    if (has_controls || tensor.name == "__metadata__") {
      return rejected("bad-layout",
                      "a tensor's name is \"__metadata__\" or has a control character");
    }
    if (tensor.rule != BufferRule::kMean && tensor.role != Role::kBuffer) {
      return rejected("bad-layout", "tensor \"" + tensor.name + "\" is no buffer, and has a rule");
    }
    if (tensor.role != Role::kPrivate) continue;
    return rejected("bad-layout",
                    "tensor \"" + tensor.name + "\" is private to a client, and does not travel");
  }
  std::ranges::sort(tensors, {}, &TensorInfo::name);
  STARLING_ASSIGN(auto layout, Layout::make(std::move(tensors)));
  if (layout->size() > 0) return layout;
  return rejected("bad-layout", "the model's tensors have no values");
}

Sha256Digest digest_of(const Layout& layout) {
  Sha256 digest;
  for (const TensorInfo& tensor : layout.tensors()) {
    std::string line = tensor.name + '\0';
    for (const std::int64_t extent : tensor.shape) line += std::to_string(extent) + ',';
    line += tensor.role == Role::kBuffer ? "buffer" : "trainable";
    if (tensor.rule == BufferRule::kMaximum) line += " maximum";
    if (tensor.rule == BufferRule::kLast) line += " last";
    line += '\n';
    digest.update(as_bytes(line));
  }
  return std::move(digest).finish();
}

Result<Parameters> load_external_model(Disk& disk, const std::filesystem::path& path) {
  STARLING_ASSIGN(SafetensorsFile file, load_safetensors(disk, path));
  return in_order_of_names(std::move(file));
}

Result<HashedModel> load_hashed_model(Disk& disk, const std::filesystem::path& path) {
  STARLING_ASSIGN(SafetensorsFile file, load_safetensors(disk, path, {.hash_file = true}));
  const Sha256Digest sha256 = file.sha256;
  STARLING_ASSIGN(Parameters model, in_order_of_names(std::move(file)));
  return HashedModel{std::move(model), sha256};
}

}  // namespace starling::model
