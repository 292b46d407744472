#include "tools/onnx_conformance/data_set.h"

#include <cmath>
#include <memory>

#include "frontend/base/status.h"
#include "frontend/onnx/read/value_file.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr double kRelative = 1e-3;

// PREFIX0.pb, PREFIX1.pb … with the forms that the model gives them.
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

// The cases store bfloat16 as uint16.
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

}  // namespace

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

absl::StatusOr<DataSet> LoadLightDataSet(const fs::path& path, const OnnxModel& model) {
  DataSet data;
  for (const OnnxModel::Input& input : model.inputs()) {
    RETURN_IF_ERROR(CheckShape(input.dims));
    data.inputs.push_back({input.name, Ramp(input)});
  }
  ASSIGN_OR_RETURN(data.outputs, LoadOutputs(path.parent_path(), path.stem().string() + "_output_", model));
  return data;
}

absl::Status CompareOutput(const std::string& name, const HostTensor& got, const HostTensor& stored, double absolute) {
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

}  // namespace onnxtrain
