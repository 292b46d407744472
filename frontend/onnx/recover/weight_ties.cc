#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

// Returns true if equality may be chance: fresh scales and biases are ones and zeros.
bool IsOfChance(const HostTensor& tensor) { return IsSplat(tensor) && (tensor.At(0) == 0 || tensor.At(0) == 1); }

bool MayBlend(const HostTensor& tensor) {
  return IsFloat(tensor.dtype()) && tensor.size() > 0 && std::isfinite(tensor.At(0)) && !IsOfChance(tensor);
}

// Computes 1 − p for every element, rounded to the element type.
LazyTensor MakeComplement(const LazyTensor& weight) {
  return weight.Map([](double x) { return 1 - x; });
}

// Finds initializers that the exporter computed as 1 − p.
class ComplementFinder {
 public:
  explicit ComplementFinder(const WeightIndex& index) : index_(index), graph_(index.graph()) {
    for (const auto& [name, tensor] : graph_.initializers) {
      if (MayBlend(tensor) && IsParameter(name) && !IsComputed(name))
        weights_[{tensor.type(), FirstOfComplement(tensor)}].push_back(name);
    }
  }

  WeightRecords Run() const {
    WeightRecords records;
    for (const std::string& name : index_.ListInitializers()) {
      const HostTensor& stored = graph_.initializers.at(name);
      if (!MayBlend(stored) || !IsComputed(name) || index_.IsOutput(name) || graph_.sparse.contains(name)) continue;
      const std::string* weight = FindWeight(name, stored);
      if (weight == nullptr) continue;
      records.push_back({.weight = name,
                         .why = StrCat("'", name, "' is 1 − '", *weight, "'"),
                         .form = WeightTie{.weight = *weight, .copy = name, .form = WeightTie::Form::kComplement}});
    }
    return records;
  }

 private:
  static double FirstOfComplement(const HostTensor& tensor) {
    HostTensor rounded({tensor.dtype(), {}});
    rounded.Set(0, 1 - tensor.At(0));
    return rounded.At(0);
  }

  // Returns true if TorchScript, or torch.export from a named parameter, computed the initializer.
  bool IsComputed(const std::string& name) const {
    const std::string& module_name = index_.Origin(name).module_name;
    return IsComputedName(name) || (!module_name.empty() && module_name != name);
  }

  bool IsParameter(const std::string& name) const {
    const Kind kind = index_.Kind(name);
    const bool trained = kind == Kind::kParameter || (kind == Kind::kUnknown && !IsGeneratedName(name));
    return trained && !graph_.sparse.contains(name);
  }

  // Returns the only weight whose complement is `computed`, or null.
  const std::string* FindWeight(const std::string& name, const HostTensor& computed) const {
    const auto candidates = weights_.find({computed.type(), computed.At(0)});
    if (candidates == weights_.end()) return nullptr;
    const std::string& module_name = index_.Origin(name).module_name;
    const std::string* found = nullptr;
    for (const std::string& weight : candidates->second) {
      if (!IsComputedName(name) && weight != module_name && index_.Origin(weight).module_name != module_name) continue;
      if (!MakeComplement(graph_.initializers.at(weight)).SameBytes(computed)) continue;
      if (found != nullptr) return nullptr;
      found = &weight;
    }
    return found;
  }

  struct ByTypeAndFirst {
    using Key = std::pair<Type, double>;
    bool operator()(const Key& a, const Key& b) const {
      return std::tie(a.first.dtype, a.first.shape, a.second) < std::tie(b.first.dtype, b.first.shape, b.second);
    }
  };

  const WeightIndex& index_;
  const ParsedGraph& graph_;
  // Groups by type and by the first element of the complement, since a file may have many weights of one shape.
  std::map<ByTypeAndFirst::Key, std::vector<std::string>, ByTypeAndFirst> weights_;
};

// Finds initializers that the file stores twice. Of each pair one remains.
class TieFinder {
 public:
  explicit TieFinder(WeightIndex* index) : index_(*index), graph_(index->graph()) {}

  absl::StatusOr<WeightRecords> FindGiven() {
    for (const WeightTie& tie : index_.model().edits.ties) RETURN_IF_ERROR(Tie(tie));
    return std::move(records_);
  }

  // Ties values that constant folding computed from a parameter to the parameter, if the file stores both.
  WeightRecords FindStoredTwice() {
    std::unordered_map<std::string, std::string> stored;  // by name in the module
    std::unordered_set<std::string> split;                // different parts of one parameter share its name
    for (const SplitWeight* weight : ListForms<SplitWeight>(graph_.records)) split.insert(weight->name);
    for (const bool by_own_name : {true, false}) {
      for (const std::string& name : index_.ListInitializers()) {
        const auto& [kind, module_name] = index_.Origin(name);
        if (kind != Kind::kParameter || module_name.empty() || (module_name == name) != by_own_name ||
            split.contains(name))
          continue;
        const auto [it, first] = stored.emplace(module_name, name);
        if (!first) TryTie(it->second, name);
      }
    }
    return std::move(records_);
  }

  // Ties the head of a language model to its embedding in files without information about parameters: older exporters
  // store the table a second time, transposed. Unlike in cloned layers, equal tables in both places are no chance.
  WeightRecords FindHeads() {
    std::map<Shape, std::set<std::string>> tables;  // tables of embeddings, by shape
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
    return std::move(records_);
  }

  // Ties values that older exporters computed from one parameter once for each reader: equal tensors of different
  // numbers. Weights of layers are excluded, since cloned layers may share them.
  WeightRecords FindComputedTwice() {
    const auto copies = index_.ListCopies();
    for (const auto& [copy, weight] : copies) copied_.insert(copy);
    for (const auto& [copy, weight] : copies) {
      const bool computed = IsComputedName(copy) && IsComputedName(weight) && HasSeveralNumbers(weight);
      if (computed && !IsLayerWeight(copy) && !IsLayerWeight(weight)) JoinCopy(weight, copy);
    }
    std::map<std::pair<Shape, uint64_t>, std::vector<std::string>> computed;  // equal ones have equal keys
    for (const std::string& name : index_.ListInitializers()) {
      if (!IsComputedName(name) || !HasSeveralNumbers(name) || IsLayerWeight(name)) continue;
      const HostTensor& weight = graph_.initializers.at(name);
      const Shape shape =
          weight.shape().size() < 2 ? weight.shape() : std::min(weight.shape(), TransposedShape(weight.shape()));
      std::vector<std::string>& alike = computed[{shape, index_.SumOfBytes(name)}];
      const bool tied = std::ranges::any_of(alike, [&](const std::string& other) { return TryTie(other, name); });
      if (!tied) alike.push_back(name);
    }
    return std::move(records_);
  }

 private:
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

  // Returns true if a layer reads it as its weight. In a product of two weights that is the second one.
  bool IsLayerWeight(const std::string& name) const {
    return std::ranges::any_of(index_.Readers(name), [&](const WeightReader& reader) {
      const ParsedNode& node = *reader.node;
      const bool of_two = reader.input == 0 && node.inputs.size() > 1 && TakesWeight(node, 1) &&
                          (graph_.initializers.contains(node.inputs[1]) || copied_.contains(node.inputs[1]));
      return TakesWeight(node, reader.input) && !of_two;
    });
  }

  // Returns true if it is a matrix that the file does not name as a parameter of the exported module.
  bool MayBeTable(const std::string& name) const {
    return HasSeveralNumbers(name) && graph_.initializers.at(name).shape().size() == 2 &&
           index_.Kind(name) == Kind::kUnknown;
  }

  bool HasSeveralNumbers(const std::string& name) const {
    const HostTensor* stored = index_.FindTensor(name);
    return stored != nullptr && IsFloat(stored->dtype()) && !IsFresh(*stored);
  }

  // Lists the matrices that only products read.
  std::vector<std::string> ListHeads() const {
    const auto is_head = [](const WeightReader& r) { return r.input == 1 && IsOp(*r.node, {"MatMul", "Gemm"}); };
    std::vector<std::string> heads;
    for (const std::string& name : index_.ListInitializers()) {
      const auto& readers = index_.Readers(name);
      if (!readers.empty() && std::ranges::all_of(readers, is_head) && MayBeTable(name)) heads.push_back(name);
    }
    std::ranges::sort(heads);
    return heads;
  }

  absl::StatusOr<std::string> Find(const std::string& name) const {
    if (IsThere(name)) return name;
    for (const std::string& initializer : index_.ListInitializers()) {
      if (IsThere(initializer) && index_.Origin(initializer).module_name == name) return initializer;
    }
    return Invalid("`tie`: there is no weight '", Printable(name), "'");
  }

  bool IsThere(const std::string& name) const { return index_.FindTensor(name) != nullptr && !tied_.contains(name); }

  // Redirects the readers of the output of an Identity to the weight.
  bool JoinCopy(const std::string& weight, const std::string& copy) {
    const ParsedNode* identity = index_.Producer(copy);
    const bool copied = IsThere(weight) && !index_.IsOutput(copy) && identity != nullptr && IsIdentity(*identity) &&
                        identity->inputs == std::vector{weight} && identity->outputs == std::vector{copy};
    if (copied)
      records_.push_back({.weight = copy,
                          .why = StrCat("the same weight as '", weight, "'"),
                          .form = MergedCopy{.weight = weight, .copy = copy}});
    return copied;
  }

  bool TryTie(const std::string& weight, const std::string& copy) {
    const HostTensor &a = graph_.initializers.at(weight), &b = graph_.initializers.at(copy);
    const bool same = a.type() == b.type() && a.SameBytes(b);
    if (!IsFloat(a.dtype()) || a.shape().empty() || index_.IsOutput(copy) || graph_.sparse.contains(copy) ||
        graph_.sparse.contains(weight) || (!same && !IsTransposeOf(a, b)))
      return false;
    tied_.insert(copy);
    records_.push_back(
        {.weight = copy,
         .why = StrCat("'", copy, "' has the same bytes as '", weight, same ? "'" : "', transposed"),
         .form = WeightTie{
             .weight = weight, .copy = copy, .form = same ? WeightTie::Form::kEqual : WeightTie::Form::kTransposed}});
    return true;
  }

  WeightIndex& index_;
  const ParsedGraph& graph_;
  std::unordered_set<std::string> tied_, copied_;  // copies that are no longer initializers; those made by an Identity
  WeightRecords records_;
};

// Adds a constant 1 and returns its name.
std::string AddOne(DType dtype, WeightIndex* index) {
  std::string one = StrCat("tie/one/", ToString(Type{dtype, {}}));
  const auto makes_one = [&](const ParsedNode& node) { return node.outputs[0] == one; };
  if (std::ranges::any_of(index->nodes, makes_one)) return one;
  while (index->IsNameTaken(one)) one += "_";
  ParsedNode constant{.name = one, .op_type = "Constant", .source = one, .outputs = {one}};
  constant.attrs.Set("value", HostTensor::Scalar(dtype, 1));
  index->nodes.push_back(std::move(constant));
  return one;
}

}  // namespace

absl::StatusOr<WeightRecords> MatchGivenTies(WeightIndex* index) { return TieFinder(index).FindGiven(); }

absl::StatusOr<WeightRecords> MatchStoredTwice(WeightIndex* index) {
  return index->model().edits.tie_stored_twice ? TieFinder(index).FindStoredTwice() : WeightRecords();
}

absl::StatusOr<WeightRecords> MatchHeads(WeightIndex* index) {
  return index->model().edits.tie_stored_twice ? TieFinder(index).FindHeads() : WeightRecords();
}

absl::StatusOr<WeightRecords> MatchComplements(WeightIndex* index) {
  return index->model().edits.tie_stored_twice ? ComplementFinder(*index).Run() : WeightRecords();
}

absl::StatusOr<WeightRecords> MatchComputedTwice(WeightIndex* index) {
  return index->model().edits.tie_stored_twice ? TieFinder(index).FindComputedTwice() : WeightRecords();
}

void BuildTie(const WeightRecord& record, WeightIndex* index) {
  if (const auto* merged = std::get_if<MergedCopy>(&record.form)) {
    for (const WeightReader& reader : index->Readers(merged->copy)) reader.node->inputs[reader.input] = merged->weight;
    return;
  }
  const auto& tie = std::get<WeightTie>(record.form);
  ParsedGraph& graph = index->mutable_graph();
  const HostTensor& weight = graph.initializers.at(tie.weight);
  std::vector<int64_t> perm(weight.shape().size());
  std::iota(perm.begin(), perm.end(), 0);
  if (tie.form == WeightTie::Form::kTransposed) std::iter_swap(perm.end() - 1, perm.end() - 2);
  ParsedNode node{.op_type = "Transpose", .inputs = {tie.weight}, .outputs = {tie.copy}};
  node.name = node.source = StrCat("tie/", tie.copy);
  node.attrs.Set("perm", std::move(perm));
  index->tie_nodes.push_back(std::move(node));
  graph.initializers.erase(tie.copy);
}

void BuildComplement(const WeightRecord& record, WeightIndex* index) {
  const auto& tie = std::get<WeightTie>(record.form);
  ParsedGraph& graph = index->mutable_graph();
  const std::string one = AddOne(graph.initializers.at(tie.weight).dtype(), index);
  ParsedNode difference{.op_type = "Sub", .inputs = {one, tie.weight}, .outputs = {tie.copy}};
  difference.name = difference.source = StrCat("tie/", tie.copy);
  index->nodes.push_back(std::move(difference));
  graph.initializers.erase(tie.copy);
}

LazyTensor MakeCopy(const WeightTie& tie, const LazyTensor& weight) {
  switch (tie.form) {
    case WeightTie::Form::kTransposed:
      return Transpose(weight.Whole());
    case WeightTie::Form::kComplement:
      return MakeComplement(weight);
    case WeightTie::Form::kEqual:
      break;
  }
  return weight;
}

absl::Status WriteTie(const WeightRecord& record, StoredWeights* weights) {
  const auto* tie = std::get_if<WeightTie>(&record.form);
  const auto weight = tie == nullptr ? weights->tensors.end() : weights->tensors.find(tie->weight);
  if (weight != weights->tensors.end()) weights->tensors.emplace(tie->copy, MakeCopy(*tie, weight->second));
  return absl::OkStatus();
}

}  // namespace onnxtrain
