// Forward graphs of one model, made once per batch and mode and shared by everything that looks at the model: sessions,
// plans, timing trials, checks.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/batched_model.h"
#include "optim/memory/policy.h"
#include "optim/step/loss.h"
#include "optim/step/trainable.h"

namespace onnxtrain {

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
  std::set<std::string> float_weights;  // as in ImportOptions
};

// Imports, simplifies, recognizes composites and separates packed samples; chooses neither loss nor weights.
absl::StatusOr<ImportedModel> ImportForward(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                            bool training);

// Imports node by node, without optimization. Fails on inputs, outputs and weights whose names begin with "$", which
// are reserved for names that training adds to a graph.
absl::StatusOr<ImportedModel> ImportAsWritten(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                              bool training);

// Chooses the trained weights of the model that `import` returns for these options. If the scale of a BatchNorm is
// frozen, imports again with that scale in ImportOptions::frozen_scales: such a node stays in inference mode.
using ImportForwardFn = std::function<absl::StatusOr<ImportedModel>(const PrepareOptions& options)>;
absl::StatusOr<PreparedModel> ChooseWeights(const PrepareOptions& options, const ImportForwardFn& import,
                                            FixedTables* tables);

// Imports and chooses the trained weights, without a loss.
absl::StatusOr<PreparedModel> PrepareWeights(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                             bool training);

absl::StatusOr<PreparedModel> Prepare(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                      bool training);

// Caches the 16 most recently used forward graphs of one model by ImportOptions, batch and mode (training or
// inference). All batch sizes of the same ImportOptions and mode share one BatchedModel; inference uses that of
// training if the mode makes no difference. A file with other edits is another model. Thread-compatible: one thread at
// a time.
class PreparedModels {
 public:
  explicit PreparedModels(std::shared_ptr<const OnnxModel> model) : model_(std::move(model)) {}

  const std::shared_ptr<const OnnxModel>& model() const { return model_; }

  // Act as the functions above. With `values`, every ImportedWeight has its value. Without it, values that the import
  // converted, and that are thus copies as large as the weights, may be missing.
  absl::StatusOr<std::shared_ptr<const ImportedModel>> ImportForward(const PrepareOptions& options, int64_t batch,
                                                                     bool training, bool values);
  absl::StatusOr<PreparedModel> PrepareWeights(const PrepareOptions& options, int64_t batch, bool training,
                                               bool values);
  absl::StatusOr<PreparedModel> Prepare(const PrepareOptions& options, int64_t batch, bool training, bool values);

  // Returns a batch size with which the model can be imported after `failure` with another one; 0 if none is found.
  // Constants may fix a batch that no input declares, and some models squeeze a batch of one. Tries small sizes and the
  // extents of the failed nodes, at most 32 and fewer for a large graph.
  int64_t FindFixedBatch(const PrepareOptions& options, const absl::Status& failure, bool training);

  // Drops the imports for other batch sizes, which were only planned.
  void KeepSize(int64_t batch);

  // Drops copied values, and plans. Called when a session has them on its device.
  void ReleaseValues();

  // Keeps plans of programs for the model.
  RecomputeMemo& recompute_memo() { return recompute_memo_; }

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
  RecomputeMemo recompute_memo_;
  int64_t imports_ = 0;
};

}  // namespace onnxtrain
