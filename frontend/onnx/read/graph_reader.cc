#include "frontend/onnx/read/graph_reader.h"

#include <cstring>
#include <unordered_set>

#include <onnx/onnx_pb.h>
#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/rules.h"

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

// Reads the declared name, type and shape of an input or output. Extents of 0 and below become free.
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

absl::StatusOr<HostTensor> ReadPart(const onnx::TensorProto& proto, std::string_view what, ExternalFiles* files) {
  auto part = ReadTensor(proto, nullptr, files);
  if (!part.ok()) return Annotate(part.status(), StrCat("(", what, ") "));
  if (!part->opaque.empty()) return absl::UnimplementedError(StrCat("holds ", what, " of type ", part->opaque));
  return part->tensor.Clone();  // the tensor may outlive the message
}

// Converts indices [n] (already offsets) or [n, rank] to row-major offsets of the values.
absl::StatusOr<std::vector<int64_t>> ComputeOffsets(const HostTensor& indices, const Shape& shape, int64_t count) {
  const auto rank = static_cast<int64_t>(shape.size());
  const bool linear = indices.shape() == Shape{count};
  if (indices.dtype() != DType::kInt64 || (!linear && indices.shape() != Shape{count, rank})) {
    return Invalid("has indices ", ToString(indices.type()), " for ", count, " values of ", ToString(shape));
  }
  const Shape strides = Strides(shape);
  std::vector<int64_t> offsets(count);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t axis = 0; axis < (linear ? 1 : rank); ++axis) {
      const int64_t index = indices.IntAt(linear ? i : i * rank + axis),
                    extent = linear ? NumElements(shape) : shape[axis];
      if (index < 0 || index >= extent)
        return Invalid("has the index ", index, ", which is outside its shape ", ToString(shape));
      offsets[i] += linear ? index : index * strides[axis];
    }
    if (i > 0 && offsets[i] <= offsets[i - 1]) return Invalid("has indices that do not increase");
  }
  return offsets;
}

// Converts a sparse tensor to a dense one. Fails above `budget` bytes, because a few bytes can declare a large tensor,
// and if indices are out of range or not increasing. Errors do not name the tensor.
absl::StatusOr<HostTensor> ReadSparseTensor(const onnx::SparseTensorProto& proto, ExternalFiles* files,
                                            int64_t budget) {
  const Shape shape(proto.dims().begin(), proto.dims().end());
  RETURN_IF_ERROR(CheckShape(shape));
  ASSIGN_OR_RETURN(const HostTensor values, ReadPart(proto.values(), "values", files));
  ASSIGN_OR_RETURN(const HostTensor indices, ReadPart(proto.indices(), "indices", files));
  if (values.shape().size() != 1) return Invalid("has values ", ToString(values.type()), ", not a list");
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, ComputeOffsets(indices, shape, values.size()));
  const Type type{values.dtype(), shape};
  if (static_cast<int64_t>(type.bytes()) > budget)
    return Invalid("of type ", ToString(type), " is too large when dense");
  HostTensor dense(type);
  const size_t size = DTypeSize(type.dtype);
  for (size_t i = 0; i < offsets.size(); ++i) {
    std::memcpy(dense.mutable_bytes().data() + offsets[i] * size, values.bytes().data() + i * size, size);
  }
  return dense;
}

// Returns the type of an attribute. Infers it from the field that is set if the file omits it (IR version 1).
onnx::AttributeProto::AttributeType GetAttributeType(const onnx::AttributeProto& proto) {
  if (proto.type() != onnx::AttributeProto::UNDEFINED) return proto.type();
  if (proto.has_f()) return onnx::AttributeProto::FLOAT;
  if (proto.has_i()) return onnx::AttributeProto::INT;
  if (proto.has_s()) return onnx::AttributeProto::STRING;
  if (proto.has_t()) return onnx::AttributeProto::TENSOR;
  if (proto.has_g()) return onnx::AttributeProto::GRAPH;
  if (proto.floats_size() > 0) return onnx::AttributeProto::FLOATS;
  if (proto.strings_size() > 0) return onnx::AttributeProto::STRINGS;
  return onnx::AttributeProto::INTS;
}

}  // namespace

std::string NormalizeDomain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

absl::Status GraphReader::ReadGraph(const onnx::GraphProto& proto, ParsedGraph* graph) {
  graph->name = proto.name();
  for (const auto& initializer : proto.initializer()) RETURN_IF_ERROR(ReadInitializer(initializer, graph));
  for (const auto& initializer : proto.sparse_initializer()) RETURN_IF_ERROR(ReadSparseInitializer(initializer, graph));
  for (const auto& input : proto.input()) graph->inputs.push_back(ReadValueInfo(input));
  for (const auto& output : proto.output()) graph->outputs.push_back(ReadValueInfo(output));
  graph->nodes.resize(proto.node_size());
  for (int i = 0; i < proto.node_size(); ++i) RETURN_IF_ERROR(ReadNode(proto.node(i), i, &graph->nodes[i]));
  return absl::OkStatus();
}

// Copies small tensors: a view of one would keep the whole message, with the metadata of all nodes.
absl::StatusOr<TensorOrKind> GraphReader::ReadOwnTensor(const onnx::TensorProto& proto, const OwnedBytes& extracted) {
  ASSIGN_OR_RETURN(TensorOrKind read, ReadTensor(proto, proto_, &files_, extracted));
  if (read.opaque.empty() && read.tensor.bytes().size() < kMinMappedBytes) read.tensor = read.tensor.Clone();
  return read;
}

absl::Status GraphReader::ReadInitializer(const onnx::TensorProto& proto, ParsedGraph* graph) {
  if (proto.name().empty()) return Invalid("an initializer has no name");
  const std::string tag = StrCat("initializer '", Printable(proto.name()), "' ");
  auto tensor = ReadOwnTensor(proto, FindExtracted(proto.name()));
  if (!tensor.ok()) return Annotate(tensor.status(), tag);
  const bool added = tensor->opaque.empty()
                         ? graph->initializers.emplace(proto.name(), std::move(tensor->tensor)).second
                         : graph->opaque.emplace(proto.name(), tensor->opaque).second;
  if (!added) return Invalid(tag, "is defined twice");
  if (proto.string_data_size() > 0 && proto.dims_size() == 1)
    graph->strings[proto.name()].assign(proto.string_data().begin(), proto.string_data().end());
  graph->initializer_order.push_back(proto.name());
  return absl::OkStatus();
}

// Reads a sparse initializer as a dense tensor. The export leaves it sparse in the file.
absl::Status GraphReader::ReadSparseInitializer(const onnx::SparseTensorProto& proto, ParsedGraph* graph) {
  const std::string& name = proto.values().name();
  if (name.empty()) return Invalid("a sparse initializer has no name");
  const std::string tag = StrCat("sparse initializer '", Printable(name), "' ");
  auto tensor = ReadSparseTensor(proto, &files_, kMaxHostConstantBytes - sparse_bytes_);
  if (!tensor.ok()) return Annotate(tensor.status(), tag);
  sparse_bytes_ += static_cast<int64_t>(tensor->bytes().size());
  if (graph->opaque.count(name) > 0 || !graph->initializers.emplace(name, *std::move(tensor)).second)
    return Invalid(tag, "is defined twice");
  graph->initializer_order.push_back(name);
  graph->sparse.insert(name);
  return absl::OkStatus();
}

OwnedBytes GraphReader::FindExtracted(const std::string& name) const {
  const auto it = extracted_.find(name);
  return it == extracted_.end() ? OwnedBytes()
                                : OwnedBytes{file_->bytes().subspan(it->second.offset, it->second.size), file_};
}

absl::Status GraphReader::ReadNode(const onnx::NodeProto& proto, int index, ParsedNode* node) {
  const std::string tag =
      NodeTag(Printable(proto.op_type()), proto.name().empty() ? StrCat("#", index) : Printable(proto.name()));
  if (proto.op_type().empty()) return Invalid(tag, "has no op_type");
  node->name = proto.name();
  node->op_type = proto.op_type();
  node->domain = NormalizeDomain(proto.domain());
  node->inputs.assign(proto.input().begin(), proto.input().end());
  node->outputs.assign(proto.output().begin(), proto.output().end());
  node->fx = ParseFxNode(ReadMetadata(proto));
  std::unordered_set<std::string> seen;
  for (const auto& attribute : proto.attribute()) {
    const std::string name = StrCat(tag, "attribute '", Printable(attribute.name()), "' ");
    if (!seen.insert(attribute.name()).second) return Invalid(name, "is given twice");
    RETURN_IF_ERROR(Annotate(ReadAttribute(attribute, node), name));
  }
  return absl::OkStatus();
}

absl::Status GraphReader::ReadAttribute(const onnx::AttributeProto& proto, ParsedNode* node) {
  const std::string& name = proto.name();
  if (name.empty()) return Invalid("has no name");
  if (!proto.ref_attr_name().empty()) {
    node->refs[name] = proto.ref_attr_name();
    return absl::OkStatus();
  }
  switch (GetAttributeType(proto)) {
    case onnx::AttributeProto::FLOAT:
      node->attrs.Set(name, static_cast<double>(proto.f()));
      break;
    case onnx::AttributeProto::INT:
      node->attrs.Set(name, static_cast<int64_t>(proto.i()));
      break;
    case onnx::AttributeProto::STRING:
      node->attrs.Set(name, proto.s());
      break;
    case onnx::AttributeProto::INTS:
      node->attrs.Set(name, std::vector<int64_t>(proto.ints().begin(), proto.ints().end()));
      break;
    case onnx::AttributeProto::FLOATS:
      node->attrs.Set(name, std::vector<double>(proto.floats().begin(), proto.floats().end()));
      break;
    case onnx::AttributeProto::TENSOR:
      return ReadTensorAttribute(proto, node);
    case onnx::AttributeProto::GRAPH:
      return ReadGraph(proto.g(), (node->graphs[name] = std::make_shared<ParsedGraph>()).get());
    case onnx::AttributeProto::STRINGS:
      node->strings[name].assign(proto.strings().begin(), proto.strings().end());
      node->attrs.Set(name, absl::StrJoin(proto.strings(), "\n"));
      [[fallthrough]];
    default:
      node->opaque[name] = onnx::AttributeProto::AttributeType_Name(proto.type());
  }
  return absl::OkStatus();
}

absl::Status GraphReader::ReadTensorAttribute(const onnx::AttributeProto& proto, ParsedNode* node) {
  if (!proto.has_t()) return Invalid("of type tensor holds none");
  ASSIGN_OR_RETURN(TensorOrKind tensor, ReadOwnTensor(proto.t(), {}));
  if (tensor.opaque.empty()) {
    node->attrs.Set(proto.name(), std::move(tensor.tensor));
  } else {
    node->opaque[proto.name()] = StrCat("tensor of ", tensor.opaque);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
