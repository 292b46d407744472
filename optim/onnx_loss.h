// A loss given as an ONNX model: onnx:FILE, a term of --loss.
//
// Its inputs are bound by name: to outputs of the trained model, then to inputs of it, then to columns of the data, and what is
// called label, labels, target, targets or y to the label. Each has the batch as its first axis. It gives either
//   loss_sum and weight   scalars over the batch, both sums over its samples; `weight` follows from labels, columns and inputs alone
//   one other output      a loss per sample, [batch] or [batch,1]; the weight is the number of samples
// Its own weights are constants.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/loss.h"
#include "optim/loss_text.h"

namespace onnxtrain {

struct OnnxLossInput {
  std::string name;
  ValueId value = kNoValue;  // in the graph of the trained model; kNoValue: a feed
  bool prediction = false;   // `value` is an output
  std::string feed;          // of a label or column: LossFeed::name; of a model input: its name
  Type type;                 // with the batch that the loss was chosen for
};

struct OnnxLoss {
  std::shared_ptr<const OnnxModel> model;
  std::vector<OnnxLossInput> inputs;
  DType float_type = DType::kFloat32;
  bool weighted = false;     // loss_sum and weight
};

// Reads the files that spec->name names, into spec->onnx.
absl::Status LoadOnnxLosses(LossSpec* spec);

// The inputs of the loss that are neither outputs nor inputs of the trained model: labels and columns.
std::vector<std::string> OnnxLossColumns(const OnnxModel& loss, const OnnxModel& model);
// Is it a name that stands for the label?
bool MeansLabel(const std::string& input);

// Binds the inputs, adding the feeds that they need, and says what does not fit.
absl::StatusOr<LossTerm> ChooseOnnxTerm(const ImportedModel& model, const LossSpec& spec, const LossTermSpec& term, const LabelInfo& labels,
                                        std::vector<LossFeed>* feeds);

// Appends the loss and gives values whose sum is that over the batch: [batch], [batch,1] or [1]. `feeds` holds those of the choice by name.
absl::StatusOr<Val> AppendOnnxLoss(Builder& b, const OnnxLoss& loss, const std::map<std::string, Val>& feeds, int64_t batch);

// The loss's weight alone, for that many samples: its inputs are feeds named as in OnnxLossInput::feed.
absl::StatusOr<Graph> OnnxLossWeight(const OnnxLoss& loss, int64_t samples);

}  // namespace onnxtrain
