#include "backends/cpu/channels_last.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "backends/cpu/channels_last_ops.h"
#include "backends/cpu/guard.h"
#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/layout_assignment.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

using Ints = std::vector<int64_t>;
using Vals = std::vector<Val>;
using Kind = LayoutWish::Kind;

// --- Axes -------------------------------------------------------------------------------------------------------------

// Where an axis of [N,C,…] stands in [N,…,C].
int64_t AxisLast(int64_t axis, int rank) { return axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1; }

Ints ToLast(int rank) {
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), int64_t{0});
  return ChannelsLastShape(perm);
}

Ints ToFirst(int rank) {
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), int64_t{0});
  return ChannelsFirstShape(perm);
}

Val MovedLast(Val x) {
  return MovesNothing(x.shape()) ? Reshape(x, ChannelsLastShape(x.shape())) : Transpose(x, ToLast(x.rank()));
}

Val MovedFirst(Val x) {
  const Shape shape = ChannelsFirstShape(x.shape());
  return MovesNothing(shape) ? Reshape(x, shape) : Transpose(x, ToFirst(x.rank()));
}

// --- Nodes ------------------------------------------------------------------------------------------------------------

// The values of the new graph by those of the old one, in either layout, made when first asked for.
class Forms {
 public:
  explicit Forms(Rewriter& r) : r_(r), first_(r.from().values().size()), last_(first_.size()) {}

  Rewriter& r() { return r_; }
  Val First(ValueId v) {
    if (v == kNoValue) return Val();
    if (!first_[v]) SetFirst(v, last_[v] ? MovedFirst(last_[v]) : r_.Map(v));
    return first_[v];
  }
  Val Last(ValueId v) {
    if (!last_[v]) last_[v] = MovedLast(First(v));
    return last_[v];
  }
  void SetFirst(ValueId v, Val now) {
    first_[v] = now;
    r_.Set(v, now);
    r_.b().graph().SetValueName(now.id(), r_.from().value(v).name);
  }
  void SetLast(ValueId v, Val now) { last_[v] = now; }

 private:
  Rewriter& r_;
  Vals first_, last_;
};

struct Site {
  Forms& forms;
  const Node& node;

  Builder& b() const { return forms.r().b(); }
  const Attrs& attrs() const { return node.attrs; }
  const Type& in(size_t i) const { return forms.r().from().type(node.inputs[i]); }
  const Type& out(size_t i = 0) const { return forms.r().from().type(node.outputs[i]); }
  int rank() const { return out().rank(); }
  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNoValue; }
  Val first(size_t i) const { return has(i) ? forms.First(node.inputs[i]) : Val(); }
  Val last(size_t i) const { return forms.Last(node.inputs[i]); }
};

// --- Convolutions -----------------------------------------------------------------------------------------------------

bool AllAre(const Ints& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
}

// A convolution of single elements is a product of matrices.
bool IsProduct(const Attrs& attrs, const Shape& w) {
  return attrs.Int("group", 1) == 1 && AllAre(attrs.Ints("strides"), 1) && AllAre(attrs.Ints("pads"), 0) &&
         AllAre(Shape(w.begin() + 2, w.end()), 1);
}

ConvKind KindOf(const Node& node) {
  return node.op == "Conv" ? ConvKind::kForward : node.op == "ConvTranspose" ? ConvKind::kInputGrad : ConvKind::kWeightGrad;
}

ConvGeometry GeometryOf(const Graph& graph, const Node& node) {
  const Shape &a = graph.type(node.inputs[0]).shape, &b = graph.type(node.inputs[1]).shape, &c = graph.type(node.outputs[0]).shape;
  switch (KindOf(node)) {
    case ConvKind::kForward: return MakeConvGeometry(node.attrs, a, b, c);
    case ConvKind::kInputGrad: return MakeConvGeometry(node.attrs, c, b, a);
    case ConvKind::kWeightGrad: return MakeConvGeometry(node.attrs, a, c, b);
  }
  return {};
}

// The bf16 value that a factor of a convolution was widened from, or nothing.
ValueId NarrowOf(const Graph& graph, ValueId v) {
  const Node* cast = graph.producer(v);
  const bool narrow = cast != nullptr && cast->op == "Cast" && graph.type(cast->inputs[0]).dtype == DType::kBFloat16;
  return narrow ? cast->inputs[0] : kNoValue;
}

// In which type does the convolution multiply? Products of bf16 are exact in float32, so nothing is lost.
DType FactorsOf(const Graph& graph, const Node& node) {
  const bool narrow = HasBFloat16() && NarrowOf(graph, node.inputs[0]) != kNoValue && NarrowOf(graph, node.inputs[1]) != kNoValue;
  return narrow ? DType::kBFloat16 : DType::kFloat32;
}

// The layout of the weights, or nothing where oneDNN has no good implementation.
std::optional<dnnl::memory::desc> WeightsOf(const Graph& graph, const Node& node, DType factors) {
  std::optional<dnnl::memory::desc> layout;
  const absl::Status status = Guard([&] { layout = ChannelsLastWeights(KindOf(node), GeometryOf(graph, node), factors); });
  return status.ok() ? layout : std::nullopt;
}

bool ConvMoves(const Graph& graph, const Node& node) {
  const ConvGeometry g = GeometryOf(graph, node);
  if (g.empty()) return false;
  const Shape& w = graph.type(KindOf(node) == ConvKind::kWeightGrad ? node.outputs[0] : node.inputs[1]).shape;
  return IsProduct(node.attrs, w) || WeightsOf(graph, node, DType::kFloat32).has_value();
}

// The factors of a convolution and, for packed weights, their layout.
class Factors {
 public:
  explicit Factors(const Site& s) : s_(s), graph_(s.forms.r().from()) {
    if (FactorsOf(graph_, s.node) != DType::kBFloat16) return;
    narrow_ = IsProductNode() || WeightsOf(graph_, s.node, DType::kBFloat16).has_value();
  }

  Val Last(size_t i) const { return s_.forms.Last(Of(i)); }
  Val First(size_t i) const { return s_.forms.First(Of(i)); }
  DType dtype() const { return narrow_ ? DType::kBFloat16 : DType::kFloat32; }
  Val Packed() const { return PackedAs(*WeightsOf(graph_, s_.node, dtype()), false); }
  Val PackedAs(const dnnl::memory::desc& layout, bool turned) const {
    return s_.b().Op("cpu.PackConvWeight", {First(1)},
                     {{"group", s_.attrs().Int("group", 1)}, {"layout", ToInts(layout)}, {"turned", int64_t{turned}}});
  }
  // A product of matrices, which has the type of its factors, in float32.
  static Val Wide(Val product) { return Cast(product, DType::kFloat32); }

 private:
  ValueId Of(size_t i) const { return narrow_ ? NarrowOf(graph_, s_.node.inputs[i]) : s_.node.inputs[i]; }
  bool IsProductNode() const {
    const bool weight = KindOf(s_.node) == ConvKind::kWeightGrad;
    return IsProduct(s_.attrs(), weight ? s_.out().shape : s_.in(1).shape);
  }

  const Site& s_;
  const Graph& graph_;
  bool narrow_ = false;
};

Attrs WithWeightShape(const Site& s) {
  Attrs attrs = s.attrs();
  attrs.Set("weight_shape", s.in(1).shape);
  return attrs;
}

Val AsMatrix(Val x) { return Reshape(x, {NumElements(x.shape()) / x.dim(-1), x.dim(-1)}); }
Val WeightMatrix(Val w) { return Reshape(w, {w.dim(0), w.dim(1)}); }

Vals EmitConv(const Site& s) {
  const Factors f(s);
  if (!IsProduct(s.attrs(), s.in(1).shape)) {
    return {s.b().Op("cpu.Conv", {f.Last(0), f.Packed(), s.first(2)}, WithWeightShape(s))};
  }
  const Val y = Factors::Wide(MatMul(f.Last(0), WeightMatrix(f.First(1)), false, true));
  return {s.has(2) ? y + s.first(2) : y};
}

// At stride 1, the gradient of a convolution's input is itself a convolution, of the gradient of the result with the weights turned
// round. The attributes of that one, or nothing where there is none.
std::optional<Attrs> TurnedConv(const Site& s) {
  const Shape &y = s.in(0).shape, &x = s.out().shape;
  const Ints dilations = s.attrs().Ints("dilations");
  if (s.attrs().Int("group", 1) != 1 || !AllAre(s.attrs().Ints("strides"), 1)) return std::nullopt;
  const Shape w = TurnedWeights(s.in(1)).shape;
  Ints pads = s.attrs().Ints("pads");
  for (size_t i = 0, axes = dilations.size(); i < axes; ++i) {
    const int64_t reach = dilations[i] * (w[2 + i] - 1);
    for (size_t end : {i, axes + i}) pads[end] = reach - pads[end];
    const bool same = y[2 + i] + pads[i] + pads[axes + i] - reach == x[2 + i];
    if (!same || pads[i] < 0 || pads[axes + i] < 0) return std::nullopt;
  }
  return Attrs{{"strides", s.attrs().Ints("strides")}, {"dilations", dilations}, {"group", int64_t{1}}, {"pads", pads}, {"weight_shape", w}};
}

// Measured with oneDNN 2.6.3 over AVX-512, forward kernels take .8 to .95 times what its backward ones take in float32. In bf16 both
// are equal within 5 %, but for short rows: those of 14 take .92, those of 7 .76.
constexpr int64_t kShortRow = 16;
// Fewer input channels than these, the results of the turned convolution, fill no vector: LeNet's step took 1.17 times as long.
constexpr int64_t kFewestTurned = 16;

std::optional<Vals> EmitTurned(const Site& s, const Factors& f) {
  if (f.dtype() == DType::kBFloat16 && s.out().shape.back() >= kShortRow) return std::nullopt;
  if (s.out().shape[1] < kFewestTurned) return std::nullopt;
  const auto attrs = TurnedConv(s);
  if (!attrs) return std::nullopt;
  const ConvGeometry g = MakeConvGeometry(*attrs, s.in(0).shape, attrs->Ints("weight_shape"), s.out().shape);
  std::optional<dnnl::memory::desc> layout;
  const absl::Status status = Guard([&] { layout = ChannelsLastWeights(ConvKind::kForward, g, f.dtype()); });
  if (!status.ok() || !layout) return std::nullopt;
  return Vals{s.b().Op("cpu.Conv", {f.Last(0), f.PackedAs(*layout, true)}, *attrs)};
}

Vals EmitConvTranspose(const Site& s) {
  const Factors f(s);
  if (IsProduct(s.attrs(), s.in(1).shape)) return {Factors::Wide(MatMul(f.Last(0), WeightMatrix(f.First(1))))};
  if (const auto turned = EmitTurned(s, f)) return *turned;
  return {s.b().Op("cpu.ConvTranspose", {f.Last(0), f.Packed()}, WithWeightShape(s))};
}

Vals EmitConvWeightGrad(const Site& s) {
  const Factors f(s);
  if (!IsProduct(s.attrs(), s.out().shape)) return {s.b().Op("cpu.ConvWeightGrad", {f.Last(0), f.Last(1)}, s.attrs())};
  const Shape shape = s.out().shape;
  return {Reshape(Factors::Wide(MatMul(AsMatrix(f.Last(1)), AsMatrix(f.Last(0)), true)), shape)};
}

// --- Normalization and pooling ----------------------------------------------------------------------------------------

// The same operator of this backend's own, which reads and writes channels last what `slots` says.
template <uint32_t kInputs>
Vals EmitOwn(const Site& s) {
  Vals in;
  for (size_t i = 0; i < s.node.inputs.size(); ++i) in.push_back((kInputs >> i & 1) != 0 ? s.last(i) : s.first(i));
  Attrs attrs = s.attrs();
  if (attrs.Has("input_shape")) attrs.Set("input_shape", ChannelsLastShape(attrs.Ints("input_shape")));
  return s.b().Ops("cpu." + s.node.op, in, attrs);
}

const Node* PoolOf(const Graph& graph, const Node& grad) {
  const Node* pool = graph.producer(grad.inputs[1]);
  return pool != nullptr && pool->op == "MaxPool" && pool->outputs[1] == grad.inputs[1] ? pool : nullptr;
}

// The places of maxima are kept as numbers of the window's elements, in a byte. So nobody else may read them.
class MaxPools {
 public:
  explicit MaxPools(const Graph& graph) : graph_(graph), readers_(Readers(graph)) {}

  bool Move(const Node& pool) const {
    const ValueId index = pool.outputs[1];
    const bool read = std::any_of(graph_.outputs().begin(), graph_.outputs().end(), [&](const auto& o) { return o.value == index; });
    return !read && NumElements(pool.attrs.Ints("kernel_shape")) <= 255 &&
           std::all_of(readers_[index].begin(), readers_[index].end(), [&](int32_t r) {
             const Node& node = graph_.nodes()[r];
             return node.op == "MaxPoolGrad" && node.inputs[0] != index && PoolGives(pool, node);
           });
  }

 private:
  bool PoolGives(const Node& pool, const Node& grad) const {
    return grad.attrs.Ints("input_shape") == graph_.type(pool.inputs[0]).shape;
  }

  const Graph& graph_;
  const std::vector<std::vector<int32_t>> readers_;
};

Vals EmitMaxPoolGrad(const Site& s) {
  Attrs attrs = PoolOf(s.forms.r().from(), s.node)->attrs;
  attrs.Set("input_shape", ChannelsLastShape(s.out().shape));
  return {s.b().Op("cpu.MaxPoolGrad", {s.last(0), s.last(1)}, attrs)};
}

// Does nothing happen along the spatial axes but the first?
bool PoolsFirstAxis(const Attrs& attrs) {
  const Ints kernel = attrs.Ints("kernel_shape"), strides = attrs.Ints("strides"), pads = attrs.Ints("pads");
  const auto behind = [&](const Ints& all, size_t first) { return Ints(all.begin() + first + 1, all.begin() + first + kernel.size()); };
  return AllAre(behind(kernel, 0), 1) && AllAre(behind(strides, 0), 1) && AllAre(behind(pads, 0), 0) && AllAre(behind(pads, kernel.size()), 0);
}

// An average over windows of planes [N,C,A,…] that are wide along A alone is one of [N·C,A,…] as it lies, with what is behind A for
// channels. Empty where it is not, or too little is behind A.
Vals AverageAlongFirst(const Site& s) {
  constexpr int64_t kFew = 8;
  if (!s.node.op.starts_with("AveragePool") || s.in(0).dtype != DType::kFloat32 || !PoolsFirstAxis(s.attrs())) return {};
  const Shape &x = s.in(0).shape, &y = s.out().shape;
  const int64_t behind = NumElements(Shape(x.begin() + 3, x.end()));
  if (behind < kFew || s.out().elements() == 0) return {};
  const auto rows = [&](const Shape& shape) { return Shape{shape[0] * shape[1], shape[2], behind}; };
  Attrs attrs = s.attrs();
  for (const char* name : {"kernel_shape", "strides", "dilations"}) attrs.Set(name, Ints{s.attrs().Ints(name)[0]});
  const Ints pads = s.attrs().Ints("pads");
  attrs.Set("pads", Ints{pads[0], pads[pads.size() / 2]});
  if (attrs.Has("input_shape")) attrs.Set("input_shape", rows(y));
  return {Reshape(s.b().Op("cpu." + s.node.op, {Reshape(s.first(0), rows(x))}, attrs), y)};
}

// --- What has an equal form -------------------------------------------------------------------------------------------

Val SpreadLast(const Site& s, size_t i) {
  const Shape& shape = s.in(i).shape;
  if (static_cast<int>(shape.size()) == s.rank()) return s.last(i);
  if (shape.empty()) return s.first(i);
  Shape wide(s.rank() - shape.size(), 1);
  wide.insert(wide.end(), shape.begin(), shape.end());
  return MovedLast(Reshape(s.first(i), wide));
}

Vals EmitElementwise(const Site& s) {
  Vals in;
  for (size_t i = 0; i < s.node.inputs.size(); ++i) in.push_back(SpreadLast(s, i));
  return s.b().Ops(s.node.op, in, s.attrs());
}

Vals EmitExpand(const Site& s) {
  const Shape shape = ChannelsLastShape(s.out().shape);
  return {Expand(SpreadLast(s, 0), shape)};
}

Vals EmitAlongAxis(const Site& s) {
  Vals in;
  for (size_t i = 0; i < s.node.inputs.size(); ++i) in.push_back(s.last(i));
  Attrs attrs = s.attrs();
  attrs.Set("axis", AxisLast(attrs.Int("axis"), s.rank()));
  return s.b().Ops(s.node.op, in, attrs);
}

// One number per axis.
Vals EmitSlice(const Site& s) {
  Attrs attrs = s.attrs();
  for (const char* name : {"starts", "sizes", "steps", "input_shape"}) {
    if (attrs.Has(name)) attrs.Set(name, ChannelsLastShape(attrs.Ints(name)));
  }
  return {s.b().Op(s.node.op, {s.last(0)}, attrs)};
}

Vals EmitPad(const Site& s) {
  const Ints pads = s.attrs().Ints("pads");
  const auto half = pads.begin() + s.rank();
  Ints moved = ChannelsLastShape({pads.begin(), half});
  const Ints ends = ChannelsLastShape({half, pads.end()});
  moved.insert(moved.end(), ends.begin(), ends.end());
  Attrs attrs = s.attrs();
  attrs.Set("pads", moved);
  return {s.b().Op("Pad", {s.last(0)}, attrs)};
}

constexpr int64_t kNarrowChannels = 32;

// A sum over all but few channels, several rows side by side: those are longer.
Val SumOfNarrow(Val x) {
  constexpr int64_t kWidth = 64;
  const int64_t channels = x.dim(-1), rows = NumElements(x.shape()) / channels;
  int64_t together = 1;
  while (2 * together * channels <= kWidth && rows % (2 * together) == 0) together *= 2;
  const Val sums = ReduceSum(Reshape(x, {rows / together, together * channels}), {0}, false);
  return ReduceSum(Reshape(sums, {together, channels}), {0}, false);
}

bool SumsToChannels(const Site& s) {
  const Ints axes = s.attrs().Ints("axes");
  return s.node.op == "ReduceSum" && s.in(0).elements() > 0 && s.in(0).dtype == DType::kFloat32 && s.out().rank() == 1 &&
         s.in(0).shape[1] < kNarrowChannels && std::find(axes.begin(), axes.end(), 1) == axes.end();
}

Vals EmitReduce(const Site& s) {
  if (SumsToChannels(s)) return {SumOfNarrow(s.last(0))};
  Attrs attrs = s.attrs();
  Ints axes = attrs.Ints("axes");
  for (int64_t& axis : axes) axis = AxisLast(axis, s.in(0).rank());
  std::sort(axes.begin(), axes.end());
  attrs.Set("axes", axes);
  return {s.b().Op(s.node.op, {s.last(0)}, attrs)};
}

// Without the reduced axes, the others must stand in the same order.
bool ReduceMoves(const Graph& graph, const Node& node) {
  if (node.attrs.Int("keepdims", 1) != 0) return true;
  const Ints axes = node.attrs.Ints("axes");
  const int rank = graph.type(node.inputs[0]).rank();
  Ints kept;
  for (int64_t a = 0; a < rank; ++a) {
    if (!axes.empty() && std::find(axes.begin(), axes.end(), a) == axes.end()) kept.push_back(AxisLast(a, rank));
  }
  return std::is_sorted(kept.begin(), kept.end());
}

bool ResampleMoves(const Graph&, const Node& node) {
  const Ints axes = node.attrs.Ints("axes");
  return std::all_of(axes.begin(), axes.end(), [](int64_t a) { return a >= 2; });
}

Vals EmitResample(const Site& s) {
  Attrs attrs = s.attrs();
  Ints axes = attrs.Ints("axes");
  for (int64_t& axis : axes) --axis;
  attrs.Set("axes", axes);
  return {s.b().Op(s.node.op, {s.last(0)}, attrs)};
}

// A transpose between the two layouts is no work: the value has them both.
Vals EmitTranspose(const Site& s) { return {s.attrs().Ints("perm") == ToLast(s.rank()) ? s.last(0) : s.first(0)}; }

// --- The table --------------------------------------------------------------------------------------------------------

constexpr uint32_t kAll = ~0u;

struct MoveRow {
  std::string_view op;
  LayoutWish wish;
  Vals (*emit)(const Site&);
  bool (*moves)(const Graph&, const Node&) = nullptr;  // null: always
};

const MoveRow kRows[] = {
    {"Conv", {Kind::kLast, {1, 1}}, EmitConv, ConvMoves},
    {"ConvTranspose", {Kind::kLast, {1, 1}}, EmitConvTranspose, ConvMoves},
    {"ConvWeightGrad", {Kind::kLast, {3, 0}}, EmitConvWeightGrad, ConvMoves},
    {"BatchNorm", {Kind::kFollow, {1, 1}}, EmitOwn<1>},
    {"BatchNormGrad", {Kind::kFollow, {3, 1}}, EmitOwn<3>},
    {"BatchNormInference", {Kind::kFollow, {1, 1}}, EmitOwn<1>},
    {"MaxPool", {Kind::kFollow, {1, 3}}, EmitOwn<1>},
    {"MaxPoolGrad", {Kind::kFollow, {3, 1}}, EmitMaxPoolGrad},
    {"AveragePool", {Kind::kFollow, {1, 1}}, EmitOwn<1>},
    {"AveragePoolGrad", {Kind::kFollow, {1, 1}}, EmitOwn<1>},
    {"Resample", {Kind::kFollow, {1, 1}}, EmitResample, ResampleMoves},
    {"ResampleGrad", {Kind::kFollow, {1, 1}}, EmitResample, ResampleMoves},
    {"Concat", {Kind::kFollow, {kAll, 1}}, EmitAlongAxis},
    {"Split", {Kind::kFollow, {1, kAll}}, EmitAlongAxis},
    {"Slice", {Kind::kFollow, {1, 1}}, EmitSlice},
    {"SliceGrad", {Kind::kFollow, {1, 1}}, EmitSlice},
    {"Pad", {Kind::kFollow, {1, 1}}, EmitPad},
    {"Expand", {Kind::kFollow, {1, 1}}, EmitExpand},
    {"ReduceSum", {Kind::kFollow, {1, 1}}, EmitReduce, ReduceMoves},
    {"ReduceMean", {Kind::kFollow, {1, 1}}, EmitReduce, ReduceMoves},
    {"ReduceMax", {Kind::kFollow, {1, 1}}, EmitReduce, ReduceMoves},
    {"ReduceMin", {Kind::kFollow, {1, 1}}, EmitReduce, ReduceMoves},
    {"Transpose", {Kind::kFollow, {1, 1}}, EmitTranspose},
};
const MoveRow kElementwise = {"", {Kind::kFollow, {kAll, kAll}}, EmitElementwise};

const MoveRow* FindRow(const Node& node) {
  for (const MoveRow& row : kRows) {
    if (row.op == node.op) return &row;
  }
  const OpRow* op = FindOp(node.op);
  return op != nullptr && op->elementwise ? &kElementwise : nullptr;
}

// --- The pass ---------------------------------------------------------------------------------------------------------

class Mover {
 public:
  explicit Mover(const Graph& graph) : graph_(graph), pools_(graph), wishes_(graph.nodes().size()) {
    std::vector<bool> inseparable(graph.values().size(), false);
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const Node& node = graph.nodes()[n];
      wishes_[n] = WishOf(node);
      if (node.op == "MaxPool") inseparable[node.outputs[1]] = true;
    }
    last_ = AssignLayouts(graph, wishes_, inseparable);
  }

  absl::StatusOr<Graph> Run() const {
    Graph result;
    Rewriter r(graph_, &result);
    Forms forms(r);
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      r.b().set_source(node.source);
      if (last_[n]) {
        Emit(Site{forms, node}, wishes_[n].slots.outputs);
      } else if (const Vals y = AverageAlongFirst(Site{forms, node}); !y.empty()) {
        forms.SetFirst(node.outputs[0], y[0]);
      } else {
        for (ValueId v : node.inputs) forms.First(v);
        r.Copy(node);
      }
      RETURN_IF_ERROR(r.b().status());
    }
    for (const GraphOutput& output : graph_.outputs()) forms.First(output.value);
    r.CopyOutputs();
    return result;
  }

 private:
  LayoutWish WishOf(const Node& node) const {
    const MoveRow* row = FindRow(node);
    if (row == nullptr || (IsOwn(node) && graph_.type(node.inputs[0]).dtype != DType::kFloat32)) return {};
    if (row->moves != nullptr && !row->moves(graph_, node)) return {};
    if (node.op == "MaxPool" && !pools_.Move(node)) return {};
    if (node.op == "MaxPoolGrad" && (PoolOf(graph_, node) == nullptr || !pools_.Move(*PoolOf(graph_, node)))) return {};
    LayoutWish wish = row->wish;
    if (node.op == "Transpose") return WishOfTranspose(node);
    const bool reduces = node.op.starts_with("Reduce");
    const Type& moved = graph_.type(reduces || wish.slots.outputs == 0 ? node.inputs[0] : node.outputs[0]);
    const int rank = moved.rank();
    if (node.op.starts_with("BatchNorm") && MovesNothing(moved.shape)) wish.kind = Kind::kLast;
    if (reduces && graph_.type(node.outputs[0]).rank() != rank) wish.slots.outputs = 0;
    if (rank < 3 && wish.kind != Kind::kLast) return {};
    if (row == &kElementwise || node.op == "Expand") wish.slots.inputs = OfRank(node, rank);
    return wish;
  }

  // Has it a kernel of its own for channels last?
  static bool IsOwn(const Node& node) {
    return node.op.starts_with("Conv") || node.op.starts_with("BatchNorm") || node.op.starts_with("MaxPool") ||
           node.op.starts_with("AveragePool");
  }

  // The inputs that are as wide as the output; the others are spread.
  uint32_t OfRank(const Node& node, int rank) const {
    uint32_t bits = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (graph_.type(node.inputs[i]).rank() == rank) bits |= 1u << i;
    }
    return bits;
  }

  LayoutWish WishOfTranspose(const Node& node) const {
    const Ints perm = node.attrs.Ints("perm");
    const int rank = static_cast<int>(perm.size());
    if (rank < 3) return {};
    if (perm == ToLast(rank)) return {Kind::kFollow, {1, 0}};
    return perm == ToFirst(rank) ? LayoutWish{Kind::kFollow, {0, 1}} : LayoutWish{};
  }

  void Emit(const Site& site, uint32_t moved) const {
    const Vals outputs = FindRow(site.node)->emit(site);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ValueId v = site.node.outputs[i];
      (moved >> std::min<size_t>(i, 31) & 1) != 0 ? site.forms.SetLast(v, outputs[i]) : site.forms.SetFirst(v, outputs[i]);
    }
  }

  const Graph& graph_;
  const MaxPools pools_;
  std::vector<LayoutWish> wishes_;
  std::vector<bool> last_;
};

}  // namespace

absl::StatusOr<Graph> MoveChannelsLast(const Graph& graph) { return Mover(graph).Run(); }

}  // namespace onnxtrain::cpu
