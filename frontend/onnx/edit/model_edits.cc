#include "frontend/onnx/edit/model_edits.h"

#include <onnx/onnx_pb.h>

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/onnx/write/weight_replacer.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

class Editor {
 public:
  explicit Editor(onnx::ModelProto* model) : model_(*model), graph_(*model->mutable_graph()) {}

  absl::Status Apply(const ModelEdits& edits) {
    for (const auto& [name, value] : edits.tensors) RETURN_IF_ERROR(SetTensor(name, value));
    for (const auto& node : edits.nodes) Append(node);
    for (const auto& split : edits.copies) AddNodeCopies(split, &graph_);
    for (const auto& input : edits.inputs) RETURN_IF_ERROR(Rewire(input));
    for (const auto& ints : edits.attributes) RETURN_IF_ERROR(SetInts(ints));
    for (const auto& extent : edits.extents) SetExtent(extent);
    if (!edits.outputs.empty()) SetOutputs(edits.outputs);
    return absl::OkStatus();
  }

 private:
  static void Fill(const HostTensor& value, onnx::TensorProto* proto) {
    const HostTensor stored = value.CastTo(DTypeFromOnnx(proto->data_type()).value_or(value.dtype()));
    const std::string name = proto->name();
    proto->Clear();
    if (!name.empty()) proto->set_name(name);
    proto->set_data_type(static_cast<int32_t>(DTypeToOnnx(stored.dtype())));
    for (int64_t d : stored.shape()) proto->add_dims(d);
    const HostTensor packed = StorageBits(stored.dtype()) < 8 ? PackForStorage(stored) : stored;
    proto->set_raw_data(packed.bytes().data(), packed.bytes().size());
  }

  absl::Status SetTensor(const std::string& name, const HostTensor& value) {
    for (auto& initializer : *graph_.mutable_initializer()) {
      if (initializer.name() != name) continue;
      Fill(value, &initializer);
      return Declare(name, value.shape()), absl::OkStatus();
    }
    Declare(name, value.shape());
    onnx::NodeProto* node = Producer(name);
    if (node == nullptr && SetFloats(name, value)) return absl::OkStatus();
    if (node == nullptr) return AddInitializer(name, value, &model_), absl::OkStatus();
    if (node->output_size() != 1)
      return Invalid("'", Printable(name), "' is one of several outputs of a node and cannot be replaced");
    if (node->op_type() == "Constant") return SetConstant(node, value), absl::OkStatus();
    Remove(node);
    return AddInitializer(name, value, &model_), absl::OkStatus();
  }

  // Replaces the weight OUTPUT.ATTRIBUTE, a list of floats in a node of ai.onnx.ml; returns false if there is no such
  // list.
  bool SetFloats(const std::string& name, const HostTensor& value) {
    const size_t dot = name.rfind('.');
    onnx::NodeProto* node = dot == std::string::npos ? nullptr : Producer(name.substr(0, dot));
    if (node == nullptr) return false;
    for (auto& attribute : *node->mutable_attribute()) {
      if (attribute.floats_size() == 0 || attribute.name() != name.substr(dot + 1)) continue;
      const HostTensor list = FitFloats(value, attribute.floats_size());
      attribute.clear_floats();
      for (int64_t i = 0; i < list.size(); ++i) attribute.add_floats(static_cast<float>(list.At(i)));
      return true;
    }
    return false;
  }

  static void SetConstant(onnx::NodeProto* node, const HostTensor& value) {
    onnx::TensorProto tensor;
    if (node->attribute_size() == 1 && node->attribute(0).has_t())
      tensor.set_data_type(node->attribute(0).t().data_type());
    Fill(value, &tensor);
    node->clear_attribute();
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name("value");
    attribute->set_type(onnx::AttributeProto::TENSOR);
    *attribute->mutable_t() = std::move(tensor);
  }

  // Sets the shape that the file declares for a tensor.
  void Declare(const std::string& name, const Shape& shape) {
    ForDeclared(name, [&](onnx::TensorShapeProto* declared) {
      declared->clear_dim();
      for (int64_t d : shape) declared->add_dim()->set_dim_value(d);
    });
  }

  template <typename Function>
  void ForDeclared(const std::string& name, Function function) {
    for (auto* values : {graph_.mutable_input(), graph_.mutable_output(), graph_.mutable_value_info()}) {
      for (auto& value : *values) {
        if (value.name() != name || !value.type().has_tensor_type() || !value.type().tensor_type().has_shape())
          continue;
        function(value.mutable_type()->mutable_tensor_type()->mutable_shape());
      }
    }
  }

  void SetExtent(const ModelEdits::Extent& extent) {
    ForDeclared(extent.value, [&](onnx::TensorShapeProto* shape) {
      const auto has = [&](int i) {
        return i < shape->dim_size() && shape->dim(i).has_dim_value() && shape->dim(i).dim_value() == extent.from;
      };
      int axis = extent.axis >= 0 || shape->dim_size() <= 2 || !has(1) ? extent.axis : 1;
      for (int i = shape->dim_size() - 1; axis < 0 && i >= 0; --i) axis = has(i) ? i : -1;
      if (axis >= 0 && has(axis)) shape->mutable_dim(axis)->set_dim_value(extent.to);
    });
  }

  void Append(const ModelEdits::NewNode& node) {
    onnx::NodeProto* proto = graph_.add_node();
    proto->set_op_type(node.op_type);
    proto->set_name(node.name);
    for (const std::string& name : node.inputs) proto->add_input(name);
    for (const std::string& name : node.outputs) proto->add_output(name);
    for (const auto& [name, value] : node.attrs) SetAttribute(name, value, proto->add_attribute());
  }

  absl::Status Rewire(const ModelEdits::NewInput& edit) {
    onnx::NodeProto* node = Producer(edit.node);
    if (node == nullptr || static_cast<int>(edit.input) > node->input_size())
      return Invalid("there is no node that makes '", Printable(edit.node), "'");
    if (static_cast<int>(edit.input) == node->input_size()) node->add_input();  // a bias that was left out
    node->set_input(static_cast<int>(edit.input), edit.name);
    return absl::OkStatus();
  }

  absl::Status SetInts(const ModelEdits::NewInts& edit) {
    onnx::NodeProto* node = Producer(edit.node);
    if (node == nullptr) return Invalid("there is no node that makes '", Printable(edit.node), "'");
    auto* attributes = node->mutable_attribute();
    auto it =
        std::find_if(attributes->begin(), attributes->end(), [&](const auto& a) { return a.name() == edit.attribute; });
    SetAttribute(edit.attribute, edit.values, it != attributes->end() ? &*it : node->add_attribute());
    return absl::OkStatus();
  }

  void SetOutputs(const std::vector<ModelEdits::Output>& outputs) {
    graph_.clear_output();
    for (const ModelEdits::Output& output : outputs) {
      onnx::ValueInfoProto* value = graph_.add_output();
      value->set_name(output.name);
      auto* type = value->mutable_type()->mutable_tensor_type();
      type->set_elem_type(static_cast<int32_t>(DTypeToOnnx(output.dtype)));
      for (const std::string& dim : output.dims) {
        const bool number = !dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos;
        auto* d = type->mutable_shape()->add_dim();
        number ? d->set_dim_value(std::stoll(dim)) : d->set_dim_param(dim);
      }
    }
  }

  void Remove(const onnx::NodeProto* node) {
    for (int i = 0; i < graph_.node_size(); ++i) {
      if (&graph_.node(i) == node) return graph_.mutable_node()->DeleteSubrange(i, 1);
    }
  }

  onnx::NodeProto* Producer(const std::string& name) {
    for (auto& node : *graph_.mutable_node()) {
      if (std::find(node.output().begin(), node.output().end(), name) != node.output().end()) return &node;
    }
    return nullptr;
  }

  onnx::ModelProto& model_;
  onnx::GraphProto& graph_;
};

}  // namespace

absl::Status ApplyEdits(const ModelEdits& edits, onnx::ModelProto* model) {
  return edits.empty() ? absl::OkStatus()
                       : Editor(model).Apply(edits);  // an Editor adds a graph to a model without one
}

}  // namespace onnxtrain
