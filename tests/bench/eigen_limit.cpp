// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/eigen_limit.h"

#include <Eigen/Core>

namespace starling::bench {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<Matrix>;

void eigen_layer_step(const EigenLayer& layer) {
  const auto rows = static_cast<Eigen::Index>(layer.rows);
  const auto in = static_cast<Eigen::Index>(layer.in);
  const auto out = static_cast<Eigen::Index>(layer.out);
  const Map x(layer.x, rows, in);
  Map w(layer.w, out, in);
  Map y(layer.y, rows, out);
  y.noalias() = x * w.transpose();
  if (layer.dx != nullptr) Map(layer.dx, rows, in).noalias() = y * w;
  w.noalias() -= 1e-12F * y.transpose() * x;
}

}  // namespace starling::bench
