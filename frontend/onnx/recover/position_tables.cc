#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

#include "frontend/onnx/read/file.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

// A value that does not depend on a user's data, but only on stored tensors, extents and positions.
struct PositionValue {
  std::set<std::string> tensors;  // stored floating-point tensors
  bool ids = false;               // integers of a user that may be anything, such as tokens
};

// A fused operator, and the first of its two inputs with cosines and sines.
struct CacheReader {
  std::string_view domain, op_type;
  size_t first = 0;
};
constexpr CacheReader kCacheReaders[] = {
    {"", "RotaryEmbedding", 1}, {"com.microsoft", "RotaryEmbedding", 2}, {"com.microsoft", "GroupQueryAttention", 7}};

// Returns whether the name of an input says that it holds positions: "position_ids", "cache_position", "input_pos".
bool IsPositionName(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("pos") != std::string::npos;
}

// Returns true for rows 0, f, 2f, 3f …, which are angles by position.
bool HasMultiplesOfOneRow(const HostTensor& table) {
  if (table.shape().size() != 2 || table.shape()[0] < 3) return false;
  const int64_t width = table.shape()[1];
  for (int64_t i = 0; i < table.size(); ++i) {
    const double expected = static_cast<double>(i / width) * table.At(width + i % width);
    if (std::abs(table.At(i) - expected) > 1e-4 * std::abs(expected)) return false;
  }
  return true;
}

double SquareTolerance(DType dtype) {
  if (dtype == DType::kFloat16) return 4e-3;
  return dtype == DType::kBFloat16 ? 3e-2 : 1e-4;
}

// Returns whether c² + s² is the same for all elements, which differ. A scaled rotation scales all of them alike.
template <typename Cosine, typename Sine>
bool IsOfUnitCircle(int64_t size, double tolerance, const Cosine& c, const Sine& s) {
  if (size < 4) return false;
  const double square = c(0) * c(0) + s(0) * s(0);
  bool turns = false;
  for (int64_t i = 0; i < size; ++i) {
    if (!(std::abs(c(i) * c(i) + s(i) * s(i) - square) <= tolerance * square)) return false;
    turns = turns || c(i) != c(0);
  }
  return turns && square > 0;
}

bool AreCosinesAndSines(const HostTensor& a, const HostTensor& b) {
  if (a.shape() != b.shape() || a.shape().size() < 2) return false;
  return IsOfUnitCircle(
      a.size(), SquareTolerance(a.dtype()), [&](int64_t i) { return a.At(i); }, [&](int64_t i) { return b.At(i); });
}

// Returns true if each row has cosines in one half and sines in the other.
bool HasCosinesBesideSines(const HostTensor& table) {
  if (table.shape().size() < 2 || table.shape().back() % 2 != 0) return false;
  const int64_t half = table.shape().back() / 2;
  const auto first = [&](int64_t i) { return table.At(i / half * 2 * half + i % half); };
  const auto second = [&](int64_t i) { return table.At(i / half * 2 * half + half + i % half); };
  return IsOfUnitCircle(table.size() / 2, SquareTolerance(table.dtype()), first, second);
}

class PositionTableFinder {
 public:
  explicit PositionTableFinder(const WeightIndex& index) : index_(index), graph_(index.graph()) {
    for (const auto& [name, tensor] : graph_.initializers)
      values_[name].tensors = IsFloat(tensor.dtype()) ? std::set{name} : std::set<std::string>();
    for (const ParsedValue& input : graph_.inputs) {
      if (!values_.contains(input.name) && input.dtype && !IsFloat(*input.dtype))
        values_[input.name].ids = !IsPositionName(input.name);
    }
    for (const ParsedNode& node : graph_.nodes) Follow(node);
  }

  std::vector<std::string> Run() {
    std::set<std::string> of_sines, of_cosines;
    for (const ParsedNode& node : graph_.nodes) {
      if (IsOp(node, {"Sin"})) Add(node.inputs[0], &of_sines);
      if (IsOp(node, {"Cos"})) Add(node.inputs[0], &of_cosines);
      FindCaches(node);
      FindRotation(node);
    }
    std::ranges::set_intersection(of_sines, of_cosines, std::inserter(found_, found_.end()));
    for (const ParsedNode& node : graph_.nodes) DropReadByData(node);
    for (const std::string& name : tables_) found_.insert(name);
    return {found_.begin(), found_.end()};
  }

 private:
  const PositionValue* Find(const std::string& name) const {
    const auto it = values_.find(name);
    return it == values_.end() ? nullptr : &it->second;
  }

  const HostTensor* FindTensor(const std::string& name) const {
    if (const HostTensor* stored = index_.FindTensor(name)) return stored;
    const auto constant = constants_.find(name);
    return constant == constants_.end() ? nullptr : constant->second;
  }

  void Add(const std::string& value, std::set<std::string>* names) const {
    if (const PositionValue* known = Find(value)) names->insert(known->tensors.begin(), known->tensors.end());
  }

  // Records the outputs of a node that does not depend on data. Values that are not recorded depend on data.
  void Follow(const ParsedNode& node) {
    std::optional<PositionValue> made;
    if (IsConstant(node)) {
      made = ReadConstant(node);
    } else if (ReadsShapeOnly(node)) {
      made.emplace();
    } else {
      made = Join(node);
    }
    if (!made) return;
    for (const std::string& output : node.outputs) {
      if (!output.empty()) values_[output] = *made;
    }
  }

  PositionValue ReadConstant(const ParsedNode& node) {
    const HostTensor* tensor = node.attrs.Tensor("value");
    if (tensor == nullptr || !IsFloat(tensor->dtype()) || node.outputs.empty()) return {};
    constants_[node.outputs[0]] = tensor;
    return {.tensors = {node.outputs[0]}};
  }

  std::optional<PositionValue> Join(const ParsedNode& node) const {
    constexpr size_t kMostTensors = 16;  // more belong to a network that reads integers
    if (!node.domain.empty() || !node.graphs.empty() || LooksUpIds(node)) return std::nullopt;
    PositionValue joined;
    for (const std::string& input : node.inputs) {
      if (input.empty()) continue;
      const PositionValue* value = Find(input);
      if (value == nullptr) return std::nullopt;
      joined.tensors.insert(value->tensors.begin(), value->tensors.end());
      joined.ids = joined.ids || value->ids;
    }
    if (joined.tensors.size() > kMostTensors) return std::nullopt;
    if (IsOp(node, {"CumSum"})) joined.ids = false;  // positions, as sums of a mask
    if (IsIdentity(node) && FindTensor(node.inputs[0]) != nullptr) joined.tensors.insert(node.outputs[0]);
    return joined;
  }

  // Returns true for embeddings of tokens and layers that read tokens, whose weights are trained.
  bool LooksUpIds(const ParsedNode& node) const {
    bool ids = false, weight = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const PositionValue* value = Find(node.inputs[i]);
      if (value == nullptr) continue;
      ids = ids || value->ids;
      const bool takes_weight = TakesWeight(node, i) || (i == 0 && IsOp(node, {"Gather"}));
      weight = weight || (takes_weight && !value->tensors.empty() && !IsTableOfAngles(node.inputs[i]));
    }
    return ids && weight;
  }

  bool IsTableOfAngles(const std::string& name) const {
    const HostTensor* tensor = FindTensor(name);
    if (tensor == nullptr) return false;
    const bool is_table = HasMultiplesOfOneRow(*tensor);
    ReleaseMappedPages(tensor->bytes());  // the weights of all layers are tested
    return is_table;
  }

  void FindCaches(const ParsedNode& node) {
    for (const CacheReader& reader : kCacheReaders) {
      if (node.domain != reader.domain || node.op_type != reader.op_type) continue;
      for (size_t i = reader.first; i < std::min(reader.first + 2, node.inputs.size()); ++i)
        Add(node.inputs[i], &tables_);
    }
  }

  // Matches x·c ± y·s.
  void FindRotation(const ParsedNode& node) {
    if (!IsOp(node, {"Add", "Sub"})) return;
    const auto a = FindFactor(node.inputs[0]), b = FindFactor(node.inputs[1]);
    if (!a || !b) return;
    const HostTensor &c = *FindTensor(*a), &s = *FindTensor(*b);
    if (*a == *b ? HasCosinesBesideSines(c) : AreCosinesAndSines(c, s)) tables_.insert({*a, *b});
  }

  // Returns the table that a product multiplies with data; nullopt if there is none or more than one.
  std::optional<std::string> FindFactor(const std::string& product) const {
    const ParsedNode* producer = index_.Producer(product);
    if (producer == nullptr || !IsOp(*producer, {"Mul"})) return std::nullopt;
    const std::vector<std::string>& inputs = producer->inputs;
    const PositionValue *x = Find(inputs[0]), *y = Find(inputs[1]);
    const PositionValue* table = x == nullptr ? y : x;
    if ((x == nullptr) == (y == nullptr)) return std::nullopt;
    std::vector<std::string> large;
    std::ranges::copy_if(table->tensors, std::back_inserter(large), [&](const std::string& name) {
      const HostTensor* tensor = FindTensor(name);
      return tensor != nullptr && tensor->size() > 1;
    });
    return large.size() == 1 ? std::optional(large[0]) : std::nullopt;
  }

  // Drops operands of nodes that combine them with data: they are weights, even if others compute angles from them.
  void DropReadByData(const ParsedNode& node) {
    const bool data =
        std::ranges::any_of(node.outputs, [&](const auto& o) { return !o.empty() && Find(o) == nullptr; });
    if (!data) return;
    for (const std::string& input : node.inputs) found_.erase(input);
  }

  const WeightIndex& index_;
  const ParsedGraph& graph_;
  std::unordered_map<std::string, PositionValue> values_;  // all others depend on data
  std::unordered_map<std::string, const HostTensor*> constants_;
  std::set<std::string> found_, tables_;
};

}  // namespace

// Tensors that the exporter's metadata calls constants keep their kind and are only reported.
absl::StatusOr<WeightRecords> MatchPositionTables(WeightIndex* index) {
  using Kind = WeightOrigin::Kind;
  WeightRecords records;
  for (const std::string& name : PositionTableFinder(*index).Run()) {
    const Kind kind = index->Kind(name);
    if (kind == Kind::kUnknown || kind == Kind::kConstant)
      records.push_back(index->MakeKind(name, Kind::kConstant, "it only serves to rotate by positions"));
  }
  return records;
}

}  // namespace onnxtrain
