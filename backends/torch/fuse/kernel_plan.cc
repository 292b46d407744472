#include "backends/torch/fuse/kernel_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/kernels/element_functions.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/ops/row.h"
#include "frontend/passes/match.h"

namespace onnxtrain::aten {
namespace {

// An axis of the iteration space. `step` and `stride` are the distances, in elements, between neighbors along it in the
// iteration space and in the operand.
struct Axis {
  int64_t extent, step, stride;
};

// Returns the axes with an extent above 1. Merges axes that are contiguous in the operand, except across the boundary
// between rows and columns.
std::vector<Axis> MergeAxes(const Shape& operand, const Shape& shape, int64_t columns) {
  const Shape steps = Strides(shape), strides = Strides(operand);
  std::vector<Axis> axes;
  for (size_t a = 0; a < shape.size(); ++a) {
    if (shape[a] == 1) continue;
    const size_t missing = shape.size() - operand.size();
    const bool broadcast = a < missing || operand[a - missing] == 1;
    const Axis axis{shape[a], steps[a], broadcast ? 0 : strides[a - missing]};
    const bool merges = !axes.empty() && axes.back().step != columns && axes.back().stride == axis.stride * axis.extent;
    if (merges) {
      axes.back() = {axes.back().extent * axis.extent, axis.step, axis.stride};
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

// Returns an offset along one axis, such as "((c / 4) % 3) * 8". The outermost axis needs no modulo: the counter stays
// below `size`.
std::string MakeTerm(std::string_view counter, int64_t step, const Axis& axis, int64_t size) {
  std::string term = step == 1 ? std::string(counter) : StrCat(counter, " / ", step);
  if (step * axis.extent < size) term = StrCat("(", term, ") % ", axis.extent);
  if (axis.stride != 1) term = StrCat("(", term, ") * ", axis.stride);
  return term;
}

bool Straddles(const Axis& axis, int64_t columns) { return axis.step < columns && axis.step * axis.extent > columns; }

}  // namespace

OperandIndex MakeOperandIndex(const Shape& operand, const Shape& shape, const KernelSpace& space) {
  OperandIndex index{.offset = "", .of_row = true, .same = true, .run = OperandIndex::kAnyRun};
  const std::vector<Axis> axes = MergeAxes(operand, shape, space.columns);
  bool straddles = false;
  for (const Axis& axis : axes) straddles |= Straddles(axis, space.columns);
  for (const Axis& axis : axes) {
    if (axis.stride == 0) continue;
    const bool of_row = !straddles && axis.step >= space.columns;
    const std::string term = straddles ? MakeTerm("e", axis.step, axis, space.elements())
                             : of_row  ? MakeTerm("r", axis.step / space.columns, axis, space.rows)
                                       : MakeTerm("c", axis.step, axis, space.columns);
    StrAppend(&index.offset, index.offset.empty() ? "" : " + ", term);
    index.of_row &= of_row;
  }
  if (index.offset.empty()) index.offset += '0';
  if (!axes.empty() && !index.of_row) {
    const Axis& last = axes.back();
    index.same = last.stride == 0;
    index.run = last.stride <= 1 ? last.extent : 1;
  }
  return index;
}

std::optional<Fold> FindFold(const Shape& shape, std::vector<int64_t> axes) {
  if (axes.empty()) {
    axes.resize(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::vector<bool> folded(shape.size());
  for (int64_t a : axes) folded[a] = true;
  int64_t extents[2] = {1, 1};
  std::vector<bool> runs;  // alternating runs of kept (false) and folded (true) axes
  for (size_t a = 0; a < shape.size(); ++a) {
    extents[folded[a]] *= shape[a];
    if (shape[a] != 1 && (runs.empty() || runs.back() != folded[a])) runs.push_back(folded[a]);
  }
  if (runs.empty() || runs.size() > 2 || (runs.size() == 1 && !runs[0])) return std::nullopt;
  const bool by_column = runs.size() == 2 && runs[0];
  return Fold{.columns = by_column ? extents[0] : extents[1], .by_column = by_column};
}

namespace {

bool IsReduction(const Node& node) { return FindOp(node.op)->reduction; }

absl::Status Refuse(const Node& node, std::string_view why) {
  return absl::UnimplementedError(StrCat(NodeTag(node), "is not part of a generated kernel: ", why));
}

class Planner {
 public:
  explicit Planner(KernelPlan* plan) : plan_(*plan), graph_(plan->graph), pattern_(graph_) {}

  absl::Status Run() {
    RETURN_IF_ERROR(CheckTypes());
    RETURN_IF_ERROR(FindSpace());
    FindViews();
    plan_.level.assign(graph_.values().size(), Level::kElement);
    plan_.operands.resize(graph_.nodes().size());
    for (size_t n = 0; n < graph_.nodes().size(); ++n) RETURN_IF_ERROR(PlanNode(static_cast<int32_t>(n)));
    return CheckOutputs();
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }

  // Fails unless all values are booleans and either float64 or floats of up to 32 bits. Keys of random operators are
  // exempt.
  absl::Status CheckTypes() {
    bool narrow = false;
    std::set<ValueId> keys;
    for (const Node& node : graph_.nodes()) {
      if (node.op == "Dropout") keys.insert(node.inputs[1]);
    }
    for (size_t v = 0; v < graph_.values().size(); ++v) {
      const DType dtype = graph_.type(static_cast<ValueId>(v)).dtype;
      if (!IsFloat(dtype) && dtype != DType::kBool && !keys.contains(static_cast<ValueId>(v)))
        return absl::UnimplementedError(StrCat("a kernel that computes ", ToString(dtype)));
      plan_.wide |= dtype == DType::kFloat64;
      narrow |= IsFloat(dtype) && dtype != DType::kFloat64;
    }
    return plan_.wide && narrow ? absl::UnimplementedError("a kernel of f32 and f64") : absl::OkStatus();
  }

  // Finds the rows and columns of the kernel. All reductions must agree on them.
  absl::Status FindSpace() {
    int64_t elements = 0, columns = 0;
    for (const Node& node : graph_.nodes()) {
      if (!IsConstant(node) && !IsReduction(node)) elements = std::max(elements, NumElements(shape(node.outputs[0])));
      if (!IsReduction(node)) continue;
      const std::optional<Fold> fold = FindFold(shape(node.inputs[0]), node.attrs.Ints("axes"));
      if (FindReductionFunction(node) == nullptr) return Refuse(node, "it multiplies");
      if (!fold) return Refuse(node, "its axes are neither the last nor the first");
      if (columns != 0 && columns != fold->columns) return Refuse(node, "it folds other axes than a reduction before");
      columns = fold->columns;
      elements = std::max(elements, NumElements(shape(node.inputs[0])));
    }
    if (elements == 0) return absl::UnimplementedError("a kernel of no elements");
    plan_.by_row = columns != 0;
    if (columns == 0) columns = elements;
    if (elements % columns != 0) return absl::UnimplementedError("rows of different lengths");
    plan_.space = {.rows = elements / columns, .columns = columns};
    return absl::OkStatus();
  }

  // Marks nodes that compute nothing: Reshape, and widening casts of constants and broadcast inputs, because loads
  // widen.
  void FindViews() {
    for (const Node& node : graph_.nodes()) {
      const ValueId x = node.inputs.empty() ? kNoValue : SkipViews(plan_, node.inputs[0]);
      const bool widens = node.op == "Cast" && IsInputOrConstant(x) && IsFloat(graph_.type(x).dtype) &&
                          IsFloat(graph_.type(node.outputs[0]).dtype) &&
                          DTypeSize(graph_.type(node.outputs[0]).dtype) >= 4;
      const int64_t elements = NumElements(shape(node.outputs[0]));
      const bool computed = elements == plan_.space.elements() || (plan_.by_row && elements == plan_.space.rows);
      plan_.views.push_back(FindOp(node.op)->view || (widens && !computed));
    }
  }

  bool IsInputOrConstant(ValueId v) const { return graph_.IsInput(v) || IsConstant(*graph_.producer(v)); }

  absl::Status PlanNode(int32_t n) {
    const Node& node = graph_.nodes()[n];
    if (IsConstant(node)) return PlanConstant(node);
    if (plan_.views[n]) return PlanView(node);
    if (IsReduction(node)) return PlanReduction(n);
    const ValueId out = node.outputs[0];
    if (CastsColumnSum(node)) {
      plan_.level[out] = Level::kColumnSum;
      return absl::OkStatus();
    }
    if (node.op != "Cast" && node.op != "Dropout" && FindElementFunction(node) == nullptr)
      return Refuse(node, "it is no function of elements");
    const int64_t elements = NumElements(shape(out));
    const bool of_row = plan_.by_row && elements == plan_.space.rows && elements != plan_.space.elements();
    if (!of_row && elements != plan_.space.elements()) return Refuse(node, "it has other elements");
    plan_.level[out] = of_row ? Level::kRow : Level::kElement;
    if (node.op == "Dropout" && of_row) return Refuse(node, "it drops whole rows");
    const size_t read = node.op == "Dropout" ? 1 : node.inputs.size();  // not the key
    for (size_t i = 0; i < read; ++i) RETURN_IF_ERROR(PlanOperand(n, node.inputs[i]));
    return absl::OkStatus();
  }

  bool CastsColumnSum(const Node& node) const {
    return node.op == "Cast" && plan_.level[SkipViews(plan_, node.inputs[0])] == Level::kColumnSum;
  }

  absl::Status PlanConstant(const Node& node) {
    if (!pattern_.Splat(node.outputs[0])) return Refuse(node, "its elements differ");
    plan_.level[node.outputs[0]] = Level::kConstant;
    return absl::OkStatus();
  }

  absl::Status PlanView(const Node& node) {
    if (graph_.IsInput(node.inputs[0])) return absl::OkStatus();
    plan_.level[node.outputs[0]] = plan_.level[node.inputs[0]];
    return absl::OkStatus();
  }

  absl::Status PlanReduction(int32_t n) {
    const Node& node = graph_.nodes()[n];
    const ValueId x = node.inputs[0];
    if (NumElements(shape(x)) != plan_.space.elements()) return Refuse(node, "it reduces other elements");
    const bool by_column = FindFold(shape(x), node.attrs.Ints("axes"))->by_column;
    if (by_column && !FindReductionFunction(node)->sums()) return Refuse(node, "it is no sum");
    plan_.level[node.outputs[0]] = by_column ? Level::kColumnSum : Level::kRow;
    if (by_column) plan_.column_sums.push_back(n);
    return PlanOperand(n, x);
  }

  // Plans how node n reads v: as a value computed for the same element or row, or by a load.
  absl::Status PlanOperand(int32_t n, ValueId v) {
    const Node& node = graph_.nodes()[n];
    const Shape& read_as = shape(v);
    const Shape& space = IsReduction(node) ? read_as : shape(node.outputs[0]);
    const ValueId root = SkipViews(plan_, v);
    const bool of_row = plan_.level[node.outputs[0]] == Level::kRow && !IsReduction(node);
    if (graph_.IsInput(root)) {
      const KernelSpace rows = of_row ? KernelSpace{.rows = plan_.space.rows, .columns = 1} : plan_.space;
      plan_.operands[n].push_back({.load = AddLoad({root, MakeOperandIndex(read_as, space, rows)})});
      return absl::OkStatus();
    }
    const Level level = plan_.level[root];
    if (level == Level::kColumnSum) return Refuse(node, "it reads the sum of a column");
    const bool fits = level == Level::kConstant || level == (of_row ? Level::kRow : Level::kElement) ||
                      (level == Level::kRow && !of_row && IsRowOf(read_as, space));
    if (!fits || (level == Level::kElement && NumElements(read_as) != NumElements(space)))
      return Refuse(node, "it reads other elements than it computes");
    plan_.operands[n].push_back({.value = root});
    return absl::OkStatus();
  }

  // Returns true if a value of shape `row`, broadcast to `space`, has one element per row of the kernel, in order.
  bool IsRowOf(const Shape& row, const Shape& space) const {
    const OperandIndex index = MakeOperandIndex(row, space, plan_.space);
    return NumElements(row) == plan_.space.rows && (index.offset == "r" || plan_.space.rows == 1);
  }

  int AddLoad(OperandLoad load) {
    const auto found = std::find(plan_.loads.begin(), plan_.loads.end(), load);
    const auto index = found - plan_.loads.begin();
    if (found == plan_.loads.end()) plan_.loads.push_back(std::move(load));
    return static_cast<int>(index);
  }

  absl::Status CheckOutputs() const {
    for (const GraphOutput& output : graph_.outputs()) {
      const ValueId v = SkipViews(plan_, output.value);
      if (graph_.IsInput(v) || plan_.level[v] == Level::kConstant)
        return absl::UnimplementedError("an output that nothing computes");
    }
    return absl::OkStatus();
  }

  KernelPlan& plan_;
  const Graph& graph_;
  const Pattern pattern_;
};

// Assigns nodes to passes, going backwards from the results of each pass.
class PassPlanner {
 public:
  PassPlanner(KernelPlan* plan, bool recompute) : plan_(*plan), graph_(plan->graph), recompute_(recompute) {
    plan_.recompute = recompute;
    plan_.passes.clear();
    plan_.kept_values.clear();
    plan_.kept_loads.clear();
    plan_.last_row_nodes.clear();
  }

  void Run() {
    FindFirstPasses();
    const int count = CountPasses();
    plan_.passes.resize(count);
    value_home_.assign(graph_.values().size(), -1);
    load_home_.assign(plan_.loads.size(), -1);
    for (int pass = 0; pass < count; ++pass) PlanPass(pass);
  }

 private:
  const Node& node(int32_t n) const { return graph_.nodes()[n]; }
  ValueId output(int32_t n) const { return graph_.nodes()[n].outputs[0]; }
  int32_t producer(ValueId v) const { return graph_.value(v).node; }
  bool IsRowReduction(int32_t n) const { return IsReduction(node(n)) && plan_.level[output(n)] == Level::kRow; }

  // Computes first_: the first pass in which a node can be computed, which follows the row reductions that it depends
  // on.
  void FindFirstPasses() {
    first_.assign(graph_.nodes().size(), 0);
    for (size_t n = 0; n < first_.size(); ++n) {
      for (const Operand& operand : plan_.operands[n]) {
        const int32_t p = operand.value == kNoValue ? -1 : producer(operand.value);
        if (p >= 0) first_[n] = std::max(first_[n], first_[p] + (IsRowReduction(p) ? 1 : 0));
      }
    }
  }

  int CountPasses() const {
    int last = 0;
    for (size_t n = 0; n < first_.size(); ++n) {
      const Level level = plan_.level[output(static_cast<int32_t>(n))];
      if (level == Level::kElement || IsReduction(node(static_cast<int32_t>(n)))) last = std::max(last, first_[n]);
    }
    return last + 1;
  }

  // Returns the operands of the reductions that pass `pass` completes; in the last pass, also those of column sums and
  // the outputs.
  std::vector<Operand> FindRoots(int pass) const {
    std::vector<Operand> roots;
    const bool last = pass + 1 == static_cast<int>(plan_.passes.size());
    for (size_t n = 0; n < first_.size(); ++n) {
      const bool ends = IsRowReduction(static_cast<int32_t>(n)) && first_[n] == pass;
      if (ends) roots.push_back(plan_.operands[n][0]);
    }
    if (!last) return roots;
    for (int32_t n : plan_.column_sums) roots.push_back(plan_.operands[n][0]);
    for (const GraphOutput& out : graph_.outputs()) {
      const ValueId v = SkipViews(plan_, out.value);
      if (plan_.level[v] == Level::kElement) roots.push_back({.value = v});
    }
    return roots;
  }

  void PlanPass(int pass) {
    KernelPass& result = plan_.passes[pass];
    std::set<int32_t> nodes;
    for (const Operand& root : FindRoots(pass)) Need(root, pass, &nodes);
    result.nodes.assign(nodes.begin(), nodes.end());
    for (size_t n = 0; n < first_.size(); ++n) {
      const auto id = static_cast<int32_t>(n);
      if (plan_.level[output(id)] != Level::kRow || plan_.views[id]) continue;
      if (IsReduction(node(id))) {
        if (first_[n] == pass) result.reductions.push_back(id);
      } else if (first_[n] == pass) {
        result.row_nodes.push_back(id);
      } else if (first_[n] == static_cast<int>(plan_.passes.size()) && pass == 0) {
        plan_.last_row_nodes.push_back(id);
      }
    }
  }

  void Need(const Operand& operand, int pass, std::set<int32_t>* nodes) {
    if (operand.load >= 0) return NeedLoad(operand.load, pass);
    const ValueId v = operand.value;
    if (plan_.level[v] != Level::kElement) return;
    int& home = value_home_[v];
    if (home == pass) return;
    if (home >= 0 && !recompute_) return Keep(v, &plan_.kept_values);
    home = pass;
    const int32_t n = producer(v);
    nodes->insert(n);
    for (const Operand& o : plan_.operands[n]) Need(o, pass, nodes);
  }

  void NeedLoad(int load, int pass) {
    if (plan_.loads[load].index.of_row) return;  // loaded once per row
    int& home = load_home_[load];
    if (home == pass) return;
    if (home >= 0 && !recompute_) return Keep(load, &plan_.kept_loads);
    home = pass;
    plan_.passes[pass].loads.push_back(load);
  }

  template <typename T>
  static void Keep(T id, std::vector<T>* kept) {
    if (std::find(kept->begin(), kept->end(), id) == kept->end()) kept->push_back(id);
  }

  KernelPlan& plan_;
  const Graph& graph_;
  const bool recompute_;
  std::vector<int> first_;                   // first pass, by node
  std::vector<int> value_home_, load_home_;  // last pass that computes or loads it; -1: none yet
};

}  // namespace

ValueId SkipViews(const KernelPlan& plan, ValueId v) {
  const int32_t n = plan.graph.value(v).node;
  const bool skips = n >= 0 && n < static_cast<int32_t>(plan.views.size()) && plan.views[n];
  return skips ? SkipViews(plan, plan.graph.nodes()[n].inputs[0]) : v;
}

absl::StatusOr<KernelPlan> PlanKernel(const Graph& body) {
  KernelPlan plan;
  ASSIGN_OR_RETURN(plan.graph, ExpandBody(body));
  RETURN_IF_ERROR(Planner(&plan).Run());
  return plan;
}

void PlanPasses(KernelPlan* plan, int64_t copies) {
  PassPlanner(plan, false).Run();
  const auto kept = static_cast<int64_t>(plan->kept_values.size() + plan->kept_loads.size());
  if (kept * copies > kMostKept) PassPlanner(plan, true).Run();
}

}  // namespace onnxtrain::aten
