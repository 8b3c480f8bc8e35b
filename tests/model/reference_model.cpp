// SPDX-License-Identifier: Apache-2.0
#include "tests/model/reference_model.h"

#include <algorithm>
#include <cmath>

namespace starling::model {
namespace {

// [channels, height, width]
struct Image {
  int channels, height, width;
  std::vector<double> values;

  // 0 outside.
  double at(int c, int y, int x) const {
    if (y < 0 || x < 0 || y >= height || x >= width) return 0;
    return values[static_cast<std::size_t>((c * height + y) * width + x)];
  }
};

Image convolve(const Image& in, std::span<const double> weight, std::span<const double> bias,
               int kernel) {
  Image out{static_cast<int>(bias.size()), in.height, in.width, {}};
  const int margin = kernel / 2;
  for (int o = 0; o < out.channels; ++o) {
    for (int y = 0; y < in.height; ++y) {
      for (int x = 0; x < in.width; ++x) {
        double sum = bias[static_cast<std::size_t>(o)];
        for (int i = 0; i < in.channels; ++i) {
          for (int ky = 0; ky < kernel; ++ky) {
            for (int kx = 0; kx < kernel; ++kx) {
              const int at = ((o * in.channels + i) * kernel + ky) * kernel + kx;
              sum +=
                  weight[static_cast<std::size_t>(at)] * in.at(i, y + ky - margin, x + kx - margin);
            }
          }
        }
        out.values.push_back(sum);
      }
    }
  }
  return out;
}

Image relu_and_pool(const Image& in) {
  Image out{in.channels, in.height / 2, in.width / 2, {}};
  for (int c = 0; c < out.channels; ++c) {
    for (int y = 0; y < out.height; ++y) {
      for (int x = 0; x < out.width; ++x) {
        double best = 0;
        for (const auto& [dy, dx] : {std::pair{0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
          best = std::max(best, in.at(c, 2 * y + dy, 2 * x + dx));
        }
        out.values.push_back(best);
      }
    }
  }
  return out;
}

std::vector<double> dense(const std::vector<double>& in, std::span<const double> weight,
                          std::span<const double> bias) {
  std::vector<double> out(bias.begin(), bias.end());
  for (std::size_t o = 0; o < out.size(); ++o) {
    for (std::size_t i = 0; i < in.size(); ++i) out[o] += weight[o * in.size() + i] * in[i];
  }
  return out;
}

}  // namespace

std::vector<double> ReferenceModel::logits(std::span<const double> parameters,
                                           const float* features) const {
  Image image{input_.channels, input_.height, input_.width,
              std::vector<double>(features, features + input_.features())};
  const auto& tensors = layout_.tensors();
  const auto values = [&](const TensorInfo& t) { return parameters.subspan(t.offset, t.size()); };
  bool after_dense = false;
  for (std::size_t i = 0; i + 1 < tensors.size(); i += 2) {
    const auto weight = values(tensors[i]);
    const auto bias = values(tensors[i + 1]);
    if (tensors[i].shape.size() == 4) {
      image = relu_and_pool(convolve(image, weight, bias, static_cast<int>(tensors[i].shape[2])));
      continue;
    }
    if (after_dense) {
      for (double& v : image.values) v = std::max(v, 0.0);
    }
    image.values = dense(image.values, weight, bias);
    after_dense = true;
  }
  return image.values;
}

double ReferenceModel::loss(std::span<const double> parameters, const float* features,
                            std::int32_t label) const {
  const std::vector<double> z = logits(parameters, features);
  const double largest = *std::ranges::max_element(z);
  double sum = 0;
  for (const double v : z) sum += std::exp(v - largest);
  return std::log(sum) + largest - z[static_cast<std::size_t>(label)];
}

std::vector<double> ReferenceModel::gradient(std::span<const double> parameters,
                                             const float* features, const std::int32_t* labels,
                                             std::size_t rows) const {
  constexpr double kStep = 1e-6;
  std::vector<double> moved(parameters.begin(), parameters.end()), result(parameters.size());
  const auto mean_loss = [&] {
    double sum = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      sum += loss(moved, features + r * input_.features(), labels[r]);
    }
    return sum / static_cast<double>(rows);
  };
  for (std::size_t i = 0; i < moved.size(); ++i) {
    moved[i] = parameters[i] + kStep;
    const double above = mean_loss();
    moved[i] = parameters[i] - kStep;
    result[i] = (above - mean_loss()) / (2 * kStep);
    moved[i] = parameters[i];
  }
  return result;
}

}  // namespace starling::model
