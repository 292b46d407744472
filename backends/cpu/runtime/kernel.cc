#include "backends/cpu/runtime/kernel.h"

#include <algorithm>
#include <string>
#include <vector>

#include "backends/kernel_table.h"
#include "frontend/base/status.h"
#include "frontend/ops/added_ops.h"

namespace onnxtrain::cpu {
namespace {

using Rows = std::vector<const KernelRow*>;
using Table = KernelTable<Rows>;

// Groups the rows of all families by operator. The first match wins.
Table MakeTable() {
  std::map<std::string_view, Rows> by_op;
  for (std::span<const KernelRow> family : {ONNXTRAIN_CPU_KERNEL_FAMILIES}) {
    for (const KernelRow& row : family) by_op[row.op].push_back(&row);
  }
  Table table;
  for (const auto& [op, rows] : by_op) table.Add(op, rows);
  return table;
}

const Rows& FindRows(std::string_view op) {
  static const Table* table = new Table(MakeTable());
  static const Rows* none = new Rows;
  const Rows* rows = table->Find(op);
  return rows == nullptr ? *none : *rows;
}

// A node and the context of its kernel: kernels that compute in any order see row-major tensors.
class Candidate {
 public:
  Candidate(const Graph& graph, const Node& node)
      : graph_(graph), node_(node), operands_(FindLayoutOperands(graph, node)) {
    channels_last_ = IsChannelsLast(graph, node);
    if (channels_last_ && operands_.any_order) physical_ = ToPhysical(graph, node);
  }

  KernelContext context() const { return {graph_, node_, physical_ ? &*physical_ : nullptr}; }

  bool FitsLayout(const KernelRow& row) const {
    if (row.layout == Layout::kPacked) return HasPackedInput();  // row-major operands and a packed weight
    if (row.layout == Layout::kChannelsLast) return channels_last_ || IsTrivial();
    return (!channels_last_ || operands_.any_order) && !HasPackedInput();
  }
  bool FitsTypes(const KernelRow& row) const {
    const bool half = row.bf16 != 0 && graph_.type(node_.outputs[0]).dtype == DType::kBFloat16;
    const auto fits = [&](ValueId v, bool named) {
      if (v == kNoValue) return true;
      const DType dtype = graph_.type(v).dtype;
      return half && named ? dtype == DType::kBFloat16 : (row.types & Only(dtype)) != 0;
    };
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      if (!fits(node_.inputs[i], HasBit(row.bf16, i))) return false;
    }
    for (size_t i = 0; i < node_.outputs.size(); ++i) {
      if (!fits(node_.outputs[i], i == 0)) return false;
    }
    return true;
  }
  bool IsAccepted(const KernelRow& row) const { return row.accepts == nullptr || row.accepts(context()); }

 private:
  bool HasPackedInput() const {
    return std::any_of(node_.inputs.begin(), node_.inputs.end(),
                       [&](ValueId v) { return v != kNoValue && graph_.type(v).layout == Layout::kPacked; });
  }
  // Returns true if all operands that share a layout have the same bytes in both layouts.
  bool IsTrivial() const {
    const auto are_trivial = [&](const ValueIds& values, uint32_t shared) {
      for (size_t i = 0; i < values.size(); ++i) {
        if (HasBit(shared, i) && !IsTrivialChannelsLast(graph_.type(values[i]).shape)) return false;
      }
      return true;
    };
    return are_trivial(node_.inputs, operands_.inputs) && are_trivial(node_.outputs, operands_.outputs);
  }

  const Graph& graph_;
  const Node& node_;
  const LayoutOperands operands_;
  bool channels_last_;
  std::optional<PhysicalNode> physical_;
};

const KernelRow* FindKernel(const Candidate& candidate, const Node& node) {
  for (const KernelRow* row : FindRows(node.op)) {
    if (candidate.FitsLayout(*row) && candidate.FitsTypes(*row) && candidate.IsAccepted(*row)) return row;
  }
  return nullptr;
}

// Returns the first row of the operator, or of "cpu." and its name, for which `matches` is true, or null.
template <typename F>
const KernelRow* FindRowOfAnyForm(std::string_view op, F&& matches) {
  for (const std::string& form : {std::string(op), StrCat("cpu.", op)}) {
    for (const KernelRow* row : FindRows(form)) {
      if (matches(*row)) return row;
    }
  }
  return nullptr;
}

// Prepares an operator that has a host kernel. Its errors end the run, like oneDNN's.
absl::StatusOr<Kernel> PrepareHostKernel(const KernelContext& c) {
  ASSIGN_OR_RETURN(HostKernel kernel, FindHostKernels(c.node.op)->prepare(c.graph, c.node));
  return Kernel{.run =
                    [run = std::move(kernel.run)](const Args& args) {
                      const absl::Status status = run(args.inputs, args.outputs, args.workspace);
                      if (!status.ok()) throw KernelFailure(status);
                    },
                .workspace = kernel.workspace};
}

const KernelRow* FindHostKernel(const Graph& graph, const Node& node) {
  static constexpr KernelRow kRow = {.prepare = PrepareHostKernel, .types = kAnyType};
  const HostKernels* kernels = FindHostKernels(node.op);
  return kernels != nullptr && kernels->supports(graph, node) ? &kRow : nullptr;
}

}  // namespace

const KernelRow* FindKernel(const Graph& graph, const Node& node) {
  if (FindRows(node.op).empty()) return FindHostKernel(graph, node);
  return FindKernel(Candidate(graph, node), node);
}

absl::StatusOr<Kernel> PrepareKernel(const Graph& graph, const Node& node) {
  const Candidate candidate(graph, node);
  const KernelRow* row = FindRows(node.op).empty() ? FindHostKernel(graph, node) : FindKernel(candidate, node);
  if (row == nullptr) return absl::InvalidArgumentError("has no kernel: the graph has not been legalized");
  return row->prepare(candidate.context());
}

uint32_t FindBf16Inputs(const Graph& graph, const Node& node) {
  if (FindRows(node.op).empty()) return 0;
  const Candidate candidate(graph, node);
  for (const KernelRow* row : FindRows(node.op)) {
    if (row->bf16 != 0 && candidate.FitsLayout(*row) && candidate.IsAccepted(*row)) return row->bf16;
  }
  return 0;
}

bool SupportsBf16(std::string_view op) {
  return FindRowOfAnyForm(op, [](const KernelRow& row) { return row.bf16 != 0; }) != nullptr;
}

const KernelRow* FindChannelsLastKernel(std::string_view op) {
  return FindRowOfAnyForm(op, [](const KernelRow& row) { return row.layout == Layout::kChannelsLast; });
}

}  // namespace onnxtrain::cpu
