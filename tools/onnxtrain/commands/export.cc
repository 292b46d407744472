// onnxtrain export: writes a model with weights from elsewhere, another head or re-initialized weights, untrained, or
// graphs of its training for other runtimes.
#include "frontend/onnx/write/export.h"

#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/export_graphs.h"
#include "optim/plan/surgery.h"
#include "optim/record/adapter_files.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/record/run_folder.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/inference.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

using Weights = std::map<std::string, HostTensor>;

absl::StatusOr<Weights> FromArrays(const std::string& path) {
  ASSIGN_OR_RETURN(NamedArrays arrays, ReadNpz(path));
  Weights weights;
  for (auto& [name, value] : arrays) weights.emplace(std::move(name), std::move(value));
  return weights;
}

// Returns the floating-point initializers of another model that also exist in this one, by name.
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

// Returns the weights of a checkpoint, or their averages if the run would have exported these.
absl::StatusOr<Weights> FromCheckpoint(const TrainConfig& config, const OnnxModel& model) {
  ASSIGN_OR_RETURN(const ResumePoint point, OpenResumePoint(config.checkpoint));
  for (const std::string& skipped : point.skipped) Warn("skipped: " + skipped);
  if (!HasSurgery(config) && point.state.model_sha256 != model.sha256())
    Warn(StrCat(model.path(), ": is not the file that ", point.checkpoint.path, " was trained from"));
  const TrainConfig& trained = point.state.config;
  RETURN_IF_ERROR(CheckUnit(point));
  return ReadWeights(point.checkpoint, KeepsAverage(trained) && trained.export_weights != "last");
}

// Reads --weights or --checkpoint; empty if neither is given.
absl::StatusOr<Weights> LoadSpecifiedWeights(const TrainConfig& config, const OnnxModel& model) {
  if (!config.checkpoint.empty()) {
    const auto weights = FromCheckpoint(config, model);
    return weights.ok() ? weights : Annotate(weights.status(), "`checkpoint`: ");
  }
  if (config.weights.empty()) return Weights();
  auto weights = config.weights.ends_with(".onnx") ? FromModel(config.weights, model) : FromArrays(config.weights);
  if (!weights.ok()) return Annotate(weights.status(), "`weights`: ");
  RETURN_IF_ERROR(Annotate(Check(*weights, model), StrCat("`weights` ", config.weights, ": ")));
  return weights;
}

absl::StatusOr<int> WriteGraphs(const TrainConfig& config) {
  RETURN_IF_ERROR(RefuseUnused(config, {.writes_model = false}));
  for (const std::string& graph : {config.gradient_graph, config.training_graph})
    RETURN_IF_ERROR(CheckNotInput(graph, ListInputs(config, graph)));
  const bool both = !config.gradient_graph.empty() && !config.training_graph.empty();
  const auto place = [](const std::string& path) { return std::filesystem::absolute(path).lexically_normal(); };
  if (both && place(config.gradient_graph) == place(config.training_graph))
    return Invalid("`training_graph` ", config.training_graph, ": is the file of `gradient_graph`");
  ASSIGN_OR_RETURN(const auto model, LoadRunnableModel(config));
  ASSIGN_OR_RETURN(const Weights weights, LoadSpecifiedWeights(config, *model));
  ASSIGN_OR_RETURN(const ExportedGraphs exported, ExportGraphs(config, model, weights));
  for (const std::string& note : exported.notes) LogInfo(config, note);
  RETURN_IF_ERROR(Print(DescribeGraphs(exported)));
  return kDone;
}

// Returns the factors and whole weights of the adapters that the model was loaded with, other than `weights`.
Weights AdapterWeights(const OnnxModel& model, Weights weights) {
  for (const LowRankUpdate& update : model.edits().low_rank) {
    for (const auto& [name, initial] : update.Trained()) weights.emplace(name, initial);
  }
  for (const std::string& name : model.edits().whole) {
    if (const HostTensor* value = model.Initializer(name); value != nullptr) weights.emplace(name, *value);
  }
  return weights;
}

// Names the files of adapters after the exported model: y.adapter/, y.onnx_adapter, y.adapter-inputs.onnx, y.genai/.
AdapterPaths NameAdapterFiles(const std::string& out) {
  const std::string stem = std::filesystem::path(out).replace_extension().string();
  return {.peft = stem + ".adapter",
          .adapter = stem + ".onnx_adapter",
          .base = stem + ".adapter-inputs.onnx",
          .genai = stem + ".genai"};
}

// Writes what `adapter_out` asks for besides the merged model, and returns rows for the user.
absl::StatusOr<std::string> WriteAdapters(const TrainConfig& config, const OnnxModel& model, const Weights& weights,
                                          const std::string& out) {
  const Weights all = AdapterWeights(model, weights);
  const AdapterFiles files{.config = config,
                           .model = model,
                           .weights = all,
                           .peft = WritesAdapterAs(config, "peft", "merged"),
                           .onnx = WritesAdapterAs(config, "onnx", "merged")};
  const AdapterPaths paths = NameAdapterFiles(out);
  for (const std::string& path : {paths.adapter, paths.base})
    RETURN_IF_ERROR(Annotate(CheckNotInput(path, ListInputs(config, path)), "`out` "));
  RETURN_IF_ERROR(CheckAdapterFiles(files, paths));
  ASSIGN_OR_RETURN(const std::vector<std::string> written, WriteAdapterFiles(files, paths));
  std::string text;
  for (const std::string& path : written) text += PageRow("written", path);
  return text;
}

}  // namespace

absl::StatusOr<int> RunExport(const TrainConfig& config) {
  if (!config.gradient_graph.empty() || !config.training_graph.empty()) return WriteGraphs(config);
  RETURN_IF_ERROR(Validate(config));
  RETURN_IF_ERROR(RefuseUnused(config, {.makes = kTaskExport}));
  ASSIGN_OR_RETURN(const std::string out, OutputFile(config, "y.onnx"));
  ASSIGN_OR_RETURN(auto model, LoadModel(config));
  if (config.weights.empty() && config.checkpoint.empty() && !HasSurgery(config))
    return Invalid("`weights`: missing (an .npz, or another .onnx), and so is `checkpoint`");
  if (HasSurgery(config)) {
    ASSIGN_OR_RETURN(Surgery surgery, ApplySurgery(config, model, nullptr, ""));
    model = std::move(surgery.model);
    for (const std::string& line : surgery.lines) LogInfo(config, line);
  }
  ASSIGN_OR_RETURN(const Weights weights, LoadSpecifiedWeights(config, *model));
  std::string text;
  if (!model->edits().low_rank.empty()) {
    ASSIGN_OR_RETURN(text, WriteAdapters(config, *model, weights, out));
  }
  if (model->edits().low_rank.empty() || WritesAdapterAs(config, "merged", "merged")) {
    ASSIGN_OR_RETURN(const auto edits, Export(*model, weights, out));
    text += PageRow("written", StrCat(out, ": ", weights.size(), " of ", model->InitializerNames().size(),
                                      " initializers replaced"));
    for (const std::string& edit : edits) text += PageRow("", edit);
  }
  RETURN_IF_ERROR(Print(text));
  return kDone;
}

}  // namespace onnxtrain::cli
