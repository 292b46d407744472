#include "backends/cpu/matmul_ops.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "backends/cpu/accumulate.h"
#include "backends/cpu/guard.h"
#include "backends/cpu/kernels/matmul.h"
#include "frontend/base/status.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

// Packing a weight that is trained costs reading and writing it once per update. What it gains was measured with oneDNN 2.6 on
// two cores, 1024 rows: a fourth where an untransposed weight is wide or high, and 3 % elsewhere, half of what it costs. Halves are cast on the way.
constexpr int64_t kRowsToPackFrozen = 32, kRowsToPackTrained = 512, kRowsToPackAny = 2048, kWide = 1024;

bool IsMultiplied(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

// Bytes of the packed weight, 0 where packing is no use.
absl::StatusOr<size_t> PackedBytes(int64_t m, int64_t k, int64_t n, DType dtype) {
  size_t bytes = 0;
  RETURN_IF_ERROR(Guard([&] {
    if (const auto layout = PackedLayout(m, k, n, dtype)) bytes = layout->get_size();
  }));
  return bytes;
}

absl::StatusOr<std::vector<Type>> PackWeightTypes(const TypeContext& c) {
  const int64_t k = c.attrs.Int("k"), n = c.attrs.Int("n");
  const Shape expected = c.attrs.Int("trans") != 0 ? Shape{n, k} : Shape{k, n};
  const auto to = DTypeOf(c.attrs.String("to"));
  if (!IsMultiplied(c.in(0).dtype) || c.in(0).shape != expected) return Invalid("expected ", ToString(expected), ", got ", ToString(c.in(0)));
  if (!to || !IsMultiplied(*to)) return Invalid("no products of ", c.attrs.String("to"));
  ASSIGN_OR_RETURN(const size_t bytes, PackedBytes(c.attrs.Int("rows"), k, n, *to));
  return std::vector<Type>{{DType::kUInt8, {static_cast<int64_t>(bytes)}}};
}

absl::StatusOr<std::vector<Type>> FusedMatMulTypes(const TypeContext& c) {
  Type y;
  if (c.attrs.Int("packed") != 0) {
    if (c.in(0).rank() < 2) return Invalid("expected a matrix, got ", ToString(c.in(0)));
    y = c.in(0);
    y.shape.back() = c.attrs.Int("n");
  } else {
    Attrs attrs = {{"trans_a", c.attrs.Int("trans_a")}, {"trans_b", c.attrs.Int("trans_b")}};
    ASSIGN_OR_RETURN(auto types, InferTypes("MatMul", c.inputs.first(2), attrs));
    y = types[0];
  }
  if (!c.attrs.String("to").empty()) {
    const auto to = DTypeOf(c.attrs.String("to"));
    if (!to || !IsMultiplied(*to) || !IsMultiplied(y.dtype)) return Invalid("no products of ", c.attrs.String("to"));
    y.dtype = *to;
  }
  const bool bias_type = !c.has(2) || c.in(2).dtype == DType::kFloat32 || c.in(2).dtype == c.in(0).dtype;
  const bool sums = y.dtype == DType::kFloat32 && c.attrs.String("activation").empty();
  if (c.has(3) && (c.in(3) != y || !sums)) return Invalid("expected nothing but a sum of ", ToString(y), ", got ", ToString(c.in(3)));
  if (c.has(2) && (!bias_type || c.in(2).shape != Shape{y.shape.back()})) {
    return Invalid("expected a bias of ", y.shape.back(), " elements, got ", ToString(c.in(2)));
  }
  return std::vector<Type>{y};
}

double FusedMatMulFlops(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  const Type& a = *inputs[0];
  const int64_t k = a.shape[a.rank() - (attrs.Int("trans_a") != 0 ? 2 : 1)];
  return 2.0 * static_cast<double>(outputs[0].elements()) * static_cast<double>(k);
}

class MatMulFuser {
 public:
  explicit MatMulFuser(const Graph& graph) : graph_(graph), readers_(Readers(graph)), accumulations_(FindAccumulations(graph)) {
    is_output_.resize(graph.values().size(), false);
    for (const GraphOutput& output : graph.outputs()) is_output_[output.value] = true;
    for (const auto& [sum, accumulation] : accumulations_) old_of_[accumulation.term] = accumulation.old;
  }

  absl::StatusOr<Graph> Run() {
    return Rewrite(graph_, [&](Rewriter& r, const Node& node) { return Apply(r, node); });
  }

 private:
  using Result = std::optional<std::vector<Val>>;

  // A product and what is done to it. What the product accumulates in float32 it writes in the type of the last node.
  struct Match {
    const Node* product = nullptr;
    ValueId bias = kNoValue;
    bool relu = false;
    ValueId old = kNoValue;  // what it is added to, in place
  };

  Result Apply(Rewriter& r, const Node& node) {
    const auto sum = accumulations_.find(node.outputs[0]);
    if (sum != accumulations_.end() && Find(sum->second.term).old != kNoValue) return std::vector<Val>{r.Map(sum->second.term)};
    const Match match = Find(node.outputs[0]);
    if (match.product == nullptr || !IsMultiplied(graph_.type(node.outputs[0]).dtype)) return std::nullopt;
    const bool pack = MayPack(*match.product);
    if (&node == match.product && !pack && match.old == kNoValue) return std::nullopt;
    return std::vector<Val>{Emit(r, match, graph_.type(node.outputs[0]).dtype, pack)};
  }

  bool HasOneReader(ValueId v) const { return readers_[v].size() == 1 && !is_output_[v]; }

  // An accumulated product is made where its last node stands, not at the end with the sums: its operands are needed no longer than before.
  Match Find(ValueId v) const {
    Match match = FindProduct(v);
    const auto old = old_of_.find(v);
    if (match.product != nullptr && !match.relu && old != old_of_.end()) match.old = old->second;
    return match;
  }

  Match FindProduct(ValueId v) const {
    const Node* node = graph_.producer(v);
    if (node == nullptr) return {};
    if (node->op == "MatMul") return {.product = node};
    if (node->op == "Cast" && HasOneReader(node->inputs[0]) && IsMultiplied(graph_.type(node->inputs[0]).dtype)) {
      const Match inner = FindProduct(node->inputs[0]);
      return inner.product != nullptr && OfHalves(*inner.product) ? inner : Match{};
    }
    if (node->op == "Relu" && HasOneReader(node->inputs[0])) {
      Match inner = FindProduct(node->inputs[0]);
      if (inner.relu) return {};
      inner.relu = inner.product != nullptr;
      return inner;
    }
    if (node->op != "Add") return {};
    for (int side : {0, 1}) {
      const Match inner = FindProduct(node->inputs[side]);
      const bool bare = inner.product != nullptr && inner.bias == kNoValue && !inner.relu;
      if (!bare || !HasOneReader(node->inputs[side]) || !IsBias(node->inputs[1 - side], v, node->inputs[side])) continue;
      return {.product = inner.product, .bias = node->inputs[1 - side]};
    }
    return {};
  }

  bool IsBias(ValueId bias, ValueId sum, ValueId product) const {
    const Shape &shape = graph_.type(bias).shape, &y = graph_.type(sum).shape;
    return y == graph_.type(product).shape && !shape.empty() && shape.back() == y.back() &&
           NumElements(shape) == y.back();
  }

  // What an operand of a product of halves was made of: packing and adding a bias take float32 as well.
  ValueId BeforeCasts(const Node& product, ValueId v) const {
    if (!OfHalves(product)) return v;
    const Node* node = graph_.producer(v);
    const bool cast = node != nullptr && node->op == "Cast" && IsMultiplied(graph_.type(node->inputs[0]).dtype);
    return cast ? BeforeCasts(product, node->inputs[0]) : v;
  }

  bool OfHalves(const Node& product) const { return graph_.type(product.inputs[0]).dtype == DType::kBFloat16; }

  ValueId BehindViews(ValueId v) const {
    const Node* node = graph_.producer(v);
    return node != nullptr && FindOp(node->op)->view ? BehindViews(node->inputs[0]) : v;
  }

  int64_t RowsToPack(const Node& product) const {
    const Shape& weight = graph_.type(product.inputs[1]).shape;
    const bool wide = product.attrs.Int("trans_b") == 0 && std::max(weight[0], weight[1]) >= kWide;
    return wide || OfHalves(product) ? kRowsToPackTrained : kRowsToPackAny;
  }

  // Is the second operand a weight that stays the same for many rows of the first?
  bool MayPack(const Node& product) const {
    const Type &a = graph_.type(product.inputs[0]), &b = graph_.type(product.inputs[1]);
    if (!IsMultiplied(a.dtype) || b.rank() != 2 || product.attrs.Int("trans_a") != 0 || a.elements() == 0) return false;
    const ValueId weight = BehindViews(BeforeCasts(product, product.inputs[1]));
    const int32_t input = graph_.IsInput(weight) ? graph_.value(weight).index : -1;
    const bool constant = graph_.ConstantOf(weight) != nullptr;
    if (input < 0 && !constant) return false;
    const InputKind kind = constant ? InputKind::kFrozen : graph_.inputs()[input].kind;
    const int64_t rows = a.elements() / a.shape.back();
    if (kind == InputKind::kParameter) return rows >= RowsToPack(product);
    return (kind == InputKind::kFrozen || kind == InputKind::kDerived) && rows >= kRowsToPackFrozen;
  }

  Val Emit(Rewriter& r, const Match& match, DType dtype, bool pack) {
    const Node& product = *match.product;
    const Val a = r.Map(product.inputs[0]), b = r.Map(product.inputs[1]);
    Attrs attrs = {{"activation", std::string(match.relu ? "Relu" : "")}};
    const Val packed = pack ? Packed(r, product) : Val();
    if (packed) {
      attrs.Set("packed", int64_t{1});
      attrs.Set("n", graph_.type(product.outputs[0]).shape.back());
    } else {
      attrs.Set("trans_a", product.attrs.Int("trans_a"));
      attrs.Set("trans_b", product.attrs.Int("trans_b"));
    }
    if (dtype != a.dtype()) attrs.Set("to", std::string(NameOf(dtype)));
    Val bias = match.bias == kNoValue ? Val() : r.Map(BeforeCasts(product, match.bias));
    if (bias) bias = Reshape(bias, {graph_.type(product.outputs[0]).shape.back()});
    return r.b().Op("cpu.MatMul", {a, packed ? packed : b, bias, match.old == kNoValue ? Val() : r.Map(match.old)}, attrs);
  }

  // The packed weight, made once for all products of as many rows; invalid where packing is no use.
  Val Packed(Rewriter& r, const Node& product) {
    const Type& a = graph_.type(product.inputs[0]);
    const int64_t rows = a.elements() / a.shape.back(), k = a.shape.back(), n = graph_.type(product.outputs[0]).shape.back();
    const int64_t trans = product.attrs.Int("trans_b");
    const auto key = std::make_tuple(product.inputs[1], rows, trans);
    if (auto it = packed_.find(key); it != packed_.end()) return it->second;
    const auto bytes = PackedBytes(rows, k, n, a.dtype);
    if (!bytes.ok()) return r.b().Fail(bytes.status());
    if (*bytes == 0) return packed_[key] = Val();
    return packed_[key] = r.b().Op("cpu.PackWeight", {r.Map(BeforeCasts(product, product.inputs[1]))},
                                   {{"rows", rows}, {"k", k}, {"n", n}, {"trans", trans}, {"to", std::string(NameOf(a.dtype))}});
  }

  const Graph& graph_;
  const std::vector<std::vector<int32_t>> readers_;
  std::vector<bool> is_output_;
  const std::map<ValueId, Accumulation> accumulations_;
  std::map<ValueId, ValueId> old_of_;  // by term
  std::map<std::tuple<ValueId, int64_t, int64_t>, Val> packed_;
};

}  // namespace

std::vector<OpRow> MatMulRows() {
  const int64_t zero = 0;
  return {{.name = "cpu.MatMul", .inputs = {2, 4},  // a, b, bias, what the product is added to
           .attrs = {{"trans_a", zero}, {"trans_b", zero}, {"packed", zero}, {"n", zero}, {"activation", std::string()},
                     {"to", std::string()}},
           .infer = FusedMatMulTypes, .precision = Precision::kLow, .recompute = Recompute::kExpensive, .flops = FusedMatMulFlops,
           .overwrites = 1u << 3},
          {.name = "cpu.PackWeight",
           .attrs = {{"rows", zero, true}, {"k", zero, true}, {"n", zero, true}, {"trans", zero}, {"to", std::string("f32")}},
           .infer = PackWeightTypes, .recompute = Recompute::kExpensive, .derive = true}};
}

absl::StatusOr<Graph> FuseMatMuls(const Graph& graph) { return MatMulFuser(graph).Run(); }

}  // namespace onnxtrain::cpu
