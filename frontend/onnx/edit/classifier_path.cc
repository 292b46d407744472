#include "frontend/onnx/edit/classifier_path.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Whether the operator works on each class by itself or only moves data.
bool PreservesClasses(const OnnxTraits& traits) { return traits.probabilities || traits.view || traits.keeps_classes; }

// Whether the node has parameters per class, which are widened with the classifier.
bool HasBias(const ParsedNode& node) { return IsOp(node, {"Add"}) && node.inputs.size() == 2; }

bool HasNorm(const ParsedNode& node, const std::string& value) {
  return IsOp(node, {"BatchNormalization"}) && node.inputs.size() >= 5 && node.outputs[0] == value;
}

// The input of a bias that is not the weight.
absl::StatusOr<std::string> BiasedValue(const WeightTracer& tracer, const ParsedNode& add, const std::string& output) {
  const bool first = tracer.Trace(add.inputs[0]).ok(), second = tracer.Trace(add.inputs[1]).ok();
  if (first != second) return add.inputs[first ? 1 : 0];
  return Invalid(NodeTag(add), "stands between '", Printable(output),
                 "' and the last Gemm, MatMul or Conv and adds no bias");
}

// Walks back from an output to its classifier.
absl::StatusOr<ClassifierPath> TraceOutput(const WeightTracer& tracer, const std::string& output) {
  ClassifierPath path{.output = output};
  std::string value = output;
  bool probabilities = false;  // whether the nodes so far make probabilities
  while (true) {
    const ParsedNode* producer = tracer.Producer(value);
    if (producer == nullptr) return Invalid("no Gemm, MatMul or Conv leads to '", Printable(output), "'");
    const ParsedNode& node = *producer;
    if (GetOnnxTraits(node).classifier) {
      if (node.outputs[0] == value && !node.domain.empty())
        return Invalid("'", Printable(output), "' holds labels, not scores");
      path.classifier = &node;
      return path;
    }
    const OnnxTraits& traits = GetOnnxTraits(node);
    probabilities |= traits.probabilities;
    // Encoders without classes end in these too, so they are allowed before probabilities only.
    const bool channels = probabilities && (traits.keeps_channels || HasNorm(node, value));
    if (!HasBias(node) && !channels && !PreservesClasses(traits)) {
      return Invalid(NodeTag(node), "stands between '", Printable(output),
                     "' and the last Gemm, MatMul or Conv; only bias, softmax, sigmoid and ",
                     "reshape may, and before a softmax activations, batch norm and pooling (`logits` NAME, a value "
                     "before it, cuts it off)");
    }
    path.nodes.push_back(&node);
    value = node.inputs[0];
    if (HasBias(node)) {
      ASSIGN_OR_RETURN(value, BiasedValue(tracer, node, output));
    }
  }
}

absl::Status ReportSeveral(const std::map<const ParsedNode*, std::string>& found) {
  auto describe = [](std::string* out, const auto& f) {
    StrAppend(out, "'", Printable(f.second), "' (", f.first->op_type, " '", Printable(f.first->source), "')");
  };
  return Invalid("several outputs have a classifier: ", absl::StrJoin(found, ", ", describe),
                 "; choose one with `logits`");
}

}  // namespace

bool IsMlOp(const ParsedNode& node, std::initializer_list<std::string_view> ops) {
  return node.domain == "ai.onnx.ml" && std::find(ops.begin(), ops.end(), node.op_type) != ops.end();
}

absl::StatusOr<ClassifierPath> FindClassifier(const WeightTracer& tracer, const std::string& output) {
  const std::vector<std::string> outputs = output.empty() ? tracer.model().outputs : std::vector<std::string>{output};
  std::map<const ParsedNode*, std::string> found;  // classifier → output
  std::set<const ParsedNode*> nodes;
  std::vector<std::string> errors;
  for (const std::string& name : outputs) {
    auto path = TraceOutput(tracer, name);
    if (!path.ok()) {
      errors.emplace_back(ToStd(path.status().message()));
      continue;
    }
    found.emplace(path->classifier, name);
    nodes.insert(path->nodes.begin(), path->nodes.end());
  }
  if (found.size() > 1) return ReportSeveral(found);
  if (found.empty()) return Invalid(absl::StrJoin(errors, "; "));
  return ClassifierPath{
      .classifier = found.begin()->first, .nodes = {nodes.begin(), nodes.end()}, .output = found.begin()->second};
}

absl::StatusOr<size_t> AxisBeforeReshape(const ParsedNode& node, const Shape& before, const Shape& after, size_t axis) {
  const auto behind = [](const Shape& shape, size_t a) {
    return NumElements(Shape(shape.begin() + a + 1, shape.end()));
  };
  for (size_t a = 0; a < before.size(); ++a) {
    if (before[a] == after[axis] && behind(before, a) == behind(after, axis)) return a;
  }
  return Invalid(NodeTag(node), "mixes the classes with other axes of the weight");
}

}  // namespace onnxtrain
