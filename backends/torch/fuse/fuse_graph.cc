#include "backends/torch/fuse/fuse_graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "backends/promote_types.h"
#include "backends/torch/fuse/generate.h"
#include "backends/torch/fuse/kernel_plan.h"
#include "backends/torch/kernels/element_functions.h"
#include "backends/unit_graph.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::aten {
namespace {

// Limits of a kernel, which bound its compile time and registers.
constexpr size_t kMostNodes = 48;
constexpr size_t kMostOperands = 24;          // inputs and outputs
constexpr int64_t kMostSummedColumns = 8192;  // column sums are kept in registers
// Each row is computed by one team of threads, so few long rows would leave most of the device idle.
constexpr int64_t kLeastRows = 32, kMostElementsOfFewRows = 1 << 18;

// The role of a node in a kernel.
enum class Part : uint8_t { kNone, kElements, kView, kRows, kColumns };

struct NodePart {
  Part part = Part::kNone;
  int64_t elements = 0;  // size of its iteration space
  int64_t columns = 0;   // kRows, kColumns: elements of a row
  bool wide = false;     // float64
  bool alone = false;    // gets a generated kernel even as a single node
};

bool IsComputed(DType dtype) {
  return dtype == DType::kBool || dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

// An operator over whole rows. Input `operand` has the full shape, and a row consists of the axes from attribute `axis`
// on.
struct RowOperator {
  std::string_view op;
  size_t operand = 0;
  bool ends_shape = false;  // `axis` is one axis, not the first of several
};
constexpr RowOperator kRowOperators[] = {
    {"LayerNorm", 0},     {"LayerNormGrad", 1},    {"RmsNorm", 0},           {"RmsNormGrad", 1},
    {"Softmax", 0, true}, {"LogSoftmax", 0, true}, {"SoftmaxGrad", 0, true}, {"LogSoftmaxGrad", 0, true},
};

// Returns the elements of a row, or 0 if an operator over a single axis has further axes after it.
int64_t CountColumns(const RowOperator& op, const Shape& shape, int64_t axis) {
  int64_t columns = 1;
  for (size_t a = static_cast<size_t>(axis); a < shape.size(); ++a) columns *= shape[a];
  return op.ends_shape && columns != shape[axis] ? 0 : columns;
}

class NodeParts {
 public:
  explicit NodeParts(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) parts_.push_back(HasComputedTypes(node) ? Find(node) : NodePart());
  }
  const NodePart& operator[](int32_t n) const { return parts_[n]; }

 private:
  const Type& type(ValueId v) const { return graph_.type(v); }

  // Returns true if the node has only booleans and either floats of up to 32 bits or float64.
  bool HasComputedTypes(const Node& node) const {
    bool wide = false, narrow = false;
    for (size_t i = 0; i < node.inputs.size() + node.outputs.size(); ++i) {
      const ValueId v = i < node.inputs.size() ? node.inputs[i] : node.outputs[i - node.inputs.size()];
      if (v == kNoValue || (node.op == "Dropout" && i == 1)) continue;
      const DType dtype = type(v).dtype;
      if (!IsComputed(dtype) || type(v).elements() == 0) return false;
      wide |= dtype == DType::kFloat64;
      narrow |= IsFloat(dtype) && dtype != DType::kFloat64;
    }
    return !(wide && narrow);
  }

  NodePart Find(const Node& node) const {
    if (IsConstant(node) || node.outputs.empty()) return {};
    NodePart part{.elements = type(node.outputs[0]).elements(),
                  .wide = type(node.outputs[0]).dtype == DType::kFloat64 || IsWideInput(node)};
    if (FindOp(node.op)->view) {
      part.part = Part::kView;
    } else if (node.op == "Cast" || node.op == "Dropout") {
      part.part = Part::kElements;
      part.alone = node.op == "Dropout";
    } else if (const ElementFunction* function = FindElementFunction(node)) {
      part.part = Part::kElements;
      part.alone = function->alone;
    } else if (const OpRow* row = FindOp(node.op); row != nullptr && row->reduction) {
      FindReduction(node, &part);
    } else {
      FindRowOperator(node, &part);
    }
    return part;
  }

  bool IsWideInput(const Node& node) const {
    return std::ranges::any_of(node.inputs,
                               [&](ValueId v) { return v != kNoValue && type(v).dtype == DType::kFloat64; });
  }

  void FindReduction(const Node& node, NodePart* part) const {
    const ReductionFunction* function = FindReductionFunction(node);
    const Type& x = type(node.inputs[0]);
    const std::optional<Fold> fold = FindFold(x.shape, node.attrs.Ints("axes"));
    if (function == nullptr || !fold || !IsFloat(x.dtype)) return;
    part->elements = x.elements();
    part->columns = fold->columns;
    const int64_t rows = part->elements / part->columns;
    const bool pays = fold->by_column ? function->sums() && PaysToSumColumns(part->elements, part->columns)
                                      : rows >= kLeastRows || part->elements <= kMostElementsOfFewRows;
    if (pays) part->part = fold->by_column ? Part::kColumns : Part::kRows;
  }

  void FindRowOperator(const Node& node, NodePart* part) const {
    const auto* op = std::ranges::find(kRowOperators, node.op, &RowOperator::op);
    if (op == std::end(kRowOperators)) return;
    const Shape& shape = type(node.inputs[op->operand]).shape;
    part->elements = NumElements(shape);
    part->columns = CountColumns(*op, shape, node.attrs.Int("axis"));
    const bool sums_columns = node.op == "LayerNormGrad" || node.op == "RmsNormGrad";
    const bool fits = part->columns > 1 && (!sums_columns || part->columns <= kMostSummedColumns) &&
                      (part->elements / part->columns >= kLeastRows || part->elements <= kMostElementsOfFewRows);
    if (!fits) return;
    part->part = Part::kRows;
    part->alone = true;
  }

  const Graph& graph_;
  std::vector<NodePart> parts_;
};

class GraphFuser {
 public:
  explicit GraphFuser(const Graph& graph) : graph_(graph), pattern_(graph), units_(pattern_), parts_(graph) {
    FindInnerValues();
    const auto count = static_cast<int32_t>(graph.nodes().size());
    for (int32_t n = 0; n < count; ++n)
      if (!Widens(n)) MergeWithProducers(n);
    for (int32_t n = 0; n < count; ++n)
      if (Widens(n) && units_.members(units_.unit(n)).size() == 1) MergeWithProducers(n);
    MergeScalars();
  }

  absl::StatusOr<Graph> Build(std::vector<ValueId>* values) const {
    Graph result;
    Rewriter r(graph_, &result);
    for (int32_t unit : units_.Order()) {
      std::span<const int32_t> nodes = units_.members(unit);
      const std::optional<Graph> body = IsWorthAKernel(nodes) ? MakeBody(nodes) : std::nullopt;
      if (body) {
        RETURN_IF_ERROR(Emit(nodes, *body, &r));
      } else {
        for (int32_t n : nodes) r.Copy(graph_.nodes()[n]);
      }
    }
    r.CopyOutputs();
    if (values != nullptr) *values = r.values();
    return result;
  }

 private:
  const Node& node(int32_t n) const { return graph_.nodes()[n]; }
  bool IsPart(int32_t n) const { return parts_[n].part != Part::kNone; }
  bool IsInlined(ValueId v) const { return graph_.FindConstant(v) != nullptr && pattern_.Splat(v).has_value(); }

  // Finds the values whose users can all share the producer's kernel, so that they are stored only if they are outputs.
  void FindInnerValues() {
    inner_.resize(graph_.values().size());
    for (size_t v = 0; v < inner_.size(); ++v) {
      const int32_t p = graph_.value(static_cast<ValueId>(v)).node;
      if (p < 0 || !IsPart(p)) continue;
      inner_[v] = std::ranges::all_of(pattern_.users(static_cast<ValueId>(v)),
                                      [&](int32_t r) { return IsPart(r) && CanShareKernel(p, r); });
    }
  }

  // Returns true if both nodes have as many elements, or one has one element per row of the other.
  bool CanShareKernel(int32_t p, int32_t r) const {
    const NodePart &a = parts_[p], &b = parts_[r];
    const auto is_row_of = [](const NodePart& x, const NodePart& of) {
      return of.columns > 0 && x.elements * of.columns == of.elements;
    };
    return a.wide == b.wide && (a.elements == b.elements || is_row_of(a, b) || is_row_of(b, a));
  }

  // Returns true for a cast from half precision. It is fused into the kernel that reads it, so that the value in memory
  // stays half precision.
  bool Widens(int32_t n) const {
    if (node(n).op != "Cast" || !IsPart(n)) return false;
    return IsHalf(graph_.type(node(n).inputs[0]).dtype) && graph_.type(node(n).outputs[0]).dtype == DType::kFloat32;
  }

  void MergeWithProducers(int32_t n) {
    if (!IsPart(n)) return;
    for (ValueId v : node(n).inputs) {
      const int32_t p = v == kNoValue ? -1 : graph_.value(v).node;
      if (p < 0 || !IsPart(p)) continue;
      // Fusing a reduction saves a pass over its operand even if other nodes read the operand, too.
      const bool reduces = parts_[n].part == Part::kRows || parts_[n].part == Part::kColumns;
      if (!inner_[v] && !reduces) continue;
      TryJoin(p, n);
      if (Widens(p) && units_.unit(p) == units_.unit(n)) MergeWithProducers(p);
    }
  }

  // Merges nodes of one element that read the same scalar, because their cost is the launch alone.
  void MergeScalars() {
    for (size_t v = 0; v < inner_.size(); ++v) {
      const std::span<const int32_t> users = pattern_.users(static_cast<ValueId>(v));
      const auto is_scalar = [&](int32_t n) { return IsPart(n) && parts_[n].elements == 1; };
      const auto first = std::ranges::find_if(users, is_scalar);
      for (auto n = first; n != users.end(); ++n) {
        if (is_scalar(*n)) TryJoin(*first, *n);
      }
    }
  }

  void TryJoin(int32_t p, int32_t n) {
    const int32_t a = units_.unit(p), b = units_.unit(n);
    if (a == b) return;
    std::vector<int32_t> nodes(units_.members(a).begin(), units_.members(a).end());
    nodes.insert(nodes.end(), units_.members(b).begin(), units_.members(b).end());
    std::sort(nodes.begin(), nodes.end());
    if (CanCompute(nodes)) units_.TryMerge({{a, b}});
  }

  // Returns true if the nodes pass the cheap checks for one kernel; GenerateKernel may still refuse them.
  bool CanCompute(std::span<const int32_t> nodes) const {
    int64_t elements = 0, columns = 0;
    for (int32_t n : nodes) {
      const NodePart& part = parts_[n];
      elements = std::max(elements, part.elements);
      if (part.columns == 0) continue;
      if (columns != 0 && part.columns != columns) return false;
      columns = part.columns;
    }
    for (int32_t n : nodes) {
      const NodePart& part = parts_[n];
      const bool of_row = columns != 0 && part.elements * columns == elements && part.columns == 0;
      if ((part.elements != elements && !of_row) || part.wide != parts_[nodes[0]].wide || ReadsColumnSum(n, nodes))
        return false;
    }
    return nodes.size() <= kMostNodes && CountOperands(nodes) <= kMostOperands;
  }

  // Returns true if node n reads a column sum of one of the nodes, which is complete only at the end of the kernel.
  bool ReadsColumnSum(int32_t n, std::span<const int32_t> nodes) const {
    return std::ranges::any_of(node(n).inputs, [&](ValueId v) {
      const int32_t p = v == kNoValue ? -1 : graph_.value(v).node;
      if (p < 0 || !std::binary_search(nodes.begin(), nodes.end(), p)) return false;
      const bool of_gradient = graph_.value(v).index > 0 && node(p).op.ends_with("Grad");
      return parts_[p].part == Part::kColumns || of_gradient;
    });
  }

  size_t CountOperands(std::span<const int32_t> nodes) const {
    size_t count = 0;
    for (ValueId v : FindInputs(graph_, nodes)) count += IsInlined(v) ? 0 : 1;
    for (int32_t n : nodes) {
      count += node(n).op == "Dropout" ? 1 : 0;
      for (ValueId v : node(n).outputs)
        count += std::ranges::all_of(pattern_.users(v),
                                     [&](int32_t r) { return std::binary_search(nodes.begin(), nodes.end(), r); }) &&
                         !pattern_.IsOutput(v)
                     ? 0
                     : 1;
    }
    return count;
  }

  bool IsWorthAKernel(std::span<const int32_t> nodes) const {
    const auto computes = [&](int32_t n) { return IsPart(n) && parts_[n].part != Part::kView; };
    const auto count = std::ranges::count_if(nodes, computes);
    return count > 1 || (count == 1 && std::ranges::any_of(nodes, [&](int32_t n) { return parts_[n].alone; }));
  }

  bool IsStored(ValueId v) const { return units_.IsReadOutside(v); }

  // Returns the nodes as a body graph, or nullopt if no kernel can be generated for it.
  std::optional<Graph> MakeBody(std::span<const int32_t> nodes) const {
    Graph body;
    std::map<ValueId, ValueId> map = {{kNoValue, kNoValue}};
    const std::vector<ValueId> inputs = FindInputs(graph_, nodes);
    for (ValueId v : inputs) {
      if (!IsInlined(v)) map[v] = body.AddInput(InputKind::kFeed, StrCat("x", map.size()), graph_.type(v));
    }
    for (ValueId v : inputs) {
      if (IsInlined(v)) map[v] = AddNode(*graph_.producer(v), map, &body)[0];
    }
    for (int32_t n : nodes) {
      const ValueIds outputs = AddNode(node(n), map, &body);
      for (size_t i = 0; i < outputs.size(); ++i) map[node(n).outputs[i]] = outputs[i];
    }
    for (ValueId v : FindOutputs(nodes)) body.AddOutput(StrCat("y", body.outputs().size()), map.at(v));
    const auto kernel = GenerateKernel(body, kAlignment);
    return kernel.ok() ? std::optional(std::move(body)) : std::nullopt;
  }

  ValueIds AddNode(const Node& node, const std::map<ValueId, ValueId>& map, Graph* body) const {
    ValueIds inputs;
    for (ValueId v : node.inputs) inputs.push_back(map.at(v));
    std::vector<Type> types;
    for (ValueId v : node.outputs) types.push_back(graph_.type(v));
    return body->AddNode(node.op, std::move(inputs), node.attrs, std::move(types)).outputs;
  }

  std::vector<ValueId> FindOutputs(std::span<const int32_t> nodes) const {
    std::vector<ValueId> outputs;
    for (int32_t n : nodes) {
      for (ValueId v : node(n).outputs)
        if (IsStored(v)) outputs.push_back(v);
    }
    return outputs;
  }

  absl::Status Emit(std::span<const int32_t> nodes, const Graph& body, Rewriter* r) const {
    std::vector<Val> operands;
    for (ValueId v : FindInputs(graph_, nodes)) {
      if (!IsInlined(v)) operands.push_back(r->Map(v));
    }
    r->b().set_source(node(nodes.back()).source);
    const std::vector<Val> results = r->b().Ops(kFusedOp, operands, MakeFusedAttrs(body));
    RETURN_IF_ERROR(r->b().status());
    const std::vector<ValueId> outputs = FindOutputs(nodes);
    for (size_t i = 0; i < outputs.size(); ++i) {
      r->Set(outputs[i], results[i]);
      r->b().graph().SetValueName(results[i].id(), graph_.value(outputs[i]).name);
    }
    return absl::OkStatus();
  }

  static constexpr size_t kAlignment = 64;

  const Graph& graph_;
  const Pattern pattern_;
  UnitGraph units_;
  const NodeParts parts_;
  std::vector<bool> inner_;  // by value
};

}  // namespace

bool PaysToSumColumns(int64_t elements, int64_t columns) {
  return columns >= 32 && columns <= kMostSummedColumns && elements / columns >= 8;
}

absl::StatusOr<Graph> FuseGraph(const Graph& legal, std::vector<ValueId>* values) {
  return GraphFuser(legal).Build(values);
}

}  // namespace onnxtrain::aten
