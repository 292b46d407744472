#include "frontend/onnx/read/value_info.h"

#include <onnx/onnx_pb.h>

#include "frontend/base/status.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

// Describes a type in words: "sequence of tensor of float".
std::string TypeKind(const onnx::TypeProto& type) {
  if (type.has_sequence_type()) return StrCat("sequence of ", TypeKind(type.sequence_type().elem_type()));
  if (type.has_map_type()) return "map";
  if (type.has_optional_type()) return StrCat("optional ", TypeKind(type.optional_type().elem_type()));
  if (type.has_tensor_type()) return StrCat("tensor of ", OnnxTypeName(type.tensor_type().elem_type()));
  if (type.has_sparse_tensor_type()) return "sparse tensor";
  return "value of unknown type";
}

// Reads the type of a sequence, optional or optional sequence of tensors. Deeper nesting leaves `element` empty.
void ReadList(const onnx::TypeProto& type, ParsedValue* value) {
  value->kind = TypeKind(type);
  value->form.optional = type.has_optional_type();
  const onnx::TypeProto& inner = type.has_optional_type() ? type.optional_type().elem_type() : type;
  value->form.sequence = inner.has_sequence_type();
  const onnx::TypeProto& element = inner.has_sequence_type() ? inner.sequence_type().elem_type() : inner;
  if (element.has_tensor_type()) value->element = DTypeFromOnnx(element.tensor_type().elem_type());
}

}  // namespace

ParsedValue ReadValueInfo(const onnx::ValueInfoProto& proto) {
  ParsedValue value{.name = proto.name()};
  if (!proto.type().has_tensor_type()) {
    ReadList(proto.type(), &value);
    return value;
  }
  const auto& tensor = proto.type().tensor_type();
  value.dtype = DTypeFromOnnx(tensor.elem_type());
  value.kind = StrCat("tensor of ", OnnxTypeName(tensor.elem_type()));
  value.has_shape = tensor.has_shape();
  for (const auto& dim : tensor.shape().dim()) {
    // Exporters write 0 and -1 for "unknown"; neither can be an extent of real data.
    value.dims.push_back(dim.has_dim_value() && dim.dim_value() > 0 ? dim.dim_value() : -1);
    value.dim_names.push_back(dim.has_dim_param() ? Printable(dim.dim_param()) : "");
  }
  return value;
}

}  // namespace onnxtrain
