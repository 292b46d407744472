#include "frontend/onnx/write/adapter_inputs.h"

#include <onnx/onnx_pb.h>

#include <set>

#include "frontend/base/status.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "frontend/onnx/write/low_rank_nodes.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

class InputAdder {
 public:
  explicit InputAdder(onnx::ModelProto* model) : model_(*model), graph_(*model->mutable_graph()) {}

  absl::Status Add(const AdapterInputs& inputs) {
    UseOptionalInputs();
    for (const LowRankUpdate& update : inputs.updates) {
      AddFactor(update.a_name(), update.a.dtype(), {update.a.shape()[1], update.whole_rank()}, 1, update);
      AddFactor(update.b_name(), update.a.dtype(), {update.whole_rank(), update.b.shape()[0]}, 0, update);
    }
    RETURN_IF_ERROR(InsertLowRankNodes(GroupByWeight(inputs.updates), false, &model_));
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
};

}  // namespace

absl::Status AddAdapterInputs(const AdapterInputs& inputs, onnx::ModelProto* model) {
  return InputAdder(model).Add(inputs);
}

}  // namespace onnxtrain
