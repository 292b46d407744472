// Update rules as expressions over tensors. Elementwise rules run on flat tensors: one contiguous group of parameters
// with its gradients and moments; padding between tensors is zero and stays zero. Rules with per-tensor terms (norms,
// factored moments) run on each parameter.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/ops/builder.h"
#include "optim/config/optimizer.h"

namespace onnxtrain {

struct RuleContext {
  Val param, grad;            // [n], or of the parameter's shape; grad is unscaled and clipped
  std::vector<Val> state;     // in the order of OptimizerRule::state; zero before the first update
  Val lr;                     // scalar
  Val step;                   // scalar: updates applied before this one
  double weight_decay = 0;    // of the group
  bool table = false;         // of rules per tensor: the parameter is one of OptimizerSpec::tables
  Val average = {};           // of rules that average: the average of the parameter; at first the parameter
  const OptimizerSpec& spec;  // resolved
};

struct RuleResult {
  Val param;
  std::vector<Val> state;
  Val average = {};  // of rules that average
};

// How a state is stored between updates. Rules compute with floats in every format. Only rules per tensor may have
// another format than kFloat.
enum class StateFormat : uint8_t {
  kFloat,
  kDynamic,          // the 8-bit dynamic code (frontend/ops/dynamic_code.h)
  kUnsignedDynamic,  // the same without negative numbers
};

// A tensor that is stored for a state of a weight, under MomentName(state, weight).
struct StoredState {
  std::string state;
  Type type;
  int64_t block = 1;  // elements of the weight by element of the tensor
};

struct RuleState {
  std::string_view name;
  Shape (*shape)(const Shape& param, bool table,
                 const OptimizerSpec& spec) = nullptr;  // of rules per tensor; null: the parameter's shape
  StateFormat format = StateFormat::kFloat;

  bool is_signed() const { return format == StateFormat::kDynamic; }
  // Returns true if the state of all weights of a group is one flat tensor.
  bool is_flat() const { return shape == nullptr && format == StateFormat::kFloat; }
  // Returns true if the state of a weight is stored in the format; tables and small tensors have floats.
  bool IsQuantized(const OptimizerSpec& spec, const std::string& weight, const Shape& param) const;
  // Returns the tensors of a weight: one of floats of type `dtype`, or codes and scales.
  std::vector<StoredState> Stored(const OptimizerSpec& spec, const std::string& weight, const Shape& param,
                                  DType dtype) const;

  // Returns the tensors of `elements` consecutive elements of a weight, from the begin of a block on. The state must
  // have the weight's shape.
  std::vector<StoredState> StoredPart(const OptimizerSpec& spec, const std::string& weight, const Shape& param,
                                      int64_t elements, DType dtype) const;

  // Returns the shape of the state of a weight.
  Shape Of(const OptimizerSpec& spec, const std::string& weight, const Shape& param) const {
    return shape == nullptr ? param : shape(param, spec.tables.contains(weight), spec);
  }
};

struct RuleDefaults {
  double lr = 0;  // 0: the default of the model kind
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

struct OptimizerRule {
  std::string_view name;
  std::string_view takes;  // the options it reads of momentum, betas, eps; separated by blanks
  std::vector<RuleState> state;
  RuleResult (*update)(const RuleContext&);
  RuleDefaults defaults;
  bool per_tensor = false;
  bool averages = false;   // computes an average of the weights, which evaluations and exports use
  bool in_blocks = false;  // a rule per tensor that updates every block of kDynamicBlock elements separately
};

// Returns the rule of a specification, or null. sgd and rmsprop with momentum are separate rules.
const OptimizerRule* FindRule(const OptimizerSpec& spec);
// Replaces every kRuleDefault by the default of the rule, or by the most common default if the rule is unknown
// (onnx:FILE before it is loaded).
OptimizerSpec Resolved(OptimizerSpec spec);

// Returns true if an average of the weights is kept.
bool KeepsAverage(const OptimizerSpec& spec);

// Lists the rules that users can name: without the momentum variants.
std::vector<const OptimizerRule*> NamedRules();

std::span<const OptimizerRule> ElementwiseRules();
std::span<const OptimizerRule> PerTensorRules();

// Updates by adamw. The state is that of adam: both moments.
RuleResult UpdateByAdamW(const RuleContext& context);

// Returns 1 − βᵗ, Adam's bias correction, without the cancellation of float32 for β near 1.
inline Val BiasCorrection(double beta, Val t) { return -t.b().Op("Expm1", {t * std::log(beta)}); }

struct AdamMoments {
  Val m, v;  // state 0 and 1 after this gradient
};

inline AdamMoments UpdateMoments(const RuleContext& c, Val grad) {
  const OptimizerSpec& s = c.spec;
  return {c.state[0] * s.beta1 + grad * (1 - s.beta1), c.state[1] * s.beta2 + grad * grad * (1 - s.beta2)};
}

}  // namespace onnxtrain
