#include "frontend/onnx/edit/output_layer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Returns true if the operator works on each class by itself or only moves data.
bool PreservesClasses(const OnnxTraits& traits) { return traits.probabilities || traits.view || traits.keeps_classes; }

// Returns true if the node may add a bias per class, which is widened with the classifier.
bool HasBias(const ParsedNode& node) { return IsOp(node, {"Add"}) && node.inputs.size() == 2; }

bool HasNorm(const ParsedNode& node, const std::string& value) {
  return IsOp(node, {"BatchNormalization"}) && node.inputs.size() >= 5 && node.outputs[0] == value;
}

// Returns the operand of a bias that is not the weight.
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
  bool probabilities = false;  // whether the nodes so far compute probabilities
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
    // Encoders without classes also end in these, so they are only allowed before probabilities.
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

namespace {

class LayerFinder {
 public:
  explicit LayerFinder(const OnnxModel& model) : tracer_(model.parsed()) {}

  absl::StatusOr<OutputLayer> Run(const std::string& output) {
    ASSIGN_OR_RETURN(const ClassifierPath path, FindClassifier(tracer_, output));
    const ParsedNode& product = *path.classifier;
    RETURN_IF_ERROR(Annotate(AddProduct(product), NodeTag(product)));
    for (const ParsedNode* node : path.nodes) RETURN_IF_ERROR(Annotate(AddNode(*node), NodeTag(*node)));
    for (OutputLayer::Part& part : layer_.parts) {
      if (std::exchange(has_offset_, has_offset_ || part.offset_of != 0)) part.offset_of = 0;
    }
    if (!has_offset_) return Invalid(NodeTag(product), "has no bias, which the mean of the targets could be added to");
    return std::move(layer_);
  }

 private:
  absl::Status AddProduct(const ParsedNode& node) {
    if (!node.domain.empty() || node.inputs.size() < 2) return Invalid("is no layer with a weight matrix");
    ASSIGN_OR_RETURN(const TracedWeight weight, tracer_.Trace(node.inputs[1]));
    const bool conv = IsOp(node, {"Conv"}), transposed = IsOp(node, {"Gemm"}) && node.attrs.Int("transB") != 0;
    if (weight.shape.size() < 2) return Invalid("its weight is ", ToString(weight.shape), ", not a matrix");
    const size_t axis = conv || transposed ? 0 : weight.shape.size() - 1;
    layer_.targets = weight.shape[axis];
    RETURN_IF_ERROR(AddPart(weight, axis, 0, node));
    if (node.inputs.size() < 3 || node.inputs[2].empty()) return absl::OkStatus();
    return AddBias(node.inputs[2], IsOp(node, {"Gemm"}) ? node.attrs.Float("beta", 1) : 1, node);
  }

  absl::Status AddNode(const ParsedNode& node) {
    if (IsOp(node, {"Add"})) return AddBias(node.inputs[tracer_.Trace(node.inputs[0]).ok() ? 0 : 1], 1, node);
    if (!GetOnnxTraits(node).view && !IsViewOrCast(node))
      return Invalid("stands between the last layer and the output and is no bias");
    if (layer_.targets > 1 && IsOp(node, {"Transpose"})) return Invalid("changes the order of the targets");
    return absl::OkStatus();
  }

  absl::Status AddBias(const std::string& name, double factor, const ParsedNode& node) {
    ASSIGN_OR_RETURN(const TracedWeight bias, tracer_.Trace(name));
    if (NumElements(bias.shape) != layer_.targets)
      return Invalid("its bias '", Printable(name), "' ", ToString(bias.shape), " is not one number per target");
    for (size_t a = bias.shape.size(); a-- > 0;) {
      if (bias.shape[a] == layer_.targets) return AddPart(bias, a, factor, node);
    }
    return layer_.targets == 1 ? AddPart(bias, 0, factor, node) : Invalid("its bias has no axis of targets");
  }

  absl::Status AddPart(const TracedWeight& weight, size_t axis, double offset_of, const ParsedNode& reader) {
    RETURN_IF_ERROR(tracer_.CheckUntied(weight, reader));
    ASSIGN_OR_RETURN(const size_t stored, StoredAxis(weight, axis));
    const Shape inner(weight.stored.begin() + std::min(stored + 1, weight.stored.size()), weight.stored.end());
    layer_.parts.push_back({weight.tensor, weight.stored, NumElements(inner), offset_of});
    return absl::OkStatus();
  }

  // Returns the axis of the stored tensor that corresponds to an axis of the operand.
  absl::StatusOr<size_t> StoredAxis(const TracedWeight& weight, size_t axis) const {
    Shape after = weight.shape;
    for (size_t i = 0; i < weight.through.size(); ++i) {
      const ParsedNode& node = *weight.through[i];
      const Shape& before = weight.before[i];
      if (IsOp(node, {"Transpose"})) axis = static_cast<size_t>(Permutation(node, before.size())[axis]);
      if (IsOp(node, {"Reshape"})) {
        ASSIGN_OR_RETURN(axis, AxisBeforeReshape(node, before, after, axis));
      }
      after = before;
    }
    return axis;
  }

  WeightTracer tracer_;
  OutputLayer layer_;
  bool has_offset_ = false;
};

double At(const std::vector<double>& values, int64_t t) { return values[values.size() == 1 ? 0 : t]; }

// Replaces x by change(x, target, the part) in every part.
absl::Status ChangeParts(const OutputLayer& layer, std::map<std::string, HostTensor>* weights,
                         const std::function<double(double, int64_t, const OutputLayer::Part&)>& change) {
  for (const OutputLayer::Part& part : layer.parts) {
    const auto weight = weights->find(part.name);
    if (weight == weights->end() || weight->second.shape() != part.shape || !IsFloat(weight->second.dtype()))
      return Invalid("weight '", Printable(part.name),
                     "' of the last layer is not trained, or not stored as floats of its shape");
    HostTensor changed(weight->second.type());
    for (int64_t e = 0; e < changed.size(); ++e) {
      const double x = change(weight->second.At(e), e / part.inner % layer.targets, part);
      changed.Set(e, x);
      if (!std::isfinite(changed.At(e))) return Invalid("weight '", Printable(part.name), "' would overflow: ", x);
    }
    weight->second = std::move(changed);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OutputLayer> FindOutputLayer(const OnnxModel& model, const std::string& output) {
  return LayerFinder(model).Run(output);
}

absl::Status FoldUnit(const OutputLayer& layer, const TargetUnit& unit, std::map<std::string, HostTensor>* weights) {
  return ChangeParts(layer, weights, [&](double x, int64_t t, const OutputLayer::Part& part) {
    const double offset = part.offset_of != 0 ? At(unit.offset, t) / part.offset_of : 0;
    return x * At(unit.scale, t) + offset;
  });
}

absl::Status UnfoldUnit(const OutputLayer& layer, const TargetUnit& unit, std::map<std::string, HostTensor>* weights) {
  return ChangeParts(layer, weights, [&](double x, int64_t t, const OutputLayer::Part& part) {
    const double offset = part.offset_of != 0 ? At(unit.offset, t) / part.offset_of : 0;
    return (x - offset) / At(unit.scale, t);
  });
}

}  // namespace onnxtrain
