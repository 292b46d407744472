// Adds predictions and labels up to a Quality: one collector for each kind of prediction.
#pragma once

#include <cstdint>
#include <memory>

#include "optim/step/loss.h"
#include "tools/onnxtrain/report/quality.h"

namespace onnxtrain::cli {

// What a batch holds: [n, …] each.
struct PredictedBatch {
  const HostTensor &labels, &values;
  int64_t samples() const { return values.shape()[0]; }
};

class QualityCollector {
 public:
  virtual ~QualityCollector() = default;
  // Adds sample i of a batch, which is sample `sample` of the data.
  virtual void Add(int64_t sample, const PredictedBatch& batch, int64_t i) = 0;
  virtual Quality Take() { return std::move(quality_); }

 protected:
  Quality quality_;
};

// Null where labels and predictions like those of `first` cannot be compared. Later batches may have other extents
// behind the batch.
std::unique_ptr<QualityCollector> MakeCollector(const LossChoice& loss, const PredictedBatch& first,
                                                int64_t ignore_index);

}  // namespace onnxtrain::cli
