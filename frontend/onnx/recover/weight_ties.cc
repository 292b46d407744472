#include "frontend/onnx/recover/weight_ties.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/tensor_compare.h"
#include "frontend/onnx/recover/weight_names.h"
#include "frontend/onnx/recover/weight_tracer.h"

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

namespace {

// Trains initializers that the file stores twice as one weight.

class Tier {
 public:
  explicit Tier(ParsedGraph* graph) : graph_(*graph) {
    for (const ParsedValue& output : graph->outputs) fixed_.insert(output.name);
  }

  absl::Status Tie(const WeightTie& names) {
    if (JoinCopy(names.weight, names.copy) || JoinCopy(names.copy, names.weight)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string weight, Find(names.weight));
    ASSIGN_OR_RETURN(const std::string copy, Find(names.copy));
    if (weight == copy) return Invalid("`tie`: '", Printable(weight), "' is one weight already");
    if (!TryTie(weight, copy)) {
      return Invalid("`tie`: '", Printable(weight), "' and '", Printable(copy),
                     "' cannot be one weight: they are neither equal nor transposes of each other, or an output");
    }
    return absl::OkStatus();
  }

  // Ties what constant folding made of a parameter to the parameter that the file also stores.
  void TieStoredTwice() {
    std::unordered_map<std::string, std::string> stored;  // by name in the module
    std::unordered_set<std::string> split;                // different parts of a parameter have its name
    for (const SplitWeight& weight : graph_.shared.splits) split.insert(weight.name);
    for (const bool by_own_name : {true, false}) {
      for (const std::string& name : std::vector(graph_.initializer_order)) {
        const auto origin = graph_.origins.find(name);
        if (origin == graph_.origins.end() || origin->second.kind != WeightOrigin::Kind::kParameter) continue;
        const std::string module_name = origin->second.module_name;
        if (module_name.empty() || (module_name == name) != by_own_name || split.contains(name)) continue;
        const auto [it, first] = stored.emplace(module_name, name);
        if (!first) TryTie(it->second, name);
      }
    }
  }

  // Ties the head of a language model to its embedding where the file says nothing about parameters: older exporters
  // store the table a second time, transposed. The same table in both places is no chance, as it is of cloned layers.
  void TieHeads() {
    std::map<Shape, std::set<std::string>> tables;  // of embeddings, by shape
    for (const ParsedNode& node : graph_.nodes) {
      if (IsOp(node, {"Gather"}) && node.attrs.Int("axis") == 0 && MayBeTable(node.inputs[0]))
        tables[graph_.initializers.at(node.inputs[0]).shape()].insert(node.inputs[0]);
    }
    for (const std::string& head : ListHeads()) {
      const Shape shape = graph_.initializers.at(head).shape();
      for (const Shape& of_table : {Shape{shape[1], shape[0]}, shape}) {
        const auto found = tables.find(of_table);
        if (found == tables.end() || found->second.contains(head)) continue;
        if (std::ranges::any_of(found->second, [&](const auto& table) { return TryTie(table, head); })) break;
      }
    }
  }

  // Ties what older exporters computed of one parameter several times, once for each reader: equal numbers that are
  // neither all the same nor the weight of a layer, which cloned layers may have in common.
  void TieComputed() {
    std::set<std::string> layer_weights;
    const std::map<std::string, std::string> copies = ListCopies();
    for (const ParsedNode& node : graph_.nodes) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (IsLayerWeight(node, i, copies)) layer_weights.insert(node.inputs[i]);
      }
    }
    for (const auto& [copy, weight] : copies) {
      const bool computed = IsComputedName(copy) && IsComputedName(weight) && HasSeveralNumbers(weight);
      if (computed && !layer_weights.contains(copy) && !layer_weights.contains(weight)) JoinCopy(weight, copy);
    }
    std::map<std::pair<Shape, uint64_t>, std::vector<std::string>> computed;  // equal ones have equal keys
    for (const std::string& name : std::vector(graph_.initializer_order)) {
      if (!IsComputedName(name) || layer_weights.contains(name) || !HasSeveralNumbers(name)) continue;
      const HostTensor& weight = graph_.initializers.at(name);
      const Shape shape =
          weight.shape().size() < 2 ? weight.shape() : std::min(weight.shape(), TransposedShape(weight.shape()));
      std::vector<std::string>& alike = computed[{shape, SumOfBytes(weight)}];
      const bool tied = std::ranges::any_of(alike, [&](const std::string& other) { return TryTie(other, name); });
      if (!tied) alike.push_back(name);
    }
  }

  // Names that must remain initializers.
  const std::unordered_set<std::string>& fixed() const { return fixed_; }

  void AddNodes() {
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(nodes_.begin()),
                        std::make_move_iterator(nodes_.end()));
    std::erase_if(graph_.initializer_order, [&](const auto& name) {
      return !graph_.initializers.contains(name) && !graph_.opaque.contains(name);
    });
  }

 private:
  // Initializers by the names of their copies behind an Identity.
  std::map<std::string, std::string> ListCopies() const {
    std::map<std::string, std::string> copies;
    for (const ParsedNode& node : graph_.nodes) {
      if (IsOp(node, {"Identity"}) && graph_.initializers.contains(node.inputs[0]))
        copies.emplace(node.outputs[0], node.inputs[0]);
    }
    return copies;
  }

  // Whether a layer has its weight there. Of a product of two weights that is the second one.
  bool IsLayerWeight(const ParsedNode& node, size_t input, const std::map<std::string, std::string>& copies) const {
    const bool of_two = input == 0 && node.inputs.size() > 1 && TakesWeight(node, 1) &&
                        (graph_.initializers.contains(node.inputs[1]) || copies.contains(node.inputs[1]));
    return TakesWeight(node, input) && !of_two;
  }

  // Whether it is a matrix that the file does not call a parameter of the exported module.
  bool MayBeTable(const std::string& name) const {
    const auto origin = graph_.origins.find(name);
    return HasSeveralNumbers(name) && graph_.initializers.at(name).shape().size() == 2 &&
           (origin == graph_.origins.end() || origin->second.kind == WeightOrigin::Kind::kUnknown);
  }

  bool HasSeveralNumbers(const std::string& name) const {
    const auto stored = graph_.initializers.find(name);
    return stored != graph_.initializers.end() && IsFloat(stored->second.dtype()) && !IsFresh(stored->second);
  }

  // The matrices that only products read.
  std::vector<std::string> ListHeads() const {
    std::set<std::string> products, others;
    for (const ParsedNode& node : graph_.nodes) {
      for (size_t i = 0; i < node.inputs.size(); ++i)
        (i == 1 && IsOp(node, {"MatMul", "Gemm"}) ? products : others).insert(node.inputs[i]);
    }
    std::vector<std::string> heads;
    std::ranges::copy_if(products, std::back_inserter(heads),
                         [&](const auto& name) { return !others.contains(name) && MayBeTable(name); });
    return heads;
  }

  absl::StatusOr<std::string> Find(const std::string& name) const {
    if (graph_.initializers.contains(name)) return name;
    for (const std::string& initializer : graph_.initializer_order) {
      const auto origin = graph_.origins.find(initializer);
      const bool called = origin != graph_.origins.end() && origin->second.module_name == name;
      if (called && graph_.initializers.contains(initializer)) return initializer;
    }
    return Invalid("`tie`: there is no weight '", Printable(name), "'");
  }

  // Lets the readers of a copy that the file has behind an Identity read the weight itself.
  bool JoinCopy(const std::string& weight, const std::string& copy) {
    const bool copied =
        graph_.initializers.contains(weight) && !fixed_.contains(copy) &&
        std::ranges::any_of(graph_.nodes, [&](const ParsedNode& node) {
          return IsOp(node, {"Identity"}) && node.inputs == std::vector{weight} && node.outputs == std::vector{copy};
        });
    if (!copied) return false;
    for (ParsedNode& node : graph_.nodes) std::ranges::replace(node.inputs, copy, weight);
    return true;
  }

  bool TryTie(const std::string& weight, const std::string& copy) {
    const HostTensor &a = graph_.initializers.at(weight), &b = graph_.initializers.at(copy);
    const bool same = a.type() == b.type() && a.SameBytes(b);
    if (!IsFloat(a.dtype()) || a.shape().empty() || fixed_.contains(copy) || graph_.sparse.contains(copy) ||
        graph_.sparse.contains(weight) || (!same && !IsTransposeOf(a, b)))
      return false;
    std::vector<int64_t> perm(a.shape().size());
    std::iota(perm.begin(), perm.end(), 0);
    if (!same) std::iter_swap(perm.end() - 1, perm.end() - 2);
    ParsedNode node{.op_type = "Transpose", .inputs = {weight}, .outputs = {copy}};
    node.name = node.source = StrCat("tie/", copy);
    node.attrs.Set("perm", std::move(perm));
    nodes_.push_back(std::move(node));
    graph_.initializers.erase(copy);
    graph_.shared.ties.push_back(
        {.weight = weight, .copy = copy, .form = same ? WeightTie::Form::kEqual : WeightTie::Form::kTransposed});
    return true;
  }

  ParsedGraph& graph_;
  std::unordered_set<std::string> fixed_;
  std::vector<ParsedNode> nodes_;
};

}  // namespace

absl::Status TieWeights(const ModelEdits& edits, ParsedGraph* graph) {
  Tier tier(graph);
  for (const WeightTie& tie : edits.ties) RETURN_IF_ERROR(tier.Tie(tie));
  if (edits.tie_stored_twice) {
    tier.TieStoredTwice();
    tier.TieHeads();
    TieComplements(tier.fixed(), graph);  // before others of equal numbers would be tied to one of them
    tier.TieComputed();
  }
  tier.AddNodes();
  return absl::OkStatus();
}

}  // namespace onnxtrain
