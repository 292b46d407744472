// Bounds the memory of messages before protobuf parses them, parses bytes into a ModelProto, reads and edits its
// messages and their metadata_props, and moves weights out of bodies of If, Loop and Scan. For the sources of
// frontend/onnx only.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/edit/model_edits.h"

namespace onnx {
class AttributeProto;
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
class ValueInfoProto;
}  // namespace onnx

namespace onnxtrain {

// The guard checks the bytes of a file before protobuf parses them.
//
// A few kilobytes on the wire can become gigabytes of message objects, and the parser recurses into nested messages.
// The guard walks the wire format with a table of ONNX's message fields, without recursion and allocation. It rejects
// bytes whose messages would take more than three times the file's size plus 200 MiB, or nest deeper than the limits
// below.

inline constexpr int kMaxSubgraphs = 32;  // graphs within graphs
inline constexpr int kMaxMessages = 150;  // messages within messages

absl::Status GuardModelBytes(std::span<const std::byte> bytes);
absl::Status GuardTensorBytes(std::span<const std::byte> bytes);
absl::Status GuardSequenceBytes(std::span<const std::byte> bytes);
absl::Status GuardOptionalBytes(std::span<const std::byte> bytes);

struct ByteRange {
  size_t offset = 0, size = 0;
};

// File ranges of the raw_data of initializers that was extracted from the message, by name.
using ExtractedData = std::map<std::string, ByteRange>;

struct ExtractedModel {
  std::string rest;                 // the message without the extracted raw_data
  std::vector<ByteRange> raw_data;  // of each initializer of the graph, in order; empty if it is still in `rest`
};

// Extracts raw_data of at least `min_bytes` bytes, so that protobuf does not copy it. The bytes must have passed
// GuardModelBytes.
ExtractedModel ExtractInitializers(std::span<const std::byte> bytes, size_t min_bytes);

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

// The metadata_props of a message. libonnx's message classes are older than most of these fields and keep them as
// unknown fields.
using Metadata = std::map<std::string, std::string>;

// Return the entries by key. Malformed and very long entries are skipped; the first of duplicate keys wins.
Metadata ReadMetadata(const onnx::ModelProto& proto);
Metadata ReadMetadata(const onnx::GraphProto& proto);
Metadata ReadMetadata(const onnx::NodeProto& proto);
Metadata ReadMetadata(const onnx::ValueInfoProto& proto);

// Returns the value of `key`, "" if it is absent.
const std::string& FindMetadata(const Metadata& metadata, const std::string& key);

// Calls `visit` for every body of the graph's nodes, including nested bodies.
void ForEachBody(onnx::GraphProto* graph, const std::function<void(onnx::GraphProto*)>& visit);

// Moves the float tensors of bodies (initializers and Constant nodes with at least two elements) to the graph, where
// they become weights like outer tensors that bodies read. A name that several graphs define is not moved. The export
// writes such weights back into the bodies.
void MoveBodyWeights(onnx::GraphProto* graph);

}  // namespace onnxtrain
