// The table of operators: the families in order, then the rows that backends registered; type inference and
// verification by rows; the table of imports.
#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/added_ops.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/layout.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// Rows by name. Find takes no lock, since every pass looks up the row of every node: adding rows creates a new map, and
// the old maps stay alive for concurrent readers.
class Table {
 public:
  Table() {
    for (std::span<const OpRow> family : {ONNXTRAIN_OP_FAMILIES}) Add(family, false);
  }

  void Add(std::span<const OpRow> rows, bool may_exist) {
    const std::lock_guard lock(mutex_);
    const size_t before = in_order_.size();
    ByName by_name = maps_.empty() ? ByName() : maps_.back();
    for (const OpRow& row : rows) {
      const bool added = by_name.emplace(row.name, &row).second;
      CHECK(added || may_exist) << "two operators named " << row.name;
      if (added) in_order_.push_back(&row);
    }
    if (in_order_.size() > before) newest_.store(&maps_.emplace_back(std::move(by_name)), std::memory_order_release);
  }
  const OpRow* Find(std::string_view name) const {
    const ByName& by_name = *newest_.load(std::memory_order_acquire);
    const auto it = by_name.find(name);
    return it == by_name.end() ? nullptr : it->second;
  }
  std::vector<const OpRow*> in_order() {
    const std::lock_guard lock(mutex_);
    return in_order_;
  }

 private:
  using ByName = absl::flat_hash_map<std::string_view, const OpRow*>;

  std::mutex mutex_;
  std::deque<ByName> maps_;
  std::atomic<const ByName*> newest_{nullptr};
  std::vector<const OpRow*> in_order_;
};

Table& GetTable() {
  static Table* table = new Table;
  return *table;
}

using ImportKey = std::pair<std::string_view, std::string_view>;
using ImportsByName = absl::flat_hash_map<ImportKey, const OnnxOp*>;

OnnxTraits MakeOnnxTraits(const OpRow& row) {
  return {.probabilities = row.probabilities,
          .keeps_channels = row.init.gain != nullptr && !row.probabilities,
          .scalar_weight = row.inputs.max == 1 && row.attrs.empty() && row.grad_status == GradStatus::kFormula};
}

// Returns the import of a row under its own name, with the traits of the row.
OnnxOp MakeOnnxOp(const OpRow& row) {
  return {.op_type = row.name,
          .min_inputs = row.inputs.min,
          .max_inputs = row.inputs.max,
          .import = row.onnx,
          .traits = MakeOnnxTraits(row)};
}

struct ImportTable {
  std::vector<OnnxOp> of_rows;
  ImportsByName by_name;

  void Add(std::span<const OnnxOp> ops) {
    for (const OnnxOp& op : ops)
      CHECK(by_name.emplace(ImportKey{op.domain, op.op_type}, &op).second) << "two imports of " << op.op_type;
  }

  ImportTable() {
    for (const OpRow* row : AllOps()) {
      if (row->onnx != nullptr) of_rows.push_back(MakeOnnxOp(*row));
    }
    Add(of_rows);
    for (std::span<const OnnxOp> family : {ONNXTRAIN_IMPORT_FAMILIES}) Add(family);
  }
};

const ImportsByName& Imports() {
  static const auto* table = new ImportTable;
  return table->by_name;
}

std::string AttrKind(const AttrValue& value) {
  constexpr std::string_view kNames[] = {"an integer", "a number", "a string", "integers", "numbers", "a tensor"};
  return std::string(kNames[value.index()]);
}

absl::Status CheckAttrs(const OpRow& row, Attrs& attrs) {
  for (const auto& [name, value] : attrs) {
    bool known = false;
    for (const AttrSpec& spec : row.attrs) {
      if (spec.name != name) continue;
      known = true;
      if (spec.value.index() != value.index()) {
        return Invalid("attribute '", name, "' should be ", AttrKind(spec.value), ", got ", AttrKind(value));
      }
    }
    if (!known) return Invalid("has no attribute '", name, "'");
  }
  for (const AttrSpec& spec : row.attrs) {
    if (attrs.Has(spec.name)) continue;
    if (spec.required) return Invalid("attribute '", spec.name, "' is missing");
    attrs.Set(std::string(spec.name), spec.value);
  }
  return absl::OkStatus();
}

// Infers the types as for row-major inputs, then the layouts.
absl::StatusOr<std::vector<Type>> InferRow(const OpRow& row, std::span<const Type* const> inputs, const Attrs& attrs) {
  const auto is_row_major = [](const Type* t) { return t == nullptr || t->layout == Layout::kRowMajor; };
  if (std::all_of(inputs.begin(), inputs.end(), is_row_major)) return row.infer({row.name, inputs, attrs});
  std::vector<Type> plain(inputs.size());
  std::vector<const Type*> pointers(inputs.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) continue;
    plain[i] = {inputs[i]->dtype, inputs[i]->shape};
    pointers[i] = &plain[i];
  }
  ASSIGN_OR_RETURN(std::vector<Type> types, row.infer({row.name, pointers, attrs}));
  RETURN_IF_ERROR(InferLayouts(row, inputs, attrs, &types));
  return types;
}

absl::Status CheckArity(const OpRow& row, std::span<const Type* const> inputs) {
  const int n = static_cast<int>(inputs.size());
  if (n < row.inputs.min || n > row.inputs.max) {
    return Invalid("expected ", row.inputs.min,
                   row.inputs.max == row.inputs.min ? ""
                   : row.inputs.max >= Arity::kMany ? " or more"
                                                    : StrCat(" to ", row.inputs.max),
                   " inputs, got ", n);
  }
  for (int i = 0; i < row.inputs.min; ++i) {
    if (inputs[i] == nullptr) return Invalid("input ", i, " is missing");
  }
  return absl::OkStatus();
}

}  // namespace

const OpRow* FindOp(std::string_view name) { return GetTable().Find(name); }

std::vector<const OpRow*> AllOps() { return GetTable().in_order(); }

void RegisterOps(std::span<const OpRow> rows) { GetTable().Add(rows, true); }

absl::StatusOr<std::vector<Type>> InferTypes(std::string_view op, std::span<const Type* const> inputs, Attrs& attrs) {
  const OpRow* row = FindOp(op);
  if (row == nullptr) return Invalid("unknown operator");
  RETURN_IF_ERROR(CheckArity(*row, inputs));
  RETURN_IF_ERROR(CheckAttrs(*row, attrs));
  ASSIGN_OR_RETURN(std::vector<Type> types, InferRow(*row, inputs, attrs));
  for (const Type& type : types) RETURN_IF_ERROR(CheckShape(type.shape));
  return types;
}

const OnnxOp* FindOnnxOp(std::string_view domain, std::string_view op_type) {
  if (domain == "ai.onnx") domain = "";
  auto it = Imports().find({domain, op_type});
  return it == Imports().end() ? FindAddedOnnxOp(domain, op_type) : it->second;
}

std::vector<const OnnxOp*> AllOnnxOps() {
  std::vector<const OnnxOp*> all;
  for (const auto& [key, op] : Imports()) all.push_back(op);
  std::ranges::sort(all, {}, [](const OnnxOp* op) { return ImportKey{op->domain, op->op_type}; });
  return all;
}

namespace {

absl::Status CheckNode(const Graph& graph, const Node& node) {
  std::vector<const Type*> inputs;
  for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? nullptr : &graph.type(v));
  Attrs attrs = node.attrs;
  ASSIGN_OR_RETURN(const std::vector<Type> types, InferTypes(node.op, inputs, attrs));
  if (types.size() != node.outputs.size()) {
    return Invalid("has ", node.outputs.size(), " outputs, its row says ", types.size());
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (!(types[i] == graph.type(node.outputs[i]))) {
      return Invalid("output ", i, " has type ", ToString(graph.type(node.outputs[i])), ", its row says ",
                     ToString(types[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const Graph& graph) {
  RETURN_IF_ERROR(VerifyStructure(graph));
  for (const Node& node : graph.nodes()) RETURN_IF_ERROR(Annotate(CheckNode(graph, node), NodeTag(node)));
  return absl::OkStatus();
}

namespace {

// All are backward operators. Their gradients would be second derivatives of the model, which only nested
// ai.onnx.preview.training.Gradient nodes need.
constexpr NoGradient kNoGradient[] = {
    {"MaxPoolGrad", "the backward pass of MaxPool: its gradient would be a second derivative"},
    {"GridSampleInputGrad", "the backward pass of GridSample: its gradient would be a second derivative"},
    {"GridSampleGridGrad", "the backward pass of GridSample: its gradient would be a second derivative"},
    {"RoiAlignGrad", "the backward pass of RoiAlign: its gradient would be a second derivative"},
    {"Cofactor", "the backward pass of Det: its gradient would be a second derivative"},
    {"LeadingDirections", "a part of updates, on which no loss depends"},
    {"BatchNormGrad", "the backward pass of BatchNorm: its gradient would be a second derivative"},
    {"LayerNormGrad", "the backward pass of LayerNorm: its gradient would be a second derivative"},
    {"LstmGrad", "the backward pass of Lstm: its gradient would be a second derivative"},
    {"GruGrad", "the backward pass of Gru: its gradient would be a second derivative"},
    {"RnnGrad", "the backward pass of Rnn: its gradient would be a second derivative"},
};

}  // namespace

std::span<const NoGradient> OperatorsWithoutGradient() { return kNoGradient; }

std::string_view NoGradientReason(std::string_view op) {
  for (const NoGradient& entry : kNoGradient) {
    if (entry.op == op) return entry.reason;
  }
  return "";
}

}  // namespace onnxtrain
