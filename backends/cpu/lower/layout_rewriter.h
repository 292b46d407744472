// What the rules of AssignLayouts (passes.h) are written with.
#pragma once

#include <vector>

#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {

// The values of the new graph by those of the old one, in either layout, converted on first use.
class LayoutVariants {
 public:
  explicit LayoutVariants(Rewriter& r);

  Rewriter& r() { return r_; }
  Val Nchw(ValueId v);  // as it was; invalid for kNoValue
  Val Nhwc(ValueId v);
  // Sets the variant of an old value that `now` is.
  void Set(ValueId v, Val now);

 private:
  Rewriter& r_;
  std::vector<Val> nchw_, nhwc_;
};

// A node that gets channels last, with its operands.
struct LoweringContext {
  LayoutVariants& variants;
  const Node& node;

  Builder& b() const { return variants.r().b(); }
  const Graph& from() const { return variants.r().from(); }
  const Attrs& attrs() const { return node.attrs; }
  const Type& in(size_t i) const { return from().type(node.inputs[i]); }
  const Type& out(size_t i = 0) const { return from().type(node.outputs[i]); }
  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNoValue; }
  Val nchw(size_t i) const { return has(i) ? variants.Nchw(node.inputs[i]) : Val(); }
  Val nhwc(size_t i) const { return variants.Nhwc(node.inputs[i]); }
};

// One Val per output of the node.
using LowerRule = std::vector<Val> (*)(const LoweringContext&);

// Conv, ConvTranspose and ConvWeightGrad: packs weights, multiplies bf16 that was widened to float32 as bf16, computes
// convolutions of single elements as matrix products and input gradients at stride 1 as forward convolutions.
std::vector<Val> LowerConv(const LoweringContext& c);
std::vector<Val> LowerConvTranspose(const LoweringContext& c);
std::vector<Val> LowerConvWeightGrad(const LoweringContext& c);

}  // namespace onnxtrain::cpu
