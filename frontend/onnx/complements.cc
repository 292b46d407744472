#include "frontend/onnx/complements.h"

#include <algorithm>
#include <map>
#include <vector>

#include "frontend/base/strings.h"
#include "frontend/onnx/module_path.h"
#include "frontend/onnx/tensor_compare.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

class ComplementTier {
 public:
  explicit ComplementTier(ParsedGraph* graph) : graph_(*graph) {
    for (const auto& [name, tensor] : graph->initializers) {
      if (IsFloat(tensor.dtype()) && tensor.size() > 0) of_shape_[tensor.shape()].push_back(name);
    }
  }

  void Run(const std::unordered_set<std::string>& fixed) {
    for (const std::string& name : std::vector(graph_.initializer_order)) {
      const auto stored = graph_.initializers.find(name);
      if (stored == graph_.initializers.end() || !IsFloat(stored->second.dtype()) || stored->second.size() == 0)
        continue;
      if (!IsComputed(name) || fixed.contains(name) || graph_.sparse.contains(name)) continue;
      if (const std::string* weight = FindWeight(name, stored->second)) Tie(*weight, name);
    }
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(nodes_.begin()),
                        std::make_move_iterator(nodes_.end()));
  }

 private:
  // The name of its parameter in the module; "" where the file does not say.
  std::string ModuleName(const std::string& name) const {
    const auto origin = graph_.origins.find(name);
    return origin == graph_.origins.end() ? "" : origin->second.module_name;
  }

  // By TorchScript, or from a parameter that the metadata of torch.export names.
  bool IsComputed(const std::string& name) const {
    const std::string module_name = ModuleName(name);
    return IsComputedName(name) || (!module_name.empty() && module_name != name);
  }

  bool IsParameter(const std::string& name) const {
    const auto origin = graph_.origins.find(name);
    const Kind kind = origin == graph_.origins.end() ? Kind::kUnknown : origin->second.kind;
    const bool trained = kind == Kind::kParameter || (kind == Kind::kUnknown && !IsGeneratedName(name));
    return trained && !graph_.sparse.contains(name) && graph_.initializers.contains(name);
  }

  // Null unless exactly one is it.
  const std::string* FindWeight(const std::string& name, const HostTensor& computed) const {
    const std::string module_name = ModuleName(name);
    const bool known = !IsComputedName(name);
    const std::string* found = nullptr;
    for (const std::string& weight : of_shape_.at(computed.shape())) {
      if (weight == name || !IsParameter(weight) || IsComputed(weight)) continue;
      if (known && weight != module_name && ModuleName(weight) != module_name) continue;
      if (!IsComplement(graph_.initializers.at(weight), computed)) continue;
      if (found != nullptr) return nullptr;
      found = &weight;
    }
    return found;
  }

  static bool IsComplement(const HostTensor& weight, const HostTensor& computed) {
    if (weight.dtype() != computed.dtype()) return false;
    const double first = weight.At(0);
    if (IsSplat(weight) && (first == 0 || first == 1)) return false;
    HostTensor rounded({weight.dtype(), {}});
    for (int64_t i = 0; i < weight.size(); ++i) {
      rounded.Set(0, 1 - weight.At(i));
      if (rounded.At(0) != computed.At(i)) return false;
    }
    return true;
  }

  bool IsTaken(const std::string& name) const {
    const auto makes = [&](const ParsedNode& node) { return std::ranges::count(node.outputs, name) > 0; };
    return graph_.initializers.contains(name) || std::ranges::count(graph_.inputs, name, &ParsedValue::name) > 0 ||
           std::ranges::any_of(graph_.nodes, makes);
  }

  void Tie(const std::string& weight, const std::string& copy) {
    const DType dtype = graph_.initializers.at(weight).dtype();
    const std::string one = StrCat(copy, "/one");
    if (IsTaken(one)) return;
    ParsedNode constant{.op_type = "Constant", .outputs = {one}};
    constant.attrs.Set("value", HostTensor::Scalar(dtype, 1));
    ParsedNode difference{.op_type = "Sub", .inputs = {one, weight}, .outputs = {copy}};
    constant.name = constant.source = StrCat("tie/", copy, "/one");
    difference.name = difference.source = StrCat("tie/", copy);
    nodes_.push_back(std::move(constant));
    nodes_.push_back(std::move(difference));
    graph_.initializers.erase(copy);
    std::erase(graph_.initializer_order, copy);
    graph_.shared.ties.push_back({.weight = weight, .copy = copy, .form = WeightTie::Form::kComplement});
  }

  ParsedGraph& graph_;
  std::map<Shape, std::vector<std::string>> of_shape_;
  std::vector<ParsedNode> nodes_;
};

}  // namespace

void TieComplements(const std::unordered_set<std::string>& fixed, ParsedGraph* graph) {
  ComplementTier(graph).Run(fixed);
}

HostTensor MakeComplement(const HostTensor& weight) {
  HostTensor complement(weight.type());
  for (int64_t i = 0; i < weight.size(); ++i) complement.Set(i, 1 - weight.At(i));
  return complement;
}

}  // namespace onnxtrain
