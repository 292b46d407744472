// Writes the metadata of PyTorch's exporter into models.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/frontend/onnx/model_builder.h"

namespace onnxtrain {

inline constexpr const char* kSignatureKey = "pkg.torch.export.ExportedProgram.graph_signature";

// libonnx's classes do not know these fields, so they are unknown fields of the messages.
template <typename Proto>
void AddMetadata(Proto* proto, int field, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  proto->mutable_unknown_fields()->AddLengthDelimited(field, entry.SerializeAsString());
}

void AddSignature(onnx::ModelProto* model, const std::string& text);
// `target`: "add.Tensor"; `args`: "%x, %p_weight".
void AddFx(onnx::NodeProto* node, const std::string& name, const std::string& target, const std::string& args);
void AddScopes(onnx::NodeProto* node, const std::string& scopes);
// `sources`: "['fc.weight', 'val_1']".
void AddFoldedFrom(onnx::ModelProto* model, const std::string& name, const std::string& sources);
void AddFilled(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& dims, float value);

using Names = std::vector<std::string>;

Names WeightNames(const ImportedModel& model);  // sorted
// Of the model imported for training; the message where it cannot be.
Names TrainingWeightNames(const onnx::ModelProto& model);
// Returns null if there is none.
const ImportedWeight* FindWeight(const ImportedModel& model, const std::string& name);

}  // namespace onnxtrain
