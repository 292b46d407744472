#include "tools/onnx_conformance/run_case.h"

#include <algorithm>
#include <map>
#include <memory>

#include "backends/bound_program.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/interpret.h"
#include "tools/onnx_conformance/data_set.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// Runs the graph once on a backend and gives its outputs in order.
absl::StatusOr<std::vector<HostTensor>> RunOn(Backend& backend, const Graph& graph,
                                              const std::map<std::string, HostTensor>& inputs) {
  auto legal = backend.Legalize(graph);
  if (!legal.ok()) return absl::UnimplementedError(legal.status().message());
  ASSIGN_OR_RETURN(BoundProgram program, BoundProgram::Make(backend, *legal));
  for (const GraphInput& input : program.graph().inputs()) {
    const auto it = inputs.find(input.name);
    if (it == inputs.end()) return Invalid("nothing to feed '", input.name, "' with");
    RETURN_IF_ERROR(program.Set(input.name, it->second));
  }
  RETURN_IF_ERROR(program.Run());
  std::vector<HostTensor> outputs;
  for (const GraphOutput& output : program.graph().outputs()) {
    ASSIGN_OR_RETURN(outputs.emplace_back(), program.Get(output.name));
  }
  return outputs;
}

ImportOptions CaseOptions(const OnnxModel& model, const DataSet& data) {
  ImportOptions options{.list_inputs = data.lists, .conformance = true};
  for (const OnnxModel::Input& input : model.inputs()) {
    for (const Feed& feed : data.inputs) {
      if (feed.name == input.name) options.input_shapes[feed.name] = feed.tensor.shape();
    }
  }
  return options;
}

struct CaseImport {
  ImportedModel model;
  size_t fixed = 0;  // inputs that are constants of the graph
};

// Cases feed shapes, axes, bounds and switches at run time, where a static graph needs them at import. Fixes only the
// inputs without which the import fails: all others stay inputs of the program.
absl::StatusOr<CaseImport> ImportCase(const OnnxModel& model, const DataSet& data) {
  ImportOptions options = CaseOptions(model, data);
  if (auto imported = Import(model, options); imported.ok()) return CaseImport{*std::move(imported)};
  for (const Feed& feed : data.inputs) options.fixed_inputs[feed.name] = feed.tensor;
  ASSIGN_OR_RETURN(ImportedModel model_of_fewest, Import(model, options));
  for (const Feed& feed : data.inputs) {
    options.fixed_inputs.erase(feed.name);
    if (auto imported = Import(model, options); imported.ok()) {
      model_of_fewest = *std::move(imported);
    } else {
      options.fixed_inputs[feed.name] = feed.tensor;
    }
  }
  return CaseImport{std::move(model_of_fewest), options.fixed_inputs.size()};
}

// One case records rounding noise of up to 1.9e-7 where its transform is 0: a float32 mean of ten numbers up to 99,
// which may be off by 2^-24 times the mean of their magnitudes, 3.2e-6.
double AbsoluteTolerance(const OnnxModel& model) {
  return fs::path(model.path()).parent_path().filename() == "test_dft_inverse_opset19" ? 1e-6 : kAbsoluteTolerance;
}

absl::Status RunDataSet(const OnnxModel& model, const DataSet& data, Backend* backend) {
  ASSIGN_OR_RETURN(const CaseImport made, ImportCase(model, data));
  const ImportedModel& imported = made.model;
  std::map<std::string, HostTensor> inputs;
  for (const ImportedWeight& weight : imported.weights) inputs[weight.name] = weight.value;
  for (const Feed& feed : data.inputs) inputs[feed.name] = feed.tensor;
  if (!imported.random_key.empty()) inputs[imported.random_key] = HostTensor({DType::kUInt32, {4}});
  ASSIGN_OR_RETURN(const std::vector<HostTensor> outputs,
                   backend == nullptr ? Interpret(imported.graph, inputs) : RunOn(*backend, imported.graph, inputs));
  if (imported.outputs.size() < data.outputs.size()) {
    return Invalid("gives ", imported.outputs.size(), " outputs, expected ", data.outputs.size());
  }
  for (size_t i = 0; i < data.outputs.size(); ++i) {
    RETURN_IF_ERROR(CompareOutput(imported.outputs[i], outputs[i], data.outputs[i], AbsoluteTolerance(model)));
  }
  if (backend == nullptr || data.inputs.empty() || made.fixed < data.inputs.size()) return absl::OkStatus();
  return absl::UnimplementedError("needs every input at import, where the host evaluates it: no kernel ran");
}

absl::Status RunLight(const fs::path& path, Backend* backend) {
  ASSIGN_OR_RETURN(const auto model, OnnxModel::Load(path.string()));
  ASSIGN_OR_RETURN(const DataSet data, LoadLightDataSet(path, *model));
  return RunDataSet(*model, data, backend);
}

absl::Status RunStored(const fs::path& folder, const OnnxModel& model, Backend* backend) {
  const absl::StatusOr<DataSet> data = LoadDataSet(folder, model);
  if (data.ok()) return RunDataSet(model, *data, backend);
  // What is no tensor: the model itself says best what is not supported.
  const absl::Status import = Import(model, {.conformance = true}).status();
  return absl::IsUnimplemented(import) ? import : data.status();
}

bool IsLight(const fs::path& path) {
  return path.extension() == ".onnx" && fs::exists(path.parent_path() / (path.stem().string() + "_output_0.pb"));
}

}  // namespace

absl::StatusOr<std::vector<fs::path>> FindCases(const fs::path& folder) {
  std::vector<fs::path> cases;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (IsLight(entry.path()) || fs::exists(entry.path() / "model.onnx")) cases.push_back(entry.path());
  }
  if (error) return absl::NotFoundError(StrCat(folder.string(), ": ", error.message()));
  std::sort(cases.begin(), cases.end());
  return cases;
}

absl::Status RunCase(const fs::path& path, Backend* backend) {
  if (path.extension() == ".onnx") return RunLight(path, backend);
  ASSIGN_OR_RETURN(const auto model, OnnxModel::Load((path / "model.onnx").string()));
  int sets = 0;
  for (;; ++sets) {
    const fs::path folder = path / StrCat("test_data_set_", sets);
    if (!fs::exists(folder)) break;
    RETURN_IF_ERROR(RunStored(folder, *model, backend));
  }
  return sets > 0 ? absl::OkStatus() : Invalid("has no data");
}

}  // namespace onnxtrain
