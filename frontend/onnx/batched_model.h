// Imports a model for any batch size, from a comparison of the first two imports.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

class BatchTemplate;

// Imports a model with the same options for any batch. Imports the first two requested sizes and compares the graphs
// node by node: extents, attributes and constants that differ are linear in the batch, the others do not depend on it,
// and the type rules compute the types of further sizes. A size gets its own import
// - if it is 1, where values broadcast and axes vanish, or the size that the file was exported for, whose constants
//   stay unchanged;
// - if the nodes of the two graphs differ, or if attributes or constants are not linear in the batch (half the batch,
//   rounded);
// - if the type rules refuse the instantiated graph (a target shape that holds the square of the batch);
// - if it is outside the range of the imported sizes and these are close, or values that no type rule checks depend on
//   the batch;
// - if the model has bodies (If, Loop, Scan), which may branch on the batch.
// Holds one graph and copies no weight bytes. Thread-compatible.
class BatchedModel {
 public:
  // `options.batch` is ignored. Extents of -1 in input_shapes are the batch.
  BatchedModel(std::shared_ptr<const OnnxModel> model, ImportOptions options);
  BatchedModel(BatchedModel&&) noexcept;
  BatchedModel& operator=(BatchedModel&&) noexcept;
  ~BatchedModel();

  // Returns the result of Import for the batch. If `values` is false, weight values that ReleaseValues has dropped may
  // be missing.
  absl::StatusOr<ImportedModel> At(int64_t batch, bool values = true);

  const ImportOptions& options() const { return options_; }
  int64_t imports() const { return imports_; }  // including failed ones
  // Returns true if training and inference are known to have the same graph.
  bool same_in_both_modes() const { return !mode_matters_; }
  // Returns true if further sizes get all weight values.
  bool has_values() const { return !released_; }
  // Calls `release` on the weights that further sizes share; `release` returns true if it has dropped values.
  void ReleaseValues(const std::function<bool(std::vector<ImportedWeight>*)>& release);

 private:
  absl::StatusOr<ImportedModel> ImportAt(int64_t batch);
  void Learn(const ImportedModel& imported);

  std::shared_ptr<const OnnxModel> model_;
  ImportOptions options_;
  std::optional<ImportedModel> sample_;  // the first import, until there is a template
  std::unique_ptr<BatchTemplate> template_;
  bool unlike_ = false;    // two sizes have different nodes
  bool released_ = false;  // values may be missing
  bool mode_matters_ = true;
  int64_t imports_ = 0;
};

// Tensors may repeat the same elements along some axes, such as constants that were expanded for a batch.

// Returns the elements with indices below the extents of `shape`, which must not exceed those of the tensor.
HostTensor TakeCorner(const HostTensor& tensor, Shape shape);

// Reduces the marked axes to extent 1. Returns nullopt if the elements differ along one of them.
std::optional<HostTensor> Unrepeat(const HostTensor& tensor, const std::vector<bool>& axes);

// Broadcasts the axes of `base` that have extent 1 to `shape`.
HostTensor Repeat(const HostTensor& base, Shape shape);

}  // namespace onnxtrain
