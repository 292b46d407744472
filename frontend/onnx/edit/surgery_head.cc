#include <algorithm>
#include <cctype>
#include <set>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/edit/surgery.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

class HeadSurgeon {
 public:
  HeadSurgeon(const OnnxModel& model, const HeadSpec& spec) : file_(model), model_(model.parsed()), spec_(spec) {
    auto it = model_.opsets.find("");
    opset_ = it == model_.opsets.end() ? 1 : it->second.newest;
    for (const ParsedNode& node : model_.graph.nodes) {
      taken_.insert(node.name);
      for (const auto* names : {&node.inputs, &node.outputs}) taken_.insert(names->begin(), names->end());
    }
    for (const ParsedValue& v : model_.graph.inputs) taken_.insert(v.name);
    for (const ParsedValue& v : model_.graph.outputs) taken_.insert(v.name);
    for (const auto& [name, tensor] : model_.graph.initializers) taken_.insert(name);
  }

  absl::StatusOr<SurgeryPlan> Run(const ImportOptions& options) {
    ASSIGN_OR_RETURN(const ImportedModel imported, ImportAt(options, 2));
    RETURN_IF_ERROR(ChooseValue(imported));
    RETURN_IF_ERROR(CheckHeadless());
    if (opset_ < 7) return Invalid("`head`: opset ", opset_, " is too old for it; it needs 7");
    dtype_ = GetDType(value_);
    std::string pooled = value_;
    if (type_.rank() == 3) {
      AddPooling(imported);
      pooled = pooled_;
    }
    AddGemm(pooled);
    return std::move(plan_);
  }

 private:
  absl::StatusOr<ImportedModel> ImportAt(ImportOptions options, int64_t batch) const {
    options.batch = batch;
    options.training = false;
    for (auto& [name, shape] : options.input_shapes) std::replace(shape.begin(), shape.end(), int64_t{-1}, batch);
    if (!spec_.value.empty()) options.outputs = {spec_.value};
    // The head reads the value in the shape of the file.
    for (const std::string& name : file_.outputs()) options.batch_axes.erase(name);
    return Import(file_, options);
  }

  // Chooses the value that the head reads: the one output [B,S,H], else the one output [B,H].
  absl::Status ChooseValue(const ImportedModel& imported) {
    std::vector<std::string> found;
    std::string all;
    for (int rank : {3, 2}) {
      for (const std::string& name : imported.outputs) {
        const Type& type = imported.graph.type(imported.graph.FindOutput(name)->value);
        if (rank == 3) StrAppend(&all, all.empty() ? "'" : ", '", Printable(name), "' ", ToString(type));
        if (IsFloat(type.dtype) && type.rank() == rank && type.shape[0] == 2) found.push_back(name);
      }
      if (found.size() == 1) break;
      if (found.size() > 1)
        return Invalid("`head`: several outputs could be its input: '", absl::StrJoin(found, "', '"),
                       "'; choose one with `logits`");
    }
    if (found.empty())
      return Invalid("`head` needs an output of shape [batch, sequence, width] or [batch, width]; there are ", all);
    value_ = found[0];
    type_ = imported.graph.type(imported.graph.FindOutput(value_)->value);
    return absl::OkStatus();
  }

  absl::Status CheckHeadless() const {
    for (const ParsedNode& node : model_.graph.nodes) {
      if (std::find(node.outputs.begin(), node.outputs.end(), value_) == node.outputs.end()) continue;
      if (GetOnnxTraits(node).probabilities) {
        return Invalid("`head`: output '", Printable(value_), "' ends in ", node.op_type,
                       ": the model has a head already (`num_classes` alone replaces it)");
      }
    }
    return absl::OkStatus();
  }

  DType GetDType(const std::string& value) const {
    for (const ParsedValue& output : model_.graph.outputs) {
      if (output.name == value && output.dtype.has_value() && IsFloat(*output.dtype)) return *output.dtype;
    }
    return DType::kFloat32;
  }

  std::string UniqueName(std::string name) {
    while (!taken_.insert(name).second) name += "_";
    return name;
  }

  // Appends a node of the head and returns its output.
  std::string AddNode(const std::string& op, const std::string& what, std::vector<std::string> inputs,
                      Attrs attrs = {}) {
    const std::string output = UniqueName("head/" + what);
    plan_.edits.nodes.push_back(
        {op, UniqueName(StrCat("head/", what, "/", op)), std::move(inputs), {output}, std::move(attrs)});
    return output;
  }

  std::string AddTensor(const std::string& what, HostTensor value) {
    const std::string name = UniqueName("head/" + what);
    plan_.edits.tensors[name] = std::move(value);
    return name;
  }

  // Appends a node with one axis: an attribute before opset `since`, then an input.
  std::string AddNodeWithAxis(const std::string& op, int since, const std::string& what, const std::string& x,
                              int64_t axis, bool keepdims) {
    Attrs attrs;
    std::vector<std::string> inputs = {x};
    if (op != "Unsqueeze") attrs.Set("keepdims", static_cast<int64_t>(keepdims));
    if (opset_ < since) {
      attrs.Set("axes", std::vector<int64_t>{axis});
    } else {
      inputs.push_back(AddTensor(what + "_axes", HostTensor::FromInts({axis})));
    }
    return AddNode(op, what, std::move(inputs), std::move(attrs));
  }

  // Finds the input [B,S] that marks padding, or "".
  std::string FindMask(const ImportedModel& imported) const {
    for (const ParsedValue& input : model_.graph.inputs) {
      const GraphInput* feed = imported.graph.FindInput(input.name);
      if (feed == nullptr || feed->kind != InputKind::kFeed || Lower(input.name).find("mask") == std::string::npos)
        continue;
      const Type& type = imported.graph.type(feed->value);
      if (type.rank() == 2 && type.shape[1] == type_.shape[1]) return input.name;
    }
    return "";
  }

  void AddPooling(const ImportedModel& imported) {
    if (spec_.pooling == Pooling::kCls) {
      const std::string first = AddTensor("first", HostTensor::FromInts({DType::kInt64, {}}, std::vector<int64_t>{0}));
      pooled_ = AddNode("Gather", "pooled", {value_, first}, {{"axis", int64_t{1}}});
      how_ = "the first position of ";
      return;
    }
    const std::string mask = FindMask(imported);
    const bool mean = spec_.pooling == Pooling::kMean;
    if (mask.empty()) {
      pooled_ = AddNodeWithAxis(mean ? "ReduceMean" : "ReduceMax", 18, "pooled", value_, 1, false);
      how_ = mean ? "the mean over the positions of " : "the maximum over the positions of ";
      return;
    }
    const std::string weight = AddNode("Cast", "mask", {mask}, {{"to", DTypeToOnnx(dtype_)}});
    const std::string column = AddNodeWithAxis("Unsqueeze", 13, "mask_column", weight, 2, false);
    mean ? AddMaskedMean(column) : AddMaskedMax(column);
    how_ =
        StrCat(mean ? "the mean" : "the maximum", " over the positions that '", Printable(mask), "' does not mask of ");
  }

  // Adds Σ m·x / (Σ m + ε), which is 0 if everything is masked.
  void AddMaskedMean(const std::string& column) {
    const std::string sum =
        AddNodeWithAxis("ReduceSum", 13, "sum", AddNode("Mul", "masked", {value_, column}), 1, false);
    const std::string count = AddNodeWithAxis("ReduceSum", 13, "count", column, 1, false);
    const std::string epsilon =
        AddTensor("epsilon", HostTensor::Scalar(dtype_, dtype_ == DType::kFloat16 ? 1e-7 : 1e-9));
    pooled_ = AddNode("Div", "pooled", {sum, AddNode("Add", "count_not_0", {count, epsilon})});
  }

  // Adds max (x + (m − 1)·large).
  void AddMaskedMax(const std::string& column) {
    const std::string one = AddTensor("one", HostTensor::Scalar(dtype_, 1));
    const std::string large = AddTensor("large", HostTensor::Scalar(dtype_, dtype_ == DType::kFloat16 ? 6e4 : 1e30));
    const std::string lowered = AddNode("Mul", "lowered", {AddNode("Sub", "padding", {column, one}), large});
    pooled_ = AddNodeWithAxis("ReduceMax", 18, "pooled", AddNode("Add", "masked", {value_, lowered}), 1, false);
  }

  void AddGemm(const std::string& pooled) {
    const int64_t width = type_.shape.back();
    const std::string weight = UniqueName("head.weight"), bias = UniqueName("head.bias"), logits = UniqueName("logits");
    plan_.edits.tensors[weight] = HostTensor({dtype_, {spec_.classes, width}});
    plan_.edits.tensors[bias] = HostTensor({dtype_, {spec_.classes}});
    plan_.edits.nodes.push_back(
        {"Gemm", UniqueName("head/Gemm"), {pooled, weight, bias}, {logits}, {{"transB", int64_t{1}}}});
    plan_.edits.outputs = {{logits, dtype_, {BatchDim(), StrCat(spec_.classes)}}};
    plan_.edits.lines.push_back(StrCat("head: Gemm ", width, " → ", spec_.classes, " on ", how_, "'", Printable(value_),
                                       "'; its output '", logits, "' replaces '", absl::StrJoin(model_.outputs, "', '"),
                                       "'"));
    plan_.fresh = {weight, bias};
    plan_.output = logits;
  }

  std::string BatchDim() const {
    for (const ParsedValue& output : model_.graph.outputs) {
      if (output.name != value_ || output.dims.empty()) continue;
      if (output.dims[0] > 0) return StrCat(output.dims[0]);
      if (!output.dim_names.empty() && !output.dim_names[0].empty()) return output.dim_names[0];
    }
    return "batch";
  }

  const OnnxModel& file_;
  const OnnxModel::Parsed& model_;
  const HeadSpec& spec_;
  int64_t opset_ = 0;
  std::set<std::string> taken_;
  std::string value_;  // the value that the head reads
  Type type_;          // type of value_ for a batch of 2
  DType dtype_ = DType::kFloat32;
  std::string pooled_, how_;  // the pooled value, and how it was pooled
  SurgeryPlan plan_;
};

}  // namespace

absl::StatusOr<SurgeryPlan> PlanHead(const OnnxModel& model, const HeadSpec& spec, const ImportOptions& import) {
  return HeadSurgeon(model, spec).Run(import);
}

}  // namespace onnxtrain
