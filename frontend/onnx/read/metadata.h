// Reads metadata_props. libonnx's message classes are older than most of these fields and keep them as unknown fields.
#pragma once

#include <map>
#include <string>

#include "frontend/onnx/import.h"

namespace onnx {
class GraphProto;
class ModelProto;
class NodeProto;
class ValueInfoProto;
}  // namespace onnx

namespace onnxtrain {

using Metadata = std::map<std::string, std::string>;

// Return the entries by key, without malformed and very long ones. Of several with one key the first counts.
Metadata ReadMetadata(const onnx::ModelProto& proto);
Metadata ReadMetadata(const onnx::GraphProto& proto);
Metadata ReadMetadata(const onnx::NodeProto& proto);
Metadata ReadMetadata(const onnx::ValueInfoProto& proto);

// Returns the value of a key, "" if there is none.
const std::string& FindMetadata(const Metadata& metadata, const std::string& key);

// What a model file says about itself in metadata_props.

// Returns the value of a key of the model's metadata; "" if there is none.
const std::string& FindModelMetadata(const OnnxModel& model, const std::string& key);

}  // namespace onnxtrain
