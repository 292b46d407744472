#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/tensor_compare.h"
#include "frontend/onnx/recover/weight_names.h"
#include "frontend/onnx/recover/weight_tracer.h"
#include "frontend/onnx/write/stored_forms.h"

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

// MobileBERT's head: the embedding, transposed, and a matrix of its own, above or below it.
std::optional<std::vector<Part>> MatchHead(const HostTensor& head, const std::string& name, const HostTensor& table) {
  if (table.dtype() != head.dtype() || table.shape()[0] != head.shape()[1]) return std::nullopt;
  const int64_t width = table.shape()[1], rest = head.shape()[0] - width;
  if (rest < 1) return std::nullopt;
  const Part tied = {.form = Part::Form::kTransposed, .extent = width, .weight = name}, own = {.extent = rest};
  if (HoldsTranspose(head, 0, table)) return std::vector{tied, own};
  if (HoldsTranspose(head, rest, table)) return std::vector{own, tied};
  return std::nullopt;
}

// Biases of queries, keys and values, of which the keys have none: BEiT, Swin V2. What was trained is not zero.
std::optional<std::vector<Part>> MatchBias(const HostTensor& bias) {
  const int64_t third = bias.size() / 3;
  if (bias.shape().size() != 1 || third < 2 || bias.size() % 3 != 0) return std::nullopt;
  for (int64_t i = 0; i < bias.size(); ++i) {
    if ((bias.At(i) == 0) != (i / third == 1)) return std::nullopt;
  }
  return std::vector<Part>{{.extent = third}, {.form = Part::Form::kZeros, .extent = third}, {.extent = third}};
}

class Separator {
 public:
  explicit Separator(ParsedGraph* graph) : graph_(*graph) {
    for (const ParsedNode& node : graph->nodes) {
      const auto producer = [&](size_t i) { return producers_.find(node.inputs[i]); };
      const auto is_product = [&](size_t i) {
        return producer(i) != producers_.end() && GetOnnxTraits(*producer(i)->second).classifier;
      };
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const bool head = i == 1 && IsOp(node, {"MatMul"});
        const bool sum = IsOp(node, {"Add"}) && node.inputs.size() == 2 && is_product(1 - i);
        const bool bias = sum || (i == 2 && IsOp(node, {"Gemm"}));
        if (!head) not_heads_.insert(node.inputs[i]);
        if (!bias) not_biases_.insert(node.inputs[i]);
        if (i == 0 && IsOp(node, {"Gather"}) && node.attrs.Int("axis") == 0) tables_.insert(node.inputs[i]);
      }
      for (const std::string& output : node.outputs) producers_.emplace(output, &node);
    }
    for (const ParsedValue& output : graph->outputs) fixed_.insert(output.name);
    for (const SplitWeight& split : graph->shared.splits) fixed_.insert({split.name, split.merged});
  }

  void Run(bool tie) {
    for (const std::string& name : std::vector(graph_.initializer_order)) {
      const auto stored = graph_.initializers.find(name);
      if (stored == graph_.initializers.end() || !MayBeJoined(name, stored->second)) continue;
      std::optional<std::vector<Part>> parts;
      if (!not_biases_.contains(name)) parts = MatchBias(stored->second);
      if (tie && !not_heads_.contains(name)) parts = FindTable(stored->second);
      if (parts) Separate({.value = name, .parts = std::move(*parts)});
    }
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(nodes_.begin()),
                        std::make_move_iterator(nodes_.end()));
  }

 private:
  bool MayBeJoined(const std::string& name, const HostTensor& tensor) const {
    const auto origin = graph_.origins.find(name);
    const Kind kind = origin == graph_.origins.end() ? Kind::kUnknown : origin->second.kind;
    return IsFloat(tensor.dtype()) && tensor.size() > 0 && !tensor.shape().empty() && !IsParameterName(name) &&
           (kind == Kind::kUnknown || kind == Kind::kParameter) && !fixed_.contains(name) &&
           !graph_.sparse.contains(name);
  }

  std::optional<std::vector<Part>> FindTable(const HostTensor& head) const {
    if (head.shape().size() != 2) return std::nullopt;
    for (const std::string& name : tables_) {
      const auto table = graph_.initializers.find(name);
      if (table == graph_.initializers.end() || table->second.shape().size() != 2 || IsFresh(table->second)) continue;
      if (auto parts = MatchHead(head, name, table->second)) return parts;
    }
    return std::nullopt;
  }

  void Separate(JoinedWeight joined) {
    const HostTensor stored = graph_.initializers.at(joined.value);
    std::vector<std::string> inputs;
    int64_t begin = 0;
    for (size_t i = 0; i < joined.parts.size(); ++i) {
      inputs.push_back(StrCat(joined.value, ".", i));
      if (IsNameTaken(graph_, inputs.back())) return;
    }
    const WeightOrigin::Kind kind = graph_.origins[joined.value].kind;
    for (size_t i = 0; i < joined.parts.size(); ++i) {
      Part& part = joined.parts[i];
      if (part.form == Part::Form::kTransposed) {
        AddNode("Transpose", {part.weight}, inputs[i], "perm", std::vector<int64_t>{1, 0});
      } else if (part.form == Part::Form::kZeros) {
        AddNode("Constant", {}, inputs[i], "value", CopyRows(stored, begin, part.extent));
        graph_.origins[inputs[i]].kind = Kind::kConstant;
      } else {
        part.weight = inputs[i];
        graph_.initializers.emplace(part.weight, CopyRows(stored, begin, part.extent));
        graph_.initializer_order.push_back(part.weight);
        graph_.origins[part.weight].kind = kind;
      }
      begin += part.extent;
    }
    AddNode("Concat", inputs, joined.value, "axis", int64_t{0});
    graph_.initializers.erase(joined.value);
    std::erase(graph_.initializer_order, joined.value);
    graph_.origins.erase(joined.value);
    graph_.shared.joined.push_back(std::move(joined));
  }

  template <typename Value>
  void AddNode(std::string op, std::vector<std::string> inputs, const std::string& output, const char* attr,
               Value value) {
    ParsedNode node{.op_type = std::move(op), .inputs = std::move(inputs), .outputs = {output}};
    node.name = node.source = StrCat("joined/", output);
    node.attrs.Set(attr, std::move(value));
    nodes_.push_back(std::move(node));
  }

  ParsedGraph& graph_;
  std::unordered_map<std::string, const ParsedNode*> producers_;
  std::set<std::string> not_heads_, not_biases_;  // values that other operands are, too
  std::set<std::string> tables_;                  // that nodes look up
  std::set<std::string> fixed_;                   // outputs, and weights that the file does not hold by themselves
  std::vector<ParsedNode> nodes_;
};

// Returns the initializer `stored` with those of its parts that `weights` has.
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

// A weight of the graph, or the copy that a tie makes.
LazyTensor FindWeight(const std::string& name, const ParsedGraph& graph) {
  const auto tie = std::ranges::find(graph.shared.ties, name, &WeightTie::copy);
  return tie == graph.shared.ties.end() ? LazyTensor(graph.initializers.at(name))
                                        : MakeCopy(*tie, graph.initializers.at(tie->weight));
}

}  // namespace

void TakeJoinedApart(bool tie, ParsedGraph* graph) { Separator(graph).Run(tie); }

absl::Status JoinParts(const SharedWeights& shared,
                       const std::function<absl::StatusOr<HostTensor>(const JoinedWeight&)>& read,
                       std::map<std::string, LazyTensor>* weights) {
  for (const JoinedWeight& joined : shared.joined) {
    const auto is_there = [&](const Part& part) { return weights->contains(part.weight); };
    if (std::ranges::none_of(joined.parts, is_there)) continue;
    ASSIGN_OR_RETURN(const HostTensor stored, read(joined));
    weights->insert_or_assign(joined.value, MakeJoined(joined, stored, *weights));
    for (const Part& part : joined.parts) {
      if (part.form == Part::Form::kOwn) weights->erase(part.weight);
    }
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
