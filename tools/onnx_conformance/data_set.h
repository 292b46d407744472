// The recorded inputs and outputs of a case.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct Feed {
  std::string name;  // of an input, or ElementName of one that is a sequence or optional
  HostTensor tensor;
};

struct DataSet {
  std::vector<Feed> inputs;                // in the model's order
  std::map<std::string, ListInput> lists;  // the inputs that are sequences or optionals
  std::vector<HostTensor> outputs;         // in the model's order, sequences as their elements
};

// Of a folder "test_data_set_N". kUnimplemented where a file holds something else than tensors, their sequences and
// optionals.
absl::StatusOr<DataSet> LoadDataSet(const std::filesystem::path& folder, const OnnxModel& model);
// Of a light model CASE.onnx: every input is 0, 1/n, 2/n, … of its n elements, the outputs are in CASE_output_0.pb.
absl::StatusOr<DataSet> LoadLightDataSet(const std::filesystem::path& path, const OnnxModel& model);

// Within 1e-3 relative plus `absolute`: by default the tolerances of ONNX's own runner.
inline constexpr double kAbsoluteTolerance = 1e-7;
absl::Status CompareOutput(const std::string& name, const HostTensor& got, const HostTensor& want,
                           double absolute = kAbsoluteTolerance);

}  // namespace onnxtrain
