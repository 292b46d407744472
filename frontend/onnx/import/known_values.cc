#include "frontend/onnx/import/known_values.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr size_t kMaxKnownBytes = size_t{1} << 20;  // of one evaluated value
constexpr size_t kConstantBudget = size_t{128} << 20;
constexpr size_t kFoldLimitBeyondBudget = 4096;

bool IsSmall(const Type& type) { return type.bytes() <= kMaxKnownBytes; }

}  // namespace

void KnownValues::Update() {
  const Graph& graph = builder_.graph();
  for (auto v = static_cast<ValueId>(depends_on_feed_.size()); v < static_cast<ValueId>(graph.values().size()); ++v) {
    const Node* node = graph.producer(v);
    const bool scalar = graph.type(v).rank() == 0;
    if (node == nullptr) {
      depends_on_feed_.push_back(graph.inputs()[graph.value(v).index].kind == InputKind::kFeed);
      may_hold_batch_.push_back(depends_on_feed_.back() && !scalar);
      continue;
    }
    const auto any = [&](const std::vector<bool>& of) {
      return std::ranges::any_of(node->inputs, [&](ValueId in) { return in != kNoValue && of[in]; });
    };
    depends_on_feed_.push_back(any(depends_on_feed_));
    may_hold_batch_.push_back(!scalar && any(may_hold_batch_));
    if (IsConstant(*node)) constant_bytes_ += graph.type(v).bytes();
  }
  // Bounds the memory of folded constants. Shapes still fold, tables remain nodes.
  if (constant_bytes_ > kConstantBudget && bound_folding_) builder_.set_fold_limit(kFoldLimitBeyondBudget);
}

bool KnownValues::MayHoldBatch(Val v) {
  Update();
  return v.valid() && may_hold_batch_[v.id()];
}

const HostTensor* KnownValues::Find(ValueId value) {
  Update();
  const Graph& graph = builder_.graph();
  if (const HostTensor* constant = graph.FindConstant(value)) return constant;
  if (const ImportWeight* weight = weights_.Find(value)) return weight->state ? nullptr : &weight->tensor;
  if (depends_on_feed_[value] || graph.IsInput(value)) return nullptr;
  auto [it, added] = evaluated_.emplace(value, std::nullopt);
  if (added) it->second = Evaluate(value);
  return it->second ? &*it->second : nullptr;
}

std::optional<HostTensor> KnownValues::Evaluate(ValueId value) {
  const Graph& graph = builder_.graph();
  const Node node = *graph.producer(value);
  const OpRow* row = FindOp(node.op);
  if (row == nullptr || row->evaluate == nullptr) return std::nullopt;
  std::vector<const HostTensor*> inputs;
  for (ValueId input : node.inputs) {
    const HostTensor* known = input == kNoValue ? nullptr : Find(input);
    if (input != kNoValue && (known == nullptr || !IsSmall(known->type()))) return std::nullopt;
    inputs.push_back(known);
  }
  std::vector<Type> types;
  for (ValueId output : node.outputs) types.push_back(graph.type(output));
  if (!std::ranges::all_of(types, IsSmall) || !budget_.Spend(graph, node)) return std::nullopt;
  return row->evaluate({node.attrs, inputs, types})[graph.value(value).index];
}

absl::StatusOr<int64_t> KnownValues::FindInt(const ImportValue& value, std::string_view what) {
  ASSIGN_OR_RETURN(const Val v, RequireTensor(value, what));
  const HostTensor* known = Find(v);
  if (known == nullptr)
    return absl::UnimplementedError(StrCat(what, " is known only at run time, which is not supported"));
  if (known->size() != 1) return Invalid(what, " has ", known->size(), " elements");
  return known->IntAt(0);
}

}  // namespace onnxtrain
