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
      if (node.op == "cpu.BatchNorm" && ReluOf(node) != nullptr) return r.b().Ops(node.op, Mapped(r, node), WithRelu(node));
      if (node.op == "cpu.BatchNormGrad") return Grad(r, node);
      if (node.op != "Relu") return std::nullopt;
      const Node* x = graph_.producer(node.inputs[0]);
      if (x == nullptr || ReluOf(*x) != &node) return std::nullopt;
      if (x->op == "cpu.BatchNorm") return Vals{r.Map(node.inputs[0])};
      return x->op == "cpu.Conv" ? std::optional(Vals{r.b().Op(x->op, Mapped(r, *x), WithRelu(*x))}) : std::nullopt;
    });
  }

 private:
  // The node's only reader, if that is a Relu.
  const Node* ReluOf(const Node& node) const {
    const ValueId y = node.outputs[0];
    if (!pattern_.HasOneReader(y)) return nullptr;
    const Node& reader = graph_.nodes()[readers_[y][0]];
    return reader.op == "Relu" ? &reader : nullptr;
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

  // Where(Relu(BatchNorm(x)) > 0, dy, 0) on its way through that normalization alone.
  std::optional<Vals> Grad(Rewriter& r, const Node& node) const {
    const Node* masked = pattern_.Producer(node.inputs[0], "Where");
    if (masked == nullptr || !pattern_.HasOneReader(node.inputs[0]) || pattern_.Splat(masked->inputs[2]) != 0) return std::nullopt;
    const Node* positive = pattern_.Producer(masked->inputs[0], "Greater");
    if (positive == nullptr || pattern_.Splat(positive->inputs[1]) != 0) return std::nullopt;
    const Node* relu = pattern_.Producer(positive->inputs[0], "Relu");
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
