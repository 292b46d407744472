#include "tests/frontend/onnx/torch_metadata.h"

namespace onnxtrain {

void AddSignature(onnx::ModelProto* model, const std::string& text) {
  AddMetadata(model->mutable_graph(), 16, kSignatureKey, text);
}

void AddFx(onnx::NodeProto* node, const std::string& name, const std::string& target, const std::string& args) {
  AddMetadata(node, 9, "pkg.torch.onnx.fx_node",
              "%" + name + " : [num_users=1] = call_function[target=torch.ops.aten." + target + "](args = (" + args +
                  "), kwargs = {})");
}

void AddFoldedFrom(onnx::ModelProto* model, const std::string& name, const std::string& sources) {
  onnx::ValueInfoProto* info = model->mutable_graph()->add_value_info();
  info->set_name(name);
  AddMetadata(info, 4, "pkg.onnxscript.optimizer.folded_from", sources);
}

void AddFilled(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& dims, float value) {
  int64_t size = 1;
  for (int64_t d : dims) size *= d;
  FillFloats(AddInitializer(model, name, dims), std::vector<float>(static_cast<size_t>(size), value));
}

void AddScopes(onnx::NodeProto* node, const std::string& scopes) {
  AddMetadata(node, 9, "pkg.torch.onnx.name_scopes", scopes);
}

Names WeightNames(const ImportedModel& model) {
  Names names;
  for (const ImportedWeight& w : model.weights) names.push_back(w.name);
  std::ranges::sort(names);
  return names;
}

Names TrainingWeightNames(const onnx::ModelProto& model) {
  const auto imported = ImportModel(model, {.training = true});
  return imported.ok() ? WeightNames(*imported) : Names{Message(imported.status())};
}

const ImportedWeight* FindWeight(const ImportedModel& model, const std::string& name) {
  const auto it = std::ranges::find(model.weights, name, &ImportedWeight::name);
  return it == model.weights.end() ? nullptr : &*it;
}

}  // namespace onnxtrain
