// Compares the predictions of a batch with its labels, for each kind of predictions (QualityKind).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "frontend/data/sources/dataset.h"
#include "frontend/graph/host_tensor.h"
#include "optim/record/quality.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// Outputs and labels of a batch, each of shape [n, …].
struct PredictedBatch {
  const HostTensor &labels, &values;
  int64_t samples() const { return values.shape()[0]; }
};

// Collects the predictions of one kind.
class QualityCollector {
 public:
  virtual ~QualityCollector() = default;
  // Adds sample i of a batch, which has the index `sample` in the data.
  virtual void Add(int64_t sample, const PredictedBatch& batch, int64_t i) = 0;
  virtual Quality Take() { return std::move(quality_); }

 protected:
  Quality quality_;
};

// Returns the collector for predictions such as those of `first`, or null if they cannot be compared with labels. Later
// batches may have other extents after the batch axis. `blocks`: the samples of a language model; null: it is none.
std::unique_ptr<QualityCollector> MakeQualityCollector(const LossChoice& loss, const PredictedBatch& first,
                                                       int64_t ignore_index, const Dataset* blocks);

}  // namespace onnxtrain
