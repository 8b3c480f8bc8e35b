// SPDX-License-Identifier: Apache-2.0
#include "core/model/mlp.h"

#include "core/base/check.h"

namespace starling::model {
namespace {

struct MlpWorkspace final : Workspace {
  DenseStack::Scratch dense;
  std::size_t rows = 0;
};

DenseStack::Scratch& scratch_for(Workspace& workspace, const Batch& batch) {
  auto& own = static_cast<MlpWorkspace&>(workspace);
  STARLING_CHECK(batch.rows <= own.rows);
  return own.dense;
}

}  // namespace

Mlp::Mlp(std::shared_ptr<const Layout> layout, data::Shape input, int classes,
         const linalg::Kernels& kernels)
    : layout_(std::move(layout)),
      input_(input),
      classes_(classes),
      kernels_(kernels),
      dense_(*layout_, kernels) {}

std::size_t Mlp::rows_max() const { return rows_for_scratch(dense_.floats_per_row()); }

std::unique_ptr<Workspace> Mlp::make_workspace(std::size_t rows) const {
  STARLING_CHECK(rows > 0 && rows <= rows_max());
  auto workspace = std::make_unique<MlpWorkspace>();
  workspace->dense = dense_.make_scratch(rows);
  workspace->rows = rows;
  return workspace;
}

Score Mlp::score(std::span<const float> parameters, const Batch& batch,
                 Workspace& workspace) const {
  STARLING_CHECK(parameters.size() == layout_->size());
  DenseStack::Scratch& scratch = scratch_for(workspace, batch);
  dense_.forward(parameters.data(), batch.features, batch.rows, scratch);
  return dense_.score(batch.labels, batch.rows, 0, scratch);
}

Score Mlp::gradient(std::span<const float> parameters, const Batch& batch, double divisor,
                    const GradientSink& sink, Workspace& workspace) const {
  STARLING_CHECK(parameters.size() == layout_->size() && sink.target.size() == layout_->size());
  DenseStack::Scratch& scratch = scratch_for(workspace, batch);
  dense_.forward(parameters.data(), batch.features, batch.rows, scratch);
  const Score score =
      dense_.score(batch.labels, batch.rows, static_cast<float>(1 / divisor), scratch);
  dense_.backward(parameters.data(), batch.features, batch.rows, sink, nullptr, scratch);
  return score;
}

}  // namespace starling::model
