#include "frontend/onnx/recover/weight_index.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>

#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

// Calls visit(i, j) with the positions of each element in the tensor and in its transpose until it returns false;
// returns true if it never did.
template <typename Visit>
bool ForEachTransposed(const HostTensor& matrices, const Visit& visit) {
  const auto columns = static_cast<size_t>(matrices.shape().back());
  const auto rows = static_cast<size_t>(matrices.shape().end()[-2]);
  const auto elements = static_cast<size_t>(matrices.size());
  for (size_t first = 0; first < elements; first += rows * columns) {
    for (size_t i = 0; i < rows * columns; ++i) {
      if (!visit(first + i, first + i % columns * rows + i / columns)) return false;
    }
  }
  return true;
}

// A square matrix within a tensor, from element `first` on.
class Square {
 public:
  Square(const HostTensor& tensor, int64_t first) : tensor_(tensor), first_(first), rows_(tensor.shape().back()) {}

  bool IsDiagonal() const {
    return All([&](int64_t i, int64_t j) { return i == j || At(i, j) == 0; });
  }
  bool IsSymmetric() const {
    return All([&](int64_t i, int64_t j) { return At(i, j) == At(j, i); });
  }
  // Returns true if no number is negative and all rows, or all columns, sum to 1 or 0, but not all to 0.
  bool IsStochastic() const {
    if (!All([&](int64_t i, int64_t j) { return At(i, j) >= 0; })) return false;
    return SumToOne([&](int64_t i, int64_t j) { return At(i, j); }) ||
           SumToOne([&](int64_t i, int64_t j) { return At(j, i); });
  }

 private:
  double At(int64_t i, int64_t j) const { return tensor_.At(first_ + i * rows_ + j); }

  template <typename Holds>
  bool All(const Holds& holds) const {
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < rows_; ++j) {
        if (!holds(i, j)) return false;
      }
    }
    return true;
  }

  template <typename Get>
  bool SumToOne(const Get& get) const {
    constexpr double kRounding = 1e-5;
    bool any = false;
    for (int64_t i = 0; i < rows_; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < rows_; ++j) sum += get(i, j);
      if (std::abs(sum - 1) > kRounding && sum != 0) return false;
      any |= sum != 0;
    }
    return any;
  }

  const HostTensor& tensor_;
  int64_t first_, rows_;
};

}  // namespace

bool IsSplat(const HostTensor& tensor) {
  const auto bytes = tensor.bytes();
  const size_t size = DTypeSize(tensor.dtype());
  return bytes.empty() || std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
}

bool IsVector(const HostTensor& tensor) {
  return IsFloat(tensor.dtype()) && std::ranges::count_if(tensor.shape(), [](int64_t d) { return d > 1; }) <= 1;
}

bool IsForgetBias(const HostTensor& tensor) {
  const int64_t gate = tensor.size() / 4;
  if (!IsVector(tensor) || tensor.size() % 4 != 0 || gate < 2) return false;
  int64_t ones = 0, forget = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.At(i) != 0 && tensor.At(i) != 1) return false;
    if (tensor.At(i) == 1 && ones++ == 0) forget = i;
  }
  return ones == gate && forget % gate == 0 && tensor.At(forget + gate - 1) == 1;
}

bool IsFreshDecay(const HostTensor& tensor) {
  constexpr int64_t kMinSize = 4;
  if (!IsFloat(tensor.dtype()) || tensor.shape().empty() || tensor.shape().back() < kMinSize) return false;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double expected = std::log(1.0 + static_cast<double>(i % tensor.shape().back()));
    if (std::abs(tensor.At(i) - expected) > 1e-5 * (1 + expected)) return false;
  }
  return tensor.size() > 0;
}

bool IsFresh(const HostTensor& tensor) { return IsSplat(tensor) || IsForgetBias(tensor) || IsFreshDecay(tensor); }

bool IsProgression(const HostTensor& tensor) {
  constexpr int64_t kMinSize = 4;
  constexpr double kRounding = 1e-5;  // error of numbers computed as float32
  const auto axes = std::ranges::count_if(tensor.shape(), [](int64_t extent) { return extent > 1; });
  if (!IsFloat(tensor.dtype()) || axes != 1 || tensor.size() < kMinSize || tensor.At(0) == tensor.At(1)) return false;
  const double first = tensor.At(0), second = tensor.At(1), step = second - first;
  bool sums = true, powers = first != 0 && second != 0;
  for (int64_t i = 2; i < tensor.size() && (sums || powers); ++i) {
    const double x = tensor.At(i), last = tensor.At(i - 1), steps = static_cast<double>(i) * step;
    sums = sums && std::abs(x - first - steps) <= kRounding * (std::abs(first) + std::abs(steps));
    powers = powers && std::abs(x * first - last * second) <= kRounding * std::abs(last * second);
  }
  return sums || powers;
}

uint64_t SumOfBytes(const HostTensor& tensor) {
  const auto bytes = tensor.bytes();
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0},
                         [](uint64_t sum, std::byte b) { return sum + std::to_integer<uint64_t>(b); });
}

bool IsGraphMatrix(const HostTensor& tensor) {
  const Shape& shape = tensor.shape();
  const bool square = shape.size() >= 2 && shape.back() >= 3 && shape.back() == shape.end()[-2];
  if (!square || !IsFloat(tensor.dtype()) || tensor.size() == 0 || IsSplat(tensor)) return false;
  bool diagonal = true;
  for (int64_t first = 0; first < tensor.size(); first += shape.back() * shape.back()) {
    const Square matrix(tensor, first);
    if (!matrix.IsSymmetric() && !matrix.IsStochastic()) return false;
    diagonal = diagonal && matrix.IsDiagonal();
  }
  return !diagonal;
}

Shape TransposedShape(Shape shape) {
  std::iter_swap(shape.end() - 1, shape.end() - 2);
  return shape;
}

bool IsTransposeOf(const HostTensor& a, const HostTensor& b) {
  if (a.shape().size() < 2 || a.dtype() != b.dtype() || b.shape() != TransposedShape(a.shape())) return false;
  const size_t size = DTypeSize(a.dtype());
  const std::byte *p = a.bytes().data(), *q = b.bytes().data();
  return ForEachTransposed(a, [&](size_t i, size_t j) { return std::memcmp(p + i * size, q + j * size, size) == 0; });
}

ParsedNode MakeRowNode(std::string_view kind, std::string op, std::vector<std::string> inputs,
                       const std::string& output, Attrs attrs) {
  ParsedNode node{.op_type = std::move(op), .inputs = std::move(inputs), .outputs = {output}};
  node.name = node.source = StrCat(kind, "/", output);
  node.attrs = std::move(attrs);
  return node;
}

WeightIndex::WeightIndex(const TorchMetadata& metadata, OnnxModel::Parsed* model)
    : metadata_(metadata), model_(*model) {
  for (const ParsedValue& input : graph().inputs) inputs_.insert(input.name);
  for (const ParsedValue& output : graph().outputs) outputs_.insert(output.name);
  Refresh();
}

ParsedNode* WeightIndex::Producer(const std::string& name) const {
  const auto producer = producers_.find(name);
  return producer == producers_.end() ? nullptr : producer->second;
}

const std::vector<WeightReader>& WeightIndex::Readers(const std::string& name) const {
  static const std::vector<WeightReader> kNone;
  const auto readers = readers_.find(name);
  return readers == readers_.end() ? kNone : readers->second;
}

const std::vector<WeightReader>& WeightIndex::ElementReaders(const std::string& name) const {
  const auto readers = element_readers_.find(name);
  return readers == element_readers_.end() ? Readers(name) : readers->second;
}

bool WeightIndex::IsNameTaken(const std::string& name) const {
  return inputs_.contains(name) || producers_.contains(name) || graph().initializers.contains(name) ||
         graph().opaque.contains(name);
}

const HostTensor* WeightIndex::FindTensor(const std::string& name) const {
  const auto stored = graph().initializers.find(name);
  return stored == graph().initializers.end() ? nullptr : &stored->second;
}

const WeightOrigin& WeightIndex::Origin(const std::string& name) const {
  static const WeightOrigin kUnknown;
  const auto origin = graph().origins.find(name);
  return origin == graph().origins.end() ? kUnknown : origin->second;
}

std::vector<std::string> WeightIndex::ListInitializers() const {
  std::vector<std::string> names;
  std::ranges::copy_if(graph().initializer_order, std::back_inserter(names),
                       [&](const std::string& name) { return graph().initializers.contains(name); });
  return names;
}

std::vector<std::pair<std::string, std::string>> WeightIndex::ListCopies() const {
  std::map<std::string, std::string> copies;
  for (const ParsedNode& node : graph().nodes) {
    if (IsIdentity(node) && graph().initializers.contains(node.inputs[0]))
      copies.emplace(node.outputs[0], node.inputs[0]);
  }
  return {copies.begin(), copies.end()};
}

uint64_t WeightIndex::SumOfBytes(const std::string& name) {
  const auto [sum, first] = sums_.try_emplace(name, 0);
  if (first) sum->second = onnxtrain::SumOfBytes(graph().initializers.at(name));
  return sum->second;
}

WeightRecord WeightIndex::MakeKind(const std::string& weight, WeightOrigin::Kind kind, std::string why) const {
  return {.weight = weight,
          .why = std::move(why),
          .form = WeightOrigin{.kind = kind, .module_name = Origin(weight).module_name}};
}

void WeightIndex::InsertFirst(std::vector<ParsedNode>* added) {
  ParsedGraph& graph = model_.graph;
  graph.nodes.insert(graph.nodes.begin(), std::make_move_iterator(added->begin()),
                     std::make_move_iterator(added->end()));
  added->clear();
}

void WeightIndex::InsertCopies() {
  if (copies.empty()) return;
  std::vector<ParsedNode> all;
  for (size_t i = 0; i < model_.graph.nodes.size(); ++i) {
    all.push_back(std::move(model_.graph.nodes[i]));
    const auto found = copies.find(i);
    if (found != copies.end()) std::ranges::move(found->second, std::back_inserter(all));
  }
  model_.graph.nodes = std::move(all);
  copies.clear();
}

void WeightIndex::Refresh() {
  InsertCopies();
  if (!removed.empty())
    std::erase_if(model_.graph.nodes,
                  [&](const ParsedNode& node) { return !node.outputs.empty() && removed.contains(node.outputs[0]); });
  removed.clear();
  InsertFirst(&nodes);
  producers_.clear();
  readers_.clear();
  element_readers_.clear();
  std::unordered_set<std::string> shapes;
  for (ParsedNode& node : model_.graph.nodes) {
    for (const std::string& output : node.outputs) {
      if (!output.empty()) producers_[output] = &node;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].empty()) continue;
      readers_[node.inputs[i]].push_back({&node, i});
      if (ReadsShapeOnly(node)) shapes.insert(node.inputs[i]);
    }
  }
  for (const std::string& name : shapes) {
    std::ranges::copy_if(readers_.at(name), std::back_inserter(element_readers_[name]),
                         [](const WeightReader& reader) { return !ReadsShapeOnly(*reader.node); });
  }
}

void WeightIndex::Finish() {
  InsertFirst(&tie_nodes);
  std::erase_if(model_.graph.initializer_order, [&](const auto& name) {
    return !graph().initializers.contains(name) && !graph().opaque.contains(name);
  });
}

}  // namespace onnxtrain
