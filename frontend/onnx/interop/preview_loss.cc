#include "frontend/onnx/interop/preview_loss.h"

#include <onnx/onnx_pb.h>

#include <map>
#include <set>
#include <vector>

#include "frontend/onnx/interop/training_algorithm.h"

namespace onnxtrain {
namespace {

class LossKeeper {
 public:
  LossKeeper(const onnx::GraphProto& inference, onnx::GraphProto* graph)
      : outputs_(ListNames(inference.output())), weights_(ListNames(inference.initializer())), graph_(*graph) {
    for (int i = 0; i < graph_.node_size(); ++i) {
      const onnx::NodeProto& node = graph_.node(i);
      for (const auto& output : node.output()) makers_[output] = i;
      if (node.op_type() == "Identity" && outputs_.contains(node.output(0))) sources_[node.input(0)] = node.output(0);
    }
  }

  // False where the loss reads other values of the model.
  bool Keep() {
    if (!Collect(kPreviewLoss)) return false;
    onnx::GraphProto kept;
    for (const int i : nodes_) {
      onnx::NodeProto* node = kept.add_node();
      *node = graph_.node(i);
      for (auto& input : *node->mutable_input()) {
        if (const auto output = sources_.find(input); output != sources_.end()) input = output->second;
      }
    }
    graph_.mutable_node()->Swap(kept.mutable_node());
    EraseUnread(graph_.mutable_input());
    EraseUnread(graph_.mutable_initializer());
    EraseUnread(graph_.mutable_output());
    return true;
  }

 private:
  bool Collect(const std::string& loss) {
    std::vector<std::string> open = {loss};
    while (!open.empty()) {
      const std::string value = open.back();
      open.pop_back();
      if (value.empty() || outputs_.contains(value) || sources_.contains(value) || !read_.insert(value).second)
        continue;
      if (const auto maker = makers_.find(value); maker != makers_.end()) {
        nodes_.insert(maker->second);
        const auto& inputs = graph_.node(maker->second).input();
        open.insert(open.end(), inputs.begin(), inputs.end());
      } else if (weights_.contains(value) && IsInput(value)) {
        return false;
      }
    }
    return true;
  }

  // Frozen weights and constants, numbered in each graph, are initializers alone.
  bool IsInput(const std::string& name) const { return ListNames(graph_.input()).contains(name); }

  template <typename Values>
  void EraseUnread(Values* values) const {
    Names unread = ListNames(*values);
    for (const std::string& value : read_) unread.erase(value);
    Erase(unread, values);
  }

  const Names outputs_, weights_;
  onnx::GraphProto& graph_;
  std::map<std::string, int, std::less<>> makers_;
  std::map<std::string, std::string, std::less<>> sources_;  // of outputs that are copies
  std::set<int> nodes_;
  Names read_;
};

}  // namespace

bool KeepLoss(const onnx::GraphProto& inference, onnx::GraphProto* graph) {
  return LossKeeper(inference, graph).Keep();
}

}  // namespace onnxtrain
