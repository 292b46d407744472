#include "tools/onnx_conformance/run_case.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/bound_program.h"
#include "frontend/base/status.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/ops/host_eval.h"

namespace onnxtrain {
namespace {

struct Feed {
  std::string name;  // of an input, or ElementName of one that is a sequence or optional
  HostTensor tensor;
};

struct DataSet {
  std::vector<Feed> inputs;                // in the model's order
  std::map<std::string, ListInput> lists;  // the inputs that are sequences or optionals
  std::vector<HostTensor> outputs;         // in the model's order, sequences as their elements
};

// Within 1e-3 relative plus `absolute`: by default the tolerances of ONNX's own runner.
inline constexpr double kAbsoluteTolerance = 1e-7;

namespace fs = std::filesystem;

constexpr double kRelative = 1e-3;

// Loads PREFIX0.pb, PREFIX1.pb, … as tensors, sequences or optionals, as the model declares them.
absl::StatusOr<std::vector<StoredValue>> LoadNumbered(const fs::path& folder, const std::string& prefix,
                                                      const std::vector<ValueForm>& forms) {
  std::vector<StoredValue> values;
  for (size_t i = 0;; ++i) {
    const fs::path path = folder / StrCat(prefix, i, ".pb");
    if (!fs::exists(path)) return values;
    if (i >= forms.size()) return Invalid(path.string(), " belongs to no input or output of the model");
    ASSIGN_OR_RETURN(values.emplace_back(), LoadValueFile(path.string(), forms[i]));
  }
}

absl::StatusOr<std::vector<HostTensor>> LoadOutputs(const fs::path& folder, const std::string& prefix,
                                                    const OnnxModel& model) {
  ASSIGN_OR_RETURN(std::vector<StoredValue> values, LoadNumbered(folder, prefix, model.output_forms()));
  std::vector<HostTensor> outputs;
  for (StoredValue& value : values) outputs.insert(outputs.end(), value.elements.begin(), value.elements.end());
  return outputs;
}

// Reinterprets stored values: the cases store bfloat16 as uint16.
HostTensor As(DType dtype, const HostTensor& stored) {
  if (dtype != DType::kBFloat16 || stored.dtype() != DType::kUInt16) return stored;
  return HostTensor({dtype, stored.shape()}, std::make_shared<HostTensor>(stored), stored.bytes().data());
}

bool Near(double a, double b, double absolute) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= absolute + kRelative * std::fabs(b);
}

absl::Status CompareBits(const std::string& name, const HostTensor& got, const HostTensor& want) {
  if (got.shape() != want.shape())
    return Invalid("output '", name, "' is ", ToString(got.type()), ", expected ", ToString(want.type()));
  const HostTensor numbers = As(DType::kBFloat16, want);
  for (int64_t i = 0; i < want.size(); ++i) {
    if (std::isnan(got.At(i)) && std::isnan(numbers.At(i))) continue;
    const double bits = got.data<uint16_t>()[i];
    if (!Near(bits, want.At(i), kAbsoluteTolerance))
      return Invalid("output '", name, "' element ", i, " has bits ", bits, ", expected ", want.At(i));
  }
  return absl::OkStatus();
}

HostTensor Ramp(const OnnxModel::Input& input) {
  HostTensor tensor({input.dtype, input.dims});
  const auto n = static_cast<double>(tensor.size());
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, static_cast<double>(i) / n);
  return tensor;
}

// Loads a folder "test_data_set_N". Returns kUnimplemented if a file holds anything but tensors, sequences and
// optionals.
absl::StatusOr<DataSet> LoadDataSet(const fs::path& folder, const OnnxModel& model) {
  DataSet data;
  std::vector<ValueForm> forms;
  for (const OnnxModel::Input& input : model.inputs()) forms.push_back(input.form);
  ASSIGN_OR_RETURN(const std::vector<StoredValue> inputs, LoadNumbered(folder, "input_", forms));
  ASSIGN_OR_RETURN(data.outputs, LoadOutputs(folder, "output_", model));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const OnnxModel::Input& input = model.inputs()[i];
    if (forms[i].is_tensor()) {
      data.inputs.push_back({input.name, As(input.dtype, inputs[i].elements[0])});
      continue;
    }
    ListInput& list = data.lists[input.name];
    list.present = inputs[i].present;
    for (const HostTensor& element : inputs[i].elements) {
      data.inputs.push_back({ElementName(input.name, list.elements.size()), element});
      list.elements.push_back(element.shape());
    }
  }
  return data;
}

// Loads a light model CASE.onnx: each input of n elements is 0, 1/n, 2/n, …; outputs are in CASE_output_0.pb.
absl::StatusOr<DataSet> LoadLightDataSet(const fs::path& path, const OnnxModel& model) {
  DataSet data;
  for (const OnnxModel::Input& input : model.inputs()) {
    RETURN_IF_ERROR(CheckShape(input.dims));
    data.inputs.push_back({input.name, Ramp(input)});
  }
  ASSIGN_OR_RETURN(data.outputs, LoadOutputs(path.parent_path(), path.stem().string() + "_output_", model));
  return data;
}

absl::Status CompareOutput(const std::string& name, const HostTensor& got, const HostTensor& stored,
                           double absolute = kAbsoluteTolerance) {
  // ONNX's runner compares stored numbers, of bfloat16 too: its cases were made by truncation, kernels round to
  // nearest.
  if (got.dtype() == DType::kBFloat16 && stored.dtype() == DType::kUInt16) return CompareBits(name, got, stored);
  const HostTensor& want = stored;
  if (!(got.type() == want.type())) {
    return Invalid("output '", name, "' is ", ToString(got.type()), ", expected ", ToString(want.type()));
  }
  for (int64_t i = 0; i < want.size(); ++i) {
    const bool same = IsFloat(want.dtype()) || IsSmallFloat(want.dtype()) ? Near(got.At(i), want.At(i), absolute)
                                                                          : got.IntAt(i) == want.IntAt(i);
    if (!same) return Invalid("output '", name, "' element ", i, " is ", got.At(i), ", expected ", want.At(i));
  }
  return absl::OkStatus();
}

namespace fs = std::filesystem;

// Runs the graph once on a backend, and returns its outputs in order.
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

// Returns the tolerance of a case. One case records rounding noise of up to 1.9e-7 where its transform is 0: a float32
// mean of ten numbers up to 99, which may be off by 2^-24 times the mean of their magnitudes, 3.2e-6.
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
  // Reports values that are not tensors by importing the model, whose error is more precise.
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
