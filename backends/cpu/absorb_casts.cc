#include "backends/cpu/absorb_casts.h"

#include <algorithm>

#include "backends/cpu/channels_last_ops.h"
#include "backends/cpu/guard.h"
#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/kernels/resample.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

using Vals = std::vector<Val>;

// The inputs that are bf16 together with the first output, as bits.
struct HalfRow {
  std::string_view op;
  uint32_t inputs;
  bool own = true;  // of this backend: "cpu.…"
};

constexpr HalfRow kRows[] = {
    {"BatchNorm", 1 | 8}, {"BatchNormInference", 1}, {"BatchNormGrad", 1 | 2}, {"MaxPool", 1},
    {"MaxPoolGrad", 1},   {"AveragePool", 1},        {"AveragePoolGrad", 1},   {"Resample", 1, false},
    {"ResampleGrad", 1, false},
};

const HalfRow* FindRow(std::string_view op) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const HalfRow& r) { return r.op == op; });
  return row == std::end(kRows) ? nullptr : row;
}

constexpr std::string_view kOwn = "cpu.";

class Absorber {
 public:
  explicit Absorber(const Graph& graph) : graph_(graph), readers_(Readers(graph)), is_output_(graph.values().size(), false) {
    for (const GraphOutput& output : graph.outputs()) is_output_[output.value] = true;
  }

  // Not by Rewrite: values change their types, and what would read them with the old one vanishes.
  absl::StatusOr<Graph> Run() {
    Graph result;
    Rewriter r(graph_, &result);
    for (const Node& node : graph_.nodes()) {
      r.b().set_source(node.source);
      if (const auto outputs = Apply(r, node)) {
        for (size_t i = 0; i < outputs->size(); ++i) SetNamed(r, node.outputs[i], (*outputs)[i]);
      } else {
        r.Copy(node);
      }
      RETURN_IF_ERROR(r.b().status());
    }
    r.CopyOutputs();
    return result;
  }

 private:
  static void SetNamed(Rewriter& r, ValueId v, Val now) {
    if (!now.valid()) return;
    r.Set(v, now);
    r.b().graph().SetValueName(now.id(), r.from().value(v).name);
  }

  std::optional<Vals> Apply(Rewriter& r, const Node& node) const {
    if (IsCast(node, DType::kFloat32, DType::kBFloat16)) return Narrow(r, node);
    if (node.op == "cpu.Conv" || node.op == "cpu.ConvTranspose") return Conv(r, node);
    if (const HalfRow* row = RowOf(node)) return Halved(r, node, *row);
    return FindOp(node.op)->elementwise && node.op != "Cast" ? Elementwise(r, node) : std::nullopt;
  }

  bool IsCast(const Node& node, DType from, DType to) const {
    return node.op == "Cast" && graph_.type(node.inputs[0]).dtype == from && graph_.type(node.outputs[0]).dtype == to;
  }

  // The bf16 value that this one was widened from, or nothing.
  ValueId HalfOf(ValueId v) const {
    const Node* cast = v == kNoValue ? nullptr : graph_.producer(v);
    return cast != nullptr && IsCast(*cast, DType::kBFloat16, DType::kFloat32) ? cast->inputs[0] : kNoValue;
  }

  bool IsReadAsHalf(ValueId v) const {
    return !is_output_[v] && !readers_[v].empty() && std::all_of(readers_[v].begin(), readers_[v].end(), [&](int32_t n) {
      return IsCast(graph_.nodes()[n], DType::kFloat32, DType::kBFloat16);
    });
  }

  static std::optional<Vals> Narrow(Rewriter& r, const Node& node) {
    const Val x = r.Map(node.inputs[0]);
    return x.dtype() == DType::kBFloat16 ? std::optional(Vals{x}) : std::nullopt;
  }

  std::optional<Vals> Conv(Rewriter& r, const Node& node) const {
    if (graph_.type(node.inputs[0]).dtype != DType::kBFloat16 || !IsReadAsHalf(node.outputs[0]) || !MayGiveHalves(node)) return std::nullopt;
    Attrs attrs = node.attrs;
    attrs.Set("to", std::string("bf16"));
    return r.b().Ops(node.op, Mapped(r, node), attrs);
  }

  bool MayGiveHalves(const Node& node) const {
    const bool forward = node.op == "cpu.Conv";
    const Shape a = ChannelsFirstShape(graph_.type(node.inputs[0]).shape), b = ChannelsFirstShape(graph_.type(node.outputs[0]).shape);
    const ConvGeometry g = MakeConvGeometry(node.attrs, forward ? a : b, node.attrs.Ints("weight_shape"), forward ? b : a);
    bool may = false;
    const absl::Status status = Guard([&] { may = GivesHalves(forward ? ConvKind::kForward : ConvKind::kInputGrad, g); });
    return status.ok() && may;
  }

  // The row of a node that may read and write halves as it stands.
  const HalfRow* RowOf(const Node& node) const {
    const bool own = node.op.starts_with(kOwn);
    const HalfRow* row = FindRow(std::string_view(node.op).substr(own ? kOwn.size() : 0));
    const bool takes = row != nullptr && row->own == own && (own || ResamplesHalves(node.attrs, graph_.type(node.inputs[0]).shape));
    return takes ? row : nullptr;
  }

  std::optional<Vals> Halved(Rewriter& r, const Node& node, const HalfRow& row) const {
    if (!IsReadAsHalf(node.outputs[0])) return std::nullopt;
    Vals in = Mapped(r, node);
    for (size_t i = 0; i < in.size(); ++i) {
      if ((row.inputs >> i & 1) == 0 || !in[i]) continue;
      if (HalfOf(node.inputs[i]) == kNoValue) return std::nullopt;
      in[i] = r.Map(HalfOf(node.inputs[i]));
    }
    return r.b().Ops(node.op, in, node.attrs);
  }

  std::optional<Vals> Elementwise(Rewriter& r, const Node& node) const {
    Vals in = Mapped(r, node);
    bool any = false;
    for (size_t i = 0; i < in.size(); ++i) {
      const ValueId half = HalfOf(node.inputs[i]);
      if (half == kNoValue) continue;
      if (const ValueId exact = InChain(half, node); exact != kNoValue && readers_[node.inputs[i]].size() == 1) {
        in[i] = r.Map(exact);
      } else if (readers_[node.inputs[i]].size() > 1) {
        in[i] = Cast(r.Map(half), DType::kFloat32);
      } else {
        continue;
      }
      any = true;
    }
    return any ? std::optional(r.b().Ops(node.op, in, node.attrs)) : std::nullopt;
  }

  // What the half was rounded from, if that will be in one chain with its only reader.
  ValueId InChain(ValueId half, const Node& reader) const {
    const Node* narrow = graph_.producer(half);
    if (narrow == nullptr || !IsCast(*narrow, DType::kFloat32, DType::kBFloat16) || readers_[half].size() > 1 || is_output_[half]) return kNoValue;
    const Node* from = graph_.producer(narrow->inputs[0]);
    const bool same = from != nullptr && FindOp(from->op)->elementwise && graph_.type(half).shape == graph_.type(reader.outputs[0]).shape;
    return same && readers_[narrow->inputs[0]].size() == 1 ? narrow->inputs[0] : kNoValue;
  }

  static Vals Mapped(Rewriter& r, const Node& node) {
    Vals in;
    for (ValueId v : node.inputs) in.push_back(r.Map(v));
    return in;
  }

  const Graph& graph_;
  const std::vector<std::vector<int32_t>> readers_;
  std::vector<bool> is_output_;  // by value
};

}  // namespace

bool ReadsHalves(std::string_view op) { return FindRow(op) != nullptr; }

absl::StatusOr<Graph> AbsorbCasts(const Graph& graph) { return Absorber(graph).Run(); }

}  // namespace onnxtrain::cpu
