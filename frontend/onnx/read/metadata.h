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

// Return the entries by key. Malformed and very long entries are skipped; the first of duplicate keys wins.
Metadata ReadMetadata(const onnx::ModelProto& proto);
Metadata ReadMetadata(const onnx::GraphProto& proto);
Metadata ReadMetadata(const onnx::NodeProto& proto);
Metadata ReadMetadata(const onnx::ValueInfoProto& proto);

// Returns the value of `key`, "" if it is absent.
const std::string& FindMetadata(const Metadata& metadata, const std::string& key);

// Returns the value of `key` in the metadata_props of the model file, "" if it is absent.
const std::string& FindModelMetadata(const OnnxModel& model, const std::string& key);

}  // namespace onnxtrain
