// onnxtrain export: a model with weights from elsewhere, or with another head or weights drawn anew, untrained.
#include "frontend/onnx/export.h"

#include "frontend/base/status.h"
#include "frontend/data/npz.h"
#include "tools/onnxtrain/command.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/inference.h"
#include "tools/onnxtrain/start_page.h"
#include "tools/onnxtrain/surgery.h"

namespace onnxtrain::cli {
namespace {

using Weights = std::map<std::string, HostTensor>;

absl::StatusOr<Weights> FromArrays(const std::string& path) {
  ASSIGN_OR_RETURN(NamedArrays arrays, ReadNpz(path));
  Weights weights;
  for (auto& [name, value] : arrays) weights.emplace(std::move(name), std::move(value));
  return weights;
}

// The floating-point initializers that another model of the same architecture holds under the same names.
absl::StatusOr<Weights> FromModel(const std::string& path, const OnnxModel& model) {
  ASSIGN_OR_RETURN(const auto other, OnnxModel::Load(path));
  Weights weights;
  for (const std::string& name : other->InitializerNames()) {
    const HostTensor* value = other->Initializer(name);
    if (IsFloat(value->dtype()) && model.Initializer(name) != nullptr) weights.emplace(name, *value);
  }
  return weights;
}

absl::Status Check(const Weights& weights, const OnnxModel& model) {
  if (weights.empty()) return Invalid("holds no weight of ", model.path());
  for (const auto& [name, value] : weights) {
    const HostTensor* stored = model.Initializer(name);
    if (stored == nullptr) return Invalid("'", name, "' is no initializer of ", model.path());
    if (stored->shape() != value.shape()) {
      return Invalid("'", name, "' is ", ToString(value.type()), ", the model has ", ToString(stored->type()));
    }
  }
  return absl::OkStatus();
}

// --weights; nothing where it is not given.
absl::StatusOr<Weights> GivenWeights(const OnnxModel& model) {
  if (!Given("weights")) return Weights();
  auto weights = FLAGS_weights.ends_with(".onnx") ? FromModel(FLAGS_weights, model) : FromArrays(FLAGS_weights);
  if (!weights.ok()) return Annotate(weights.status(), "--weights: ");
  RETURN_IF_ERROR(Annotate(Check(*weights, model), StrCat("--weights ", FLAGS_weights, ": ")));
  return weights;
}

}  // namespace

absl::StatusOr<int> RunExport() {
  ASSIGN_OR_RETURN(const std::string out, OutputFile("y.onnx"));
  ASSIGN_OR_RETURN(auto model, LoadModel());
  if (!Given("weights") && !WantsSurgery()) return Invalid("--weights: missing (an .npz, or another .onnx)");
  if (WantsSurgery()) {
    ASSIGN_OR_RETURN(Surgery surgery, Operate(model, nullptr, ""));
    model = std::move(surgery.model);
    for (const std::string& line : surgery.lines) Say(line);
  }
  ASSIGN_OR_RETURN(const Weights weights, GivenWeights(*model));
  ASSIGN_OR_RETURN(const auto edits, Export(*model, weights, out));
  std::string text = PageRow("written", StrCat(out, ": ", weights.size(), " of ", model->InitializerNames().size(),
                                               " initializers replaced"));
  for (const std::string& edit : edits) text += PageRow("", edit);
  RETURN_IF_ERROR(Print(text));
  return kDone;
}

}  // namespace onnxtrain::cli
