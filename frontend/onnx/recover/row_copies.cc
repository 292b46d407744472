#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frontend/base/strings.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

// The following recognizes biases that were gathered from a table by the offset between two positions of a window.

// A bias for each head and pair of positions in a window, in row-major order, optionally after a class token. The class
// token's pairs with itself, with other positions and of these with it have three rows (Bao et al., 2022, "BEiT").
struct RelativeBias {
  size_t heads = 0;  // the axis
  int64_t height = 0, width = 0;
  bool class_token = false;
  std::vector<int64_t> rows;  // rows of the table, by pair in row-major order, numbered by first occurrence
};

// Returns the offset between two positions of the bias; pairs with the class token have separate offsets.
std::tuple<int64_t, int64_t, int64_t> FindOffset(const RelativeBias& bias, int64_t query, int64_t key) {
  const int64_t first = bias.class_token ? 1 : 0;
  if (query < first || key < first) return {1 + (query < first ? 2 : 0) + (key < first ? 1 : 0), 0, 0};
  const int64_t q = query - first, k = key - first;
  return {0, q / bias.width - k / bias.width, q % bias.width - k % bias.width};
}

void NumberRows(int64_t tokens, RelativeBias* bias) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t> numbers;
  for (int64_t q = 0; q < tokens; ++q) {
    for (int64_t k = 0; k < tokens; ++k)
      bias->rows.push_back(numbers.emplace(FindOffset(*bias, q, k), std::ssize(numbers)).first->second);
  }
}

// Compares the elements of all heads for pairs of positions.
class Pairs {
 public:
  Pairs(const HostTensor& tensor, size_t heads)
      : bytes_(tensor.bytes().data()),
        element_(DTypeSize(tensor.dtype())),
        heads_(static_cast<size_t>(tensor.shape()[heads])) {
    for (size_t a = heads + 1; a < tensor.shape().size(); ++a) inner_ *= static_cast<size_t>(tensor.shape()[a]);
  }

  bool AreEqual(size_t a, size_t b) const {
    for (size_t head = 0; head < heads_; ++head) {
      if (std::memcmp(At(a, head), At(b, head), element_) != 0) return false;
    }
    return true;
  }

 private:
  const std::byte* At(size_t pair, size_t head) const {
    return bytes_ + ((pair / inner_ * heads_ + head) * inner_ + pair % inner_) * element_;
  }

  const std::byte* bytes_;
  size_t element_, heads_, inner_ = 1;
};

// Returns true if all positions have the same bias with themselves, except for a class token.
bool HasEqualDiagonal(const Pairs& pairs, size_t tokens) {
  for (size_t i = 2; i < tokens; ++i) {
    if (!pairs.AreEqual(i * (tokens + 1), tokens + 1)) return false;
  }
  return true;
}

bool HasEqualRows(const Pairs& pairs, const std::vector<int64_t>& rows) {
  std::vector<size_t> first;
  for (size_t pair = 0; pair < rows.size(); ++pair) {
    const auto row = static_cast<size_t>(rows[pair]);
    if (row == first.size()) first.push_back(pair);
    if (!pairs.AreEqual(pair, first[row])) return false;
  }
  return true;
}

// Lists the windows of that many tokens, with and without a class token.
std::vector<RelativeBias> ListWindows(size_t heads, int64_t tokens, bool squares_only) {
  std::vector<RelativeBias> windows;
  for (const bool class_token : {false, true}) {
    const int64_t positions = tokens - (class_token ? 1 : 0);
    for (int64_t height = 2; height <= positions / 2; ++height) {
      const int64_t width = positions / height;
      if (width * height != positions || (squares_only && width != height)) continue;
      windows.push_back({.heads = heads, .height = height, .width = width, .class_token = class_token});
    }
  }
  return windows;
}

// Returns the common extent of the two position axes, given the axis of heads; nullopt if the shape has other axes.
std::optional<int64_t> CountTokens(const Shape& shape, size_t heads) {
  std::vector<int64_t> extents;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis != heads && shape[axis] != 1) extents.push_back(shape[axis]);
  }
  return extents.size() == 2 && extents[0] == extents[1] ? std::optional(extents[0]) : std::nullopt;
}

// Returns a reading of the tensor in which pairs with one offset have equal bytes: one axis of heads, two of positions,
// and others of extent 1. If all elements are equal, the bytes prove nothing: then the axis of heads must come first
// and the window must be a square of at least 2×2 positions.
std::optional<RelativeBias> FindRelativeBias(const HostTensor& tensor) {
  const Shape& shape = tensor.shape();
  const bool equal = tensor.size() == 0 || IsSplat(tensor);
  for (size_t heads = 0; heads < shape.size(); ++heads) {
    const std::optional<int64_t> tokens = CountTokens(shape, heads);
    if (!tokens || (equal && heads + 3 != shape.size())) continue;
    const Pairs pairs(tensor, heads);
    if (!HasEqualDiagonal(pairs, static_cast<size_t>(*tokens))) continue;
    for (RelativeBias& bias : ListWindows(heads, *tokens, equal)) {
      NumberRows(*tokens, &bias);
      if (HasEqualRows(pairs, bias.rows)) return std::move(bias);
    }
  }
  return std::nullopt;
}

// The rows of a tensor along an axis: row (o, i) has its element j at (o·length + j)·inner + i.
class Rows {
 public:
  Rows(const Shape& shape, size_t axis, size_t element) : length_(shape[axis]), element_(element) {
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i != axis) (i < axis ? outer_ : inner_) *= shape[i];
    }
  }

  int64_t count() const { return outer_ * inner_; }
  int64_t length() const { return length_; }

  void Read(const std::byte* tensor, int64_t row, std::byte* to) const { ReadStart(tensor, row, length_, to); }
  void ReadStart(const std::byte* tensor, int64_t row, int64_t length, std::byte* to) const {
    for (int64_t j = 0; j < length; ++j) std::memcpy(to + j * element_, tensor + Offset(row, j), element_);
  }
  // Returns the row of element i of the tensor, and the element's position in the row.
  std::pair<int64_t, int64_t> Find(int64_t i) const {
    const int64_t outer = i / (length_ * inner_), inner = i % inner_;
    return {outer * inner_ + inner, i / inner_ % length_};
  }

 private:
  size_t Offset(int64_t row, int64_t j) const {
    return static_cast<size_t>((row / inner_ * length_ + j) * inner_ + row % inner_) * element_;
  }

  int64_t outer_ = 1, inner_ = 1, length_;
  size_t element_;
};

// Returns true if two rows begin with the same elements. Cheaply rules out large tensors without repeated rows.
bool MayRepeat(const Rows& rows, const std::byte* tensor, size_t element) {
  std::unordered_set<std::string> seen;
  std::string start(std::min<size_t>(static_cast<size_t>(rows.length()), 4) * element, 0);
  for (int64_t r = 0; r < rows.count(); ++r) {
    rows.ReadStart(tensor, r, static_cast<int64_t>(start.size() / element), reinterpret_cast<std::byte*>(start.data()));
    if (!seen.insert(start).second) return true;
  }
  return false;
}

bool HasOneNumber(const std::string& row, size_t element) {
  return std::equal(row.begin() + static_cast<int64_t>(element), row.end(), row.begin());
}

// Returns true if the row contains zeros. Such rows may be equal without being copies: a ReLU may have made them.
bool HasZero(const std::string& row, size_t element) {
  const std::string zero(element, 0);
  for (size_t i = 0; i < row.size(); i += element) {
    if (row.compare(i, element, zero) == 0) return true;
  }
  return false;
}

// Returns the bytes of the distinct rows.
std::string ReadUnique(const RowCopies& copies, const HostTensor& tensor) {
  const size_t element = DTypeSize(tensor.dtype());
  const Rows rows(copies.shape, copies.axis, element);
  std::string row(static_cast<size_t>(rows.length()) * element, 0), unique;
  int64_t next = 0;
  for (int64_t r = 0; r < rows.count(); ++r) {
    if (copies.rows[r] != next) continue;
    rows.Read(tensor.bytes().data(), r, reinterpret_cast<std::byte*>(row.data()));
    unique += row;
    ++next;
  }
  return unique;
}

HostTensor ReadTable(const RowCopies& copies, const HostTensor& tensor) {
  const std::string unique = ReadUnique(copies, tensor);
  const int64_t length = copies.shape[copies.axis], element = static_cast<int64_t>(DTypeSize(tensor.dtype()));
  HostTensor table({tensor.dtype(), {std::ssize(unique) / (length * element), length}});
  std::memcpy(table.mutable_bytes().data(), unique.data(), unique.size());
  return table;
}

struct Found {
  RowCopies copies;
  int64_t different = 0;  // rows
};

// Finds copies along the batch axis that aten.expand made of a parameter of equal numbers (a fresh class token); the
// initializer is named after the fx node. Returns nullopt for other initializers.
std::optional<Found> FindExpanded(std::string_view name, const HostTensor& tensor) {
  const Shape& shape = tensor.shape();
  if (!name.starts_with("expand") || shape.size() < 3 || shape[0] < 2 || tensor.size() == 0 || !IsSplat(tensor))
    return std::nullopt;
  const int64_t rows = tensor.size() / shape.back(), different = rows / shape[0];
  Found found{.copies = {.shape = shape, .axis = shape.size() - 1}, .different = different};
  for (int64_t r = 0; r < rows; ++r) found.copies.rows.push_back(r % different);
  return found;
}

// Returns nullopt if no row repeats along this axis, or if the repetition may be chance.
std::optional<Found> FindRepeats(const HostTensor& tensor, size_t axis) {
  const size_t element = DTypeSize(tensor.dtype());
  const Rows rows(tensor.shape(), axis, element);
  if (rows.length() < 2 || !MayRepeat(rows, tensor.bytes().data(), element)) return std::nullopt;
  Found found{.copies = {.shape = tensor.shape(), .axis = axis}};
  std::unordered_map<std::string, int64_t> seen;
  std::string row(static_cast<size_t>(rows.length()) * element, 0);
  for (int64_t r = 0; r < rows.count(); ++r) {
    rows.Read(tensor.bytes().data(), r, reinterpret_cast<std::byte*>(row.data()));
    if (HasOneNumber(row, element)) return std::nullopt;
    const auto [it, first] = seen.emplace(row, std::ssize(seen));
    if (!first && HasZero(row, element)) return std::nullopt;
    found.copies.rows.push_back(it->second);
  }
  found.different = std::ssize(seen);
  // A few equal rows among many short ones may be chance, especially in 16 bits.
  constexpr size_t kShort = 8;  // bytes
  const bool few = row.size() <= kShort && 4 * std::ssize(seen) > 3 * rows.count();
  return std::ssize(seen) < rows.count() && !few ? std::optional(std::move(found)) : std::nullopt;
}

int64_t CountNumbers(const Found& found) { return found.different * found.copies.shape[found.copies.axis]; }

// Returns, among the axes along which rows repeat, the one with the fewest distinct numbers.
std::optional<Found> FindRepeats(const HostTensor& tensor) {
  std::optional<Found> best;
  for (size_t axis = 0; tensor.size() > 0 && axis < tensor.shape().size(); ++axis) {
    std::optional<Found> found = FindRepeats(tensor, axis);
    if (found && (!best || CountNumbers(*found) < CountNumbers(*best))) best = std::move(found);
  }
  return best;
}

// Finds biases by relative positions with several equal rows, or with a single head. If all rows are equal, as in a
// fresh model, the result is an assumption.
std::optional<Found> FindWindowBias(const HostTensor& tensor) {
  std::optional<RelativeBias> bias = FindRelativeBias(tensor);
  if (!bias) return std::nullopt;
  const int64_t different = *std::ranges::max_element(bias->rows) + 1;
  return Found{.copies = {.shape = tensor.shape(), .axis = bias->heads, .rows = std::move(bias->rows)},
               .different = different};
}

// Recognizes distances times a slope per head (Press et al., 2022, "ALiBi"): sorted distinct rows are equally spaced.
bool HasSlopes(const Found& found, const HostTensor& tensor) {
  constexpr int64_t kMinRows = 4;
  const int64_t length = tensor.shape()[found.copies.axis], rows = found.different;
  if (!IsFloat(tensor.dtype()) || rows < kMinRows) return false;
  const HostTensor table = ReadTable(found.copies, tensor);
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int64_t r) { return table.At(r * length); });
  for (int64_t i = 0; i < rows * length; ++i) {
    const int64_t column = i % length, first = order[0] * length + column, last = order.back() * length + column;
    if (table.At(first) == table.At(last)) return false;
    const double part = static_cast<double>(i / length) / static_cast<double>(rows - 1);
    const double expected = table.At(first) + part * (table.At(last) - table.At(first));
    const double most = std::max(std::abs(table.At(first)), std::abs(table.At(last)));
    if (std::abs(table.At(order[i / length] * length + column) - expected) > 1e-5 * most) return false;
  }
  return true;
}

// Returns the initializer of the file that holds a weight, which may be split from it.
std::string_view NameInFile(std::string_view name, const ParsedGraph& graph) {
  for (const SplitWeight* split : ListForms<SplitWeight>(graph.records)) {
    if (split->name == name && !split->merged.empty()) return split->merged;
  }
  return name;
}

// Returns nodes that compute the copy from the weight and the indices of its rows.
std::vector<ParsedNode> MakeLookup(const RowCopies& copies, const std::string& indices) {
  const size_t rank = copies.shape.size();
  const bool last = copies.axis + 1 == rank;
  std::vector<ParsedNode> nodes;
  nodes.push_back(
      MakeRowNode("rows", "Gather", {copies.weight, indices}, last ? copies.copy : copies.copy + ".gathered"));
  nodes[0].attrs.Set("axis", int64_t{0});
  if (last) return nodes;
  std::vector<int64_t> perm(rank - 1);
  std::iota(perm.begin(), perm.end(), 0);
  perm.insert(perm.begin() + static_cast<int64_t>(copies.axis), static_cast<int64_t>(rank) - 1);
  nodes.push_back(MakeRowNode("rows", "Transpose", {copies.copy + ".gathered"}, copies.copy));
  nodes[1].attrs.Set("perm", std::move(perm));
  return nodes;
}

bool IsCopyOf(const ParsedNode& node, const std::string& name) { return IsIdentity(node) && node.inputs[0] == name; }

// Lists the outputs of Identity nodes over the initializer: the exporter merges tables of equal bytes, each of which is
// trained.
std::vector<std::string> ListIdentities(const std::string& name, const ParsedGraph& graph) {
  std::vector<std::string> copies;
  for (const ParsedNode& node : graph.nodes) {
    if (IsCopyOf(node, name)) copies.push_back(node.outputs[0]);
  }
  return copies;
}

bool HasTakenNames(const std::string& copy, const WeightIndex& index) {
  return std::ranges::any_of(std::vector<std::string>{".rows", ".table", ".gathered"},
                             [&](const std::string& end) { return index.IsNameTaken(copy + end); });
}

// Returns true if the value is added to attention scores before a softmax.
bool LeadsToSoftmax(const std::string& value, const WeightIndex& index) {
  constexpr size_t kMaxVisited = 16;
  std::vector<std::string> open = {value};
  for (size_t at = 0; at < open.size() && open.size() < kMaxVisited; ++at) {
    for (const WeightReader& reader : index.Readers(open[at])) {
      const ParsedNode& node = *reader.node;
      if (IsOp(node, {"Softmax", "Attention"})) return true;
      const bool passes = IsViewOrCast(node) || (GetOnnxTraits(node).scores && !IsOp(node, {"MatMul"}));
      if (passes) open.insert(open.end(), node.outputs.begin(), node.outputs.end());
    }
  }
  return false;
}

// Lists tensors that the exporter computed from unknown values, except weights of layers.
std::vector<std::string> ListComputed(const WeightIndex& index) {
  std::vector<std::string> names = index.ListInitializers();
  std::erase_if(names, [&](const std::string& name) {
    const auto takes = [](const WeightReader& reader) { return TakesWeight(*reader.node, reader.input); };
    return !IsComputedName(name) || index.Kind(name) != WeightOrigin::Kind::kUnknown ||
           std::ranges::any_of(index.Readers(name), takes) || !IsFloat(index.FindTensor(name)->dtype());
  });
  return names;
}

// If `assume`, biases of equal numbers may count as gathered by the offsets of positions.
std::optional<Found> FindRows(const std::string& name, const HostTensor& tensor, bool assume,
                              const WeightIndex& index) {
  std::optional<Found> found = FindRepeats(tensor);
  if (!found) found = FindExpanded(NameInFile(name, index.graph()), tensor);
  if (found) return found;
  const bool splat = IsSplat(tensor);
  return !splat || (assume && LeadsToSoftmax(name, index)) ? FindWindowBias(tensor) : std::nullopt;
}

}  // namespace

absl::StatusOr<WeightRecords> MatchRepeatedRows(WeightIndex* index) {
  WeightRecords records;
  std::vector<std::string> names = index->naming.looked_up;
  for (std::string& name : ListComputed(*index)) names.push_back(std::move(name));
  std::set<std::string> seen;
  for (const std::string& name : names) {
    const HostTensor* stored = index->FindTensor(name);
    if (stored == nullptr || index->IsOutput(name) || stored->shape().size() < 2 || !seen.insert(name).second) continue;
    const std::optional<Found> found = FindRows(name, *stored, index->model().edits.tie_stored_twice, *index);
    if (!found) continue;
    std::vector<std::string> copies = ListIdentities(name, index->graph());
    copies.insert(copies.begin(), name);
    const bool slopes = HasSlopes(*found, *stored);
    if (!slopes && std::ranges::any_of(copies, [&](const std::string& c) { return HasTakenNames(c, *index); }))
      continue;
    for (const std::string& copy : copies) {
      RowCopies rows = found->copies;
      rows.copy = copy;
      rows.weight = copy + ".table";
      records.push_back(slopes ? index->MakeKind(copy, WeightOrigin::Kind::kConstant, "distances times slopes (ALiBi)")
                               : WeightRecord{.weight = rows.weight,
                                              .why = StrCat(found->different, " of ", rows.rows.size(),
                                                            " rows differ: the exporter looked them up"),
                                              .form = rows});
    }
  }
  return records;
}

// Replaces an initializer, or an Identity over one, by a table and its lookup.
void BuildRepeatedRows(const WeightRecord& record, WeightIndex* index) {
  if (std::holds_alternative<WeightOrigin>(record.form)) return BuildOrigin(record, index);
  const auto& copies = std::get<RowCopies>(record.form);
  ParsedGraph& graph = index->mutable_graph();
  const ParsedNode* identity = index->Producer(copies.copy);
  HostTensor table = identity == nullptr ? ReadTable(copies, graph.initializers.at(copies.copy))
                                         : graph.initializers.at(identity->inputs[0] + ".table").Clone();
  if (identity != nullptr) {
    index->removed.insert(copies.copy);
    graph.initializer_order.push_back(copies.copy);
  }
  Shape shape = copies.shape;
  shape.erase(shape.begin() + static_cast<int64_t>(copies.axis));
  const std::string indices = copies.copy + ".rows";
  graph.initializers.erase(copies.copy);
  graph.initializers.emplace(copies.weight, std::move(table));
  graph.initializers.emplace(indices, HostTensor::FromInts({DType::kInt64, shape}, copies.rows));
  std::ranges::replace(graph.initializer_order, copies.copy, copies.weight);
  graph.initializer_order.push_back(indices);
  graph.origins[copies.weight] = index->Origin(copies.copy);
  graph.origins.erase(copies.copy);
  std::vector<ParsedNode> nodes = MakeLookup(copies, indices);
  index->nodes.insert(index->nodes.begin(), std::make_move_iterator(nodes.begin()),
                      std::make_move_iterator(nodes.end()));
}

bool IsAssumed(const RowCopies& copies, const HostTensor& weight) {
  return IsSplat(weight) && copies.axis + 3 == copies.shape.size();
}

namespace {

// Expands the rows of the weight to the initializer.
LazyTensor ExpandRows(const RowCopies& copies, const LazyTensor& weight) {
  const auto read = [copies, table = weight.Whole()](int64_t begin, int64_t count) {
    const size_t element = DTypeSize(table.dtype());
    const Rows rows(copies.shape, copies.axis, element);
    HostTensor copy({table.dtype(), {count}});
    for (int64_t i = 0; i < count; ++i) {
      const auto [row, at] = rows.Find(begin + i);
      const int64_t source = copies.rows[row] * rows.length() + at;
      std::memcpy(copy.mutable_bytes().data() + i * element, table.bytes().data() + source * element, element);
    }
    return copy;
  };
  return {{weight.dtype(), copies.shape}, read};
}

}  // namespace

absl::Status WriteRepeatedRows(const WeightRecord& record, StoredWeights* weights) {
  const auto* copies = std::get_if<RowCopies>(&record.form);
  if (copies == nullptr) return absl::OkStatus();
  const auto table = weights->tensors.extract(copies->weight);
  if (!table.empty()) weights->tensors.emplace(copies->copy, ExpandRows(*copies, table.mapped()));
  return absl::OkStatus();
}

}  // namespace onnxtrain
