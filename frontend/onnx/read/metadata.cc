#include "frontend/onnx/read/metadata.h"

#include <onnx/onnx_pb.h>
#include "frontend/onnx/read/parsed.h"
#include "google/protobuf/unknown_field_set.h"

namespace onnxtrain {
namespace {

// Bounds one entry. A signature has one line per weight, which takes less than this for 100,000 weights.
constexpr size_t kMaxEntryBytes = size_t{32} << 20;

void AddEntry(const onnx::StringStringEntryProto& entry, Metadata* metadata) {
  if (entry.ByteSizeLong() <= kMaxEntryBytes) metadata->emplace(entry.key(), entry.value());
}

// Reads metadata_props from the unknown fields. The field numbers are from onnx.proto of IR version 10 and later.
template <typename Proto>
Metadata ReadUnknownEntries(const Proto& proto, int field_number) {
  Metadata metadata;
  const google::protobuf::UnknownFieldSet& fields = proto.unknown_fields();
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    if (field.number() != field_number || field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      continue;
    onnx::StringStringEntryProto entry;
    if (field.length_delimited().size() <= kMaxEntryBytes && entry.ParseFromString(field.length_delimited()))
      AddEntry(entry, &metadata);
  }
  return metadata;
}

}  // namespace

Metadata ReadMetadata(const onnx::ModelProto& proto) {
  Metadata metadata;
  for (const auto& entry : proto.metadata_props()) AddEntry(entry, &metadata);
  return metadata;
}

Metadata ReadMetadata(const onnx::GraphProto& proto) { return ReadUnknownEntries(proto, 16); }
Metadata ReadMetadata(const onnx::NodeProto& proto) { return ReadUnknownEntries(proto, 9); }
Metadata ReadMetadata(const onnx::ValueInfoProto& proto) { return ReadUnknownEntries(proto, 4); }

const std::string& FindMetadata(const Metadata& metadata, const std::string& key) {
  static const std::string none;
  const auto it = metadata.find(key);
  return it == metadata.end() ? none : it->second;
}

const std::string& FindModelMetadata(const OnnxModel& model, const std::string& key) {
  return FindMetadata(model.parsed().metadata, key);
}

}  // namespace onnxtrain
