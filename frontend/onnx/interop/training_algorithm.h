// Edits the algorithm in the training_info of a model. For the sources of frontend/onnx only.
#pragma once

#include <onnx/onnx_pb.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace onnxtrain {

using Names = std::set<std::string, std::less<>>;

constexpr std::string_view kNewSuffix = "_new";  // of outputs that update an initializer

template <typename Values>
Names ListNames(const Values& values) {
  Names names;
  for (const auto& value : values) names.insert(value.name());
  return names;
}

// Removes the values with one of the names.
template <typename Values>
void Erase(const Names& names, Values* values) {
  Values kept;
  for (auto& value : *values) {
    if (!names.contains(value.name())) *kept.Add() = std::move(value);
  }
  values->Swap(&kept);
}

// Returns the names of inputs, initializers and node outputs.
Names ListValues(const onnx::GraphProto& graph);

// Renames constants and results of the algorithm whose names the model also uses to training/NAME.
void RenameClashes(const onnx::GraphProto& inference, onnx::GraphProto* algorithm);

// Appends the algorithm to the training_info of the model. Its outputs NAME_new are bound to the initializers NAME of
// the model or the algorithm. `metadata` is a key and value to add to the metadata of the model; an empty value adds
// nothing.
void AppendTrainingInfo(onnx::GraphProto* algorithm, const std::pair<std::string, std::string>& metadata,
                        onnx::ModelProto* model);

}  // namespace onnxtrain
