#include "backends/cpu/kernel.h"

#include <algorithm>
#include <vector>

#include "backends/cpu/kernels/recurrent.h"

namespace onnxtrain::cpu {
namespace {

// Rows of one operator, first match wins.
using Table = KernelTable<std::vector<const KernelRow*>>;

Table MakeTable() {
  std::map<std::string_view, std::vector<const KernelRow*>> by_op;
  for (auto family : {ElementwiseKernels, DoubleKernels, FusedKernels, IntegerKernels, CastKernels, ReduceKernels, MatmulKernels,
                      PackKernels, ConvKernels, ConvPackKernels, DoubleConvKernels, PoolKernels, LastPoolKernels, ResampleKernels, SampleKernels, RoiKernels, DeterminantKernels,
                      BatchNormKernels, LastBatchNormKernels, LayerNormKernels, SoftmaxKernels, AttentionKernels, DoubleSoftmaxKernels, LossKernels, ShapeKernels, IndexKernels, ScatterKernels, TopKKernels, RandomKernels,
                      RecurrentKernels}) {
    for (const KernelRow& row : family()) by_op[row.op].push_back(&row);
  }
  Table table;
  for (const auto& [op, rows] : by_op) table.Add(op, rows);
  return table;
}

bool Takes(const KernelRow& row, const Graph& graph, const Node& node) {
  const auto fits = [&](ValueId v) { return v == kNoValue || (row.types & Only(graph.type(v).dtype)) != 0; };
  return std::all_of(node.inputs.begin(), node.inputs.end(), fits) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), fits) &&
         (row.accepts == nullptr || row.accepts({graph, node}));
}

}  // namespace

const KernelRow* FindKernel(const Graph& graph, const Node& node) {
  static const Table* table = new Table(MakeTable());
  const auto* rows = table->Find(node.op);
  if (rows == nullptr) return nullptr;
  for (const KernelRow* row : *rows) {
    if (Takes(*row, graph, node)) return row;
  }
  return nullptr;
}

}  // namespace onnxtrain::cpu
