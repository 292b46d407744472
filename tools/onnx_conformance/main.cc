// onnx_conformance: runs a folder of ONNX backend cases (CASE/model.onnx, CASE/test_data_set_N/{input,output}_M.pb), or of
// ONNX's light models (CASE.onnx, CASE_output_0.pb; every input is 0, 1/n, 2/n, … of its n elements).
//
// One line for each case that fails or is not supported; the last line is "N passed, N failed, N unsupported".
// Exit code 0 unless a case failed (1) or there is nothing to run (2).
#include <gflags/gflags.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/tensor_file.h"
#include "frontend/ops/interpret.h"

DEFINE_string(cases, "", "folders of cases, separated by commas");
DEFINE_string(backend, "cpu", "cpu, torch, or host: the slow evaluation that the importer folds with");
DEFINE_string(device, "cpu", "cpu or cuda:N");
DEFINE_string(filter, "", "run only the cases whose name contains this");
DEFINE_bool(verbose, false, "a line for each passed case as well");

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// The tolerances of ONNX's own runner.
constexpr double kRelative = 1e-3, kAbsolute = 1e-7;

struct DataSet {
  std::vector<HostTensor> inputs, outputs;
};

absl::StatusOr<std::vector<HostTensor>> LoadNumbered(const fs::path& folder, const std::string& prefix) {
  std::vector<HostTensor> tensors;
  for (int i = 0;; ++i) {
    const fs::path path = folder / StrCat(prefix, i, ".pb");
    if (!fs::exists(path)) return tensors;
    ASSIGN_OR_RETURN(HostTensor tensor, LoadTensorFile(path.string()));
    tensors.push_back(std::move(tensor));
  }
}

// The cases store bfloat16 as uint16.
HostTensor As(DType dtype, const HostTensor& stored) {
  if (dtype != DType::kBFloat16 || stored.dtype() != DType::kUInt16) return stored;
  return HostTensor({dtype, stored.shape()}, std::make_shared<HostTensor>(stored), stored.bytes().data());
}

bool Near(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= kAbsolute + kRelative * std::fabs(b);
}

absl::Status CompareBits(const std::string& name, const HostTensor& got, const HostTensor& want) {
  if (got.shape() != want.shape()) return Invalid("output '", name, "' is ", ToString(got.type()), ", expected ", ToString(want.type()));
  const HostTensor numbers = As(DType::kBFloat16, want);
  for (int64_t i = 0; i < want.size(); ++i) {
    if (std::isnan(got.At(i)) && std::isnan(numbers.At(i))) continue;
    const double bits = got.data<uint16_t>()[i];
    if (!Near(bits, want.At(i))) return Invalid("output '", name, "' element ", i, " has bits ", bits, ", expected ", want.At(i));
  }
  return absl::OkStatus();
}

absl::Status Compare(const std::string& name, const HostTensor& got, const HostTensor& stored) {
  // ONNX's runner compares stored numbers, of bfloat16 too: its cases were made by truncation, kernels round to nearest.
  if (got.dtype() == DType::kBFloat16 && stored.dtype() == DType::kUInt16) return CompareBits(name, got, stored);
  const HostTensor& want = stored;
  if (!(got.type() == want.type())) {
    return Invalid("output '", name, "' is ", ToString(got.type()), ", expected ", ToString(want.type()));
  }
  for (int64_t i = 0; i < want.size(); ++i) {
    const bool same = IsFloat(want.dtype()) ? Near(got.At(i), want.At(i)) : got.IntAt(i) == want.IntAt(i);
    if (!same) return Invalid("output '", name, "' element ", i, " is ", got.At(i), ", expected ", want.At(i));
  }
  return absl::OkStatus();
}

// Runs the graph once on a backend, every input and output in a buffer of its own.
class Runner {
 public:
  Runner(Backend* backend, const std::map<std::string, HostTensor>& inputs) : backend_(backend), inputs_(inputs) {}

  absl::StatusOr<std::vector<HostTensor>> Run(const Graph& graph) {
    auto legal = backend_->Legalize(graph);
    if (!legal.ok()) return absl::UnimplementedError(legal.status().message());
    ASSIGN_OR_RETURN(std::unique_ptr<Program> program, backend_->Compile(*legal, {}));
    for (const GraphInput& input : program->graph().inputs()) {
      auto it = inputs_.find(input.name);
      if (it == inputs_.end()) return Invalid("nothing to feed '", input.name, "' with");
      ASSIGN_OR_RETURN(Buffer* buffer, NewBuffer(it->second.bytes().size()));
      RETURN_IF_ERROR(buffer->Write(0, it->second.bytes()));
      RETURN_IF_ERROR(program->BindInput(input.name, {buffer, 0}));
    }
    std::vector<Buffer*> outputs;
    for (const GraphOutput& output : program->graph().outputs()) {
      ASSIGN_OR_RETURN(outputs.emplace_back(), NewBuffer(program->graph().type(output.value).bytes()));
      RETURN_IF_ERROR(program->BindOutput(output.name, {outputs.back(), 0}));
    }
    ASSIGN_OR_RETURN(Buffer* arena, NewBuffer(program->memory().arena));
    RETURN_IF_ERROR(program->BindArena({arena, 0}));
    RETURN_IF_ERROR(program->Run());
    RETURN_IF_ERROR(backend_->Synchronize());
    return Fetch(program->graph(), outputs);
  }

 private:
  absl::StatusOr<Buffer*> NewBuffer(size_t bytes) {
    ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, backend_->Allocate(std::max<size_t>(bytes, 64)));
    return buffers_.emplace_back(std::move(buffer)).get();
  }

  static absl::StatusOr<std::vector<HostTensor>> Fetch(const Graph& graph, const std::vector<Buffer*>& buffers) {
    std::vector<HostTensor> results;
    for (size_t i = 0; i < buffers.size(); ++i) {
      HostTensor& result = results.emplace_back(graph.type(graph.outputs()[i].value));
      RETURN_IF_ERROR(buffers[i]->Read(0, result.mutable_bytes()));
    }
    return results;
  }

  Backend* backend_;
  const std::map<std::string, HostTensor>& inputs_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// Cases feed shapes, axes, bounds and the like as run-time inputs, where a static graph needs them at import: as few
// inputs as possible are fixed, from the last to the first, but always scalar switches (a training mode).
absl::StatusOr<ImportedModel> ImportCase(const OnnxModel& model, const DataSet& data) {
  ImportOptions options{.conformance = true};
  for (size_t i = 0; i < data.inputs.size(); ++i) {
    const Type& type = data.inputs[i].type();
    options.input_shapes[model.inputs()[i].name] = type.shape;
    if (type == Type{DType::kBool, {}}) options.fixed_inputs[model.inputs()[i].name] = data.inputs[i];
  }
  absl::StatusOr<ImportedModel> imported = Import(model, options);
  for (size_t first = data.inputs.size(); !imported.ok() && first-- > 0;) {
    options.fixed_inputs[model.inputs()[first].name] = data.inputs[first];
    imported = Import(model, options);
  }
  return imported;
}

absl::Status RunDataSet(const OnnxModel& model, const DataSet& data, Backend* backend) {
  ASSIGN_OR_RETURN(const ImportedModel imported, ImportCase(model, data));
  std::map<std::string, HostTensor> inputs;
  for (const ImportedWeight& weight : imported.weights) inputs[weight.name] = weight.value;
  for (size_t i = 0; i < data.inputs.size(); ++i) inputs[model.inputs()[i].name] = data.inputs[i];
  if (!imported.random_key.empty()) inputs[imported.random_key] = HostTensor({DType::kUInt32, {4}});
  ASSIGN_OR_RETURN(const std::vector<HostTensor> outputs,
                   backend == nullptr ? Interpret(imported.graph, inputs) : Runner(backend, inputs).Run(imported.graph));
  for (size_t i = 0; i < std::min(data.outputs.size(), imported.outputs.size()); ++i) {
    RETURN_IF_ERROR(Compare(imported.outputs[i], outputs[i], data.outputs[i]));
  }
  return absl::OkStatus();
}

HostTensor Ramp(const OnnxModel::Input& input) {
  HostTensor tensor({input.dtype, input.dims});
  const auto n = static_cast<double>(tensor.size());
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, static_cast<double>(i) / n);
  return tensor;
}

absl::Status RunLight(const fs::path& path, Backend* backend) {
  ASSIGN_OR_RETURN(const auto model, OnnxModel::Load(path.string()));
  DataSet data;
  for (const OnnxModel::Input& input : model->inputs()) {
    RETURN_IF_ERROR(CheckShape(input.dims));
    data.inputs.push_back(Ramp(input));
  }
  ASSIGN_OR_RETURN(data.outputs, LoadNumbered(path.parent_path(), path.stem().string() + "_output_"));
  return RunDataSet(*model, data, backend);
}

absl::Status RunCase(const fs::path& folder, Backend* backend) {
  if (folder.extension() == ".onnx") return RunLight(folder, backend);
  ASSIGN_OR_RETURN(const auto model, OnnxModel::Load((folder / "model.onnx").string()));
  int sets = 0;
  for (;; ++sets) {
    const fs::path path = folder / StrCat("test_data_set_", sets);
    if (!fs::exists(path)) break;
    DataSet data;
    auto inputs = LoadNumbered(path, "input_"), outputs = LoadNumbered(path, "output_");
    for (const auto* tensors : {&inputs, &outputs}) {
      if (tensors->ok()) continue;
      // Sequences and the like are no tensors: then the model is not supported either.
      const absl::Status import = Import(*model, {.conformance = true}).status();
      return absl::IsUnimplemented(import) ? import : tensors->status();
    }
    if (inputs->size() > model->inputs().size()) return Invalid("has more input files than inputs");
    for (size_t i = 0; i < inputs->size(); ++i) data.inputs.push_back(As(model->inputs()[i].dtype, (*inputs)[i]));
    data.outputs = *std::move(outputs);
    RETURN_IF_ERROR(RunDataSet(*model, data, backend));
  }
  return sets > 0 ? absl::OkStatus() : Invalid("has no data");
}

std::vector<fs::path> FindCases() {
  std::vector<fs::path> cases;
  for (const std::string& folder : std::vector<std::string>(absl::StrSplit(FLAGS_cases, ',', absl::SkipEmpty()))) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string name = entry.path().stem().string();
      if (name.find(FLAGS_filter) == std::string::npos) continue;
      const bool light = entry.path().extension() == ".onnx" && fs::exists(entry.path().parent_path() / (name + "_output_0.pb"));
      if (light || fs::exists(entry.path() / "model.onnx")) cases.push_back(entry.path());
    }
    if (error) std::fprintf(stderr, "%s: %s\n", folder.c_str(), error.message().c_str());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

int Main() {
  std::unique_ptr<Backend> backend;
  if (FLAGS_backend != "host") {
    auto created = CreateBackend(FLAGS_backend, {.device = FLAGS_device});
    if (!created.ok()) {
      std::fprintf(stderr, "%s\n", std::string(created.status().message()).c_str());
      return 2;
    }
    backend = *std::move(created);
  }
  int passed = 0, failed = 0, unsupported = 0;
  for (const fs::path& folder : FindCases()) {
    const absl::Status status = RunCase(folder, backend.get());
    int& count = status.ok() ? passed : absl::IsUnimplemented(status) ? unsupported : failed;
    ++count;
    const char* verdict = status.ok() ? "passed" : &count == &failed ? "failed" : "unsupported";
    if (!status.ok() || FLAGS_verbose) {
      std::string message(ToStd(status.message()));
      std::replace(message.begin(), message.end(), '\n', ' ');
      std::printf("%s %s: %s\n", verdict, folder.filename().c_str(), message.c_str());
      std::fflush(stdout);
    }
  }
  std::printf("%d passed, %d failed, %d unsupported\n", passed, failed, unsupported);
  return failed > 0 ? 1 : passed + unsupported == 0 ? 2 : 0;
}

}  // namespace
}  // namespace onnxtrain

int main(int argc, char** argv) {
  gflags::SetUsageMessage("onnx_conformance --cases DIR --backend cpu|torch|host");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return onnxtrain::Main();
}
