// SPDX-License-Identifier: Apache-2.0
// The only names of Eigen's types in Starling. Batches are rows, so matrices are row-major.
#pragma once

#include <Eigen/Core>
#include <Eigen/SparseCore>

namespace starling::linalg {

template <class Scalar>
using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;
template <class Scalar>
using VectorRef = Eigen::Ref<Vector<Scalar>>;
template <class Scalar>
using ConstVectorRef = Eigen::Ref<const Vector<Scalar>>;
// A view of memory that someone else owns.
template <class Scalar>
using VectorMap = Eigen::Map<Vector<Scalar>>;
template <class Scalar>
using ConstVectorMap = Eigen::Map<const Vector<Scalar>>;

template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using MatrixMap = Eigen::Map<Matrix<Scalar>>;
template <class Scalar>
using ConstMatrixMap = Eigen::Map<const Matrix<Scalar>>;

template <class Scalar>
using SparseMatrix = Eigen::SparseMatrix<Scalar, Eigen::RowMajor>;

}  // namespace starling::linalg
