#include "frontend/onnx/edit/class_labels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

using Names = std::vector<std::string>;

constexpr int kMaxSteps = 100;

Names ToNames(const std::vector<int64_t>& labels) {
  Names names;
  for (const int64_t label : labels) names.push_back(StrCat(label));
  return names;
}

// The labels in the attributes of a classifier or a ZipMap.
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

// Whether class c of the output is class c of input 0.
bool KeepsClasses(const ParsedNode& node) {
  const OnnxTraits& traits = GetOnnxTraits(node);
  return traits.view || traits.probabilities || traits.keeps_classes || traits.keeps_channels ||
         IsMl(node, "ArrayFeatureExtractor");
}

bool LooksUp(const ParsedNode& node) {
  return IsOp(node, {"Gather"}) || IsMl(node, "ArrayFeatureExtractor") || IsMl(node, "LabelEncoder");
}

// Whole numbers as text; empty where there are others.
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

// The labels of a LabelEncoder in the order of its keys, which must be 0, 1, …
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

  // Of a ZipMap beside the output, or of the table behind an ArgMax.
  Names LabelsOfReaders(const std::string& scores) const {
    for (const ParsedNode* reader : Readers(scores)) {
      if (IsMl(*reader, "ZipMap")) return LabelsInAttributes(*reader);
      if (IsOp(*reader, {"Identity", "Cast"})) {
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

  // The table that is read at these indices.
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

}  // namespace onnxtrain
