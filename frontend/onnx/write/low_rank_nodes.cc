#include "frontend/onnx/write/low_rank_nodes.h"

#include <onnx/onnx_pb.h>

#include <array>
#include <map>
#include <string>

#include "frontend/base/status.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {
namespace {

onnx::NodeProto MakeNode(const char* op, const std::array<std::string, 2>& inputs, const std::string& output) {
  onnx::NodeProto node;
  node.set_op_type(op);
  node.set_name(output);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

// Collects the nodes to insert, by the position of their products.
class NodeAdder {
 public:
  explicit NodeAdder(onnx::ModelProto* model) : model_(*model) {
    const auto& nodes = model->graph().node();
    for (int i = 0; i < nodes.size(); ++i) {
      if (nodes[i].output_size() > 0) positions_.emplace(nodes[i].output(0), i);
    }
  }

  absl::Status Add(const LowRankUpdate& update) {
    const std::string scale = update.module + ".lora_scale";
    HostTensor number({update.a.dtype(), {}});
    number.Set(0, update.scale);
    AddInitializer(scale, number, &model_);
    AddInitializer(update.a_name(), Transpose(update.a).Whole(), &model_);
    AddInitializer(update.b_name(), Transpose(update.b).Whole(), &model_);
    for (const std::string& y : update.nodes) {
      const auto at = positions_.find(y);
      if (at == positions_.end()) return Invalid("there is no product '", Printable(y), "' to adapt");
      onnx::NodeProto* product = model_.mutable_graph()->mutable_node(at->second);
      const std::string base = y + "/base", prefix = y + "/low_rank";
      product->set_output(0, base);
      added_[at->second] = {MakeNode("MatMul", {product->input(0), update.a_name()}, prefix + "/down"),
                            MakeNode("Mul", {prefix + "/down", scale}, prefix + "/scaled"),
                            MakeNode("MatMul", {prefix + "/scaled", update.b_name()}, prefix + "/up"),
                            MakeNode("Add", {base, prefix + "/up"}, y)};
    }
    return absl::OkStatus();
  }

  // Inserts the nodes after their products, so that the order stays topological.
  void Insert() {
    if (added_.empty()) return;
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(model_.mutable_graph()->mutable_node());
    for (int i = 0; i < nodes.size(); ++i) {
      model_.mutable_graph()->add_node()->Swap(&nodes[i]);
      const auto added = added_.find(i);
      if (added == added_.end()) continue;
      for (onnx::NodeProto& node : added->second) model_.mutable_graph()->add_node()->Swap(&node);
    }
  }

 private:
  onnx::ModelProto& model_;
  std::map<std::string, int> positions_;  // of nodes, by their first output
  std::map<int, std::array<onnx::NodeProto, 4>> added_;
};

}  // namespace

absl::Status AddLowRankNodes(const WeightRecords& records, onnx::ModelProto* model) {
  NodeAdder adder(model);
  for (const LowRankUpdate* update : ListForms<LowRankUpdate>(records)) {
    if (IsQuantized(*update)) RETURN_IF_ERROR(adder.Add(*update));
  }
  adder.Insert();
  return absl::OkStatus();
}

}  // namespace onnxtrain
