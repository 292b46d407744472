#include "frontend/onnx/edit/chosen_scores.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/weight_tracer.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

using Names = std::vector<std::string>;

constexpr int kMaxSteps = 100;

Names ToNames(const std::vector<int64_t>& labels) {
  Names names;
  for (const int64_t label : labels) names.push_back(StrCat(label));
  return names;
}

// Returns the labels in the attributes of a classifier or a ZipMap.
Names LabelsInAttributes(const ParsedNode& node) {
  for (const char* ints : {"classlabels_ints", "classlabels_int64s"}) {
    if (const std::vector<int64_t> labels = node.attrs.Ints(ints); !labels.empty()) return ToNames(labels);
  }
  const auto strings = node.strings.find("classlabels_strings");
  return strings != node.strings.end() ? strings->second : Names();
}

bool IsMl(const ParsedNode& node, std::string_view op) {
  return node.domain == "ai.onnx.ml" && node.op_type == op && !LacksOperands(node);
}

// Returns true if class c of the output is class c of input 0.
bool KeepsClasses(const ParsedNode& node) {
  const OnnxTraits& traits = GetOnnxTraits(node);
  return traits.view || traits.probabilities || traits.keeps_classes || traits.keeps_channels ||
         IsMl(node, "ArrayFeatureExtractor");
}

bool LooksUp(const ParsedNode& node) {
  return IsOp(node, {"Gather"}) || IsMl(node, "ArrayFeatureExtractor") || IsMl(node, "LabelEncoder");
}

// Returns whole numbers as text; empty if there are others.
Names ToNames(const HostTensor& labels) {
  Names names;
  for (int64_t i = 0; i < labels.size(); ++i) {
    if (labels.At(i) != std::floor(labels.At(i))) return {};
    names.push_back(StrCat(static_cast<int64_t>(labels.At(i))));
  }
  return names;
}

Names LabelsInTable(const ParsedGraph& graph, const std::string& name) {
  if (const auto strings = graph.strings.find(name); strings != graph.strings.end()) return strings->second;
  const auto tensor = graph.initializers.find(name);
  return tensor == graph.initializers.end() ? Names() : ToNames(tensor->second);
}

// Returns the labels of a LabelEncoder in the order of its keys, which must be 0, 1, …
Names LabelsOfKeys(const ParsedNode& encoder) {
  const auto texts = encoder.strings.find("values_strings");
  const Names values = texts != encoder.strings.end() ? texts->second : ToNames(encoder.attrs.Ints("values_int64s"));
  const std::vector<int64_t> keys = encoder.attrs.Ints("keys_int64s");
  std::map<int64_t, std::string> by_key;
  for (size_t i = 0; i < keys.size() && i < values.size(); ++i) by_key.emplace(keys[i], values[i]);
  Names names;
  for (const auto& [key, name] : by_key) {
    if (key != std::ssize(names)) return {};
    names.push_back(name);
  }
  return names;
}

class LabelFinder {
 public:
  explicit LabelFinder(const ParsedGraph& graph) : graph_(graph) {
    for (const ParsedNode& node : graph.nodes) {
      for (const std::string& output : node.outputs) producers_[output] = &node;
      for (const std::string& input : node.inputs) readers_[input].push_back(&node);
    }
  }

  Names Find(std::string value) const {
    for (int step = 0; step < kMaxSteps; ++step) {
      if (Names labels = LabelsOfReaders(value); !labels.empty()) return labels;
      const auto producer = producers_.find(value);
      if (producer == producers_.end()) break;
      const ParsedNode& node = *producer->second;
      if (Names labels = LabelsInAttributes(node); !labels.empty()) return labels;
      if (node.inputs.empty() || !KeepsClasses(node)) break;
      value = node.inputs[0];
    }
    return {};
  }

 private:
  const std::vector<const ParsedNode*>& Readers(const std::string& value) const {
    static const std::vector<const ParsedNode*> kNone;
    const auto it = readers_.find(value);
    return it == readers_.end() ? kNone : it->second;
  }

  // Returns the labels of a ZipMap that reads the scores, or of the table that an ArgMax indexes.
  Names LabelsOfReaders(const std::string& scores) const {
    for (const ParsedNode* reader : Readers(scores)) {
      if (IsMl(*reader, "ZipMap")) return LabelsInAttributes(*reader);
      if (IsIdentity(*reader) || IsOp(*reader, {"Cast"})) {
        for (const ParsedNode* next : Readers(reader->outputs[0])) {
          if (IsMl(*next, "ZipMap")) return LabelsInAttributes(*next);
        }
      }
      Names labels;
      const bool chooses = IsOp(*reader, {"ArgMax", "ArgMin"}) || GetOnnxTraits(*reader).discrete_outputs != 0;
      if (chooses) labels = TableAt(reader->outputs.back());
      if (GetOnnxTraits(*reader).probabilities) labels = LabelsOfReaders(reader->outputs[0]);
      if (!labels.empty()) return labels;
    }
    return {};
  }

  // Returns the table that is read at these indices.
  Names TableAt(std::string index) const {
    for (int step = 0; step < 8; ++step) {
      const ParsedNode* through = nullptr;
      for (const ParsedNode* reader : Readers(index)) {
        if (LooksUp(*reader) && reader->inputs.back() == index) return LabelsByIndex(graph_, *reader);
        if (KeepsClasses(*reader)) through = reader;
      }
      if (through == nullptr) break;
      index = through->outputs[0];
    }
    return {};
  }

  const ParsedGraph& graph_;
  std::unordered_map<std::string, const ParsedNode*> producers_;
  std::unordered_map<std::string, std::vector<const ParsedNode*>> readers_;
};

}  // namespace

std::vector<std::string> LabelsByIndex(const ParsedGraph& graph, const ParsedNode& node) {
  if (!LooksUp(node)) return {};
  return IsMl(node, "LabelEncoder") ? LabelsOfKeys(node) : LabelsInTable(graph, node.inputs[0]);
}

std::vector<std::string> FindClassLabels(const OnnxModel& model, const std::string& output) {
  const LabelFinder finder(model.parsed().graph);
  if (!output.empty()) return finder.Find(output);
  Names found;
  for (const std::string& name : model.outputs()) {
    Names labels = finder.Find(name);
    if (labels.empty() || labels == found) continue;
    if (!found.empty()) return {};
    found = std::move(labels);
  }
  return found;
}

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
    std::vector<std::string> trained;
    std::vector<Choice> choices;
    ChosenScores found;
    for (const ParsedValue& output : outputs_) {
      const bool integer = output.dtype.has_value() && !IsFloat(*output.dtype);
      if (!integer && HasGradient(output.name)) {
        trained.push_back(output.name);
      } else {
        AddChoices(output.name, &choices, &found);
      }
    }
    const auto is_extreme = [&](const std::string& name) { return IsExtremeOf(choices, name); };
    if (!std::ranges::all_of(trained, is_extreme)) return {};
    std::stable_partition(choices.begin(), choices.end(), [](const Choice& c) { return c.after == nullptr; });
    for (const Choice& choice : choices) Add(choice, &found);
    return found;
  }

 private:
  // A node that chooses by scores which have a gradient.
  struct Choice {
    const ParsedNode* node;
    std::string scores;
    bool smallest;
    const ParsedNode* after;           // the node that computes the output from the choice, or null
    std::optional<double> limit = {};  // the number that the scores are compared with
    std::string compared = {};         // as in ChosenScores
  };

  // Returns the operators whose indices are outputs of the model. TopK reorders the scores of a classifier, so that
  // labels do not fit them.
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
    return sorters_.contains(&node) || (IsDiscrete(node, output) && !IsRounded(node, output));
  }
  // Returns true for integers inside of the model, which stand for floats: rounding passes the gradient.
  bool IsRounded(const ParsedNode& node, const std::string& output) const {
    const auto is_output = [&](const ParsedValue& value) { return value.name == output; };
    return node.op_type == "QuantizeLinear" && std::ranges::none_of(outputs_, is_output);
  }

  // Calls visit(producer, value) for the value and for the inputs of its producers, the nearest first; the producer of
  // an input of the model is null. Continues to the inputs of a producer only if visit returns true.
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
    bool has_shape = true;
    VisitProducers(value, [&](const ParsedNode* node, const std::string&) {
      has_shape &= node == nullptr || !GetOnnxTraits(*node).shape_from_values;
      return has_shape;
    });
    return has_shape && IsComputed(value);
  }

  // Returns whether the value is computed, not only moved, from inputs or weights by operators with a gradient.
  bool IsComputed(const std::string& value) const {
    bool computed = false;
    VisitProducers(value, [&](const ParsedNode* node, const std::string& name) {
      if (node == nullptr || EndsGradient(*node, name)) return false;
      computed |= !MovesOrCasts(*node) && Learns(name);
      return MovesOrCasts(*node);
    });
    return computed;
  }

  bool Learns(const std::string& value) const {
    bool learns = false;
    VisitProducers(value, [&](const ParsedNode* node, const std::string& name) {
      learns |= node == nullptr || !node->graphs.empty();
      if (learns || EndsGradient(*node, name) || IsOp(*node, {"Shape", "Size"})) return false;
      learns = std::ranges::any_of(node->inputs, [this](const std::string& input) { return IsWeight(input); });
      return !learns;
    });
    return learns;
  }

  // Tensors of 32 and 64 bits are axes and shapes; quantized weights have fewer bits.
  bool IsWeight(const std::string& name) const {
    const HostTensor* tensor = name.empty() ? nullptr : tracer_.FindTensor(name);
    if (tensor == nullptr || tensor->size() < 2) return false;
    return IsFloat(tensor->dtype()) || (tensor->dtype() != DType::kInt64 && tensor->dtype() != DType::kInt32);
  }

  // Adds the nearest choices before an output.
  void AddChoices(const std::string& output, std::vector<Choice>* choices, ChosenScores* found) const {
    struct Step {
      std::string value;
      bool smallest = false;
      const ParsedNode* after = nullptr;
    };
    std::deque<Step> open = {{output}};
    std::set<std::string> seen = {output};
    for (; !open.empty(); open.pop_front()) {
      const Step step = open.front();
      const ParsedNode* node = tracer_.Producer(step.value);
      if (node == nullptr || IsOp(*node, {"Shape", "Size"})) continue;
      if (EndsGradient(*node, step.value)) {
        if (found->end.empty()) found->end = NodeTag(*node);
        Choice choice = FindChoice(*node);
        if (found->compared.empty()) found->compared = choice.compared;
        const bool of_shape = GetOnnxTraits(*node).shape_from_values;
        choice.smallest ^= step.smallest;
        choice.after = of_shape ? nullptr : step.after;  // it decides the number of elements, not their values
        if (!choice.scores.empty()) choices->push_back(choice);
        if (!choice.scores.empty() || !choice.compared.empty()) continue;  // otherwise it is a choice among choices
      }
      const bool keeps = KeepsChoice(*node);
      const bool reverses = keeps && (GetOnnxTraits(*node).reversed_inputs & 1) != 0;
      const ParsedNode* after = step.after == nullptr && !keeps ? node : step.after;
      for (const std::string& input : node->inputs) {
        if (!IsConstant(input) && seen.insert(input).second) open.push_back({input, step.smallest != reverses, after});
      }
    }
  }

  bool KeepsChoice(const ParsedNode& node) const {
    const OnnxTraits& traits = GetOnnxTraits(node);
    if (!traits.text_values.texts.empty()) return !LabelsByIndex(tracer_.model().graph, node).empty();
    return traits.keeps_choice || MovesOrCasts(node);
  }

  // Returns the producer of a value if it is a maximum or minimum, else null.
  const ParsedNode* FindExtreme(const std::string& value) const {
    const ParsedNode* producer = tracer_.Producer(value);
    return producer != nullptr && GetOnnxTraits(*producer).extreme ? producer : nullptr;
  }

  // Returns the single number that the node compares its scores with.
  std::optional<double> FindLimit(const ParsedNode& node) const {
    if (node.attrs.Has("threshold")) return node.attrs.Float("threshold");
    for (const std::string& input : node.inputs) {
      const HostTensor* tensor = input.empty() ? nullptr : tracer_.FindTensor(input);
      if (tensor != nullptr && tensor->size() == 1 && IsFloat(tensor->dtype())) return tensor->At(0);
    }
    return std::nullopt;
  }

  // Sets the limit if it differs from 0, or from a probability of 0.5.
  void SetLimit(const Choice& choice, ChosenScores* found) const {
    if (!choice.limit.has_value()) return;
    const ParsedNode* producer = tracer_.Producer(choice.scores);
    while (producer != nullptr && IsViewOrCast(*producer)) producer = tracer_.Producer(producer->inputs[0]);
    const bool probability = producer != nullptr && GetOnnxTraits(*producer).probabilities;
    const double limit = probability ? *choice.limit : 1 / (1 + std::exp(-*choice.limit));
    if (std::abs(limit - 0.5) < 1e-6) return;
    found->limit = choice.limit;
    found->least_probability = choice.smallest ? 1 - limit : limit;
  }

  // Finds the input that the node chooses by; its name is "" where no gradient passes from it. Prefers an input to the
  // maximum that it is compared with.
  Choice FindChoice(const ParsedNode& node) const {
    const OnnxTraits& traits = GetOnnxTraits(node);
    std::vector<size_t> inputs;
    for (size_t i = traits.scores_input; i < node.inputs.size(); ++i) {
      if (!IsConstant(node.inputs[i]) && HasGradient(node.inputs[i])) inputs.push_back(i);
    }
    std::stable_partition(inputs.begin(), inputs.end(),
                          [&](size_t i) { return FindExtreme(node.inputs[i]) == nullptr; });
    Choice choice{.node = &node, .scores = "", .smallest = false, .after = nullptr};
    if (inputs.empty()) return choice;
    choice.scores = node.inputs[inputs[0]];
    choice.smallest = (traits.reversed_inputs >> inputs[0] & 1) != 0;
    if (!traits.largest_attr.empty()) choice.smallest |= node.attrs.Int(std::string(traits.largest_attr), 1) == 0;
    const ParsedNode* extreme = inputs.size() < 2 ? nullptr : FindExtreme(node.inputs[inputs[1]]);
    if (inputs.size() > 1 && extreme == nullptr && traits.scores_input == 0) {
      choice.compared = StrCat("'", choice.scores, "' and '", node.inputs[inputs[1]], "'");
      choice.scores.clear();
    }
    choice.limit = FindLimit(node);
    if (extreme != nullptr) choice.smallest |= (GetOnnxTraits(*extreme).reversed_inputs & 1) != 0;
    return choice;
  }

  // Returns the value before views, casts and operators that compute probabilities.
  std::string FindLogits(std::string value) const {
    for (const ParsedNode* node = tracer_.Producer(value); node != nullptr; node = tracer_.Producer(value)) {
      if (!GetOnnxTraits(*node).probabilities && !IsViewOrCast(*node)) break;
      value = node->inputs[0];
    }
    return value;
  }

  // Returns true if the value is the maximum or minimum of scores that one of the choices is made by.
  bool IsExtremeOf(const std::vector<Choice>& choices, std::string value) const {
    const ParsedNode* extreme = FindExtreme(FindLogits(std::move(value)));
    if (extreme == nullptr) return false;
    const std::string scores = FindLogits(extreme->inputs[0]);
    return std::ranges::any_of(choices, [&](const Choice& c) { return FindLogits(c.scores) == scores; });
  }

  void Add(const Choice& choice, ChosenScores* found) const {
    // The smallest probability is that of the smallest logit.
    const ParsedNode* producer = tracer_.Producer(choice.scores);
    const bool skips = choice.smallest && producer != nullptr && GetOnnxTraits(*producer).probabilities;
    const std::string& scores = skips ? producer->inputs[0] : choice.scores;
    if (found->value.empty()) {
      *found = {.value = scores,
                .smallest = choice.smallest,
                .end = NodeTag(*choice.node),
                .after = choice.after == nullptr ? "" : NodeTag(*choice.after),
                .others = {}};
      SetLimit(choice, found);
    } else if (found->value != scores && std::ranges::find(found->others, scores) == found->others.end()) {
      found->others.push_back(scores);
    }
  }

  const std::vector<ParsedValue>& outputs_;
  const WeightTracer tracer_;
  const std::set<const ParsedNode*> sorters_;
};

}  // namespace

ChosenScores FindChosenScores(const OnnxModel& model) { return ScoreFinder(model.parsed()).Run(); }

}  // namespace onnxtrain
