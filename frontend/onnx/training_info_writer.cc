#include "frontend/onnx/training_info_writer.h"

#include <onnx/onnx_pb.h>

#include <map>
#include <set>
#include <span>

#include "frontend/base/status.h"
#include "frontend/onnx/model_proto.h"

namespace onnxtrain {
namespace {

using Names = std::set<std::string, std::less<>>;

constexpr std::string_view kNew = "_new";

template <typename Values>
Names ListNames(const Values& values) {
  Names names;
  for (const auto& value : values) names.insert(value.name());
  return names;
}

// Removes what has one of the names.
template <typename Values>
void Erase(const Names& names, Values* values) {
  Values kept;
  for (auto& value : *values) {
    if (!names.contains(value.name())) *kept.Add() = std::move(value);
  }
  values->Swap(&kept);
}

Names ListValues(const onnx::GraphProto& graph) {
  Names names = ListNames(graph.input());
  names.merge(ListNames(graph.initializer()));
  for (const auto& node : graph.node()) names.insert(node.output().begin(), node.output().end());
  return names;
}

// Renames the constants and results of the step that are called as values of the model.
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
  // Frozen weights have one name in both; constants are numbered in each.
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

absl::StatusOr<std::shared_ptr<onnx::ModelProto>> Parse(const std::string& bytes) {
  return ParseModelProto(std::as_bytes(std::span(bytes)));
}

}  // namespace

absl::StatusOr<std::string> AddTrainingInfo(const std::string& inference, const std::string& step,
                                            const std::pair<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const auto model, Parse(inference));
  ASSIGN_OR_RETURN(const auto training, Parse(step));
  onnx::GraphProto &graph = *model->mutable_graph(), &algorithm = *training->mutable_graph();
  // Only what is no input can be updated.
  Erase(ListNames(graph.initializer()), graph.mutable_input());
  Renamer(graph, &algorithm).Rename();
  Names shared = ListNames(graph.input());
  shared.merge(ListNames(graph.initializer()));
  Erase(shared, algorithm.mutable_initializer());
  Names known = shared;  // no input of the algorithm
  known.merge(ListNames(algorithm.initializer()));
  Erase(known, algorithm.mutable_input());
  auto* info = model->add_training_info();
  for (const auto& output : algorithm.output()) {
    const std::string_view value = output.name();
    if (!value.ends_with(kNew) || !known.contains(value.substr(0, value.size() - kNew.size()))) continue;
    auto* binding = info->add_update_binding();
    binding->set_key(std::string(value.substr(0, value.size() - kNew.size())));
    binding->set_value(std::string(value));
  }
  if (!metadata.second.empty()) {
    auto* entry = model->add_metadata_props();
    entry->set_key(metadata.first);
    entry->set_value(metadata.second);
  }
  algorithm.set_name("training");
  *info->mutable_algorithm() = std::move(algorithm);
  return model->SerializeAsString();
}

}  // namespace onnxtrain
