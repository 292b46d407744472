// Runs ONNX backend cases (CASE/model.onnx with CASE/test_data_set_N/{input,output}_M.pb) and ONNX's light models
// (CASE.onnx with CASE_output_0.pb).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

// Returns the cases of a folder, sorted. Fails if the folder cannot be read.
absl::StatusOr<std::vector<std::filesystem::path>> FindCases(const std::filesystem::path& folder);

// Imports the case, runs it on all of its data sets and compares the outputs. Inputs that a static graph needs at
// import (shapes, axes, bounds) become constants. `backend` null: evaluates on the host, slowly. Returns kUnimplemented
// if an operator or a type is not supported, or if all inputs became constants.
absl::Status RunCase(const std::filesystem::path& path, Backend* backend);

}  // namespace onnxtrain
