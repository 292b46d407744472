#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

using Part = JoinedWeight::Part;
using Kind = WeightOrigin::Kind;

int64_t RowLength(const HostTensor& tensor) { return tensor.size() / std::max<int64_t>(1, tensor.shape()[0]); }

HostTensor CopyRows(const HostTensor& tensor, int64_t begin, int64_t count) {
  Shape shape = tensor.shape();
  shape[0] = count;
  HostTensor rows({tensor.dtype(), std::move(shape)});
  const size_t row = static_cast<size_t>(RowLength(tensor)) * DTypeSize(tensor.dtype());
  std::memcpy(rows.mutable_bytes().data(), tensor.bytes().data() + static_cast<size_t>(begin) * row,
              static_cast<size_t>(count) * row);
  return rows;
}

bool HoldsTranspose(const HostTensor& head, int64_t begin, const HostTensor& table) {
  const int64_t rows = table.shape()[0], width = table.shape()[1];
  for (int64_t r = 0; r < width; ++r) {
    for (int64_t c = 0; c < rows; ++c) {
      if (head.At((begin + r) * rows + c) != table.At(c * width + r)) return false;
    }
  }
  return true;
}

// Matches MobileBERT's head: the transposed embedding and a separate matrix, above or below it.
std::optional<std::vector<Part>> MatchHead(const HostTensor& head, const std::string& name, const HostTensor& table) {
  if (table.dtype() != head.dtype() || table.shape()[0] != head.shape()[1]) return std::nullopt;
  const int64_t width = table.shape()[1], rest = head.shape()[0] - width;
  if (rest < 1) return std::nullopt;
  const Part tied = {.form = Part::Form::kTransposed, .extent = width, .weight = name}, own = {.extent = rest};
  if (HoldsTranspose(head, 0, table)) return std::vector{tied, own};
  if (HoldsTranspose(head, rest, table)) return std::vector{own, tied};
  return std::nullopt;
}

// Matches biases of queries, keys and values in which only the keys' part is zero (BEiT, Swin V2).
std::optional<std::vector<Part>> MatchBias(const HostTensor& bias) {
  const int64_t third = bias.size() / 3;
  if (bias.shape().size() != 1 || third < 2 || bias.size() % 3 != 0) return std::nullopt;
  for (int64_t i = 0; i < bias.size(); ++i) {
    if ((bias.At(i) == 0) != (i / third == 1)) return std::nullopt;
  }
  return std::vector<Part>{{.extent = third}, {.form = Part::Form::kZeros, .extent = third}, {.extent = third}};
}

class PartFinder {
 public:
  explicit PartFinder(const WeightIndex& index) : index_(index), graph_(index.graph()) {
    for (const ParsedNode& node : graph_.nodes) {
      if (IsOp(node, {"Gather"}) && node.attrs.Int("axis") == 0) tables_.insert(node.inputs[0]);
    }
    for (const SplitWeight* split : ListForms<SplitWeight>(graph_.records)) fixed_.insert({split->name, split->merged});
  }

  WeightRecords Run(bool tie) const {
    WeightRecords records;
    for (const std::string& name : index_.ListInitializers()) {
      const HostTensor& stored = graph_.initializers.at(name);
      if (!MayBeJoined(name, stored)) continue;
      const char* why = "a bias of queries and values around zeros for the keys";
      std::optional<std::vector<Part>> parts;
      if (AreAll(name, [&](const WeightReader& r) { return IsBias(r); })) parts = MatchBias(stored);
      if (tie && AreAll(name, [](const WeightReader& r) { return r.input == 1 && IsOp(*r.node, {"MatMul"}); })) {
        parts = FindTable(stored);
        why = "an embedding, transposed, beside a matrix";
      }
      if (!parts || HasTakenNames(name, parts->size())) continue;
      for (size_t i = 0; i < parts->size(); ++i) {
        if ((*parts)[i].form == Part::Form::kOwn) (*parts)[i].weight = StrCat(name, ".", i);
      }
      records.push_back({.weight = name, .why = why, .form = JoinedWeight{.value = name, .parts = std::move(*parts)}});
    }
    return records;
  }

 private:
  template <typename Test>
  bool AreAll(const std::string& name, Test test) const {
    return std::ranges::all_of(index_.Readers(name), test);
  }

  // Returns true if the reader adds the value to the result of a product.
  bool IsBias(const WeightReader& reader) const {
    if (IsOp(*reader.node, {"Gemm"})) return reader.input == 2;
    if (!IsOp(*reader.node, {"Add"}) || reader.node->inputs.size() != 2) return false;
    const ParsedNode* product = index_.Producer(reader.node->inputs[1 - reader.input]);
    return product != nullptr && GetOnnxTraits(*product).classifier;
  }

  bool HasTakenNames(const std::string& value, size_t parts) const {
    for (size_t i = 0; i < parts; ++i) {
      if (index_.IsNameTaken(StrCat(value, ".", i))) return true;
    }
    return false;
  }

  bool MayBeJoined(const std::string& name, const HostTensor& tensor) const {
    const Kind kind = index_.Kind(name);
    return IsFloat(tensor.dtype()) && tensor.size() > 0 && !tensor.shape().empty() && !IsParameterName(name) &&
           (kind == Kind::kUnknown || kind == Kind::kParameter) && !fixed_.contains(name) && !index_.IsOutput(name) &&
           !graph_.sparse.contains(name);
  }

  std::optional<std::vector<Part>> FindTable(const HostTensor& head) const {
    if (head.shape().size() != 2) return std::nullopt;
    for (const std::string& name : tables_) {
      const HostTensor* table = index_.FindTensor(name);
      if (table == nullptr || table->shape().size() != 2 || IsFresh(*table)) continue;
      if (auto parts = MatchHead(head, name, *table)) return parts;
    }
    return std::nullopt;
  }

  const WeightIndex& index_;
  const ParsedGraph& graph_;
  std::set<std::string> tables_;  // tables that nodes gather from
  std::set<std::string> fixed_;   // weights that the file does not hold by themselves
};

// Returns the initializer `stored` with its parts replaced by those in `weights`.
LazyTensor MakeJoined(const JoinedWeight& joined, const HostTensor& stored,
                      const std::map<std::string, LazyTensor>& weights) {
  std::vector<LazyTensor> parts;
  int64_t begin = 0;
  for (const Part& part : joined.parts) {
    const int64_t size = part.extent * RowLength(stored);
    const auto weight = weights.find(part.weight);
    if (weight == weights.end()) {
      parts.push_back(Slice(stored, begin, size));
    } else {
      const bool swapped = part.form == Part::Form::kTransposed;
      const LazyTensor value = swapped ? Transpose(weight->second.Whole()) : weight->second;
      parts.push_back(value.CastTo(stored.dtype()));
    }
    begin += size;
  }
  return Concat(stored.type(), std::move(parts));
}

// Returns a weight of the graph, or the copy that a tie computes.
LazyTensor FindWeight(const std::string& name, const ParsedGraph& graph) {
  for (const WeightTie* tie : ListForms<WeightTie>(graph.records)) {
    if (tie->copy == name) return MakeCopy(*tie, graph.initializers.at(tie->weight));
  }
  return graph.initializers.at(name);
}

}  // namespace

absl::StatusOr<WeightRecords> MatchJoinedParts(WeightIndex* index) {
  return PartFinder(*index).Run(index->model().edits.tie_stored_twice);
}

void BuildJoinedParts(const WeightRecord& record, WeightIndex* index) {
  ParsedGraph& graph = index->mutable_graph();
  const auto& joined = std::get<JoinedWeight>(record.form);
  const HostTensor stored = graph.initializers.at(joined.value);
  const Kind kind = index->Kind(joined.value);
  std::vector<std::string> inputs;
  int64_t begin = 0;
  for (const Part& part : joined.parts) {
    const std::string input = inputs.emplace_back(StrCat(joined.value, ".", inputs.size()));
    if (part.form == Part::Form::kTransposed) {
      index->nodes.push_back(
          MakeRowNode("joined", "Transpose", {part.weight}, input, {{"perm", std::vector<int64_t>{1, 0}}}));
    } else if (part.form == Part::Form::kZeros) {
      index->nodes.push_back(
          MakeRowNode("joined", "Constant", {}, input, {{"value", CopyRows(stored, begin, part.extent)}}));
      graph.origins[input].kind = Kind::kConstant;
    } else {
      graph.initializers.emplace(input, CopyRows(stored, begin, part.extent));
      graph.initializer_order.push_back(input);
      graph.origins[input].kind = kind;
    }
    begin += part.extent;
  }
  index->nodes.push_back(MakeRowNode("joined", "Concat", inputs, joined.value, {{"axis", int64_t{0}}}));
  graph.initializers.erase(joined.value);
  std::erase(graph.initializer_order, joined.value);
  graph.origins.erase(joined.value);
}

absl::Status WriteJoinedParts(const WeightRecord& record, StoredWeights* weights) {
  const auto& joined = std::get<JoinedWeight>(record.form);
  const auto is_there = [&](const Part& part) { return weights->tensors.contains(part.weight); };
  if (std::ranges::none_of(joined.parts, is_there)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HostTensor stored, weights->read(joined.value));
  weights->tensors.insert_or_assign(joined.value, MakeJoined(joined, stored, weights->tensors));
  for (const Part& part : joined.parts) {
    if (part.form == Part::Form::kOwn) weights->tensors.erase(part.weight);
  }
  return absl::OkStatus();
}

HostTensor JoinStored(const JoinedWeight& joined, const ParsedGraph& graph) {
  std::map<std::string, LazyTensor> weights;
  Shape shape;
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  for (const Part& part : joined.parts) {
    rows += part.extent;
    if (part.form == Part::Form::kZeros) continue;
    const LazyTensor& weight = weights.emplace(part.weight, FindWeight(part.weight, graph)).first->second;
    dtype = weight.dtype();
    if (part.form == Part::Form::kOwn) shape = weight.shape();
  }
  shape.at(0) = rows;
  return MakeJoined(joined, HostTensor({dtype, std::move(shape)}), weights).Whole();
}

}  // namespace onnxtrain
