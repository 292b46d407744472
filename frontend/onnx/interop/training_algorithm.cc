#include "frontend/onnx/interop/training_algorithm.h"

#include <map>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Renames the constants and results of the step whose names the model also uses.
class Renamer {
 public:
  Renamer(const onnx::GraphProto& inference, onnx::GraphProto* step) : step_(*step) {
    const Names taken = ListValues(inference), inputs = ListNames(step->input());
    const auto add = [&](const std::string& name) {
      if (taken.contains(name) && !inputs.contains(name)) renamed_[name] = StrCat("training/", name);
    };
    for (const auto& tensor : step->initializer()) {
      if (!IsWeight(inference, tensor.name())) add(tensor.name());
    }
    for (const auto& node : step->node()) {
      for (const auto& output : node.output()) add(output);
    }
  }

  void Rename() {
    for (auto& tensor : *step_.mutable_initializer()) Apply(tensor.mutable_name());
    for (auto& value : *step_.mutable_output()) Apply(value.mutable_name());
    for (auto& node : *step_.mutable_node()) {
      for (auto& name : *node.mutable_input()) Apply(&name);
      for (auto& name : *node.mutable_output()) Apply(&name);
    }
  }

 private:
  // Returns true for weights, which have the same name in both graphs; constants are numbered in each graph.
  bool IsWeight(const onnx::GraphProto& inference, const std::string& name) const {
    for (const auto& tensor : inference.initializer()) {
      if (tensor.name() != name) continue;
      for (const auto& own : step_.initializer()) {
        if (own.name() == name) return own.SerializeAsString() == tensor.SerializeAsString();
      }
    }
    return false;
  }

  void Apply(std::string* name) const {
    if (const auto it = renamed_.find(*name); it != renamed_.end()) *name = it->second;
  }

  onnx::GraphProto& step_;
  std::map<std::string, std::string, std::less<>> renamed_;
};

// Binds outputs NAME_new to the initializers NAME.
void BindUpdates(const onnx::GraphProto& algorithm, const Names& initializers, onnx::TrainingInfoProto* info) {
  for (const auto& output : algorithm.output()) {
    const std::string_view value = output.name();
    if (!value.ends_with(kNewSuffix) || !initializers.contains(value.substr(0, value.size() - kNewSuffix.size())))
      continue;
    auto* binding = info->add_update_binding();
    binding->set_key(std::string(value.substr(0, value.size() - kNewSuffix.size())));
    binding->set_value(std::string(value));
  }
}

void AddMetadata(const std::pair<std::string, std::string>& metadata, onnx::ModelProto* model) {
  if (metadata.second.empty()) return;
  auto* entry = model->add_metadata_props();
  entry->set_key(metadata.first);
  entry->set_value(metadata.second);
}

}  // namespace

Names ListValues(const onnx::GraphProto& graph) {
  Names names = ListNames(graph.input());
  names.merge(ListNames(graph.initializer()));
  for (const auto& node : graph.node()) names.insert(node.output().begin(), node.output().end());
  return names;
}

void RenameClashes(const onnx::GraphProto& inference, onnx::GraphProto* algorithm) {
  Renamer(inference, algorithm).Rename();
}

void AppendTrainingInfo(onnx::GraphProto* algorithm, const std::pair<std::string, std::string>& metadata,
                        onnx::ModelProto* model) {
  Names initializers = ListNames(model->graph().initializer());
  initializers.merge(ListNames(algorithm->initializer()));
  onnx::TrainingInfoProto* info = model->add_training_info();
  BindUpdates(*algorithm, initializers, info);
  AddMetadata(metadata, model);
  algorithm->set_name("training");
  *info->mutable_algorithm() = std::move(*algorithm);
}

}  // namespace onnxtrain
