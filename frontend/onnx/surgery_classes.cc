#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/parsed.h"
#include "frontend/onnx/surgery.h"

namespace onnxtrain {
namespace {

std::string Tag(const ParsedNode& node) { return NodeTag(Printable(node.op_type), Printable(node.source)); }

bool Is(const ParsedNode& node, std::initializer_list<std::string_view> ops) {
  return node.domain.empty() && std::find(ops.begin(), ops.end(), node.op_type) != ops.end();
}

bool IsMl(const ParsedNode& node, std::initializer_list<std::string_view> ops) {
  return node.domain == "ai.onnx.ml" && std::find(ops.begin(), ops.end(), node.op_type) != ops.end();
}

bool GivesProbabilities(const ParsedNode& node) { return Is(node, {"Softmax", "LogSoftmax", "Sigmoid"}); }

// Between the classifier and the output: each class for itself, or nothing at all happens to the numbers.
bool KeepsClasses(const ParsedNode& node) {
  return GivesProbabilities(node) || IsMl(node, {"Normalizer", "ZipMap"}) ||
         Is(node, {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast", "Dropout"});
}

// What works for any number of classes too, each for itself or along other axes, but as well ends encoders that have no
// classes: it may stand before probabilities alone.
bool KeepsChannels(const ParsedNode& node) {
  return Is(node, {"Relu", "LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Clip", "Tanh", "HardSigmoid", "HardSwish",
                   "Softplus", "Softsign", "Mish", "Gelu"}) ||
         Is(node, {"GlobalAveragePool", "GlobalMaxPool", "AveragePool", "MaxPool", "ReduceMean", "ReduceMax"});
}
bool IsClassifier(const ParsedNode& node) { return Is(node, {"Gemm", "MatMul", "Conv"}) || IsMl(node, {"LinearClassifier"}); }

// What such a node does with `value` has something of its own for each class, which is widened with it.
bool HasBias(const ParsedNode& node) { return Is(node, {"Add"}) && node.inputs.size() == 2; }
bool HasNorm(const ParsedNode& node, const std::string& value) {
  return Is(node, {"BatchNormalization"}) && node.inputs.size() >= 5 && node.outputs[0] == value;
}

std::vector<int64_t> Numbered(int64_t n) {
  std::vector<int64_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

// A tensor of the file that an operand is made of, by nodes that only move numbers.
struct Operand {
  std::string tensor;
  Shape stored;                            // of the tensor
  Shape shape;                             // of the operand
  std::vector<const ParsedNode*> through;  // from the operand back to the tensor
  std::vector<Shape> before;               // what each of them reads
};

class ClassSurgeon {
 public:
  ClassSurgeon(const OnnxModel& model, int64_t classes) : model_(model.parsed()), classes_(classes) {
    for (const ParsedNode& node : model_.graph.nodes) {
      for (const std::string& name : node.outputs) producers_[name] = &node;
      for (const auto* names : {&node.inputs, &node.captured}) {
        for (const std::string& name : *names) readers_[name].push_back(&node);
      }
    }
  }

  absl::StatusOr<SurgeryPlan> Run(const std::string& wanted) {
    ASSIGN_OR_RETURN(const ParsedNode* classifier, Choose(wanted));
    RETURN_IF_ERROR(Annotate(Widen(*classifier), Tag(*classifier)));
    for (const ParsedNode* node : nodes_) RETURN_IF_ERROR(Annotate(Follow(*node), Tag(*node)));
    std::set<std::string> values(classifier->outputs.begin(), classifier->outputs.end());
    for (const ParsedNode* node : nodes_) values.insert(node->outputs.begin(), node->outputs.end());
    for (const std::string& value : values) plan_.edits.extents.push_back({value, old_, classes_});
    plan_.old_classes = old_;
    plan_.edits.lines.push_back(StrCat(classifier->op_type, " '", Printable(classifier->source), "' has ", classes_, " classes instead of ", old_,
                                       ": new ", absl::StrJoin(plan_.fresh, ", ")));
    return std::move(plan_);
  }

 private:
  // The nodes from an output back to its classifier, without it.
  struct Path {
    const ParsedNode* classifier = nullptr;
    std::vector<const ParsedNode*> nodes;
  };

  absl::StatusOr<Path> Trace(const std::string& output) const {
    Path path;
    std::string value = output;
    bool probabilities = false;  // is the output made of them?
    while (true) {
      auto it = producers_.find(value);
      if (it == producers_.end()) return Invalid("no Gemm, MatMul or Conv leads to '", Printable(output), "'");
      const ParsedNode& node = *it->second;
      if (IsClassifier(node)) {
        if (node.outputs[0] == value && !node.domain.empty()) return Invalid("'", Printable(output), "' holds labels, not scores");
        path.classifier = &node;
        return path;
      }
      const bool bias = HasBias(node);
      probabilities |= GivesProbabilities(node);
      const bool channels = probabilities && (KeepsChannels(node) || HasNorm(node, value));
      if (!bias && !channels && !KeepsClasses(node)) {
        return Invalid(Tag(node), "stands between '", Printable(output), "' and the last Gemm, MatMul or Conv; only bias, softmax, sigmoid and ",
                       "reshape may, and before a softmax activations, batch norm and pooling (--logits NAME, a value before it, cuts it off)");
      }
      path.nodes.push_back(&node);
      value = node.inputs[0];
      if (!bias) continue;
      const bool first = Resolve(node.inputs[0]).ok(), second = Resolve(node.inputs[1]).ok();
      if (first == second) {
        return Invalid(Tag(node), "stands between '", Printable(output), "' and the last Gemm, MatMul or Conv and adds no bias");
      }
      value = node.inputs[first ? 1 : 0];
    }
  }

  absl::StatusOr<const ParsedNode*> Choose(const std::string& wanted) {
    std::map<const ParsedNode*, std::string> found;
    std::vector<std::string> errors;
    const std::vector<std::string> outputs = wanted.empty() ? model_.outputs : std::vector<std::string>{wanted};
    std::set<const ParsedNode*> nodes;
    for (const std::string& output : outputs) {
      auto path = Trace(output);
      if (!path.ok()) {
        errors.emplace_back(ToStd(path.status().message()));
        continue;
      }
      if (found.emplace(path->classifier, output).second) plan_.output = output;
      nodes.insert(path->nodes.begin(), path->nodes.end());
    }
    if (found.size() > 1) {
      return Invalid("several outputs have a classifier: ", absl::StrJoin(found, ", ", [](std::string* out, const auto& f) {
                       StrAppend(out, "'", Printable(f.second), "' (", f.first->op_type, " '", Printable(f.first->source), "')");
                     }), "; choose one with --logits");
    }
    if (found.empty()) return Invalid(absl::StrJoin(errors, "; "));
    nodes_.assign(nodes.begin(), nodes.end());
    plan_.output = outputs.size() == 1 ? outputs[0] : found.begin()->second;
    return found.begin()->first;
  }

  // The tensor behind an operand, if nothing but moving happens to it.
  absl::StatusOr<Operand> Resolve(const std::string& name) const {
    if (auto it = model_.graph.initializers.find(name); it != model_.graph.initializers.end()) {
      return Operand{name, it->second.shape(), it->second.shape()};
    }
    auto it = producers_.find(name);
    if (it == producers_.end()) return Invalid("'", Printable(name), "' is no weight");
    const ParsedNode& node = *it->second;
    if (Is(node, {"Constant"})) {
      const HostTensor* value = node.attrs.Tensor("value");
      if (value == nullptr) return Invalid("'", Printable(name), "' is no weight");
      return Operand{name, value->shape(), value->shape()};
    }
    if (Is(node, {"ConstantOfShape"})) {
      const auto shape = Ints(node, 0);
      if (!shape.has_value()) return Invalid("'", Printable(name), "' is no weight");
      return Operand{name, *shape, *shape};
    }
    if (!Is(node, {"Identity", "Cast", "Transpose", "Reshape"})) {
      return Invalid("its weight comes from ", Tag(node), "and is not a plain tensor");
    }
    ASSIGN_OR_RETURN(Operand operand, Resolve(node.inputs[0]));
    // Copies that the exporter merged because their bytes were equal: the Identity becomes a weight of its own.
    if (Is(node, {"Identity"}) && operand.through.empty() && CountReaders(node.inputs[0]) > 1) {
      return Operand{name, operand.stored, operand.shape};
    }
    operand.through.insert(operand.through.begin(), &node);
    operand.before.insert(operand.before.begin(), operand.shape);
    ASSIGN_OR_RETURN(operand.shape, Moved(node, operand.shape));
    return operand;
  }

  absl::StatusOr<Shape> Moved(const ParsedNode& node, const Shape& shape) const {
    if (Is(node, {"Transpose"})) {
      Shape out(shape.size());
      const std::vector<int64_t> perm = Perm(node, shape.size());
      for (size_t i = 0; i < perm.size() && i < shape.size(); ++i) {
        if (perm[i] < 0 || perm[i] >= static_cast<int64_t>(shape.size())) return Invalid(Tag(node), "has a broken perm");
        out[i] = shape[perm[i]];
      }
      return out;
    }
    if (!Is(node, {"Reshape"})) return shape;
    const auto target = ShapeOf(node);
    if (!target.has_value()) return Invalid(Tag(node), "has a computed shape");
    Shape out = *target;
    int64_t known = 1, open = -1;
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i] == 0 && i < shape.size()) out[i] = shape[i];
      if (out[i] == -1) open = static_cast<int64_t>(i);
      else known *= std::max<int64_t>(out[i], 1);
    }
    if (open >= 0) out[open] = NumElements(shape) / known;
    return out;
  }

  static std::vector<int64_t> Perm(const ParsedNode& node, size_t rank) {
    std::vector<int64_t> perm = node.attrs.Ints("perm");
    for (size_t i = 0; perm.size() < rank && !node.attrs.Has("perm"); ++i) perm.push_back(static_cast<int64_t>(rank - 1 - i));
    return perm;
  }

  std::optional<std::vector<int64_t>> Ints(const ParsedNode& node, size_t input) const {
    if (node.inputs.size() <= input) return std::nullopt;
    const HostTensor* t = Known(node.inputs[input]);
    return t == nullptr ? std::nullopt : std::optional(t->ToInts());
  }

  std::optional<std::vector<int64_t>> ShapeOf(const ParsedNode& reshape) const {
    if (reshape.attrs.Has("shape")) return reshape.attrs.Ints("shape");
    return Ints(reshape, 1);
  }

  const HostTensor* Known(const std::string& name) const {
    if (auto it = model_.graph.initializers.find(name); it != model_.graph.initializers.end()) return &it->second;
    auto it = producers_.find(name);
    return it != producers_.end() && Is(*it->second, {"Constant"}) ? it->second->attrs.Tensor("value") : nullptr;
  }

  size_t CountReaders(const std::string& name) const {
    auto it = readers_.find(name);
    const auto& outputs = model_.outputs;
    return (it == readers_.end() ? 0 : it->second.size()) + std::count(outputs.begin(), outputs.end(), name);
  }

  absl::Status CheckUntied(const Operand& operand, const ParsedNode& reader) const {
    std::vector<std::string> names = {operand.tensor};
    for (const ParsedNode* node : operand.through) names.push_back(node->outputs[0]);
    for (const std::string& name : names) {
      auto it = readers_.find(name);
      if (CountReaders(name) <= 1 || it == readers_.end()) continue;
      for (const ParsedNode* other : it->second) {
        const bool own = other == &reader || std::find(operand.through.begin(), operand.through.end(), other) != operand.through.end();
        if (!own) return Invalid("its weight '", Printable(name), "' is tied: ", Tag(*other), "reads it as well");
      }
      return Invalid("its weight '", Printable(name), "' is read more than once");
    }
    return absl::OkStatus();
  }

  // The stored axis that is the operand's axis, through everything between; reshape constants follow.
  absl::StatusOr<size_t> StoredAxis(const Operand& operand, size_t axis) {
    Shape after = operand.shape;
    for (size_t i = 0; i < operand.through.size(); ++i) {
      const ParsedNode& node = *operand.through[i];
      const Shape& before = operand.before[i];
      plan_.edits.extents.push_back({node.outputs[0], after[axis], classes_, static_cast<int>(axis)});
      if (Is(node, {"Transpose"})) axis = static_cast<size_t>(Perm(node, before.size())[axis]);
      if (Is(node, {"Reshape"})) {
        RETURN_IF_ERROR(SetReshape(node, axis, after[axis]));
        ASSIGN_OR_RETURN(axis, AxisBefore(node, before, after, axis));
      }
      after = before;
    }
    return axis;
  }

  static absl::StatusOr<size_t> AxisBefore(const ParsedNode& node, const Shape& before, const Shape& after, size_t axis) {
    const auto behind = [](const Shape& shape, size_t a) { return NumElements(Shape(shape.begin() + a + 1, shape.end())); };
    for (size_t a = 0; a < before.size(); ++a) {
      if (before[a] == after[axis] && behind(before, a) == behind(after, axis)) return a;
    }
    return Invalid(Tag(node), "mixes the classes with other axes of the weight");
  }

  // Replaces `tensor` by zeros with `classes` along the axis of the operand.
  absl::Status Resize(const Operand& operand, size_t axis, const ParsedNode& reader) {
    RETURN_IF_ERROR(CheckUntied(operand, reader));
    ASSIGN_OR_RETURN(const size_t stored, StoredAxis(operand, axis));
    Shape shape = operand.stored;
    shape[stored] = classes_;
    const HostTensor* tensor = Known(operand.tensor);
    const DType dtype = tensor != nullptr && IsFloat(tensor->dtype()) ? tensor->dtype() : DType::kFloat32;
    if (tensor != nullptr && !IsFloat(tensor->dtype())) return Invalid("its weight '", Printable(operand.tensor), "' is ", ToString(tensor->type()));
    plan_.edits.tensors[operand.tensor] = HostTensor({dtype, shape});
    plan_.fresh.push_back(operand.tensor);
    return absl::OkStatus();
  }

  absl::Status Widen(const ParsedNode& node) {
    if (!node.domain.empty()) return WidenLinear(node);
    if (node.inputs.size() < 2) return Invalid("has no weight");
    ASSIGN_OR_RETURN(const Operand weight, Resolve(node.inputs[1]));
    const bool conv = Is(node, {"Conv"}), transposed = Is(node, {"Gemm"}) && node.attrs.Int("transB") != 0;
    if (conv && node.attrs.Int("group", 1) != 1) return Invalid("is a grouped convolution, not a classifier");
    if (weight.shape.size() < 2) return Invalid("its weight is ", ToString(weight.shape), ", not a matrix");
    const size_t axis = conv || transposed ? 0 : weight.shape.size() - 1;
    old_ = weight.shape[axis];
    is_conv_ = conv;
    RETURN_IF_ERROR(Resize(weight, axis, node));
    return node.inputs.size() > 2 && !node.inputs[2].empty() ? ResizeBias(node.inputs[2], node) : absl::OkStatus();
  }

  // ai.onnx.ml.LinearClassifier holds its weights, and the classes' labels, in attributes.
  absl::Status WidenLinear(const ParsedNode& node) {
    const auto coefficients = static_cast<int64_t>(node.attrs.Floats("coefficients").size());
    const auto intercepts = static_cast<int64_t>(node.attrs.Floats("intercepts").size());
    old_ = static_cast<int64_t>(node.attrs.Ints("classlabels_ints").size());
    if (old_ == 0) return Invalid("has no integer class labels");
    const int64_t rows = intercepts > 0 ? intercepts : old_;
    if (coefficients % rows != 0) return Invalid("has ", coefficients, " coefficients for ", rows, " rows");
    plan_.edits.attributes.push_back({node.outputs[0], "classlabels_ints", Numbered(classes_)});
    NewAttribute(node, "coefficients", {classes_, coefficients / rows});
    if (intercepts > 0) NewAttribute(node, "intercepts", {classes_});
    return absl::OkStatus();
  }

  void NewAttribute(const ParsedNode& node, std::string_view attribute, Shape shape) {
    const std::string name = StrCat(node.outputs[0], ".", attribute);  // as the importer names such a weight
    plan_.edits.tensors[name] = HostTensor({DType::kFloat32, std::move(shape)});
    plan_.fresh.push_back(name);
  }

  // Scale, bias, mean and variance.
  absl::Status WidenNorm(const ParsedNode& node) {
    for (size_t i = 1; i <= 4; ++i) {
      ASSIGN_OR_RETURN(const Operand part, Resolve(node.inputs[i]));
      if (part.shape != Shape{old_}) return Invalid("its input ", i, " ", ToString(part.shape), " is not one number per class");
      RETURN_IF_ERROR(Resize(part, 0, node));
    }
    return absl::OkStatus();
  }

  // One number per class, or one for all of them.
  absl::Status ResizeBias(const std::string& name, const ParsedNode& node) {
    ASSIGN_OR_RETURN(const Operand bias, Resolve(name));
    if (NumElements(bias.shape) == 1 && old_ != 1) return absl::OkStatus();
    for (size_t a = bias.shape.size(); a-- > 0;) {
      if (bias.shape[a] != old_ || NumElements(bias.shape) != old_) continue;
      return Resize(bias, a, node);
    }
    return Invalid("its bias '", Printable(name), "' ", ToString(bias.shape), " is not one number per class");
  }

  // A node between the classifier and an output.
  absl::Status Follow(const ParsedNode& node) {
    if (Is(node, {"Add"})) return ResizeBias(node.inputs[Resolve(node.inputs[0]).ok() ? 0 : 1], node);
    if (Is(node, {"BatchNormalization"})) return WidenNorm(node);
    if (IsMl(node, {"ZipMap"})) {
      if (!node.attrs.Has("classlabels_int64s")) return Invalid("has no integer class labels");
      plan_.edits.attributes.push_back({node.outputs[0], "classlabels_int64s", Numbered(classes_)});
    }
    if (!Is(node, {"Reshape"})) return absl::OkStatus();
    const auto shape = ShapeOf(node);
    if (!shape.has_value()) return node.inputs.size() > 1 ? FollowComputed(node.inputs[1]) : absl::OkStatus();
    for (size_t i = shape->size(); i-- > 0;) {
      if ((*shape)[i] != old_ || (is_conv_ && i != 1 && shape->size() > 1 && (*shape)[1] == old_)) continue;
      return SetReshape(node, i, old_);
    }
    return absl::OkStatus();
  }

  absl::Status SetReshape(const ParsedNode& node, size_t axis, int64_t old) {
    std::vector<int64_t> shape = *ShapeOf(node);
    if (shape[axis] != old) return absl::OkStatus();  // 0 or -1: follows by itself
    shape[axis] = classes_;
    if (node.attrs.Has("shape")) {
      plan_.edits.attributes.push_back({node.outputs[0], "shape", shape});
      return absl::OkStatus();
    }
    return SetConstant(node, 1, HostTensor::FromInts(shape)), absl::OkStatus();
  }

  // Other readers of a constant keep theirs.
  void SetConstant(const ParsedNode& node, size_t input, HostTensor value) {
    std::string name = node.inputs[input];
    if (CountReaders(name) > 1) {
      name = StrCat(node.outputs[0], "_shape");
      while (producers_.count(name) > 0 || readers_.count(name) > 0 || model_.graph.initializers.count(name) > 0) name += "_";
      plan_.edits.inputs.push_back({node.outputs[0], input, name});
    }
    plan_.edits.tensors[name] = std::move(value);
  }

  // A shape that the graph puts together: the last part that is a constant with the number of classes.
  absl::Status FollowComputed(const std::string& name) {
    auto it = producers_.find(name);
    if (it == producers_.end()) return absl::OkStatus();
    const ParsedNode& node = *it->second;
    if (Is(node, {"Cast", "Identity", "Unsqueeze"})) return FollowComputed(node.inputs[0]);
    if (!Is(node, {"Concat"})) return absl::OkStatus();
    for (size_t i = node.inputs.size(); i-- > 0;) {
      if (FollowPart(node, i)) break;
    }
    return absl::OkStatus();
  }

  bool FollowPart(const ParsedNode& node, size_t input) {
    const HostTensor* part = Known(node.inputs[input]);
    if (part == nullptr) {
      auto it = producers_.find(node.inputs[input]);
      const bool wrapped = it != producers_.end() && Is(*it->second, {"Cast", "Identity", "Unsqueeze"});
      return wrapped && FollowPart(*it->second, 0);
    }
    std::vector<int64_t> values = part->ToInts();
    auto entry = std::find(values.rbegin(), values.rend(), old_);
    if (entry == values.rend()) return false;
    *entry = classes_;
    SetConstant(node, input, HostTensor::FromInts(part->type(), values));
    return true;
  }

  const OnnxModel::Parsed& model_;
  const int64_t classes_;
  std::unordered_map<std::string, const ParsedNode*> producers_;
  std::unordered_map<std::string, std::vector<const ParsedNode*>> readers_;
  std::vector<const ParsedNode*> nodes_;  // between the classifier and the outputs that it reaches
  int64_t old_ = 0;
  bool is_conv_ = false;
  SurgeryPlan plan_;
};

}  // namespace

absl::StatusOr<SurgeryPlan> PlanClasses(const OnnxModel& model, const std::string& output, int64_t classes) {
  return ClassSurgeon(model, classes).Run(output);
}

}  // namespace onnxtrain
