// Parses bytes to a ModelProto, and helps to read and edit its messages. For the sources of frontend/onnx alone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/attrs.h"
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

// Parses the bytes after GuardModelBytes has accepted them.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ParseModelProto(std::span<const std::byte> bytes);

// A message without the raw_data of large initializers, which stays where it is.
struct PartialModel {
  std::shared_ptr<onnx::ModelProto> proto;
  ExtractedData extracted;
};

// As ParseModelProto, without copying large initializers.
absl::StatusOr<PartialModel> ParsePartialModel(std::span<const std::byte> bytes);

// Applies edits. Their tensors take the element type of the tensors that they replace.
absl::Status ApplyEdits(const ModelEdits& edits, onnx::ModelProto* model);

// Whether the node is this operator of ai.onnx.
bool IsOnnxOp(const onnx::NodeProto& node, std::string_view op_type);

// The attribute of that name, or null.
onnx::AttributeProto* FindAttribute(onnx::NodeProto* node, std::string_view name);

// Makes the message this attribute, whatever it held. Tensors are not written.
void SetAttribute(const std::string& name, const AttrValue& value, onnx::AttributeProto* proto);

// Stores a value of the message's type and shape into the field that held the old one, or into raw_data where that
// field would have to be widened.
void StoreTensor(const HostTensor& value, onnx::TensorProto* proto);

// Appends an initializer. Files before IR version 4 list initializers as graph inputs as well.
void AddInitializer(const std::string& name, const HostTensor& value, onnx::ModelProto* model);

// Returns the numbers of a weight as a list of floats in an attribute has them: `size` is the list's old length. Of the
// rows (−w, w) of a binary classifier, the importer trains w, [1, …]: it is mirrored again.
HostTensor FitFloats(const HostTensor& weight, int64_t size);

// Visits every tensor of a model: initializers and attributes of its graphs, subgraphs, functions and training info.
absl::Status ForEachTensor(onnx::ModelProto* model, const std::function<absl::Status(onnx::TensorProto*)>& visit);

}  // namespace onnxtrain
