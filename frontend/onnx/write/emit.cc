#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cctype>

#include "frontend/base/status.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/onnx/write/emit.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

// Returns true if the emitter might generate the name: "v12", "t3", with or without suffixes, or a mask.
bool IsGenerated(std::string_view name) {
  const bool numbered = name.size() > 1 && (name[0] == 'v' || name[0] == 't') && std::isdigit(name[1]) != 0;
  return numbered || name.starts_with(kMaskName);
}

}  // namespace

void OnnxEmitter::Avoid(const std::set<std::string>& names) {
  const auto clashes = [&](std::string_view name) {
    return name.starts_with(prefix_) && IsGenerated(name.substr(prefix_.size()));
  };
  while (std::ranges::any_of(names, clashes)) prefix_ += '_';
}

std::string OnnxEmitter::Prefixed(std::string_view name) const { return StrCat(prefix_, name); }

std::string OnnxEmitter::NewName() { return StrCat(prefix_, "t", temporaries_++); }

std::string OnnxEmitter::Name(ValueId value) const {
  if (value == kNoValue) return "";
  const size_t i = static_cast<size_t>(value);
  return i < names_.size() && !names_[i].empty() ? names_[i] : StrCat(prefix_, "v", value);
}

void OnnxEmitter::SetName(ValueId value, std::string name) {
  names_.resize(std::max(names_.size(), static_cast<size_t>(value) + 1));
  names_[value] = std::move(name);
}

void OnnxEmitter::Append(std::string_view op_type, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const Attrs& attrs) {
  onnx::NodeProto* node = proto_->add_node();
  node->set_op_type(std::string(op_type));
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  for (const auto& [name, value] : attrs) SetAttribute(name, value, node->add_attribute());
}

std::string OnnxEmitter::Constant(const HostTensor& value) {
  onnx::TensorProto* tensor = proto_->add_initializer();
  tensor->set_name(NewName());
  tensor->set_data_type(static_cast<int32_t>(DTypeToOnnx(value.dtype())));
  for (const int64_t d : value.shape()) tensor->add_dims(d);
  const HostTensor stored = PackForStorage(value);
  tensor->set_raw_data(stored.bytes().data(), stored.bytes().size());
  return tensor->name();
}

absl::Status Emit(OnnxEmitter& emitter, const Node& node) {
  const EmitFn emit = FindEmit(node.op);
  return emit == nullptr ? Invalid("standard ONNX has no operator for it") : emit(emitter, node);
}

}  // namespace onnxtrain
