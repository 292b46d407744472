#include "frontend/onnx/recover/complements.h"

#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "frontend/base/strings.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/tensor_compare.h"
#include "frontend/onnx/recover/weight_names.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

// Equal by chance: p = 0 and p = 1 are fresh scales and biases.
bool IsOfChance(const HostTensor& tensor) { return IsSplat(tensor) && (tensor.At(0) == 0 || tensor.At(0) == 1); }

bool MayBlend(const HostTensor& tensor) {
  return IsFloat(tensor.dtype()) && tensor.size() > 0 && std::isfinite(tensor.At(0)) && !IsOfChance(tensor);
}

class ComplementTier {
 public:
  explicit ComplementTier(ParsedGraph* graph) : graph_(*graph) {
    for (const auto& [name, tensor] : graph->initializers) {
      if (MayBlend(tensor) && IsParameter(name) && !IsComputed(name))
        weights_[{tensor.type(), FirstOfComplement(tensor)}].push_back(name);
    }
  }

  void Run(const std::unordered_set<std::string>& fixed) {
    for (const std::string& name : graph_.initializer_order) {
      const auto stored = graph_.initializers.find(name);
      if (stored == graph_.initializers.end() || !MayBlend(stored->second)) continue;
      if (!IsComputed(name) || fixed.contains(name) || graph_.sparse.contains(name)) continue;
      if (const std::string* weight = FindWeight(name, stored->second)) Tie(*weight, name);
    }
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(nodes_.begin()),
                        std::make_move_iterator(nodes_.end()));
  }

 private:
  static double FirstOfComplement(const HostTensor& tensor) {
    HostTensor rounded({tensor.dtype(), {}});
    rounded.Set(0, 1 - tensor.At(0));
    return rounded.At(0);
  }

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
    return trained && !graph_.sparse.contains(name);
  }

  // Null unless exactly one is it.
  const std::string* FindWeight(const std::string& name, const HostTensor& computed) const {
    const auto candidates = weights_.find({computed.type(), computed.At(0)});
    if (candidates == weights_.end()) return nullptr;
    const std::string module_name = ModuleName(name);
    const std::string* found = nullptr;
    for (const std::string& weight : candidates->second) {
      if (!IsComputedName(name) && weight != module_name && ModuleName(weight) != module_name) continue;
      if (!MakeComplement(graph_.initializers.at(weight)).SameBytes(computed)) continue;
      if (found != nullptr) return nullptr;
      found = &weight;
    }
    return found;
  }

  // The name of a constant that is 1.
  const std::string& GetOne(DType dtype) {
    std::string& one = ones_[dtype];
    if (!one.empty()) return one;
    one = StrCat("tie/one/", ToString(Type{dtype, {}}));
    while (IsNameTaken(graph_, one)) one += "_";
    ParsedNode constant{.name = one, .op_type = "Constant", .source = one, .outputs = {one}};
    constant.attrs.Set("value", HostTensor::Scalar(dtype, 1));
    nodes_.push_back(std::move(constant));
    return one;
  }

  // Tier::AddNodes drops the name from the order of the initializers.
  void Tie(const std::string& weight, const std::string& copy) {
    const std::string& one = GetOne(graph_.initializers.at(weight).dtype());
    ParsedNode difference{.op_type = "Sub", .inputs = {one, weight}, .outputs = {copy}};
    difference.name = difference.source = StrCat("tie/", copy);
    nodes_.push_back(std::move(difference));
    graph_.initializers.erase(copy);
    graph_.shared.ties.push_back({.weight = weight, .copy = copy, .form = WeightTie::Form::kComplement});
  }

  struct ByTypeAndFirst {
    using Key = std::pair<Type, double>;
    bool operator()(const Key& a, const Key& b) const {
      return std::tie(a.first.dtype, a.first.shape, a.second) < std::tie(b.first.dtype, b.first.shape, b.second);
    }
  };

  ParsedGraph& graph_;
  // By type and by what their complements begin with: a file may have many weights of one shape.
  std::map<ByTypeAndFirst::Key, std::vector<std::string>, ByTypeAndFirst> weights_;
  std::map<DType, std::string> ones_;
  std::vector<ParsedNode> nodes_;
};

}  // namespace

void TieComplements(const std::unordered_set<std::string>& fixed, ParsedGraph* graph) {
  ComplementTier(graph).Run(fixed);
}

LazyTensor MakeComplement(const LazyTensor& weight) {
  return weight.Map([](double x) { return 1 - x; });
}

}  // namespace onnxtrain
