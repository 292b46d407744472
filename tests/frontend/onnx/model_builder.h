// Builds small models, well-formed or not, and saves them in the folder of the test.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns an empty folder for the running test, removed at exit.
std::string TestFolder();
std::string WriteFile(const std::string& name, std::string_view bytes);
std::string ReadFile(const std::string& path);

// Returns an IR 8, opset 13 model without nodes.
onnx::ModelProto NewModel(int64_t opset = 13);
onnx::ValueInfoProto* AddInput(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& dims,
                               int type = 1);
void AddOutput(onnx::ModelProto* model, const std::string& name);
onnx::NodeProto* AddNode(onnx::ModelProto* model, const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::string& name = "");
void SetInts(onnx::NodeProto* node, const std::string& name, const std::vector<int64_t>& values);
void SetInt(onnx::NodeProto* node, const std::string& name, int64_t value);
void SetStrings(onnx::NodeProto* node, const std::string& name, const std::vector<std::string>& values);
void SetString(onnx::NodeProto* node, const std::string& name, const std::string& value);
onnx::TensorProto* SetTensor(onnx::NodeProto* node, const std::string& name);
onnx::TensorProto* AddInitializer(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& dims,
                                  int type = 1);
void FillFloats(onnx::TensorProto* tensor, const std::vector<float>& values);  // raw_data
void FillInts(onnx::TensorProto* tensor, const std::vector<int64_t>& values);  // int64_data

std::string Save(const onnx::ModelProto& model, const std::string& name = "model.onnx");
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadModel(const onnx::ModelProto& model);
absl::StatusOr<ImportedModel> ImportModel(const onnx::ModelProto& model, const ImportOptions& options = {});
// Saves the model, exports it with these weights to trained.onnx in TestFolder() and reads that back.
absl::StatusOr<onnx::ModelProto> RoundTrip(const onnx::ModelProto& model,
                                           const std::map<std::string, HostTensor>& weights,
                                           std::vector<std::string>* notes = nullptr);

HostTensor Floats(Shape shape, const std::vector<double>& values);  // f32

// Returns the peak resident bytes. `restart` first resets them to the current ones.
int64_t PeakMemory(bool restart);

// Returns the message of an error, "" for success.
std::string Message(const absl::Status& status);

// x → y = x·w + b, with x [N, 2], w [2, 3], b [3]. Most tests modify this model.
onnx::ModelProto LinearModel();

}  // namespace onnxtrain
