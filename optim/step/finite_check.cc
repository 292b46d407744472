#include "optim/step/finite_check.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

std::string NormName(ValueId value) { return StrCat("$norm:", value); }

absl::StatusOr<Graph> BuildGradients(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                     int64_t batch) {
  return BuildMicro(model, choice, loss, batch, {});
}

enum class Finiteness { kFinite, kInfinite, kNan };

class OriginFinder {
 public:
  // `forward` is the number of nodes of the model, which precede those of the loss and the gradients.
  OriginFinder(const Graph& graph, size_t forward, const std::map<std::string, HostTensor>& norms)
      : graph_(graph), forward_(forward), norms_(norms) {}

  std::string Describe() {
    for (const GraphOutput& output : graph_.outputs()) {
      if (Classify(output.value) != Finiteness::kFinite) return DescribeValue(FindOrigin(output.value));
    }
    return "";
  }

 private:
  Finiteness Classify(ValueId value) const {
    const auto norm = norms_.find(NormName(value));
    if (norm == norms_.end() || std::isfinite(norm->second.At(0))) return Finiteness::kFinite;
    return std::isnan(norm->second.At(0)) ? Finiteness::kNan : Finiteness::kInfinite;
  }

  // Masks may be weights that are not trained.
  bool IsInfiniteMask(ValueId value) const {
    if (!graph_.IsInput(value) || Classify(value) != Finiteness::kInfinite) return false;
    const InputKind kind = graph_.inputs()[graph_.value(value).index].kind;
    return kind != InputKind::kFeed && kind != InputKind::kParameter;
  }

  // Returns the input that makes the output of a node non-finite: a NaN input, else an infinite one; kNoValue if all
  // inputs are finite.
  ValueId FindCause(const Node& node) const {
    ValueId cause = kNoValue;
    for (const ValueId input : node.inputs) {
      if (input == kNoValue) continue;
      const Finiteness found = Classify(input);
      if (found == Finiteness::kNan) return input;
      if (found == Finiteness::kInfinite && cause == kNoValue) cause = input;
    }
    return cause;
  }

  // Follows causes from a value that is not finite.
  ValueId FindOrigin(ValueId value) const {
    ValueId nan = value;  // the earliest value on the way that is NaN
    while (true) {
      if (Classify(value) == Finiteness::kNan) nan = value;
      const Node* node = graph_.producer(value);
      if (node == nullptr) return IsInfiniteMask(value) ? nan : value;
      const ValueId cause = FindCause(*node);
      if (cause == kNoValue) return HasInfiniteConstant(*node) ? nan : value;
      value = cause;
    }
  }

  // Constants have no norms.
  bool HasInfiniteConstant(const Node& node) const {
    return std::ranges::any_of(node.inputs, [&](ValueId input) {
      const HostTensor* constant = input == kNoValue ? nullptr : graph_.FindConstant(input);
      for (int64_t i = 0; constant != nullptr && IsFloat(constant->dtype()) && i < constant->size(); ++i) {
        if (std::isinf(constant->At(i))) return true;
      }
      return false;
    });
  }

  std::string DescribeValue(ValueId value) const {
    if (graph_.IsInput(value)) {
      const GraphInput& input = graph_.inputs()[graph_.value(value).index];
      return StrCat(input.kind == InputKind::kFeed ? "input '" : "weight '", input.name,
                    "' holds values that are not finite");
    }
    const Node& node = *graph_.producer(value);
    const auto place = static_cast<size_t>(&node - graph_.nodes().data());
    if (place < forward_) return StrCat(NodeTag(node), "gives values that are not finite");
    const auto nodes = std::span(graph_.nodes()).first(forward_);
    const auto source = std::ranges::find_if(nodes, [&](const Node& n) { return *n.source == *node.source; });
    if (source == nodes.end()) return "the loss of finite predictions is not finite";
    return StrCat(NodeTag(*source), "has a finite result and a gradient that is not finite");
  }

  const Graph& graph_;
  const size_t forward_;
  const std::map<std::string, HostTensor>& norms_;
};

}  // namespace

absl::StatusOr<Graph> BuildFiniteCheck(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                       int64_t batch) {
  ASSIGN_OR_RETURN(Graph graph, BuildGradients(model, choice, loss, batch));
  graph.ClearOutputs();
  const auto values = static_cast<ValueId>(graph.values().size());
  Builder b(&graph);
  for (ValueId value = 0; value < values; ++value) {
    const Type& type = graph.type(value);
    if (!IsFloat(type.dtype) || type.elements() == 0 || graph.FindConstant(value) != nullptr) continue;
    graph.AddOutput(NormName(value), b.Op("SquaredNorm", {b.Wrap(value)}).id());
  }
  RETURN_IF_ERROR(b.status());
  return graph;
}

absl::StatusOr<std::string> DescribeNonFinite(const ImportedModel& model, const LossChoice& choice,
                                              const LossSpec& loss, int64_t batch,
                                              const std::map<std::string, HostTensor>& norms) {
  ASSIGN_OR_RETURN(const Graph graph, BuildGradients(model, choice, loss, batch));
  return OriginFinder(graph, model.graph.nodes().size(), norms).Describe();
}

}  // namespace onnxtrain
