#include "frontend/onnx/chosen_scores.h"

#include <algorithm>
#include <deque>
#include <set>

#include "frontend/onnx/weight_tracer.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

bool MovesOrCasts(const ParsedNode& node) {
  const OnnxTraits& traits = GetOnnxTraits(node);
  return traits.view || traits.moves || IsViewOrCast(node);
}

bool CastsToInteger(const ParsedNode& node) {
  if (!IsOp(node, {"Cast"})) return false;
  const std::optional<DType> to = DTypeFromOnnx(node.attrs.Int("to"));
  return to.has_value() && !IsFloat(*to);
}

// Returns whether the output of that name holds indices, choices or rounded numbers, which have no gradient.
bool IsDiscrete(const ParsedNode& node, const std::string& output) {
  const auto place = std::ranges::find(node.outputs, output) - node.outputs.begin();
  if ((GetOnnxTraits(node).discrete_outputs >> place & 1) != 0 || CastsToInteger(node)) return true;
  const OpRow* row = node.domain.empty() ? FindOp(node.op_type) : nullptr;
  return row != nullptr && row->grad_status == GradStatus::kZero;
}

class ScoreFinder {
 public:
  explicit ScoreFinder(const OnnxModel::Parsed& model)
      : outputs_(model.graph.outputs), tracer_(model), sorters_(FindSorters()) {}

  ChosenScores Run() const {
    ChosenScores found;
    for (const ParsedValue& output : outputs_) {
      const bool integer = output.dtype.has_value() && !IsFloat(*output.dtype);
      if (!integer && HasGradient(output.name)) return found;
    }
    for (const ParsedValue& output : outputs_) AddScores(output.name, &found);
    return found;
  }

 private:
  // The operators whose indices are outputs of the model. TopK also gives the scores of a classifier in a new order,
  // which fits no labels.
  std::set<const ParsedNode*> FindSorters() const {
    std::set<const ParsedNode*> sorters;
    for (const ParsedValue& output : outputs_) {
      VisitProducers(output.name, [&](const ParsedNode* node, const std::string& name) {
        if (node != nullptr && IsDiscrete(*node, name)) sorters.insert(node);
        return node != nullptr && !sorters.contains(node) && MovesOrCasts(*node);
      });
    }
    return sorters;
  }

  bool IsConstant(const std::string& name) const { return name.empty() || tracer_.FindTensor(name) != nullptr; }
  bool EndsGradient(const ParsedNode& node, const std::string& output) const {
    return sorters_.contains(&node) || IsDiscrete(node, output);
  }

  // Calls visit(producer, value) for the value and for what its producers read, the nearest first; the producer of an
  // input is null. Passes a producer only if visit returns true.
  template <typename Visitor>
  void VisitProducers(const std::string& start, Visitor visit) const {
    std::deque<std::string> open = {start};
    std::set<std::string> seen = {start};
    for (; !open.empty(); open.pop_front()) {
      const ParsedNode* node = tracer_.Producer(open.front());
      if (!visit(node, open.front()) || node == nullptr) continue;
      for (const std::string& input : node->inputs) {
        if (!IsConstant(input) && seen.insert(input).second) open.push_back(input);
      }
    }
  }

  // Returns whether the value has a gradient and a shape that does not depend on values.
  bool HasGradient(const std::string& value) const {
    bool has = false, has_shape = true;
    VisitProducers(value, [&](const ParsedNode* node, const std::string& name) {
      if (node == nullptr || EndsGradient(*node, name)) return false;
      has |= !MovesOrCasts(*node);
      return MovesOrCasts(*node);
    });
    VisitProducers(value, [&](const ParsedNode* node, const std::string&) {
      has_shape &= node == nullptr || !GetOnnxTraits(*node).shape_from_values;
      return has_shape;
    });
    return has && has_shape;
  }

  // Adds the values that the nearest operators without a gradient in front of an output choose by.
  void AddScores(const std::string& output, ChosenScores* found) const {
    VisitProducers(output, [&](const ParsedNode* node, const std::string& name) {
      if (node == nullptr || !EndsGradient(*node, name)) return node != nullptr;
      if (found->end.empty()) found->end = NodeTag(*node);
      const std::string scores = FindScores(*node);
      if (scores.empty()) return true;  // a choice of choices
      if (found->value.empty()) found->end = NodeTag(*node), found->value = scores;
      if (found->value != scores && std::ranges::find(found->others, scores) == found->others.end())
        found->others.push_back(scores);
      return false;
    });
  }

  // The input that the node chooses by; "" where no gradient passes from it.
  std::string FindScores(const ParsedNode& node) const {
    for (size_t i = GetOnnxTraits(node).scores_input; i < node.inputs.size(); ++i) {
      if (!IsConstant(node.inputs[i]) && HasGradient(node.inputs[i])) return node.inputs[i];
    }
    return "";
  }

  const std::vector<ParsedValue>& outputs_;
  const WeightTracer tracer_;
  const std::set<const ParsedNode*> sorters_;
};

}  // namespace

ChosenScores FindChosenScores(const OnnxModel& model) { return ScoreFinder(model.parsed()).Run(); }

}  // namespace onnxtrain
