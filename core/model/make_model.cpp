// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/model/cnn.h"
#include "core/model/mlp.h"

namespace starling::model {
namespace {

constexpr std::size_t kLayersMax = 64;
constexpr double kImageFloatsMax = 1 << 26;  // one layer's output for one row: 256 MiB
constexpr std::size_t kScratchFloats = 1 << 22;
constexpr std::size_t kRowsMax = 1024;

Error bad_spec(const std::string& message) { return wrong_setting("bad-model-spec", message); }

std::string text(data::Shape shape) {
  return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" +
         std::to_string(shape.width);
}

Result<void> check_widths(const std::vector<int>& widths, const char* what) {
  if (widths.size() > kLayersMax) {
    return bad_spec(std::string(what) + " lists " + std::to_string(widths.size()) +
                    " layers; at most " + std::to_string(kLayersMax) + " are possible");
  }
  for (const int width : widths) {
    if (width >= 1) continue;
    return bad_spec(std::string(what) + " holds " + std::to_string(width) +
                    "; a layer has at least 1 output");
  }
  return {};
}

Result<void> check_input(data::Shape input, int classes) {
  if (input.channels < 1 || input.height < 1 || input.width < 1) {
    return bad_spec("the data has the impossible shape " + text(input));
  }
  if (classes < 2) {
    return bad_spec("the data has " + std::to_string(classes) + " classes; at least 2 are needed");
  }
  const double floats = static_cast<double>(input.channels) * input.height * input.width;
  if (floats > kImageFloatsMax) return bad_spec("rows of shape " + text(input) + " are too large");
  return {};
}

void append_dense_stack(std::vector<TensorInfo>& tensors, std::int64_t in,
                        const std::vector<int>& hidden, int classes) {
  std::int64_t width = in;
  int number = 1;
  for (const int out : hidden) {
    append_dense(tensors, "fc" + std::to_string(number++), width, out);
    width = out;
  }
  append_dense(tensors, "fc" + std::to_string(number), width, classes);
}

Result<std::int64_t> append_convolutions(std::vector<TensorInfo>& tensors, const ModelSpec& spec,
                                         data::Shape input) {
  if (spec.kernel_size < 1 || spec.kernel_size % 2 == 0 || spec.kernel_size > 31) {
    return bad_spec("kernel-size is " + std::to_string(spec.kernel_size) +
                    "; it must be odd and at most 31");
  }
  if (spec.channels.empty()) return bad_spec("a cnn needs at least one entry in channels");
  if (input.height < 2 || input.width < 2) {
    return bad_spec(
        "a cnn needs images (channels x height x width) of at least 1x2x2; the rows of "
        "the data are " +
        text(input) + "; for rows of features take softmax-regression or mlp");
  }
  std::int64_t channels = input.channels, height = input.height, width = input.width;
  int number = 1;
  for (const int out : spec.channels) {
    if (height < 2 || width < 2) {
      return bad_spec("images of " + text(input) + " can be halved " + std::to_string(number - 1) +
                      " times, but channels lists " + std::to_string(spec.channels.size()) +
                      " convolutions");
    }
    const double pixels = static_cast<double>(height + spec.kernel_size) *
                          static_cast<double>(width + spec.kernel_size);
    if (pixels * std::max<double>(out, static_cast<double>(channels)) > kImageFloatsMax) {
      return bad_spec("convolution " + std::to_string(number) + " of " + std::to_string(out) +
                      " channels on " + std::to_string(height) + "x" + std::to_string(width) +
                      " pixels is too large");
    }
    append_convolution(tensors, "conv" + std::to_string(number++), channels, out, spec.kernel_size);
    channels = out;
    height /= 2;
    width /= 2;
  }
  return channels * height * width;
}

Result<std::vector<TensorInfo>> tensors_of(const ModelSpec& spec, data::Shape input, int classes) {
  std::vector<TensorInfo> tensors;
  auto features = static_cast<std::int64_t>(input.features());
  if (spec.kind == "softmax-regression") {
    append_dense_stack(tensors, features, {}, classes);
  } else if (spec.kind == "mlp") {
    STARLING_TRY(check_widths(spec.hidden, "hidden"));
    append_dense_stack(tensors, features, spec.hidden, classes);
  } else if (spec.kind == "cnn") {
    STARLING_TRY(check_widths(spec.channels, "channels"));
    STARLING_TRY(check_widths(spec.dense, "dense"));
    STARLING_ASSIGN(features, append_convolutions(tensors, spec, input));
    append_dense_stack(tensors, features, spec.dense, classes);
  } else if (spec.is_external()) {
    return bad_spec(
        "a model of the kind external is computed by the clients' own trainers, and "
        "this needs one that is built in: softmax-regression, mlp or cnn");
  } else {
    return bad_spec("there is no model kind \"" + spec.kind +
                    "\"; take softmax-regression, mlp or cnn");
  }
  return tensors;
}

Error too_large() {
  return bad_spec("the model would have more than " + std::to_string(kParametersMax) +
                  " parameters, which is the limit");
}

}  // namespace

Result<std::shared_ptr<const Model>> make_model(const ModelSpec& spec, data::Shape input,
                                                int classes, const linalg::Kernels& kernels) {
  STARLING_TRY(check_input(input, classes));
  STARLING_ASSIGN(auto tensors, tensors_of(spec, input, classes));
  auto layout = Layout::make(std::move(tensors));
  if (!layout || (*layout)->size() > kParametersMax) return too_large();
  if (spec.kind == "cnn") {
    return std::shared_ptr<const Model>(
        std::make_shared<Cnn>(std::move(*layout), input, classes, kernels));
  }
  return std::shared_ptr<const Model>(
      std::make_shared<Mlp>(std::move(*layout), input, classes, kernels));
}

Parameters initial_parameters(const Model& model, Rng rng) {
  Parameters parameters(model.layout());
  double bound = 0;
  for (const TensorInfo& tensor : model.layout()->tensors()) {
    const bool is_weight = tensor.shape.size() > 1;  // a bias has the bound of its weight
    if (is_weight) {
      const auto fan_in = static_cast<double>(tensor.size()) / static_cast<double>(tensor.shape[0]);
      bound = 1 / std::sqrt(fan_in);
    }
    for (float& value : parameters.values(tensor)) {
      value = static_cast<float>(rng.uniform(-bound, bound));
    }
  }
  return parameters;
}

Parameters initial_parameters(const Model& model, std::uint64_t seed) {
  return initial_parameters(model, Rng({.seed = seed, .purpose = Purpose::kInitialization}));
}

std::size_t rows_for_scratch(std::size_t floats_per_row) {
  return std::clamp<std::size_t>(kScratchFloats / std::max<std::size_t>(floats_per_row, 1), 1,
                                 kRowsMax);
}

}  // namespace starling::model
