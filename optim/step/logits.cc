#include "optim/step/logits.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr int kMaxVisits = 500;        // of nodes, per output
constexpr double kSmallest = 1e-30;    // probabilities below count as this
constexpr int64_t kEveryElement = -1;  // the axis of a sigmoid
constexpr double kLargestClip = 1e-3;  // clips that keep this distance from 0 and 1 do not count

struct Activation {
  std::string op;  // Softmax, LogSoftmax or Sigmoid
  Val logits;      // in the shape of the activation's value
  int64_t axis = kEveryElement;
};
using Found = std::optional<Activation>;

// The axis of `after` that has the elements of axis `axis` of `before`, in the same order.
std::optional<int64_t> AxisAfterReshape(const Shape& before, const Shape& after, int64_t axis) {
  const auto inner = [](const Shape& s, size_t a) {
    return NumElements(Shape(s.begin() + static_cast<std::ptrdiff_t>(a) + 1, s.end()));
  };
  for (size_t a = 0; a < after.size(); ++a) {
    if (after[a] == before[axis] && inner(after, a) == inner(before, axis)) return static_cast<int64_t>(a);
  }
  return std::nullopt;
}

std::optional<double> ScalarOf(Val v) {
  const HostTensor* constant = v.valid() ? v.constant() : nullptr;
  if (constant == nullptr || constant->size() != 1) return std::nullopt;
  return constant->At(0);
}

class LogitsFinder {
 public:
  explicit LogitsFinder(Builder* b) : b_(*b), graph_(b->graph()) {}

  // Returns the logits of `v`; nothing if `v` is no distribution or is produced by the activation itself.
  Found FindBehind(ValueId v) {
    const Node* node = graph_.producer(v);
    if (node == nullptr || FindOp(node->op)->probabilities) return std::nullopt;
    if (Found found = Find(v)) return found;
    const int64_t rank = graph_.type(v).rank();
    for (const int64_t axis : {int64_t{1}, rank - 1}) {
      if (axis < 1 || axis >= rank || graph_.type(v).shape[axis] < 2) continue;
      const std::optional<double> sum = SumOver(v, axis);
      if (sum.has_value() && std::fabs(*sum - 1) < 1e-5) return Activation{"Softmax", LogOf(v), axis};
    }
    return std::nullopt;
  }

 private:
  Val In(const Node& node, size_t i) { return i < node.inputs.size() ? b_.Wrap(node.inputs[i]) : Val(); }
  const Node* Visit(ValueId v) { return ++visits_ > kMaxVisits ? nullptr : graph_.producer(v); }

  Val LogOf(ValueId v) {
    const Val clipped = b_.Op("Clip", {b_.Wrap(v)}, {{"min", kSmallest}});
    return Log(clipped);
  }

  Found Find(ValueId v) {
    const Node* producer = Visit(v);
    if (producer == nullptr || producer->inputs.empty()) return std::nullopt;
    const Node node = *producer;  // appending nodes moves the others
    if (FindOp(node.op)->probabilities) return Activation{node.op, In(node, 0), node.attrs.Int("axis", kEveryElement)};
    if (node.op == "Concat") return FindComplements(node);
    if (node.op == "Reshape" || node.op == "Transpose") return FindMoved(node, v);
    if (node.op == "Cast" && IsFloat(graph_.type(node.inputs[0]).dtype)) return Find(node.inputs[0]);
    if (node.op == "Clip") return FindClipped(node);
    if (node.op == "Exp" || node.op == "Log") return FindLogarithm(node);
    return std::nullopt;
  }

  Found FindMoved(const Node& node, ValueId v) {
    Found found = Find(node.inputs[0]);
    if (!found.has_value()) return found;
    if (node.op == "Reshape") {
      const std::optional<int64_t> axis =
          found->axis == kEveryElement ? kEveryElement
                                       : AxisAfterReshape(found->logits.shape(), graph_.type(v).shape, found->axis);
      if (!axis.has_value()) return std::nullopt;
      found->axis = *axis;
      found->logits = Reshape(found->logits, graph_.type(v).shape);
      return found;
    }
    const std::vector<int64_t> perm = node.attrs.Ints("perm");
    if (found->axis != kEveryElement) found->axis = std::ranges::find(perm, found->axis) - perm.begin();
    found->logits = Transpose(found->logits, perm);
    return found;
  }

  // Keras bounds probabilities by a small number.
  Found FindClipped(const Node& node) {
    const double low = node.attrs.Float("min", -kLargestClip), high = node.attrs.Float("max", 1);
    const Found found = Find(node.inputs[0]);
    return found.has_value() && found->op != "LogSoftmax" && low <= kLargestClip && high >= 1 - kLargestClip
               ? found
               : std::nullopt;
  }

  Found FindLogarithm(const Node& node) {
    Found found = Find(node.inputs[0]);
    const char* before = node.op == "Exp" ? "LogSoftmax" : "Softmax";
    if (!found.has_value() || found->op != before) return std::nullopt;
    found->op = node.op == "Exp" ? "Softmax" : "LogSoftmax";
    return found;
  }

  // Returns s if `v` is 1 − s; kNoValue for other values.
  ValueId Complement(ValueId v) {
    const Node* node = Visit(v);
    if (node == nullptr || node->inputs.size() != 2) return kNoValue;
    if (node->op == "Sub" && ScalarOf(In(*node, 0)) == 1) return node->inputs[1];
    if (node->op != "Add") return kNoValue;
    for (size_t one : {0, 1}) {
      const Node* negated = graph_.producer(node->inputs[1 - one]);
      if (ScalarOf(In(*node, one)) == 1 && negated != nullptr && negated->op == "Neg") return negated->inputs[0];
    }
    return kNoValue;
  }

  // (1 − σ(z), σ(z)) is the softmax of (0, z), and the other way round.
  Found FindComplements(const Node& node) {
    if (node.inputs.size() != 2) return std::nullopt;
    const int64_t axis = node.attrs.Int("axis");
    for (size_t positive : {1, 0}) {
      const ValueId p = node.inputs[positive];
      if (Complement(node.inputs[1 - positive]) != p || graph_.type(p).shape[axis] != 1) continue;
      const Found found = Find(p);
      if (!found.has_value() || found->op != "Sigmoid") return std::nullopt;
      const Val z = found->logits, zero = ZerosLike(z);
      return Activation{"Softmax", positive == 1 ? Concat({zero, z}, axis) : Concat({z, zero}, axis), axis};
    }
    return std::nullopt;
  }

  // Returns the sum of the value over an axis if it is the same for every input: 1 for a softmax.
  std::optional<double> SumOver(ValueId v, int64_t axis) {
    if (const Found found = Find(v)) {
      if (found->op == "Softmax" && found->axis == axis) return 1;
      return std::nullopt;
    }
    const Node* producer = Visit(v);
    if (producer == nullptr) return std::nullopt;
    const Node node = *producer;
    if (node.op == "Mul" || node.op == "Div") return SumOfScaled(node, axis);
    if (node.op == "Add") return SumOfSum(node, axis);
    if (node.op == "ReduceMean" || node.op == "ReduceSum") return SumOfReduced(node, axis);
    return std::nullopt;
  }

  std::optional<double> SumOfScaled(const Node& node, int64_t axis) {
    if (node.op == "Div" && IsDividedByItsSum(node, axis)) return 1;
    const bool first = node.op == "Mul" && ScalarOf(In(node, 0)).has_value();
    const std::optional<double> factor = ScalarOf(In(node, first ? 0 : 1));
    if (!factor.has_value() || *factor == 0) return std::nullopt;
    const std::optional<double> sum = SumOver(node.inputs[first ? 1 : 0], axis);
    if (!sum.has_value()) return sum;
    return node.op == "Mul" ? *sum * *factor : *sum / *factor;
  }

  std::optional<double> SumOfSum(const Node& node, int64_t axis) {
    if (graph_.type(node.inputs[0]).shape != graph_.type(node.inputs[1]).shape) return std::nullopt;
    const std::optional<double> a = SumOver(node.inputs[0], axis);
    const std::optional<double> b = a.has_value() ? SumOver(node.inputs[1], axis) : a;
    if (!b.has_value()) return b;
    return *a + *b;
  }

  std::optional<double> SumOfReduced(const Node& node, int64_t axis) {
    const Shape before = graph_.type(node.inputs[0]).shape;
    std::vector<int64_t> axes = node.attrs.Ints("axes");
    std::ranges::sort(axes);
    double count = 1;
    for (const int64_t a : axes) {
      if (node.attrs.Int("keepdims", 1) == 0 && a <= axis) ++axis;
      if (node.op == "ReduceSum") count *= static_cast<double>(before[a]);
    }
    if (axes.empty() || std::ranges::count(axes, axis) > 0 || axis >= static_cast<int64_t>(before.size()))
      return std::nullopt;
    const std::optional<double> sum = SumOver(node.inputs[0], axis);
    if (!sum.has_value()) return sum;
    return *sum * count;
  }

  // Skips operators that only guard a division against 0.
  template <typename Condition>
  bool LeadsTo(ValueId v, int depth, Condition condition) {
    if (v == kNoValue) return false;
    if (condition(v)) return true;
    const Node* node = depth > 0 ? Visit(v) : nullptr;
    if (node == nullptr) return false;
    const OpRow& row = *FindOp(node->op);
    if (!row.moves_data && !row.guards_divisor) return false;
    const ValueIds inputs = node->inputs;
    return std::ranges::any_of(inputs, [&](ValueId in) { return LeadsTo(in, depth - 1, condition); });
  }

  bool IsNonNegative(ValueId v, int depth = 6) {
    const Node* node = depth > 0 ? Visit(v) : nullptr;
    if (node == nullptr) return false;
    const OpRow& row = *FindOp(node->op);
    if (row.non_negative == NonNegative::kAlways) return true;
    if (const HostTensor* constant = graph_.FindConstant(v)) return constant->size() == 1 && constant->At(0) >= 0;
    if (!row.moves_data && row.non_negative != NonNegative::kIfInputsAre) return false;
    const ValueIds inputs = node->inputs;
    return std::ranges::all_of(inputs, [&](ValueId in) { return IsNonNegative(in, depth - 1); });
  }

  // x / Σx for an x that is not negative, with or without a guard.
  bool IsDividedByItsSum(const Node& node, int64_t axis) {
    const Shape &x = graph_.type(node.inputs[0]).shape, &sum = graph_.type(node.inputs[1]).shape;
    if (sum.size() != x.size() || sum[axis] != 1 || x[axis] < 2) return false;
    return LeadsTo(node.inputs[1], 4, [&](ValueId v) {
      const Node* reduced = graph_.producer(v);
      if (reduced == nullptr || reduced->op != "ReduceSum" || reduced->attrs.Ints("axes") != std::vector{axis})
        return false;
      const ValueId summed = reduced->inputs[0];
      return LeadsTo(node.inputs[0], 4, [&](ValueId u) { return u == summed; }) && IsNonNegative(summed);
    });
  }

  Builder& b_;
  Graph& graph_;
  int visits_ = 0;
};

std::string UnusedName(const Graph& graph, std::string name) {
  while (graph.FindOutput(name) != nullptr) name += "_";
  return name;
}

}  // namespace

void ExposeLogits(ImportedModel* model) {
  Builder b(&model->graph);
  b.set_source("loss");
  for (const std::string& name : model->outputs) {
    const ValueId v = model->graph.FindOutput(name)->value;
    if (model->logits.contains(name) || !IsFloat(model->graph.type(v).dtype)) continue;
    const Found found = LogitsFinder(&b).FindBehind(v);
    if (!found.has_value() || !found->logits.valid()) continue;
    const std::string logits = UnusedName(model->graph, StrCat(name, ".logits"));
    model->graph.AddOutput(logits, found->logits.id());
    model->logits[name] = {logits, found->op};
  }
}

}  // namespace onnxtrain
