#include "tools/onnx_conformance/data_set.h"

#include <cmath>
#include <memory>

#include "frontend/base/status.h"
#include "frontend/onnx/tensor_file.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// The tolerances of ONNX's own runner.
constexpr double kRelative = 1e-3, kAbsolute = 1e-7;

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

HostTensor Ramp(const OnnxModel::Input& input) {
  HostTensor tensor({input.dtype, input.dims});
  const auto n = static_cast<double>(tensor.size());
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, static_cast<double>(i) / n);
  return tensor;
}

}  // namespace

absl::StatusOr<DataSet> LoadDataSet(const fs::path& folder, const OnnxModel& model) {
  DataSet data;
  ASSIGN_OR_RETURN(data.inputs, LoadNumbered(folder, "input_"));
  ASSIGN_OR_RETURN(data.outputs, LoadNumbered(folder, "output_"));
  if (data.inputs.size() > model.inputs().size()) return Invalid("has more input files than inputs");
  for (size_t i = 0; i < data.inputs.size(); ++i) data.inputs[i] = As(model.inputs()[i].dtype, data.inputs[i]);
  return data;
}

absl::StatusOr<DataSet> LoadLightDataSet(const fs::path& path, const OnnxModel& model) {
  DataSet data;
  for (const OnnxModel::Input& input : model.inputs()) {
    RETURN_IF_ERROR(CheckShape(input.dims));
    data.inputs.push_back(Ramp(input));
  }
  ASSIGN_OR_RETURN(data.outputs, LoadNumbered(path.parent_path(), path.stem().string() + "_output_"));
  return data;
}

absl::Status CompareOutput(const std::string& name, const HostTensor& got, const HostTensor& stored) {
  // ONNX's runner compares stored numbers, of bfloat16 too: its cases were made by truncation, kernels round to nearest.
  if (got.dtype() == DType::kBFloat16 && stored.dtype() == DType::kUInt16) return CompareBits(name, got, stored);
  const HostTensor& want = stored;
  if (!(got.type() == want.type())) {
    return Invalid("output '", name, "' is ", ToString(got.type()), ", expected ", ToString(want.type()));
  }
  for (int64_t i = 0; i < want.size(); ++i) {
    const bool same = IsFloat(want.dtype()) || IsSmallFloat(want.dtype()) ? Near(got.At(i), want.At(i)) : got.IntAt(i) == want.IntAt(i);
    if (!same) return Invalid("output '", name, "' element ", i, " is ", got.At(i), ", expected ", want.At(i));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
