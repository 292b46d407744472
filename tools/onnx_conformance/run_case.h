// ONNX backend cases: CASE/model.onnx with CASE/test_data_set_N/{input,output}_M.pb, and ONNX's light models: CASE.onnx
// with CASE_output_0.pb.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

// The cases of a folder, sorted. Fails where the folder cannot be read.
absl::StatusOr<std::vector<std::filesystem::path>> FindCases(const std::filesystem::path& folder);

// Imports the case, runs it on all of its data and compares. The data are inputs of the program, but for those that a
// static graph needs at import (shapes, axes, bounds). `backend` null: the importer's own slow evaluation.
// kUnimplemented where an operator or a type is not supported, or where no input is left for the backend.
absl::Status RunCase(const std::filesystem::path& path, Backend* backend);

}  // namespace onnxtrain
