#include "backends/cpu/fuse_relu.h"

#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"
#include "frontend/passes/rule.h"

namespace onnxtrain::cpu {
namespace {

using Vals = std::vector<Val>;

class ReluFuser {
 public:
  explicit ReluFuser(const Graph& graph) : graph_(graph), pattern_(graph), readers_(Readers(graph)) {}

  absl::StatusOr<Graph> Run() {
    return Rewrite(graph_, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
      if (node.op == "cpu.BatchNorm") return Norm(r, node);
      if (node.op == "cpu.BatchNormGrad") return Grad(r, node);
      if (const Node* norm = NormBefore(node); norm != nullptr) return Vals{r.Map(norm->outputs[0])};
      return node.op == "Relu" ? Relu(r, node) : std::nullopt;
    });
  }

 private:
  // What follows a normalization and is computed with it; null: nothing.
  struct Tail {
    const Node* sum = nullptr;
    const Node* relu = nullptr;
    ValueId residual = kNoValue;  // the sum's other term, or what that was widened from
  };

  // The value's only reader, if that is such an operator.
  const Node* OnlyReader(ValueId v, std::string_view op) const {
    if (!pattern_.HasOneReader(v)) return nullptr;
    const Node& reader = graph_.nodes()[readers_[v][0]];
    return reader.op == op ? &reader : nullptr;
  }

  // The other term must stand before the normalization: of two that are added, the second takes the first.
  Tail TailOf(const Node& norm) const {
    const ValueId y = norm.outputs[0];
    Tail tail;
    if (const Node* sum = OnlyReader(y, "Add"); sum != nullptr) {
      const ValueId other = sum->inputs[sum->inputs[0] == y ? 1 : 0];
      const ValueId residual = BeforeWidening(other);
      if (graph_.type(other) == graph_.type(y) && graph_.value(residual).node < graph_.value(y).node) {
        tail.sum = sum;
        tail.residual = residual;
      }
    }
    tail.relu = OnlyReader(tail.sum == nullptr ? y : tail.sum->outputs[0], "Relu");
    return tail;
  }

  // The normalization that the node is the sum behind, or null.
  const Node* NormBefore(const Node& sum) const {
    if (sum.op != "Add") return nullptr;
    for (ValueId v : sum.inputs) {
      const Node* norm = pattern_.Producer(v, "cpu.BatchNorm");
      if (norm != nullptr && TailOf(*norm).sum == &sum) return norm;
    }
    return nullptr;
  }

  std::optional<Vals> Norm(Rewriter& r, const Node& node) const {
    const Tail tail = TailOf(node);
    if (tail.sum == nullptr && tail.relu == nullptr) return std::nullopt;
    Vals in = Mapped(r, node);
    if (tail.sum != nullptr) in.push_back(Cast(r.Map(tail.residual), in[0].dtype()));
    return r.b().Ops(node.op, in, tail.relu != nullptr ? WithRelu(node) : node.attrs);
  }

  std::optional<Vals> Relu(Rewriter& r, const Node& node) const {
    const Node* x = graph_.producer(node.inputs[0]);
    if (x == nullptr || OnlyReader(node.inputs[0], "Relu") == nullptr) return std::nullopt;
    const bool normalized = x->op == "cpu.BatchNorm" ? x->outputs[0] == node.inputs[0] : NormBefore(*x) != nullptr;
    if (normalized) return Vals{r.Map(node.inputs[0])};
    return x->op == "cpu.Conv" ? std::optional(Vals{r.b().Op(x->op, Mapped(r, *x), WithRelu(*x))}) : std::nullopt;
  }

  static Vals Mapped(Rewriter& r, const Node& node) {
    Vals in;
    for (ValueId v : node.inputs) in.push_back(r.Map(v));
    return in;
  }

  static Attrs WithRelu(const Node& node) {
    Attrs attrs = node.attrs;
    attrs.Set("activation", std::string("Relu"));
    return attrs;
  }

  ValueId BeforeWidening(ValueId v) const {
    const Node* cast = pattern_.Producer(v, "Cast");
    return cast != nullptr && graph_.type(cast->inputs[0]).dtype == DType::kBFloat16 ? cast->inputs[0] : v;
  }

  // Rounding to bf16 and back leaves signs and zeros as they are, but for what is smaller than any normal number.
  ValueId BehindRounding(ValueId v) const {
    const Node* cast = pattern_.Producer(v, "Cast");
    const auto rounds = [&](ValueId x) { return graph_.type(x).dtype == DType::kFloat32 || graph_.type(x).dtype == DType::kBFloat16; };
    return cast != nullptr && rounds(v) && rounds(cast->inputs[0]) ? BehindRounding(cast->inputs[0]) : v;
  }

  // The same, where nobody else reads the rounded value. A gradient that was rounded before is not changed by it.
  ValueId BehindOwnRounding(ValueId v) const {
    const Node* cast = pattern_.HasOneReader(v) ? pattern_.Producer(v, "Cast") : nullptr;
    return cast != nullptr && BehindRounding(v) != v ? BehindOwnRounding(cast->inputs[0]) : v;
  }

  // Where(Relu(BatchNorm(x)) > 0, dy, 0) on its way through that normalization alone.
  std::optional<Vals> Grad(Rewriter& r, const Node& node) const {
    const Node* masked = pattern_.Producer(BehindOwnRounding(node.inputs[0]), "Where");
    if (masked == nullptr || !pattern_.HasOneReader(masked->outputs[0]) || pattern_.Splat(BehindRounding(masked->inputs[2])) != 0) return std::nullopt;
    const Node* positive = pattern_.Producer(masked->inputs[0], "Greater");
    if (positive == nullptr || pattern_.Splat(BehindRounding(positive->inputs[1])) != 0) return std::nullopt;
    const Node* relu = pattern_.Producer(BehindRounding(positive->inputs[0]), "Relu");
    const Node* norm = relu == nullptr ? nullptr : pattern_.Producer(relu->inputs[0], "cpu.BatchNorm");
    const bool same = norm != nullptr && norm->outputs[0] == relu->inputs[0] && norm->inputs[0] == node.inputs[1] &&
                      norm->inputs[1] == node.inputs[2] && norm->outputs[1] == node.inputs[3] && norm->outputs[2] == node.inputs[4];
    if (!same || graph_.type(masked->inputs[1]) != graph_.type(node.inputs[1])) return std::nullopt;
    Vals in = Mapped(r, node);
    in[0] = r.Map(masked->inputs[1]);
    in.push_back(r.Map(norm->inputs[2]));
    return r.b().Ops(node.op, in, WithRelu(node));
  }

  const Graph& graph_;
  const Pattern pattern_;
  const std::vector<std::vector<int32_t>> readers_;
};

}  // namespace

absl::StatusOr<Graph> FuseRelu(const Graph& graph) { return ReluFuser(graph).Run(); }

}  // namespace onnxtrain::cpu
