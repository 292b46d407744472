#include "frontend/passes/differentiate.h"

#include <set>
#include <vector>

#include "absl/strings/str_join.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/decompose.h"

namespace onnxtrain {
namespace {

class Engine {
 public:
  Engine(Graph* graph, std::span<const ValueId> wrt) : graph_(graph), builder_(graph), wrt_(wrt) {}

  absl::Status Run(std::span<const Seed> seeds);
  std::map<ValueId, ValueId> Result() const;

 private:
  void MarkDependents();
  void MarkAncestors(std::span<const Seed> seeds);
  absl::Status SeedGradient(const Seed& seed);
  bool Wanted(ValueId v) const { return v != kNoValue && depends_[v] && reaches_[v]; }
  absl::Status Visit(int32_t n);
  void Refuse(const Node& node);
  std::vector<Val> Formula(const OpRow& row, const Node& node, std::vector<Val> grads);
  void Contribute(ValueId value, Val grad);

  Graph* graph_;
  Builder builder_;
  std::span<const ValueId> wrt_;
  std::vector<bool> depends_;  // by value: it depends on a value of wrt
  std::vector<bool> reaches_;  // by value: a seeded value depends on it
  std::map<ValueId, Val> grads_;
  std::set<std::string> refused_;
};

bool Blocks(const OpRow& row) { return row.grad_status == GradStatus::kZero; }

void Engine::MarkDependents() {
  depends_.assign(graph_->values().size(), false);
  for (ValueId v : wrt_) depends_[v] = true;
  for (const Node& node : graph_->nodes()) {
    if (Blocks(*FindOp(node.op))) continue;
    bool any = false;
    for (ValueId v : node.inputs) any |= v != kNoValue && depends_[v];
    for (ValueId v : node.outputs) depends_[v] = depends_[v] || (any && IsFloat(graph_->type(v).dtype));
  }
}

void Engine::MarkAncestors(std::span<const Seed> seeds) {
  reaches_.assign(graph_->values().size(), false);
  for (const Seed& seed : seeds) reaches_[seed.value] = true;
  for (size_t n = graph_->nodes().size(); n-- > 0;) {
    const Node& node = graph_->nodes()[n];
    bool any = false;
    for (ValueId v : node.outputs) any |= reaches_[v];
    if (!any) continue;
    for (ValueId v : node.inputs) {
      if (v != kNoValue) reaches_[v] = true;
    }
  }
}

absl::Status Engine::SeedGradient(const Seed& seed) {
  const Type type = graph_->type(seed.value);
  if (!IsFloat(type.dtype)) return Invalid("a value of type ", ToString(type), " has no gradient");
  Val grad = builder_.Wrap(seed.gradient);
  if (!grad) grad = Expand(builder_.Scalar(type.dtype, 1.0), type.shape);
  if (grad.type() != type) {
    return Invalid("a gradient of type ", ToString(grad.type()), " for a value of type ", ToString(type));
  }
  Contribute(seed.value, grad);
  return builder_.status();
}

absl::Status Engine::Run(std::span<const Seed> seeds) {
  MarkDependents();
  MarkAncestors(seeds);
  const auto last = static_cast<int32_t>(graph_->nodes().size());
  for (const Seed& seed : seeds) RETURN_IF_ERROR(SeedGradient(seed));
  for (int32_t n = last; n-- > 0;) RETURN_IF_ERROR(Visit(n));
  if (!refused_.empty()) {
    return absl::UnimplementedError(StrCat("no gradient for ", absl::StrJoin(refused_, ", ")));
  }
  return builder_.status();
}

// Records the operator and continues, so that the error lists all operators without a gradient.
void Engine::Refuse(const Node& node) {
  const std::string_view why = NoGradientReason(node.op);  // "" for rows that backends or tests add
  refused_.insert(StrCat(node.op, " '", *node.source, "'", why.empty() ? "" : StrCat(" (", why, ")")));
  for (ValueId v : node.inputs) {
    if (Wanted(v)) Contribute(v, ZerosLike(builder_.Wrap(v)));
  }
}

absl::Status Engine::Visit(int32_t n) {
  const Node node = graph_->nodes()[n];  // a copy: appending moves the nodes
  const OpRow& row = *FindOp(node.op);
  if (Blocks(row)) return absl::OkStatus();
  std::vector<Val> grads;
  bool any_grad = false, any_wanted = false;
  for (ValueId v : node.outputs) {
    auto it = grads_.find(v);
    grads.push_back(it == grads_.end() ? Val() : it->second);
    any_grad |= grads.back().valid();
  }
  for (ValueId v : node.inputs) any_wanted |= Wanted(v);
  if (!any_grad || !any_wanted) return absl::OkStatus();
  if (row.grad_status == GradStatus::kNotDifferentiable) {
    Refuse(node);
    return absl::OkStatus();
  }
  builder_.set_source(node.source);
  const std::vector<Val> input_grads = Formula(row, node, std::move(grads));
  RETURN_IF_ERROR(Annotate(builder_.status(), StrCat("gradient of ", NodeTag(node))));
  CHECK_EQ(input_grads.size(), node.inputs.size()) << "gradient of " << NodeTag(node);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (Wanted(node.inputs[i]) && input_grads[i].valid()) Contribute(node.inputs[i], input_grads[i]);
  }
  return absl::OkStatus();
}

std::vector<Val> Engine::Formula(const OpRow& row, const Node& node, std::vector<Val> grads) {
  GradContext c{builder_, node, {}, {}, std::move(grads), {}};
  for (ValueId v : node.inputs) {
    c.inputs.push_back(builder_.Wrap(v));
    c.needs.push_back(Wanted(v));
  }
  for (ValueId v : node.outputs) c.outputs.push_back(builder_.Wrap(v));
  if (row.grad_status == GradStatus::kDecomposition) return GradientOfDecomposition(row, c);
  return row.gradient(c);
}

void Engine::Contribute(ValueId value, Val grad) {
  CHECK(grad.type() == graph_->type(value)) << "gradient of type " << ToString(grad.type()) << " for a value of type "
                                            << ToString(graph_->type(value)) << " in " << builder_.source();
  Val& sum = grads_[value];
  sum = sum.valid() ? sum + grad : grad;
}

std::map<ValueId, ValueId> Engine::Result() const {
  std::map<ValueId, ValueId> result;
  for (ValueId v : wrt_) {
    if (auto it = grads_.find(v); it != grads_.end()) result[v] = it->second.id();
  }
  return result;
}

}  // namespace

absl::StatusOr<std::map<ValueId, ValueId>> Differentiate(Graph* graph, std::span<const Seed> seeds,
                                                         std::span<const ValueId> wrt) {
  Engine engine(graph, wrt);
  RETURN_IF_ERROR(engine.Run(seeds));
  return engine.Result();
}

absl::StatusOr<std::map<ValueId, ValueId>> Differentiate(Graph* graph, ValueId loss, std::span<const ValueId> wrt,
                                                         ValueId seed) {
  const Seed seeds[] = {{loss, seed}};
  return Differentiate(graph, seeds, wrt);
}

}  // namespace onnxtrain
