// Lets attention read and write heads where the projections have them: transposes become strides, and keys and values
// that serve several heads of queries are not copied for each.
#include <algorithm>
#include <map>

#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/passes/match.h"

namespace onnxtrain::cpu {
namespace {

using Vals = std::vector<Val>;

// An operand of attention, and the permutation that makes [B,G,T,D] of it.
struct HeadOperand {
  Val value;
  Perm perm;
};

HeadOperand SkipTransposesOf(Rewriter& r, const Pattern& pattern, ValueId v) {
  const Perm perm = SkipTransposes(pattern, &v);
  return {r.Map(v), perm};
}

// Returns the operand that is repeated, `v` [B,G,1,T,D] of FindRepeatedHeads.
HeadOperand GetRepeated(Rewriter& r, const Pattern& pattern, ValueId v) {
  const Graph& graph = pattern.graph();
  Shape shape = graph.type(v).shape;
  shape.erase(shape.begin() + 2);
  const Node* node = graph.producer(v);
  if (node != nullptr && node->op == "Reshape" && graph.type(node->inputs[0]).shape == shape)
    return SkipTransposesOf(r, pattern, node->inputs[0]);
  if (node == nullptr || node->op != "Transpose") return {Reshape(r.Map(v), shape), IdentityPerm(4)};
  // Without its axis of one element, the transpose is one of four axes.
  Perm perm = node->attrs.Ints("perm");
  const int64_t unit = perm[2];
  perm.erase(perm.begin() + 2);
  for (int64_t& axis : perm) axis -= axis > unit ? 1 : 0;
  Shape before = graph.type(node->inputs[0]).shape;
  before.erase(before.begin() + unit);
  return {Reshape(r.Map(node->inputs[0]), before), perm};
}

// Returns the sum [B,G,1,T,D] or [B,G,T,D] of a gradient [B,G·R,T,D] over the heads that share keys, in its type, if
// nothing else reads the gradient, else kNoValue. bf16 is summed in float32 and then rounded.
ValueId FindSumOfHeads(const Pattern& pattern, ValueId v, int64_t groups) {
  const Graph& graph = pattern.graph();
  const Type& type = graph.type(v);
  if (const Node* widen = pattern.SoleUser(v, "Cast"))
    v = graph.type(widen->outputs[0]).dtype == DType::kFloat32 ? widen->outputs[0] : v;
  const Node* split = pattern.SoleUser(v, "Reshape");
  const Shape& s = type.shape;
  if (split == nullptr || graph.type(split->outputs[0]).shape != Shape{s[0], groups, s[1] / groups, s[2], s[3]})
    return kNoValue;
  const Node* sum = pattern.SoleUser(split->outputs[0], "ReduceSum");
  if (sum == nullptr || sum->attrs.Ints("axes") != std::vector<int64_t>{2}) return kNoValue;
  if (graph.type(sum->outputs[0]).dtype == type.dtype) return sum->outputs[0];
  const Node* round = pattern.SoleUser(sum->outputs[0], "Cast");
  return round != nullptr && graph.type(round->outputs[0]).dtype == type.dtype ? round->outputs[0] : kNoValue;
}

// An attention whose gradient reads its result and softmax.
struct Forward {
  HeadOperand y;
  Val softmax;
  Attrs attrs;
};

// The values that attention of several layers reads.
struct Shared {
  std::map<ValueId, Val> visible;                   // the visible keys of each mask
  std::map<std::vector<ValueId>, Forward> forward;  // by inputs
};

class HeadFolder {
 public:
  HeadFolder(Rewriter& r, const Pattern& pattern, const Node& node, Shared* shared)
      : r_(r),
        pattern_(pattern),
        node_(node),
        first_(node.op == "AttentionGrad" ? 1 : 0),
        mask_(first_ + 3),
        shared_(*shared) {
    FindGroups();
  }

  Vals Fold() { return IsBackward() ? FoldBackward() : FoldForward(node_.outputs[0]); }

 private:
  void Add(const Perm& perm) { perms_.insert(perms_.end(), perm.begin(), perm.end()); }

  bool IsBackward() const { return first_ == 1; }

  // Emits cpu.Attention with the result `y`, or with one that has heads as queries if that is kNoValue. The gradient
  // finds it by its inputs.
  Vals FoldForward(ValueId y) {
    for (size_t i = first_; i < node_.inputs.size(); ++i) AddOperand(i);
    AddVisibleKeys();
    const auto perm = y == kNoValue ? std::nullopt : FindUserPerm(pattern_, y);
    const Perm of_y = perm.value_or(IdentityPerm(pattern_.graph().type(node_.inputs[first_]).rank()));
    Add(of_y);
    Vals outputs = Emit("cpu.Attention");
    if (!r_.b().status().ok()) return outputs;
    const std::vector<ValueId> inputs(node_.inputs.begin() + first_, node_.inputs.end());
    shared_.forward[inputs] = {{outputs[0], InversePerm(of_y)}, outputs[1], node_.attrs};
    outputs.resize(1);
    if (perm) Replace(outputs.data(), pattern_.users(y));
    return outputs;
  }

  // Returns the attention of this gradient, a new one if no node computes it.
  Forward FindForward() {
    const std::vector<ValueId> inputs(node_.inputs.begin() + first_, node_.inputs.end());
    const auto found = shared_.forward.find(inputs);
    if (found != shared_.forward.end() && found->second.attrs == node_.attrs) return found->second;
    HeadFolder(r_, pattern_, node_, &shared_).FoldForward(kNoValue);
    return shared_.forward[inputs];
  }

  Vals FoldBackward() {
    const Forward forward = FindForward();
    if (!r_.b().status().ok()) return {};
    AddOperand(0);
    operands_.push_back(forward.y.value);
    Add(forward.y.perm);
    for (size_t i = first_; i < node_.inputs.size(); ++i) AddOperand(i);
    AddVisibleKeys();
    operands_.resize(kSoftmaxInput);
    operands_.push_back(forward.softmax);
    std::vector<bool> transposed;
    for (size_t o = 0; o < node_.outputs.size(); ++o) {
      const auto perm = IsSummed(o) ? std::nullopt : FindUserPerm(pattern_, node_.outputs[o]);
      Add(perm.value_or(IdentityPerm(pattern_.graph().type(node_.outputs[o]).rank())));
      transposed.push_back(perm.has_value());
    }
    Vals outputs = Emit("cpu.AttentionGrad");
    if (!r_.b().status().ok()) return outputs;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (transposed[o]) Replace(&outputs[o], pattern_.users(node_.outputs[o]));
      if (IsSummed(o)) ReplaceSum(&outputs[o], o);
    }
    return outputs;
  }

  Vals Emit(const char* op) {
    Attrs attrs = node_.attrs;
    attrs.Set("perms", perms_);
    return r_.b().Ops(op, operands_, std::move(attrs));
  }

  // Finds keys and values that are repeated alike and, in the backward pass, the sums of their gradients.
  void FindGroups() {
    const Graph& graph = pattern_.graph();
    const ValueId k = FindRepeatedHeads(pattern_, node_.inputs[mask_ - 2]),
                  v = FindRepeatedHeads(pattern_, node_.inputs[mask_ - 1]);
    if (k == kNoValue || v == kNoValue || graph.type(k).shape[1] != graph.type(v).shape[1]) return;
    std::vector<ValueId> sums;
    for (size_t o = 1; o < node_.outputs.size(); ++o) {
      sums.push_back(FindSumOfHeads(pattern_, node_.outputs[o], graph.type(k).shape[1]));
      if (sums.back() == kNoValue) return;
    }
    repeated_ = {k, v};
    sums_ = std::move(sums);
  }

  void AddOperand(size_t i) {
    const ValueId v = node_.inputs[i];
    if (i >= mask_) return operands_.push_back(i == mask_ ? Cast(r_.Map(v), DType::kFloat32) : r_.Map(v));
    const bool shared = !repeated_.empty() && i + 2 >= mask_;
    const HeadOperand operand =
        shared ? GetRepeated(r_, pattern_, repeated_[i + 2 - mask_]) : SkipTransposesOf(r_, pattern_, v);
    operands_.push_back(operand.value);
    Add(operand.perm);
  }

  // Adds them after the key of a dropout, which may be absent.
  void AddVisibleKeys() {
    const ValueId mask = mask_ < node_.inputs.size() ? node_.inputs[mask_] : kNoValue;
    if (mask == kNoValue) return;
    const Graph& graph = pattern_.graph();
    const Shape &shape = graph.type(mask).shape, &q = graph.type(node_.inputs[first_]).shape,
                &k = graph.type(node_.inputs[first_ + 1]).shape;
    const size_t rank = shape.size();
    const bool by_query = rank >= 2 && shape[rank - 2] == q[q.size() - 2] && shape[rank - 1] == k[k.size() - 2];
    if (!by_query || shape[rank - 2] == 1 || shape[rank - 1] == 1) return;
    const bool has_key = node_.inputs.size() > mask_ + 1;
    const Val floats = operands_[operands_.size() - (has_key ? 2 : 1)];
    Val& visible = shared_.visible[mask];
    if (!visible) visible = r_.b().Op("cpu.VisibleKeys", {floats});
    if (!has_key) operands_.emplace_back();
    operands_.push_back(visible);
  }

  void Replace(Val* output, std::span<const int32_t> users) {
    for (int32_t n : users) r_.Set(r_.from().nodes()[n].outputs[0], *output);
    *output = Val();
  }

  bool IsSummed(size_t output) const { return output > 0 && !sums_.empty(); }

  // The nodes between the gradient and its sum are dead, but get an operand of their type.
  void ReplaceSum(Val* output, size_t o) {
    const Graph& graph = pattern_.graph();
    const ValueId sum = sums_[o - 1];
    r_.Set(sum, Reshape(*output, graph.type(sum).shape));
    const Shape &each = graph.type(repeated_[o - 1]).shape, &all = graph.type(node_.outputs[o]).shape;
    const Val repeated = Expand(Reshape(*output, each), {each[0], each[1], all[1] / each[1], each[3], each[4]});
    *output = Reshape(repeated, all);
  }

  Rewriter& r_;
  const Pattern& pattern_;
  const Node& node_;
  const size_t first_, mask_;  // the query and the mask among the inputs
  Shared& shared_;
  std::vector<ValueId> repeated_;  // keys and values, if they are repeated
  std::vector<ValueId> sums_;      // of their gradients
  Vals operands_;
  Perm perms_;
};

}  // namespace

ValueId FindRepeatedHeads(const Pattern& pattern, ValueId v) {
  const Graph& graph = pattern.graph();
  const Node* merge = pattern.Producer(v, "Reshape");
  const Node* expand = merge == nullptr ? nullptr : pattern.Producer(merge->inputs[0], "Expand");
  if (expand == nullptr) return kNoValue;
  const ValueId heads = expand->inputs[0];
  const Shape &all = graph.type(v).shape, &wide = graph.type(merge->inputs[0]).shape, &each = graph.type(heads).shape;
  if (all.size() != 4 || wide.size() != 5 || each.size() != 5 || wide[2] < 2) return kNoValue;
  const bool repeats = each == Shape{wide[0], wide[1], 1, wide[3], wide[4]} &&
                       all == Shape{wide[0], wide[1] * wide[2], wide[3], wide[4]};
  return repeats ? heads : kNoValue;
}

bool CanFoldHeadTransposes(const Graph& graph, const Node& node) {
  if (node.op != "Attention" && node.op != "AttentionGrad") return false;
  const DType dtype = graph.type(node.inputs[0]).dtype;
  const bool takes = dtype == DType::kFloat32 || (dtype == DType::kBFloat16 && HasBFloat16());
  const auto is_empty = [&](ValueId v) { return v != kNoValue && graph.type(v).elements() == 0; };
  return takes && std::none_of(node.inputs.begin(), node.inputs.end(), is_empty);
}

absl::StatusOr<Graph> FoldHeadTransposes(const Graph& graph) {
  const Pattern pattern(graph);
  Shared shared;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    if (!CanFoldHeadTransposes(graph, node)) return std::nullopt;
    return HeadFolder(r, pattern, node, &shared).Fold();
  });
}

}  // namespace onnxtrain::cpu
