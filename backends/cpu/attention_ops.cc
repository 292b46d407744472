#include "backends/cpu/attention_ops.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "backends/cpu/dnnl_call.h"
#include "frontend/base/status.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

using Perm = std::vector<int64_t>;

constexpr std::string_view kPrefix = "cpu.";

// The operators have the inputs of Attention and AttentionGrad. Which one is the mask, which has no permutation.
size_t MaskIndex(std::string_view op) { return op.ends_with("Grad") ? 4 : 3; }

// The attribute "perms" holds one permutation for every input but the mask, then one for every output. An input is transposed by
// its own to get the operand; an output is the result transposed by its own.
Perm PermOf(const Attrs& attrs, size_t index, size_t rank) {
  const Perm all = attrs.Ints("perms");
  return {all.begin() + index * rank, all.begin() + (index + 1) * rank};
}

bool IsPerm(Perm perm) {
  std::sort(perm.begin(), perm.end());
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

Shape Permuted(const Shape& shape, const Perm& perm) {
  Shape result;
  for (int64_t a : perm) result.push_back(shape[a]);
  return result;
}

absl::Status CheckPerms(const TypeContext& c, size_t operands) {
  const size_t rank = c.in(0).rank();
  if (c.attrs.Ints("perms").size() != operands * rank) return Invalid("permutations of the wrong length");
  for (size_t i = 0; i < operands; ++i) {
    if (!IsPerm(PermOf(c.attrs, i, rank))) return Invalid("no permutation");
  }
  for (size_t i = 0; i < MaskIndex(c.op); ++i) {
    if (c.in(i).rank() != static_cast<int>(rank)) return Invalid("operands of different ranks");
  }
  return absl::OkStatus();
}

// The inputs as the operator without transposes has them.
std::vector<Type> Operands(std::span<const Type* const> inputs, std::string_view op, const Attrs& attrs) {
  std::vector<Type> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Type type = *inputs[i];
    if (i != MaskIndex(op)) type.shape = Permuted(type.shape, PermOf(attrs, i, inputs[0]->rank()));
    types.push_back(std::move(type));
  }
  return types;
}

std::vector<const Type*> Pointers(const std::vector<Type>& types) {
  std::vector<const Type*> pointers;
  for (const Type& type : types) pointers.push_back(&type);
  return pointers;
}

absl::StatusOr<std::vector<Type>> InferHeads(const TypeContext& c) {
  const size_t outputs = c.op.ends_with("Grad") ? 3 : 1;
  RETURN_IF_ERROR(CheckPerms(c, MaskIndex(c.op) + outputs));
  const std::vector<Type> operands = Operands(c.inputs, c.op, c.attrs);
  Attrs attrs = {{"scale", c.attrs.Float("scale")}};
  ASSIGN_OR_RETURN(std::vector<Type> types, InferTypes(c.op.substr(kPrefix.size()), Pointers(operands), attrs));
  for (size_t o = 0; o < types.size(); ++o) {
    types[o].shape = Permuted(types[o].shape, PermOf(c.attrs, MaskIndex(c.op) + o, c.in(0).rank()));
  }
  return types;
}

// Two products with all scores forward, five backward.
double ProductFlops(const Type& q, const Type& k, double products) {
  return products * 2.0 * static_cast<double>(q.elements()) * static_cast<double>(k.shape[k.shape.size() - 2]);
}

double Flops(std::span<const Type* const> inputs, std::span<const Type>, const Attrs& attrs) {
  const std::vector<Type> types = Operands(inputs, "cpu.Attention", attrs);
  return ProductFlops(types[0], types[1], 1) + ProductFlops(types[0], types[1], 1) * types[2].shape.back() / types[0].shape.back();
}

double GradFlops(std::span<const Type* const> inputs, std::span<const Type>, const Attrs& attrs) {
  const std::vector<Type> types = Operands(inputs, "cpu.AttentionGrad", attrs);
  return ProductFlops(types[1], types[2], 3) + ProductFlops(types[0], types[2], 2);
}

class HeadAbsorber {
 public:
  explicit HeadAbsorber(const Graph& graph) : graph_(graph), readers_(Readers(graph)) {}

  absl::StatusOr<Graph> Run() {
    return Rewrite(graph_, [&](Rewriter& r, const Node& node) { return Apply(r, node); });
  }

 private:
  using Result = std::optional<std::vector<Val>>;

  Result Apply(Rewriter& r, const Node& node) {
    if (node.op == "Transpose") {
      const auto it = absorbed_.find(node.inputs[0]);
      return it == absorbed_.end() ? Result() : std::vector<Val>{it->second};
    }
    return TakesHeads(graph_, node) ? Emit(r, node) : Result();
  }

  std::vector<Val> Emit(Rewriter& r, const Node& node) {
    const std::string op = StrCat(kPrefix, node.op);
    Perm perms;
    std::vector<Val> operands;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool is_mask = i == MaskIndex(op);
      operands.push_back(is_mask ? Cast(r.Map(node.inputs[i]), DType::kFloat32) : Source(r, node.inputs[i], &perms));
    }
    std::vector<bool> absorbs;
    for (ValueId v : node.outputs) absorbs.push_back(AddReaders(v, &perms));
    std::vector<Val> outputs = r.b().Ops(op, operands, {{"scale", node.attrs.Float("scale")}, {"perms", perms}});
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (absorbs[o]) absorbed_[node.outputs[o]] = std::exchange(outputs[o], Val());
    }
    return outputs;
  }

  // What v is a transpose of, and the permutation that makes v of it.
  Val Source(Rewriter& r, ValueId v, Perm* perms) const {
    Perm perm(graph_.type(v).rank());
    std::iota(perm.begin(), perm.end(), 0);
    for (const Node* p = graph_.producer(v); p != nullptr && p->op == "Transpose"; p = graph_.producer(v)) {
      perm = Permuted(p->attrs.Ints("perm"), perm);
      v = p->inputs[0];
    }
    perms->insert(perms->end(), perm.begin(), perm.end());
    return r.Map(v);
  }

  // Is v read by transposes of one kind alone? Appends theirs, or else the identity.
  bool AddReaders(ValueId v, Perm* perms) const {
    const auto& readers = readers_[v];
    const bool output = std::any_of(graph_.outputs().begin(), graph_.outputs().end(), [&](const auto& o) { return o.value == v; });
    const Node* first = readers.empty() ? nullptr : &graph_.nodes()[readers[0]];
    const bool absorbs = !output && first != nullptr && std::all_of(readers.begin(), readers.end(), [&](int32_t n) {
      const Node& reader = graph_.nodes()[n];
      return reader.op == "Transpose" && reader.attrs.Ints("perm") == first->attrs.Ints("perm");
    });
    Perm perm(graph_.type(v).rank());
    std::iota(perm.begin(), perm.end(), 0);
    if (absorbs) perm = first->attrs.Ints("perm");
    perms->insert(perms->end(), perm.begin(), perm.end());
    return absorbs;
  }

  const Graph& graph_;
  const std::vector<std::vector<int32_t>> readers_;
  std::map<ValueId, Val> absorbed_;  // results that exist only transposed
};

}  // namespace

std::vector<OpRow> AttentionRows() {
  const std::vector<AttrSpec> attrs = {{"scale", 1.0}, {"perms", std::vector<int64_t>(), true}};
  return {{.name = "cpu.Attention", .inputs = {3, 4}, .attrs = attrs, .infer = InferHeads, .precision = Precision::kLow,
           .recompute = Recompute::kExpensive, .flops = Flops},
          {.name = "cpu.AttentionGrad", .inputs = {4, 5}, .outputs = 3, .attrs = attrs, .infer = InferHeads,
           .precision = Precision::kLow, .recompute = Recompute::kExpensive, .flops = GradFlops}};
}

bool TakesHeads(const Graph& graph, const Node& node) {
  if (node.op != "Attention" && node.op != "AttentionGrad") return false;
  const DType dtype = graph.type(node.inputs[0]).dtype;
  const bool takes = dtype == DType::kFloat32 || (dtype == DType::kBFloat16 && HasBFloat16());
  const auto is_empty = [&](ValueId v) { return v != kNoValue && graph.type(v).elements() == 0; };
  return takes && std::none_of(node.inputs.begin(), node.inputs.end(), is_empty);
}

absl::StatusOr<Graph> AbsorbHeads(const Graph& graph) { return HeadAbsorber(graph).Run(); }

std::vector<StridedType> HeadOperands(const KernelContext& c) {
  const size_t rank = c.in(0).rank(), mask = MaskIndex(c.node.op), inputs = c.node.inputs.size();
  std::vector<StridedType> operands;
  for (size_t i = 0; i < inputs; ++i) {
    if (i == mask) {
      operands.push_back({c.in(i).shape, Strides(c.in(i).shape)});
      continue;
    }
    const Perm perm = PermOf(c.attrs(), i, rank);
    operands.push_back({Permuted(c.in(i).shape, perm), Permuted(Strides(c.in(i).shape), perm)});
  }
  for (size_t o = 0; o < c.node.outputs.size(); ++o) {
    const Perm perm = PermOf(c.attrs(), mask + o, rank);
    Perm back(rank);
    for (size_t a = 0; a < rank; ++a) back[perm[a]] = static_cast<int64_t>(a);
    operands.push_back({Permuted(c.out(o).shape, back), Permuted(Strides(c.out(o).shape), back)});
  }
  return operands;
}

}  // namespace onnxtrain::cpu
