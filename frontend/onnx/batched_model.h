// A model that is imported for batches of any size: what follows the batch is known from the first two imports.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

class BatchTemplate;

// Imports a model with the same options for any batch. Imports the first two sizes that are asked for and compares the
// graphs node by node: extents, attributes and constants that differ are linear in the batch, those that do not are the
// same for all, and the type rules compute the types of further sizes. A size is imported for itself
// - where it is 1, at which values broadcast and axes vanish, or the size that the file was exported for, whose
//   constants stay as they are;
// - where the nodes of the two graphs differ, or attributes and constants that are no lines, as of a half of the batch;
// - where the type rules refuse the instantiated graph, as of a target shape that holds the square of the batch;
// - outside of the sizes imported before where these are close, or where what no type rule checks follows the batch;
// - in models with bodies (If, Loop, Scan), which may choose by the batch.
// Holds one graph and no bytes of weights of its own. Thread-compatible.
class BatchedModel {
 public:
  // `options.batch` is ignored. Extents of -1 in input_shapes are the batch.
  BatchedModel(std::shared_ptr<const OnnxModel> model, ImportOptions options);
  BatchedModel(BatchedModel&&) noexcept;
  BatchedModel& operator=(BatchedModel&&) noexcept;
  ~BatchedModel();

  // Returns what Import returns for the batch. `values`: with all values of weights; else those that ReleaseValues has
  // dropped may be missing.
  absl::StatusOr<ImportedModel> At(int64_t batch, bool values = true);

  const ImportOptions& options() const { return options_; }
  int64_t imports() const { return imports_; }  // made or failed
  // Returns whether training and inference are known to have the same graph.
  bool same_in_both_modes() const { return !mode_matters_; }
  // Returns whether further sizes get all values of weights.
  bool has_values() const { return !released_; }
  // Calls `release` on the weights that further sizes share. It returns whether it has dropped values.
  void ReleaseValues(const std::function<bool(std::vector<ImportedWeight>*)>& release);

 private:
  absl::StatusOr<ImportedModel> ImportAt(int64_t batch);
  void Learn(const ImportedModel& imported);

  std::shared_ptr<const OnnxModel> model_;
  ImportOptions options_;
  std::optional<ImportedModel> sample_;  // of one size, until there is a template
  std::unique_ptr<BatchTemplate> template_;
  bool unlike_ = false;    // two sizes have different nodes
  bool released_ = false;  // values may be missing
  bool mode_matters_ = true;
  int64_t imports_ = 0;
};

}  // namespace onnxtrain
