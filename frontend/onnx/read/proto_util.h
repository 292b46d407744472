// Parses bytes into a ModelProto, and reads and edits its messages. For the sources of frontend/onnx only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/edit/model_edits.h"
#include "frontend/onnx/read/guard.h"

namespace onnx {
class AttributeProto;
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
}  // namespace onnx

namespace onnxtrain {

// Checks the bytes by GuardModelBytes and parses them.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ParseModelProto(std::span<const std::byte> bytes);

// A message without the raw_data of large initializers, which stays in the file.
struct PartialModel {
  std::shared_ptr<onnx::ModelProto> proto;
  ExtractedData extracted;
};

// Parses like ParseModelProto, without copying large initializers.
absl::StatusOr<PartialModel> ParsePartialModel(std::span<const std::byte> bytes);

// Applies edits. Casts their tensors to the element types of the tensors that they replace.
absl::Status ApplyEdits(const ModelEdits& edits, onnx::ModelProto* model);

// Returns true if the node is the operator `op_type` of ai.onnx.
bool IsOnnxOp(const onnx::NodeProto& node, std::string_view op_type);

// Returns the attribute of that name, or null.
onnx::AttributeProto* FindAttribute(onnx::NodeProto* node, std::string_view name);

// Overwrites the message with this attribute. Does not write tensors.
void SetAttribute(const std::string& name, const AttrValue& value, onnx::AttributeProto* proto);

// Stores a value of the message's type and shape in the field that held the old value, or in raw_data if that field
// would have to be widened.
void StoreTensor(const HostTensor& value, onnx::TensorProto* proto);

// Appends an initializer. Files before IR version 4 list initializers as graph inputs as well.
void AddInitializer(const std::string& name, const HostTensor& value, onnx::ModelProto* model);

// Returns the elements of a weight as the list of floats of an attribute; `size` is the old length of the list. For a
// binary classifier with the rows (−w, w), whose second row w [1, …] is trained, restores both rows.
HostTensor FitFloats(const HostTensor& weight, int64_t size);

// Visits every tensor of a model: initializers and attributes of its graphs, subgraphs, functions and training info.
absl::Status ForEachTensor(onnx::ModelProto* model, const std::function<absl::Status(onnx::TensorProto*)>& visit);

}  // namespace onnxtrain
