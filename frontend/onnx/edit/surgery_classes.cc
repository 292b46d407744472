#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"
#include "frontend/onnx/edit/output_layer.h"
#include "frontend/onnx/edit/surgery.h"

namespace onnxtrain {
namespace {

std::vector<int64_t> MakeRange(int64_t n) {
  std::vector<int64_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

class ClassSurgeon {
 public:
  ClassSurgeon(const OnnxModel& model, int64_t classes, const std::vector<int64_t>& labels)
      : tracer_(model.parsed()), classes_(classes), labels_(labels.empty() ? MakeRange(classes) : labels) {}

  absl::StatusOr<SurgeryPlan> Run(const std::string& wanted) {
    ASSIGN_OR_RETURN(const ClassifierPath path, FindClassifier(tracer_, wanted));
    const ParsedNode* classifier = path.classifier;
    plan_.output = path.output;
    RETURN_IF_ERROR(Annotate(WidenClassifier(*classifier), NodeTag(*classifier)));
    for (const ParsedNode* node : path.nodes) RETURN_IF_ERROR(Annotate(AdaptNode(*node), NodeTag(*node)));
    std::set<std::string> values(classifier->outputs.begin(), classifier->outputs.end());
    for (const ParsedNode* node : path.nodes) values.insert(node->outputs.begin(), node->outputs.end());
    for (const std::string& value : values) plan_.edits.extents.push_back({value, old_classes_, classes_});
    plan_.old_classes = old_classes_;
    plan_.edits.lines.push_back(StrCat(classifier->op_type, " '", Printable(classifier->source), "' has ", classes_,
                                       " classes instead of ", old_classes_, ": new ",
                                       absl::StrJoin(plan_.fresh, ", ")));
    return std::move(plan_);
  }

 private:
  // Maps an axis of the operand to the axis of the stored tensor, and widens the targets of reshapes between them.
  absl::StatusOr<size_t> StoredAxis(const TracedWeight& weight, size_t axis) {
    Shape after = weight.shape;
    for (size_t i = 0; i < weight.through.size(); ++i) {
      const ParsedNode& node = *weight.through[i];
      const Shape& before = weight.before[i];
      plan_.edits.extents.push_back({node.outputs[0], after[axis], classes_, static_cast<int>(axis)});
      if (IsOp(node, {"Transpose"})) axis = static_cast<size_t>(Permutation(node, before.size())[axis]);
      if (IsOp(node, {"Reshape"})) {
        RETURN_IF_ERROR(SetReshape(node, axis, after[axis]));
        ASSIGN_OR_RETURN(axis, AxisBeforeReshape(node, before, after, axis));
      }
      after = before;
    }
    return axis;
  }

  // Replaces the stored tensor by zeros with the new classes along an axis of the operand.
  absl::Status Resize(const TracedWeight& weight, size_t axis, const ParsedNode& reader) {
    RETURN_IF_ERROR(tracer_.CheckUntied(weight, reader));
    ASSIGN_OR_RETURN(const size_t stored, StoredAxis(weight, axis));
    Shape shape = weight.stored;
    shape[stored] = classes_;
    const HostTensor* tensor = tracer_.FindTensor(weight.tensor);
    const DType dtype = tensor != nullptr && IsFloat(tensor->dtype()) ? tensor->dtype() : DType::kFloat32;
    if (tensor != nullptr && !IsFloat(tensor->dtype()))
      return Invalid("its weight '", Printable(weight.tensor), "' is ", ToString(tensor->type()));
    plan_.edits.tensors[weight.tensor] = HostTensor({dtype, shape});
    plan_.fresh.push_back(weight.tensor);
    return absl::OkStatus();
  }

  absl::Status WidenClassifier(const ParsedNode& node) {
    if (!node.domain.empty()) return WidenLinear(node);
    if (node.inputs.size() < 2) return Invalid("has no weight");
    ASSIGN_OR_RETURN(const TracedWeight weight, tracer_.Trace(node.inputs[1]));
    const bool conv = IsOp(node, {"Conv"}), transposed = IsOp(node, {"Gemm"}) && node.attrs.Int("transB") != 0;
    if (conv && node.attrs.Int("group", 1) != 1) return Invalid("is a grouped convolution, not a classifier");
    if (weight.shape.size() < 2) return Invalid("its weight is ", ToString(weight.shape), ", not a matrix");
    const size_t axis = conv || transposed ? 0 : weight.shape.size() - 1;
    old_classes_ = weight.shape[axis];
    is_conv_ = conv;
    RETURN_IF_ERROR(Resize(weight, axis, node));
    return node.inputs.size() > 2 && !node.inputs[2].empty() ? ResizeBias(node.inputs[2], node) : absl::OkStatus();
  }

  // Widens an ai.onnx.ml.LinearClassifier, whose weights and labels are attributes.
  absl::Status WidenLinear(const ParsedNode& node) {
    const auto coefficients = static_cast<int64_t>(node.attrs.Floats("coefficients").size());
    const auto intercepts = static_cast<int64_t>(node.attrs.Floats("intercepts").size());
    old_classes_ = static_cast<int64_t>(node.attrs.Ints("classlabels_ints").size());
    if (old_classes_ == 0) return Invalid("has no integer class labels");
    const int64_t rows = intercepts > 0 ? intercepts : old_classes_;
    if (coefficients % rows != 0) return Invalid("has ", coefficients, " coefficients for ", rows, " rows");
    plan_.edits.attributes.push_back({node.outputs[0], "classlabels_ints", labels_});
    NewAttribute(node, "coefficients", {classes_, coefficients / rows});
    if (intercepts > 0) NewAttribute(node, "intercepts", {classes_});
    return absl::OkStatus();
  }

  void NewAttribute(const ParsedNode& node, std::string_view attribute, Shape shape) {
    const std::string name = StrCat(node.outputs[0], ".", attribute);  // as the importer names such a weight
    plan_.edits.tensors[name] = HostTensor({DType::kFloat32, std::move(shape)});
    plan_.fresh.push_back(name);
  }

  // Widens scale, bias, mean and variance.
  absl::Status WidenNorm(const ParsedNode& node) {
    for (size_t i = 1; i <= 4; ++i) {
      ASSIGN_OR_RETURN(const TracedWeight part, tracer_.Trace(node.inputs[i]));
      if (part.shape != Shape{old_classes_})
        return Invalid("its input ", i, " ", ToString(part.shape), " is not one number per class");
      RETURN_IF_ERROR(Resize(part, 0, node));
    }
    return absl::OkStatus();
  }

  // Widens a bias with one number per class; leaves one that all classes share.
  absl::Status ResizeBias(const std::string& name, const ParsedNode& node) {
    ASSIGN_OR_RETURN(const TracedWeight bias, tracer_.Trace(name));
    if (NumElements(bias.shape) == 1 && old_classes_ != 1) return absl::OkStatus();
    for (size_t a = bias.shape.size(); a-- > 0;) {
      if (bias.shape[a] != old_classes_ || NumElements(bias.shape) != old_classes_) continue;
      return Resize(bias, a, node);
    }
    return Invalid("its bias '", Printable(name), "' ", ToString(bias.shape), " is not one number per class");
  }

  // Adapts a node between the classifier and an output.
  absl::Status AdaptNode(const ParsedNode& node) {
    if (IsOp(node, {"Add"})) return ResizeBias(node.inputs[tracer_.Trace(node.inputs[0]).ok() ? 0 : 1], node);
    if (IsOp(node, {"BatchNormalization"})) return WidenNorm(node);
    if (IsMlOp(node, {"ZipMap"})) {
      if (!node.attrs.Has("classlabels_int64s")) return Invalid("has no integer class labels");
      plan_.edits.attributes.push_back({node.outputs[0], "classlabels_int64s", labels_});
    }
    if (!IsOp(node, {"Reshape"})) return absl::OkStatus();
    const auto shape = tracer_.ReshapeTarget(node);
    if (!shape.has_value()) return node.inputs.size() > 1 ? AdaptComputedShape(node.inputs[1]) : absl::OkStatus();
    for (size_t i = shape->size(); i-- > 0;) {
      if ((*shape)[i] != old_classes_ || (is_conv_ && i != 1 && shape->size() > 1 && (*shape)[1] == old_classes_))
        continue;
      return SetReshape(node, i, old_classes_);
    }
    return absl::OkStatus();
  }

  absl::Status SetReshape(const ParsedNode& node, size_t axis, int64_t old) {
    std::vector<int64_t> shape = *tracer_.ReshapeTarget(node);
    if (shape[axis] != old) return absl::OkStatus();  // 0 or -1: inferred
    shape[axis] = classes_;
    if (node.attrs.Has("shape")) {
      plan_.edits.attributes.push_back({node.outputs[0], "shape", shape});
      return absl::OkStatus();
    }
    return SetConstant(node, 1, HostTensor::FromInts(shape)), absl::OkStatus();
  }

  // Replaces a constant input of a node. Other readers of the constant keep the old one.
  void SetConstant(const ParsedNode& node, size_t input, HostTensor value) {
    std::string name = node.inputs[input];
    if (tracer_.CountReaders(name) > 1) {
      name = StrCat(node.outputs[0], "_shape");
      while (tracer_.IsNameTaken(name)) name += "_";
      plan_.edits.inputs.push_back({node.outputs[0], input, name});
    }
    plan_.edits.tensors[name] = std::move(value);
  }

  // Adapts a computed shape: replaces the old number of classes in the last constant part that has it.
  absl::Status AdaptComputedShape(const std::string& name) {
    const ParsedNode* producer = tracer_.Producer(name);
    if (producer == nullptr) return absl::OkStatus();
    const ParsedNode& node = *producer;
    if (IsViewOrCast(node)) return AdaptComputedShape(node.inputs[0]);
    if (!IsOp(node, {"Concat"})) return absl::OkStatus();
    for (size_t i = node.inputs.size(); i-- > 0;) {
      if (AdaptShapePart(node, i)) break;
    }
    return absl::OkStatus();
  }

  bool AdaptShapePart(const ParsedNode& node, size_t input) {
    const HostTensor* part = tracer_.FindTensor(node.inputs[input]);
    if (part == nullptr) {
      const ParsedNode* producer = tracer_.Producer(node.inputs[input]);
      const bool wrapped = producer != nullptr && IsViewOrCast(*producer);
      return wrapped && AdaptShapePart(*producer, 0);
    }
    std::vector<int64_t> values = part->ToInts();
    auto entry = std::find(values.rbegin(), values.rend(), old_classes_);
    if (entry == values.rend()) return false;
    *entry = classes_;
    SetConstant(node, input, HostTensor::FromInts(part->type(), values));
    return true;
  }

  const WeightTracer tracer_;
  const int64_t classes_;
  const std::vector<int64_t> labels_;  // labels of the classes, if the model lists them
  int64_t old_classes_ = 0;            // classes of the model
  bool is_conv_ = false;
  SurgeryPlan plan_;
};

}  // namespace

absl::StatusOr<SurgeryPlan> PlanClasses(const OnnxModel& model, const std::string& output, int64_t classes,
                                        const std::vector<int64_t>& labels) {
  return ClassSurgeon(model, classes, labels).Run(output);
}

}  // namespace onnxtrain
