// Forward graphs of one model, made once per batch and mode and shared by everything that looks at the model: sessions,
// plans, timing trials, checks.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/batched_model.h"
#include "optim/step/loss.h"
#include "optim/step/trainable.h"

namespace onnxtrain {

// From a model file to a forward graph that training can start from: import, recognize, choose loss and weights.
// Whatever asks more than once goes through PreparedModels (prepared_models.h).

struct PrepareOptions {
  ImportOptions import;  // batch and training are overridden; extents of -1 in input_shapes are the batch
  LossSpec loss;
  LabelInfo labels;
  TrainableSpec trainable;
};

struct PreparedModel {
  ImportedModel model;
  LossChoice loss;
  std::vector<WeightDecision> weights;
};

// Imports, simplifies and recognizes composites; chooses neither loss nor weights.
absl::StatusOr<ImportedModel> ImportForward(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                            bool training);

// Imports node by node, without optimization. Fails on inputs, outputs and weights whose names begin with "$": such
// names are reserved for what training adds to a graph.
absl::StatusOr<ImportedModel> ImportAsWritten(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                              bool training);

// Chooses the trained weights of what `import` returns for these options. Imports again, with the scales named in
// ImportOptions::frozen_scales, where a BatchNorm's scale is frozen: such a node stays in inference mode.
using ImportForwardFn = std::function<absl::StatusOr<ImportedModel>(const PrepareOptions& options)>;
absl::StatusOr<PreparedModel> ChooseWeights(const PrepareOptions& options, const ImportForwardFn& import,
                                            FixedTables* tables);

// Imports and chooses weights, without loss.
absl::StatusOr<PreparedModel> PrepareWeights(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                             bool training);

absl::StatusOr<PreparedModel> Prepare(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                      bool training);

// Caches forward graphs of one model by ImportOptions, batch and mode (training or inference), which all come from one
// BatchedModel for each ImportOptions and mode; inference takes that of training where the mode does not matter. Other
// edits of a file are other models. Keeps the 16 graphs used last. Thread-compatible: one thread at a time.
class PreparedModels {
 public:
  explicit PreparedModels(std::shared_ptr<const OnnxModel> model) : model_(std::move(model)) {}

  const std::shared_ptr<const OnnxModel>& model() const { return model_; }

  // As the functions above. `values`: every ImportedWeight has its value. Without it, values that the import
  // converted, and that are thus copies as large as the weights, may be missing.
  absl::StatusOr<std::shared_ptr<const ImportedModel>> ImportForward(const PrepareOptions& options, int64_t batch,
                                                                     bool training, bool values);
  absl::StatusOr<PreparedModel> PrepareWeights(const PrepareOptions& options, int64_t batch, bool training,
                                               bool values);
  absl::StatusOr<PreparedModel> Prepare(const PrepareOptions& options, int64_t batch, bool training, bool values);

  // Finds a batch with which the model can be imported, where it failed with another because extents do not fit: some
  // constants fix a batch that no input declares, and some models squeeze a batch of one. Tries small ones and the
  // extents of the nodes that failed, 32 at most and fewer of a large graph. 0: none of them works.
  int64_t FindFixedBatch(const PrepareOptions& options, const absl::Status& failure, bool training);

  // Drops the imports for other sizes of a batch, which were only planned.
  void KeepSize(int64_t batch);

  // Drops copied values: once a session has them on its device.
  void ReleaseValues();

  int64_t imports() const { return imports_; }  // of the file, failed ones too

 private:
  struct Entry {
    ImportOptions import;  // as it was resolved: with batch, mode and the outputs that the losses want
    bool has_values;
    std::shared_ptr<ImportedModel> model;
  };
  BatchedModel& FindBatched(ImportOptions* import);
  size_t CopiedBytes(const std::vector<ImportedWeight>& weights) const;
  void ReleaseValues(Entry* entry);
  void ReleaseValues(BatchedModel* batched);
  void DropCopies(std::vector<ImportedWeight>* weights);

  std::shared_ptr<const OnnxModel> model_;
  std::list<BatchedModel> batched_;  // the most recently used first
  std::list<Entry> entries_;         // the most recently used first
  FixedTables tables_;
  int64_t imports_ = 0;
};

}  // namespace onnxtrain
