// Update rules given as ONNX models: `optimizer` onnx:FILE.
//
// Inputs: weight and gradient, in any order; of lr (the learning rate), step (updates made before this one) and
// weight_decay those that the rule reads, scalars; every other input is a state of the weight's shape, zeros before the
// first update. Outputs: weight_new, and NAME_new of every state. The model is made for each shape of a weight; where
// it declares one axis for `weight`, all its tensors are flat. Its own weights are constants. Where it reads no
// weight_decay, a decay is added to the gradient (L2).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {

// Is the name of an optimizer that of a file?
inline bool NamesOnnxRule(std::string_view optimizer) { return optimizer.starts_with("onnx:"); }

class OnnxRule {
 public:
  // Fails, naming the model, where an input or output is missing, is called otherwise, or has another shape.
  static absl::StatusOr<std::shared_ptr<const OnnxRule>> Make(std::shared_ptr<const OnnxModel> model,
                                                              std::string_view name);

  const OptimizerRule& rule() const { return rule_; }

  // Appends the update of one weight, or of a flat group where rule().per_tensor is false. Errors are the builder's.
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
