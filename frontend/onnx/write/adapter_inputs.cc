#include "frontend/onnx/write/adapter_inputs.h"

#include <onnx/onnx_pb.h>

#include <map>
#include <set>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

class InputAdder {
 public:
  explicit InputAdder(onnx::ModelProto* model) : model_(*model), graph_(*model->mutable_graph()) {}

  absl::Status Add(const AdapterInputs& inputs) {
    UseOptionalInputs();
    for (const LowRankUpdate& update : inputs.updates) {
      for (const std::string& node : update.nodes) updates_[node] = &update;
      AddFactor(update.a_name(), update.a.dtype(), {update.a.shape()[1], update.whole_rank()}, 1, update);
      AddFactor(update.b_name(), update.a.dtype(), {update.whole_rank(), update.b.shape()[0]}, 0, update);
    }
    RETURN_IF_ERROR(AddNodes());
    for (const std::string& weight : inputs.weights) RETURN_IF_ERROR(AddWeight(weight));
    return absl::OkStatus();
  }

 private:
  void UseOptionalInputs() {
    if (model_.ir_version() >= 4) return;
    model_.set_ir_version(4);
    std::set<std::string> constant;
    for (const auto& initializer : graph_.initializer()) constant.insert(initializer.name());
    google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> inputs;
    for (auto& input : *graph_.mutable_input()) {
      if (!constant.contains(input.name())) inputs.Add()->Swap(&input);
    }
    graph_.mutable_input()->Swap(&inputs);
  }

  onnx::TensorShapeProto* AddInput(const std::string& name, int32_t type) {
    onnx::ValueInfoProto* input = graph_.add_input();
    input->set_name(name);
    input->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    return input->mutable_type()->mutable_tensor_type()->mutable_shape();
  }

  void AddFactor(const std::string& name, DType dtype, const Shape& shape, size_t rank_axis,
                 const LowRankUpdate& update) {
    AddInitializer(name, HostTensor({dtype, shape}), &model_);
    onnx::TensorShapeProto* declared = AddInput(name, static_cast<int32_t>(DTypeToOnnx(dtype)));
    for (size_t i = 0; i < shape.size(); ++i) {
      auto* dim = declared->add_dim();
      i == rank_axis ? dim->set_dim_param(update.module + ".lora_r") : dim->set_dim_value(shape[i]);
    }
  }

  absl::Status AddNodes() {
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    for (auto& node : *graph_.mutable_node()) {
      const auto update = node.output_size() == 0 ? updates_.end() : updates_.find(node.output(0));
      onnx::NodeProto* kept = nodes.Add();
      kept->Swap(&node);
      if (update == updates_.end()) continue;
      AddUpdate(*update->second, kept, &nodes);
      updates_.erase(update);
    }
    graph_.mutable_node()->Swap(&nodes);
    if (updates_.empty()) return absl::OkStatus();
    return Invalid("the product '", Printable(updates_.begin()->first), "' is not a node of the file");
  }

  // Renames the result of the product, and computes the old name from it.
  static void AddUpdate(const LowRankUpdate& update, onnx::NodeProto* product,
                        google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes) {
    const std::string x = product->input(0), y = product->output(0), base = y + "/base", down = y + "/lora_A",
                      up = y + "/lora_B";
    product->set_output(0, base);
    for (const auto& [op, inputs, output] : {std::tuple<const char*, std::pair<std::string, std::string>, std::string>{
                                                 "MatMul", {x, update.a_name()}, down},
                                             {"MatMul", {down, update.b_name()}, up},
                                             {"Add", {base, up}, y}}) {
      onnx::NodeProto* node = nodes->Add();
      node->set_op_type(op);
      node->set_name(output + "/" + op);
      node->add_input(inputs.first);
      node->add_input(inputs.second);
      node->add_output(output);
    }
  }

  absl::Status AddWeight(const std::string& name) {
    for (const auto& initializer : graph_.initializer()) {
      if (initializer.name() != name) continue;
      onnx::TensorShapeProto* declared = AddInput(name, initializer.data_type());
      for (const int64_t extent : initializer.dims()) declared->add_dim()->set_dim_value(extent);
      return absl::OkStatus();
    }
    return Invalid("the trained weight '", Printable(name), "' is not an initializer of the file");
  }

  onnx::ModelProto& model_;
  onnx::GraphProto& graph_;
  std::map<std::string, const LowRankUpdate*> updates_;  // by the first output of the product
};

}  // namespace

absl::Status AddAdapterInputs(const AdapterInputs& inputs, onnx::ModelProto* model) {
  return InputAdder(model).Add(inputs);
}

}  // namespace onnxtrain
