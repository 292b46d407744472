// Losses and update rules that users give as ONNX models.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/config/loss_text.h"
#include "optim/step/loss.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {

// Loss functions given as ONNX models: the term onnx:FILE.
//
// Inputs are bound by name: to outputs of the trained model, else to its inputs, else to data columns; inputs named
// label, labels, target, targets or y are bound to the label. Axis 0 of each is the batch. The model outputs either
//   loss_sum and weight   scalars, sums over the batch; `weight` must depend on labels, columns and inputs alone
//   one other tensor      a loss per sample, [batch] or [batch,1]; the weight is the number of samples
// Weights of the loss model are constants.

// The FILE in onnx:FILE that selects the training_info of the trained model, for losses and update rules.
inline constexpr char kOwnTrainingInfo[] = "model";

struct OnnxLossInput {
  std::string name;
  ValueId value = kNoValue;  // value of the trained model; kNoValue: a feed
  bool prediction = false;   // `value` is a model output
  std::string feed;          // LossFeed::name of a label or column, or name of a model input
  Type type;                 // with the batch that the loss was chosen for
};

struct OnnxLoss {
  std::shared_ptr<const OnnxModel> model;
  std::vector<OnnxLossInput> inputs;
  DType float_type = DType::kFloat32;
  bool weighted = false;  // has outputs loss_sum and weight
};

// Loads the files named in spec->name into spec->onnx. `model` is the trained one.
absl::Status LoadOnnxLosses(const OnnxModel& model, LossSpec* spec);

// Returns the inputs of the loss that are bound to data: neither outputs nor inputs of the trained model.
std::vector<std::string> OnnxLossColumns(const OnnxModel& loss, const OnnxModel& model);
// Returns true if the name of the input binds it to the label.
bool MeansLabel(const std::string& input);

// Binds the inputs and adds the feeds that they need. Errors name the input that cannot be bound.
absl::StatusOr<LossTerm> ChooseOnnxTerm(const ImportedModel& model, const LossSpec& spec, const LossTermSpec& term,
                                        const LabelInfo& labels, std::vector<LossFeed>* feeds);

// Appends the loss. Returns values of shape [batch], [batch,1] or [1] whose sum is the loss of the batch. `feeds` has
// the label feeds by LossFeed::name.
absl::StatusOr<Val> AppendOnnxLoss(Builder& b, const OnnxLoss& loss, const std::map<std::string, Val>& feeds,
                                   int64_t batch);

// Appends only the weight of a loss that outputs one. Reads the inputs named OnnxLossInput::feed; adds missing ones.
absl::StatusOr<Val> AppendOnnxLossWeight(Builder& b, const OnnxLoss& loss, int64_t samples);
// Builds a graph that outputs the weight of the loss.
absl::StatusOr<Graph> BuildOnnxLossWeight(const OnnxLoss& loss, int64_t samples);

// Update rules given as ONNX models: `optimizer` onnx:FILE.
//
// The model has inputs `weight` and `gradient`, and optionally the scalars `lr` (learning rate), `step` (updates before
// this one) and `weight_decay`. Every other input is a state of the weight's shape, zero before the first update. The
// outputs are weight_new and NAME_new for every state. The model is instantiated for each shape of a weight; if it
// declares one axis for `weight`, all its tensors are flat. Its own weights are constants. If it does not read
// weight_decay, decay is added to the gradient (L2).

// Returns true if the optimizer is given as onnx:FILE.
inline bool NamesOnnxRule(std::string_view optimizer) { return optimizer.starts_with("onnx:"); }

class OnnxRule {
 public:
  // Fails, naming the model, if an input or output is missing, has another name or another shape.
  static absl::StatusOr<std::shared_ptr<const OnnxRule>> Make(std::shared_ptr<const OnnxModel> model,
                                                              std::string_view name);

  const OptimizerRule& rule() const { return rule_; }

  // Appends the update of one weight, or of a flat group if rule().per_tensor is false. Reports errors to the builder.
  RuleResult Append(const RuleContext& c) const;

 private:
  explicit OnnxRule(std::shared_ptr<const OnnxModel> model) : model_(std::move(model)) {}
  absl::Status FindStates();
  bool Reads(std::string_view input) const;
  absl::StatusOr<RuleResult> TryAppend(const RuleContext& c) const;
  absl::StatusOr<bool> IsElementwise() const;

  std::shared_ptr<const OnnxModel> model_;
  std::string name_;
  std::vector<std::string> states_;
  bool flat_ = false;  // `weight` is declared with one axis
  OptimizerRule rule_;
};

}  // namespace onnxtrain
