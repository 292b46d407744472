#include "frontend/passes/chunk_cross_entropy.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

using Vals = std::vector<Val>;

// Returns true for x·W and x·Wᵀ with one matrix W, whose operands follow x.
bool MultipliesRows(const Graph& graph, const Node& node) {
  if (node.op == "MatMulDequantized") return true;
  return node.op == "MatMul" && node.attrs.Int("trans_a") == 0 && graph.type(node.inputs[1]).rank() == 2;
}

bool IsLarge(const Graph& graph, const Node& node, const CrossEntropyChunks& c) {
  if (node.op != "CrossEntropy") return false;
  const Type& logits = graph.type(node.inputs[0]);
  return logits.rank() == 2 && logits.bytes() >= c.min_bytes && logits.shape[0] >= 2 * c.min_rows;
}

// Returns the number of rows of a block.
int64_t ChooseRows(int64_t rows, const CrossEntropyChunks& c) {
  const int64_t even = (rows + c.max_blocks - 1) / c.max_blocks;
  return std::max(c.min_rows, (even + c.row_multiple - 1) / c.row_multiple * c.row_multiple);
}

// The nodes, by index, of the output projection, its CrossEntropy and their gradients.
struct Head {
  int32_t loss = -1, product = -1, add_bias = -1, gradient = -1;  // -1: absent
  std::vector<int32_t> best;                                      // ArgMax over the classes
  std::vector<int32_t> row_products;                              // dlogits · w
  std::vector<int32_t> weight_products;                           // dlogitsᵀ · x, or xᵀ · dlogits
  std::vector<int32_t> bias_sums;                                 // Σ dlogits over rows
  std::set<int32_t> logits;                                       // the Add of the bias, and Reshapes of the logits
  std::vector<int32_t> reshaped;                                  // Reshapes of the gradients of the logits

  // Returns true for the nodes that compute losses or best classes.
  bool IsResult(int32_t n) const { return n == loss || std::ranges::count(best, n) > 0; }
  // Returns the nodes that the blocks replace: all but those that compute the logits.
  std::set<int32_t> replaced() const {
    std::set<int32_t> nodes = {loss};
    if (gradient >= 0) nodes.insert(gradient);
    for (const auto* list : {&best, &row_products, &weight_products, &bias_sums, &reshaped}) {
      nodes.insert(list->begin(), list->end());
    }
    return nodes;
  }
};

// Returns by node whether it computes or depends on a result of the head.
std::vector<bool> FindDependents(const Graph& graph, const Head& head) {
  std::vector<bool> dependent(graph.values().size()), depends(graph.nodes().size());
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const auto is_dependent = [&](ValueId v) { return v != kNoValue && dependent[v]; };
    depends[n] = head.IsResult(static_cast<int32_t>(n)) || std::ranges::any_of(node.inputs, is_dependent);
    for (ValueId v : node.outputs) dependent[v] = depends[n];
  }
  return depends;
}

// Finds the head product before a CrossEntropy, and its gradient.
class HeadFinder {
 public:
  explicit HeadFinder(const Graph& graph) : graph_(graph), pattern_(graph) {
    producer_.assign(graph.values().size(), -1);
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      for (ValueId v : graph.nodes()[n].outputs) producer_[v] = static_cast<int32_t>(n);
    }
  }

  std::optional<Head> Find(int32_t loss) {
    head_ = {.loss = loss};
    const Node& node = graph_.nodes()[loss];
    rows_ = graph_.type(node.inputs[0]).shape[0];
    classes_ = graph_.type(node.inputs[0]).shape[1];
    const bool found = FindProduct(node.inputs[0]) && TakeLogits(graph_.nodes()[head_.product].outputs[0]) &&
                       TakeLogProbabilities(node.outputs[1]) && !IsGradientOfLoss();
    return found ? std::optional(head_) : std::nullopt;
  }

 private:
  const Node& At(int32_t n) const { return graph_.nodes()[n]; }

  // Returns true if the value is the matrix of logits in some shape […,C].
  bool IsRows(ValueId v) const {
    const Type& type = graph_.type(v);
    return type.rank() >= 2 && type.shape.back() == classes_ && type.elements() == rows_ * classes_;
  }

  // Follows the logits back to their product, whose right operand must be one matrix.
  bool FindProduct(ValueId v) {
    while (producer_[v] >= 0 && IsRows(v)) {
      const int32_t n = producer_[v];
      const Node& node = At(n);
      if (MultipliesRows(graph_, node)) {
        head_.product = n;
        return true;
      }
      if (node.op == "Add" && head_.add_bias < 0) {
        const bool second = IsBias(node.inputs[1]);
        if (!second && !IsBias(node.inputs[0])) return false;
        head_.add_bias = n;
        v = node.inputs[second ? 0 : 1];
      } else if (node.op == "Reshape") {
        v = node.inputs[0];
      } else {
        return false;
      }
      head_.logits.insert(n);
    }
    return false;
  }

  bool IsBias(ValueId v) const {
    const Type& type = graph_.type(v);
    return type.elements() == classes_ && type.rank() >= 1 && type.shape.back() == classes_;
  }

  // Returns false if a user of the logits, in any shape, cannot be computed by blocks. Adds the ArgMax nodes to the
  // head.
  bool TakeLogits(ValueId v) {
    if (pattern_.IsOutput(v)) return false;
    return std::ranges::all_of(pattern_.users(v), [&](int32_t n) {
      const Node& node = At(n);
      if (head_.logits.contains(n)) return TakeLogits(node.outputs[0]);
      if (n == head_.loss) return true;
      if (node.op != "ArgMax" || node.attrs.Int("axis") != graph_.type(v).rank() - 1) return false;
      head_.best.push_back(n);
      return true;
    });
  }

  // Requires that only one CrossEntropyGrad with the labels of the loss reads the log-probabilities.
  bool TakeLogProbabilities(ValueId v) {
    if (pattern_.IsOutput(v) || pattern_.users(v).size() > 1) return false;
    if (pattern_.users(v).empty()) return true;
    head_.gradient = pattern_.users(v)[0];
    const Node &gradient = At(head_.gradient), &loss = At(head_.loss);
    const bool same = gradient.op == "CrossEntropyGrad" && gradient.inputs[1] == v &&
                      gradient.inputs[2] == loss.inputs[1] && gradient.attrs == loss.attrs;
    return same && TakeGradient(gradient.outputs[0]);
  }

  bool TakeGradient(ValueId v) {
    if (pattern_.IsOutput(v)) return false;
    return std::ranges::all_of(pattern_.users(v), [&](int32_t n) { return TakeGradientUser(v, n); });
  }

  bool TakeGradientUser(ValueId v, int32_t n) {
    const Node& node = At(n);
    if (node.op == "Reshape") {
      if (!IsRows(node.outputs[0])) return false;
      head_.reshaped.push_back(n);
      return TakeGradient(node.outputs[0]);
    }
    if (node.op == "ReduceSum") {
      if (graph_.type(node.outputs[0]).elements() != classes_ || !KeepsLastAxis(node, v)) return false;
      head_.bias_sums.push_back(n);
      return true;
    }
    if (node.op != "MatMul") return MultipliesRows(graph_, node) && TakeRowProduct(v, n);
    return TakeGradientProduct(v, n);
  }

  bool KeepsLastAxis(const Node& sum, ValueId v) const {
    const std::vector<int64_t> axes = sum.attrs.Ints("axes");
    return !axes.empty() && std::ranges::find(axes, graph_.type(v).rank() - 1) == axes.end();
  }

  bool TakeGradientProduct(ValueId v, int32_t n) {
    const Node& node = At(n);
    const bool is_left = node.inputs[0] == v;
    const ValueId other = node.inputs[is_left ? 1 : 0];
    if (other == v || graph_.type(other).rank() != 2) return false;
    const bool over_rows =
        graph_.type(v).rank() == 2 && (is_left ? node.attrs.Int("trans_a") == 1 : node.attrs.Int("trans_b") == 0);
    const bool is_whole = is_left ? node.attrs.Int("trans_b") == 0 : node.attrs.Int("trans_a") == 1;
    if (over_rows && is_whole) {
      head_.weight_products.push_back(n);
      return true;
    }
    return MultipliesRows(graph_, node) && TakeRowProduct(v, n);
  }

  bool TakeRowProduct(ValueId v, int32_t n) {
    if (At(n).inputs[0] != v) return false;
    head_.row_products.push_back(n);
    return true;
  }

  // Returns true if the gradient depends on all losses; dividing the rows would then save no memory.
  bool IsGradientOfLoss() const {
    if (head_.gradient < 0) return false;
    const std::vector<bool> depends = FindDependents(graph_, head_);
    const auto is_dependent = [&](ValueId v) { return producer_[v] >= 0 && depends[producer_[v]]; };
    if (is_dependent(At(head_.gradient).inputs[0])) return true;
    std::set<ValueId> gradients = {At(head_.gradient).outputs[0]};
    for (int32_t n : head_.reshaped) gradients.insert(At(n).outputs[0]);
    const auto reads_dependent = [&](int32_t n) {
      return std::ranges::any_of(At(n).inputs, [&](ValueId v) { return !gradients.contains(v) && is_dependent(v); });
    };
    return std::ranges::any_of(head_.row_products, reads_dependent) ||
           std::ranges::any_of(head_.weight_products, reads_dependent);
  }

  const Graph& graph_;
  const Pattern pattern_;
  std::vector<int32_t> producer_;  // by value; -1: an input
  Head head_;
  int64_t rows_ = 0, classes_ = 0;
};

// Emits a head block by block.
class HeadChunker {
 public:
  HeadChunker(Rewriter& r, const Head& head, int64_t rows) : r_(r), head_(head), block_rows_(rows) {}

  void Emit() {
    const Node& product = At(head_.product);
    const int64_t depth = r_.from().type(product.inputs[0]).shape.back(), all = Labels().dim(0);
    x_ = Reshape(r_.Map(product.inputs[0]), {all, depth});
    if (head_.add_bias >= 0) bias_ = Bias();
    for (begin_ = 0; begin_ < all; begin_ += length_) {
      length_ = std::min(block_rows_, all - begin_);
      EmitBlock();
    }
    for (auto& [n, parts] : parts_) {
      const ValueId old = At(n).outputs[0];
      r_.Set(old, Reshape(Concat(parts, 0), r_.from().type(old).shape));
    }
    for (auto& [n, sum] : sums_) {
      const ValueId old = At(n).outputs[0];
      r_.Set(old, Reshape(sum, r_.from().type(old).shape));
    }
  }

 private:
  const Node& At(int32_t n) const { return r_.from().nodes()[n]; }
  Val Labels() { return r_.Map(At(head_.loss).inputs[1]); }
  Val Block(Val all) { return Slice(all, 0, begin_, length_); }

  Val Bias() {
    const Node& add = At(head_.add_bias);
    const int64_t classes = r_.from().type(At(head_.loss).inputs[0]).shape[1];
    const bool first = r_.from().type(add.inputs[0]).elements() == classes;
    return Reshape(r_.Map(add.inputs[first ? 0 : 1]), {classes});
  }

  void EmitBlock() {
    const Node &product = At(head_.product), &loss = At(head_.loss);
    Val logits = Multiply(product, Block(x_));
    if (bias_) logits = logits + bias_;
    const Val labels = Block(Labels());
    const Vals losses = r_.b().Ops("CrossEntropy", {logits, labels}, loss.attrs);
    parts_[head_.loss].push_back(losses[0]);
    for (int32_t n : head_.best) {
      const Attrs attrs = {
          {"axis", int64_t{1}}, {"keepdims", int64_t{0}}, {"select_last_index", At(n).attrs.Int("select_last_index")}};
      parts_[n].push_back(r_.b().Op("ArgMax", {logits}, attrs));
    }
    if (head_.gradient < 0) return;
    const Node& gradient = At(head_.gradient);
    EmitGradients(r_.b().Op("CrossEntropyGrad", {Block(r_.Map(gradient.inputs[0])), losses[1], labels}, loss.attrs));
  }

  // Returns the product of x with the matrix of the node.
  Val Multiply(const Node& node, Val x) {
    Vals operands = {x};
    for (size_t i = 1; i < node.inputs.size(); ++i) operands.push_back(r_.Map(node.inputs[i]));
    return r_.b().Op(node.op, operands, node.attrs);
  }

  void EmitGradients(Val dlogits) {
    for (int32_t n : head_.row_products) {
      parts_[n].push_back(Multiply(At(n), dlogits));
    }
    for (int32_t n : head_.weight_products) {
      const Node& node = At(n);
      const bool is_left = IsGradient(node.inputs[0]);
      const Val x = Block(r_.Map(node.inputs[is_left ? 1 : 0]));
      AddTo(n, is_left ? MatMul(dlogits, x, true, false) : MatMul(x, dlogits, true, false));
    }
    for (int32_t n : head_.bias_sums) AddTo(n, ReduceSum(dlogits, {0}, false));
  }

  bool IsGradient(ValueId v) const {
    const auto gives = [&](int32_t n) { return At(n).outputs[0] == v; };
    return gives(head_.gradient) || std::ranges::any_of(head_.reshaped, gives);
  }

  void AddTo(int32_t n, Val value) {
    Val& sum = sums_[n];
    sum = sum ? sum + value : value;
  }

  Rewriter& r_;
  const Head& head_;
  const int64_t block_rows_;
  Val x_, bias_;
  int64_t begin_ = 0, length_ = 0;
  std::map<int32_t, Vals> parts_;  // by node: the output for each block
  std::map<int32_t, Val> sums_;    // by node: the output summed over blocks
};

// Moves nodes that do not depend on results of the head before it. Returns the graph and the index of the loss in it.
std::pair<Graph, int32_t> MoveBeforeHead(const Graph& graph, const Head& head) {
  const std::vector<bool> depends = FindDependents(graph, head);
  const int32_t last = *head.replaced().rbegin();
  std::vector<int32_t> order, dependent;
  for (int32_t n = 0; n < std::ssize(graph.nodes()); ++n) (n < last && !depends[n] ? order : dependent).push_back(n);
  order.insert(order.end(), dependent.begin(), dependent.end());
  const auto place = std::ranges::find(order, head.loss) - order.begin();
  return {ReorderNodes(graph, order), static_cast<int32_t>(place)};
}

// Replaces the head by blocks. Requires the node order of MoveBeforeHead.
absl::StatusOr<Graph> Chunk(const Graph& graph, const Head& head, const CrossEntropyChunks& chunks) {
  const auto& nodes = graph.nodes();
  const int64_t rows = ChooseRows(graph.type(nodes[head.loss].inputs[0]).shape[0], chunks);
  const std::set<int32_t> replaced = head.replaced();
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    const auto n = static_cast<int32_t>(&node - nodes.data());
    if (!replaced.contains(n)) return std::nullopt;
    if (n == *replaced.begin()) HeadChunker(r, head, rows).Emit();
    return Vals(node.outputs.size());  // Emit has set all that are read
  });
}

std::vector<int32_t> FindLosses(const Graph& graph) {
  std::vector<int32_t> losses;
  for (int32_t n = 0; n < std::ssize(graph.nodes()); ++n) {
    if (graph.nodes()[n].op == "CrossEntropy") losses.push_back(n);
  }
  return losses;
}

}  // namespace

bool HasLargeCrossEntropy(const Graph& graph, const CrossEntropyChunks& chunks) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) { return IsLarge(graph, node, chunks); });
}

// Divides the last loss first: its blocks then follow every loss still to be divided, and are not divided again.
absl::StatusOr<Graph> ChunkCrossEntropy(const Graph& graph, const CrossEntropyChunks& chunks) {
  Graph result = Dce(graph);
  for (size_t left = FindLosses(result).size(); left-- > 0;) {
    const int32_t at = FindLosses(result)[left];
    if (!IsLarge(result, result.nodes()[at], chunks)) continue;
    const std::optional<Head> head = HeadFinder(result).Find(at);
    if (!head.has_value()) continue;
    const auto [moved, place] = MoveBeforeHead(result, *head);
    ASSIGN_OR_RETURN(const Graph chunked, Chunk(moved, *HeadFinder(moved).Find(place), chunks));
    result = Dce(chunked);
  }
  return result;
}

}  // namespace onnxtrain
