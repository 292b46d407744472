#include "frontend/ops/cost.h"

#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// Returns the row of the node, or null if running the node costs nothing.
const OpRow* FindCostedRow(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row == nullptr || row->view || node.op == "Constant" ? nullptr : row;
}

}  // namespace

double NodeFlops(const Graph& graph, const Node& node) {
  const OpRow* row = FindCostedRow(node);
  if (row == nullptr) return 0;
  std::vector<const Type*> inputs;
  std::vector<Type> outputs;
  for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? nullptr : &graph.type(v));
  for (ValueId v : node.outputs) outputs.push_back(graph.type(v));
  if (row->flops != nullptr) return row->flops(inputs, outputs, node.attrs);
  return static_cast<double>(outputs[0].elements());
}

double NodeBytes(const Graph& graph, const Node& node) {
  if (FindCostedRow(node) == nullptr) return 0;
  double bytes = 0;
  for (ValueId v : node.inputs) bytes += v == kNoValue ? 0 : static_cast<double>(graph.type(v).bytes());
  for (ValueId v : node.outputs) bytes += static_cast<double>(graph.type(v).bytes());
  return bytes;
}

bool HostBudget::Spend(const Graph& graph, const Node& node) {
  constexpr double kFree = 4096, kMaxFlops = 2e8, kMaxBytes = 2e8;  // per node
  const double flops = NodeFlops(graph, node), bytes = NodeBytes(graph, node), cost = flops + bytes;
  if (cost <= kFree) return true;
  if (flops > kMaxFlops || bytes > kMaxBytes || cost > left_) return false;
  left_ -= cost;
  return true;
}

bool IsProduct(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->flops != nullptr && row->precision == Precision::kLow;
}

}  // namespace onnxtrain
