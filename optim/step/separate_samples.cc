#include "optim/step/separate_samples.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/passes/pipeline.h"
#include "frontend/passes/rewrite.h"
#include "optim/parallel/tensor/split_rules.h"

namespace onnxtrain {
namespace {

constexpr size_t kMask = 3;  // the operand of Attention

// The axes of a value along which the rows of a batch and the tokens of a row are.
struct TokenAxes {
  AxisSplit batch, tokens;
};

// An operand of a node that depends on positions, but on no token.
struct PositionOperand {
  AxisSplit tokens;
  std::optional<AxisSplit> batch;  // nullopt: it is the same for all rows of a batch
  int batch_axis = 0;              // of the node's output
};

// Returns the graph with constants in place of the masks of padding.
absl::StatusOr<Graph> FixMasks(const Graph& graph, const PackedInputs& inputs) {
  const auto fix = [&](Rewriter& r, const Node&) -> std::optional<std::vector<Val>> {
    for (const auto& [name, number] : inputs.constants) {
      const GraphInput* input = graph.FindInput(name);
      if (input == nullptr || r.Map(input->value).constant() != nullptr) continue;
      const Type& type = graph.type(input->value);
      r.Set(input->value, r.b().Constant(HostTensor::FromDoubles(
                              type, std::vector<double>(static_cast<size_t>(type.elements()), number))));
    }
    return std::nullopt;
  };
  ASSIGN_OR_RETURN(Graph fixed, Rewrite(graph, fix));
  return CleanUp(std::move(fixed));
}

class Separator {
 public:
  Separator(const Graph& graph, const PackedInputs& inputs)
      : graph_(graph), separates_(inputs.separates), axes_(graph.values().size()), reached_(graph.nodes().size()) {}

  absl::Status Analyze(const PackedInputs& inputs) {
    RETURN_IF_ERROR(FindFeeds(inputs));
    RETURN_IF_ERROR(FindReached());
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (reached_[n]) RETURN_IF_ERROR(Annotate(Visit(graph_.nodes()[n]), NodeTag(graph_.nodes()[n])));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Graph> Rewritten() {
    const auto rule = [&](Rewriter& r, const Node& node) { return RewriteNode(r, node); };
    ASSIGN_OR_RETURN(Graph rewritten, Rewrite(graph_, rule));
    return CleanUp(std::move(rewritten));
  }

 private:
  absl::Status FindFeeds(const PackedInputs& inputs) {
    for (const std::string& name : inputs.tokens) {
      const GraphInput* input = graph_.FindInput(name);
      if (input == nullptr) continue;  // no output depends on it
      const Shape& shape = graph_.type(input->value).shape;
      if (shape.size() != 2 || (length_ > 0 && shape != Shape{batch_, length_}))
        return Invalid("input '", name, "' is not [batch, length]");
      batch_ = shape[0], length_ = shape[1];
      axes_[input->value] = TokenAxes{{0, 1}, {1, 1}};
    }
    return length_ > 1 ? absl::OkStatus() : Invalid("there is no input [batch, length] of tokens");
  }

  // Marks the nodes that outputs [batch, length, …] depend on, except those that compute the masks of attention.
  absl::Status FindReached() {
    std::vector<ValueId> open;
    for (const GraphOutput& output : graph_.outputs()) {
      const Type& type = graph_.type(output.value);
      if (IsFloat(type.dtype) && type.rank() == 3 && type.shape[0] == batch_ && type.shape[1] == length_)
        open.push_back(output.value);
    }
    if (open.empty()) return Invalid("there is no output [batch, length, tokens]");
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (v == kNoValue || graph_.IsInput(v) || reached_[graph_.value(v).node]) continue;
      reached_[graph_.value(v).node] = true;
      const Node& node = *graph_.producer(v);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!IsMask(node, i)) open.push_back(node.inputs[i]);
      }
    }
    return absl::OkStatus();
  }

  static bool IsMask(const Node& node, size_t i) { return node.op == "Attention" && i == kMask; }

  const TokenAxes* Find(const Node& node, size_t i) const {
    const ValueId v = i < node.inputs.size() ? node.inputs[i] : kNoValue;
    return v == kNoValue || !axes_[v].has_value() ? nullptr : &*axes_[v];
  }

  absl::Status Visit(const Node& node) {
    if (node.op == "Attention") return VisitAttention(node);
    size_t first = 0;
    while (first < node.inputs.size() && Find(node, first) == nullptr) ++first;
    if (first == node.inputs.size()) return absl::OkStatus();  // it depends on no token
    const TokenAxes of = *Find(node, first);
    const auto tokens = SplitNode(graph_, node, {false, first}, of.tokens, static_cast<int>(length_));
    // A batch of one row may be on any axis, or on none.
    const auto batch =
        batch_ == 1 ? tokens : SplitNode(graph_, node, {false, first}, of.batch, static_cast<int>(batch_));
    if (!tokens || !batch || tokens->sums || batch->sums || !tokens->outputs[0] || !batch->outputs[0])
      return Combines(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) RETURN_IF_ERROR(VisitOperand(node, i, *tokens, *batch));
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (!tokens->outputs[o] || !batch->outputs[o]) return Combines(node);
      axes_[node.outputs[o]] = TokenAxes{*batch->outputs[o], *tokens->outputs[o]};
    }
    return absl::OkStatus();
  }

  absl::Status Combines(const Node& node) const {
    std::string types;
    for (const ValueId v : node.inputs)
      StrAppend(&types, types.empty() ? "" : ", ", v == kNoValue ? "_" : ToString(graph_.type(v)));
    return Invalid("combines the tokens of a row, so that its samples would see each other (", types, " → ",
                   ToString(graph_.type(node.outputs[0])), ")");
  }

  absl::Status VisitOperand(const Node& node, size_t i, const NodeSplit& tokens, const NodeSplit& batch) {
    if (i >= tokens.inputs.size() || node.inputs[i] == kNoValue) return absl::OkStatus();
    if (const TokenAxes* own = Find(node, i)) {
      const bool same_rows = batch_ == 1 || batch.inputs[i] == own->batch;
      return tokens.inputs[i] == own->tokens && same_rows ? absl::OkStatus() : Combines(node);
    }
    if (!tokens.inputs[i]) return absl::OkStatus();  // it is the same for all tokens
    const PositionOperand operand{*tokens.inputs[i], batch.inputs[i], batch.outputs[0]->axis};
    if (!CanLookUp(node, i, operand))
      return Invalid("reads positions in the form ", ToString(graph_.type(node.inputs[i])),
                     ", which cannot be looked up");
    positions_[{&node, i}] = operand;
    return absl::OkStatus();
  }

  // q, k and v are [rows…, length, width].
  absl::Status VisitAttention(const Node& node) {
    const TokenAxes* q = Find(node, 0);
    const AxisSplit expected{graph_.type(node.inputs[0]).rank() - 2, 1};
    for (size_t i = 0; i < 3; ++i) {
      const TokenAxes* own = Find(node, i);
      const bool whole = own != nullptr && own->tokens == expected && own->batch == q->batch &&
                         graph_.type(node.inputs[i]).shape[expected.axis] == length_;
      if (!whole) return Combines(node);
    }
    if (batch_ > 1 && q->batch != AxisSplit{0, 1}) return Combines(node);
    axes_[node.outputs[0]] = *q;
    return absl::OkStatus();
  }

  bool Is(const AxisSplit& split, const Shape& shape, int64_t extent) const {
    return split.blocks == 1 && shape[split.axis] == extent;
  }

  // Returns true if batch and tokens are one axis.
  bool IsMerged(const Shape& shape, const PositionOperand& o) const {
    return o.tokens.blocks == batch_ && shape[o.tokens.axis] == batch_ * length_ &&
           (batch_ == 1 || (o.batch.has_value() && *o.batch == AxisSplit{o.tokens.axis, 1}));
  }

  bool CanLookUp(const Node& node, size_t i, const PositionOperand& o) const {
    const Shape& shape = graph_.type(node.inputs[i]).shape;
    if (IsMerged(shape, o)) return true;
    const bool one_row = !o.batch.has_value() || (Is(*o.batch, shape, batch_) && o.batch->axis != o.tokens.axis);
    return Is(o.tokens, shape, length_) && one_row;
  }

  Val Positions(Builder& b) {
    if (!feed_) feed_ = b.Input(InputKind::kFeed, kPositionsFeed, {DType::kInt64, {batch_, length_}});
    return feed_;
  }

  // Returns the rows of `table` at the positions that are fed, for the node's output of rank `rank`.
  Val LookUp(Builder& b, Val table, const PositionOperand& o, int rank) {
    const Shape shape = table.shape();
    int tokens = o.tokens.axis;
    if (IsMerged(shape, o)) {
      const Val one = Slice(table, tokens, 0, length_);
      return Reshape(Gather(one, Reshape(Positions(b), {batch_ * length_}), tokens), shape);
    }
    int batch = o.batch_axis;
    if (o.batch.has_value()) {
      batch = o.batch->axis;
      table = Slice(table, batch, 0, 1);
    } else {
      const int added = rank - table.rank();
      Shape wide(added, 1);
      wide.insert(wide.end(), shape.begin(), shape.end());
      table = Reshape(table, wide);
      tokens += added;
    }
    // The lookup puts the batch before the tokens, and leaves an axis of extent 1 in its place.
    const Val found = Gather(table, Positions(b), tokens);
    std::vector<int64_t> perm;
    Shape result;
    for (int a = 0; a < table.rank(); ++a) {
      perm.push_back(a == batch ? tokens : a < tokens ? a : a + 1);
      result.push_back(found.dim(static_cast<int>(perm.back())));
    }
    perm.push_back(batch < tokens ? batch : batch + 1);
    return Reshape(Transpose(found, perm), result);
  }

  // Returns 0 for pairs of tokens of one sample and −∞ for others, in the shape of masks of `q`.
  Val HideOtherSamples(Val q, DType dtype) {
    Builder& b = q.b();
    if (!same_) {
      const Val begins = Cast(Equal(Positions(b), 0.0), DType::kInt64);
      const Val sample = b.Op("CumSum", {begins}, {{"axis", int64_t{1}}});
      same_ = Equal(Reshape(sample, {batch_, length_, 1}), Reshape(sample, {batch_, 1, length_}));
    }
    const Val hidden = Where(same_, b.Scalar(dtype, 0), b.Scalar(dtype, -std::numeric_limits<double>::infinity()));
    const int64_t heads = q.dim(0) / batch_;
    Shape shape(q.rank(), 1);
    shape[0] = batch_ * heads;
    shape[q.rank() - 2] = shape[q.rank() - 1] = length_;
    if (batch_ == 1 || heads == 1) {
      shape[0] = batch_;
      return Reshape(hidden, shape);
    }
    return Reshape(Expand(Reshape(hidden, {batch_, 1, length_, length_}), {batch_, heads, length_, length_}), shape);
  }

  Val Masked(const Node& node, Val q, Val mask) {
    const ValueId old = mask ? node.inputs[kMask] : kNoValue;
    Val& masked = masks_[{old, q.dtype(), q.rank(), q.dim(0)}];
    if (masked) return masked;
    const Val hidden = HideOtherSamples(q, mask ? mask.dtype() : q.dtype());
    return masked = mask ? mask + hidden : hidden;
  }

  std::optional<std::vector<Val>> RewriteNode(Rewriter& r, const Node& node) {
    if (!reached_[&node - graph_.nodes().data()]) return std::nullopt;
    std::vector<Val> operands = r.MapOperands(node);
    bool changed = false;
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto found = positions_.find({&node, i});
      if (found == positions_.end()) continue;
      const int rank = graph_.type(node.outputs[0]).rank();
      Val& rows = looked_up_[{node.inputs[i], found->second.tokens.axis, found->second.batch_axis, rank}];
      if (!rows) rows = LookUp(r.b(), operands[i], found->second, rank);
      operands[i] = rows;
      changed = true;
    }
    if (node.op == "Attention" && !separates_) {
      operands.resize(std::max(operands.size(), kMask + 1));
      operands[kMask] = Masked(node, operands[0], operands[kMask]);
      changed = true;
    }
    if (!changed) return std::nullopt;
    return r.b().Ops(node.op, operands, node.attrs);
  }

  const Graph& graph_;
  const bool separates_;
  std::vector<std::optional<TokenAxes>> axes_;  // by value
  std::vector<bool> reached_;                   // by node
  int64_t batch_ = 0, length_ = 0;
  std::map<std::pair<const Node*, size_t>, PositionOperand> positions_;  // by node and input
  Val feed_, same_;
  std::map<std::tuple<ValueId, int, int, int>, Val> looked_up_;    // by value, its length axis, and the result's form
  std::map<std::tuple<ValueId, DType, int, int64_t>, Val> masks_;  // by mask and form of the queries
};

}  // namespace

absl::StatusOr<Graph> SeparateSamples(const Graph& graph, const PackedInputs& inputs) {
  ASSIGN_OR_RETURN(const Graph fixed, FixMasks(graph, inputs));
  Separator separator(fixed, inputs);
  const absl::Status separable = separator.Analyze(inputs);
  if (separable.ok()) return separator.Rewritten();
  return inputs.separates ? absl::StatusOr<Graph>(graph) : separable;
}

}  // namespace onnxtrain
