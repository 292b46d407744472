#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/reader_roles.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

// Lists the read weights of unknown kind, and those whose kind follows from their values alone.
std::vector<std::string> ListWithoutOrigin(const WeightIndex& index) {
  std::set<std::string> by_value;
  for (const WeightRecord& record : index.graph().records) {
    if (record.row->matches == MatchNumbers) by_value.insert(record.weight);
  }
  std::vector<std::string> names = ListReadWeights(index);
  std::erase_if(names, [&](const std::string& name) {
    return index.Kind(name) != WeightOrigin::Kind::kUnknown && !by_value.contains(name);
  });
  return names;
}

// Returns "encoder.norm1.weight", or "" if the node's name has no module.
std::string NameByReader(const WeightIndex& index, const WeightReader& reader) {
  const std::string module = DottedModule(reader.node->name);
  if (module.empty() || !TakesOwnWeight(index, reader)) return "";
  constexpr std::array<std::string_view, 5> kParts = {"weight", "weight", "bias", "running_mean", "running_var"};
  const bool bias = IsOp(*reader.node, {"Add"});
  return StrCat(module, ".", bias ? "bias" : kParts[std::min(reader.input, kParts.size() - 1)]);
}

const WeightReader& FirstComputing(const std::vector<WeightReader>& readers) {
  const auto computes = std::ranges::find_if(readers, [](const auto& r) { return !IsIdentity(*r.node); });
  return computes == readers.end() ? readers[0] : *computes;
}

// Returns the module of a node. PyTorch appends the number of the call to a module that runs twice: "/norm/Add" and
// "/norm_1/Add". Keras numbers different modules so, but its names do not begin with a slash.
std::string ModuleOfCall(const std::string& node, const std::set<std::string>& modules) {
  const std::string module = ScopePath(node);
  if (!node.starts_with("/")) return module;
  std::string stripped;
  for (const std::string& part : SplitModule(module)) {
    const size_t bar = part.rfind('_');
    const bool numbered = bar != std::string::npos && bar + 1 < part.size() &&
                          std::all_of(part.begin() + static_cast<std::ptrdiff_t>(bar) + 1, part.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
    StrAppend(&stripped, stripped.empty() ? "" : "/", numbered ? part.substr(0, bar) : part);
  }
  return modules.contains(stripped) ? stripped : module;
}

// Finds copies of a weight that calls of one module read.
class CopyJoiner {
 public:
  explicit CopyJoiner(const WeightIndex& index) : index_(index) {}

  // Joins a copy with its weight. PyTorch's older exporter reads merged initializers of equal bytes through Identity
  // nodes. Copies that calls of one module read, "/query" and "/query_1", are one weight unless equal by chance. The
  // newer exporter merges without nodes: its Identity nodes are the program's copies (aten.alias).
  bool Join(const ParsedNode& identity) {
    if (identity.inputs.size() != 1 || identity.outputs.size() != 1) return false;
    const std::string copy = identity.outputs[0], weight = identity.inputs[0];
    const HostTensor* stored = index_.FindTensor(weight);
    if (stored == nullptr || index_.IsOutput(copy)) return false;
    const bool of_program = identity.fx != nullptr;
    if (!of_program && (IsSplat(*stored) || IsOfZerosAndOnes(*stored))) return false;
    std::set<std::string>& owners = owners_[weight];
    AddOwners(weight, &owners);
    const auto owned = [&](const auto& r) { return owners.contains(ModuleOfCall(r.node->name, owners)); };
    const auto& readers = index_.ElementReaders(copy);
    if (readers.empty() || !(of_program || std::ranges::all_of(readers, owned))) return false;
    AddOwners(copy, &owners);
    return true;
  }

 private:
  // Adds the scopes of nodes that read the value.
  void AddOwners(const std::string& value, std::set<std::string>* owners) const {
    for (const WeightReader& reader : index_.ElementReaders(value)) {
      if (!IsIdentity(*reader.node)) owners->insert(ScopePath(reader.node->name));
    }
    owners->erase("");
  }

  const WeightIndex& index_;
  std::map<std::string, std::set<std::string>> owners_;  // scopes that read a weight
};

std::string Fingerprint(const HostTensor& tensor) {
  const auto bytes = tensor.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return StrCat(ToString(tensor.type()), "#", std::hash<std::string_view>()(text));
}

// Identifies the modules of nodes whose names tools have lost by the matrices around the nodes.
class MatrixModules {
 public:
  // Considers the nodes that read one weight; none if names identify the modules.
  MatrixModules(const WeightIndex& index, const std::vector<WeightReader>& readers) : index_(index) {
    for (const WeightReader& reader : readers) {
      const HostTensor* before = FindMatrixNear(*reader.node, false);
      const HostTensor* behind = before == nullptr ? nullptr : FindMatrixNear(*reader.node, true);
      if (behind != nullptr) pairs_.emplace(before, behind);
    }
  }

  // Identifies a module without a matrix by the matrix after it. A final normalization belongs to the module of another
  // one after the same matrix, as where layers share weights. Returns "" without a matrix.
  std::string Find(const WeightReader& reader) const {
    if (const HostTensor* own = FindMatrix(index_, reader)) return Fingerprint(*own);
    if (const HostTensor* behind = FindMatrixNear(*reader.node, true)) return Fingerprint(*behind);
    const HostTensor* before = FindMatrixNear(*reader.node, false);
    if (before == nullptr) return "";
    const auto pair = pairs_.find(before);
    return pair != pairs_.end() ? Fingerprint(*pair->second) : StrCat("behind ", Fingerprint(*before));
  }

 private:
  // Returns the nearest matrix of a bias (FindMatrix) before or after a node without one, such as a normalization.
  const HostTensor* FindMatrixNear(const ParsedNode& node, bool behind) const {
    std::vector<const ParsedNode*> open = {&node};
    for (size_t at = 0; at < open.size(); ++at) {
      for (const WeightReader& reader : behind ? ListReaders(*open[at]) : ListProducers(*open[at])) {
        if (open.size() == kMaxVisited) return nullptr;
        if (const HostTensor* matrix = FindMatrix(index_, reader)) return matrix;
        open.push_back(reader.node);
      }
    }
    return nullptr;
  }

  // Lists at most kMaxVisited readers per output.
  std::vector<WeightReader> ListReaders(const ParsedNode& node) const {
    std::vector<WeightReader> all;
    for (const std::string& value : node.outputs) {
      const auto& readers = index_.ElementReaders(value);
      const size_t count = std::min(readers.size(), kMaxVisited);
      all.insert(all.end(), readers.begin(), readers.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return all;
  }

  // Lists the producers, each with the position of its first initializer.
  std::vector<WeightReader> ListProducers(const ParsedNode& node) const {
    std::vector<WeightReader> all;
    for (const std::string& value : node.inputs) {
      ParsedNode* producer = index_.Producer(value);
      if (producer == nullptr) continue;
      const auto is_weight = [&](const auto& input) { return index_.graph().initializers.contains(input); };
      const auto& inputs = producer->inputs;
      const auto bias = std::ranges::find_if(inputs, is_weight);
      all.push_back({producer, bias == inputs.end() ? 0 : static_cast<size_t>(bias - inputs.begin())});
    }
    return all;
  }

  const WeightIndex& index_;
  std::unordered_map<const HostTensor*, const HostTensor*> pairs_;  // matrices before nodes → matrices after them
};

// The readers of one weight by the modules that they are in, in the order of the modules' first readers.
using Owners = std::vector<std::pair<std::string, std::vector<WeightReader>>>;

// Groups the readers by module; leaves out those of which nothing is known. Tools that rewrite models lose the names of
// modules and merge equal initializers: then matrices identify modules. Each node that ONNX Runtime fused counts as a
// module.
Owners GroupByModule(const WeightIndex& index, const std::vector<WeightReader>& readers) {
  std::set<std::string> modules;
  for (const WeightReader& reader : readers) modules.insert(ScopePath(reader.node->name));
  const bool fused =
      std::ranges::any_of(readers, [](const auto& reader) { return reader.node->domain == "com.microsoft"; });
  const MatrixModules matrices(index, modules.contains("") && !fused ? readers : std::vector<WeightReader>());
  const auto find_module = [&](const WeightReader& reader) -> std::string {
    std::string module = ModuleOfCall(reader.node->name, modules);
    if (!module.empty()) return module;
    return fused && FindMatrix(index, reader) == nullptr ? reader.node->source : matrices.Find(reader);
  };
  Owners owners;
  for (const WeightReader& reader : readers) {
    const std::string module = find_module(reader);
    if (module.empty()) continue;
    const std::string owner = StrCat(module, "#", reader.input);
    auto known = std::ranges::find(owners, owner, &Owners::value_type::first);
    if (known == owners.end()) known = owners.insert(owners.end(), {owner, {}});
    known->second.push_back(reader);
  }
  return owners;
}

// Splits scales and biases that are equal because they are untrained.
void SplitByModule(const WeightIndex& index, const std::string& name, SplitPlanner* planner) {
  const std::vector<WeightReader>& readers = index.ElementReaders(name);
  if (index.IsOutput(name) || !std::ranges::all_of(readers, [&](const auto& r) { return TakesOwnWeight(index, r); }))
    return;
  Owners owners = GroupByModule(index, readers);
  const auto keeper =
      std::ranges::find_if(owners, [&](const auto& owner) { return NameByReader(index, owner.second[0]) == name; });
  if (keeper != owners.end()) std::rotate(owners.begin(), keeper, keeper + 1);
  for (size_t i = 1; i < owners.size(); ++i) {
    const std::vector<WeightReader>& own = owners[i].second;
    const std::string module_name = NameByReader(index, own[0]);
    SplitWeight split{
        .name = module_name.empty() ? name : module_name, .merged = name, .origin = {.module_name = module_name}};
    for (const WeightReader& reader : own) split.readers.push_back(MakeFileReader(*reader.node, reader.input));
    planner->Plan(std::move(split));
  }
}

}  // namespace

absl::StatusOr<WeightRecords> MatchSharedCopies(WeightIndex* index) {
  CopyJoiner joiner(*index);
  WeightRecords records;
  for (const ParsedNode& node : index->graph().nodes) {
    if (IsIdentity(node) && joiner.Join(node))
      records.push_back({.weight = node.outputs[0],
                         .why = StrCat("calls of one module read it and '", node.inputs[0], "'"),
                         .form = MergedCopy{.weight = node.inputs[0], .copy = node.outputs[0]}});
  }
  return records;
}

// Nodes that read only the shape of the copy keep reading it.
void BuildSharedCopy(const WeightRecord& record, WeightIndex* index) {
  const auto& [weight, copy] = std::get<MergedCopy>(record.form);
  for (const WeightReader& reader : index->ElementReaders(copy)) reader.node->inputs[reader.input] = weight;
}

// Names weights after the modules of the nodes that read them.
absl::StatusOr<WeightRecords> MatchModules(WeightIndex* index) {
  WeightRecords records;
  for (const std::string& name : ListWithoutOrigin(*index)) {
    const WeightOrigin& origin = index->Origin(name);
    if (!IsGeneratedName(name) || !origin.module_name.empty()) continue;
    const std::string module_name = NameByReader(*index, FirstComputing(index->ElementReaders(name)));
    if (!module_name.empty())
      records.push_back({.weight = name,
                         .why = StrCat("the module of its reader makes it '", module_name, "'"),
                         .form = WeightOrigin{.kind = origin.kind, .module_name = module_name}});
  }
  return records;
}

absl::StatusOr<WeightRecords> MatchFreshWeights(WeightIndex* index) {
  SplitPlanner planner(*index);
  for (const std::string& name : ListWithoutOrigin(*index)) {
    const HostTensor& tensor = index->graph().initializers.at(name);
    if (tensor.size() > 1 && index->ElementReaders(name).size() > 1 && IsFresh(tensor))
      SplitByModule(*index, name, &planner);
  }
  WeightRecords records;
  for (const SplitWeight& split : planner.TakeSplits())
    records.push_back({.weight = split.name,
                       .why = StrCat("its readers are in another module than those of '", split.merged, "'"),
                       .form = split});
  return records;
}

}  // namespace onnxtrain
