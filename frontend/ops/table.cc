// The table of operators: the families, one after the other, and what backends registered.
#include <map>
#include <mutex>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/ops/onnx_import.h"
#include "frontend/ops/recurrent.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string_view, const OpRow*> by_name;
  std::vector<const OpRow*> in_order;

  void Add(std::span<const OpRow> rows, bool may_exist) {
    for (const OpRow& row : rows) {
      const bool added = by_name.emplace(row.name, &row).second;
      CHECK(added || may_exist) << "two operators named " << row.name;
      if (added) in_order.push_back(&row);
    }
  }

  Table() {
    for (auto family : {ElementwiseOps, ReduceOps, MatmulOps, ConvOps, PoolOps, ResampleOps, SampleOps, DeterminantOps, NormOps, SoftmaxOps, AttentionOps,
                        ShapeOps, IndexOps, ScatterOps, TopKOps, BitwiseOps, RandomOps, LossOps,
                        RecurrentOps, QuantizeOps, RmsNormOps}) {
      Add(family(), false);
    }
  }
};

Table& TheTable() {
  static Table* table = new Table;
  return *table;
}

using ImportKey = std::pair<std::string_view, std::string_view>;

const std::map<ImportKey, const OnnxOp*>& Imports() {
  static const auto* imports = [] {
    auto* map = new std::map<ImportKey, const OnnxOp*>;
    for (auto family : {ElementwiseImports, ReduceImports, MatmulImports, ConvImports, PoolImports, ResampleImports, SampleImports, GeometryImports, NormImports,
                        SoftmaxImports, AttentionImports, ShapeImports, IndexImports, ScatterImports, SelectionImports,
                        BitwiseImports, SignalImports, TrainingImports, MlImports, TfIdfImports, RandomImports, LossImports,
                        RecurrentImports, QuantizeImports}) {
      for (const OnnxOp& op : family()) {
        CHECK(map->emplace(ImportKey{op.domain, op.op_type}, &op).second) << "two imports of " << op.op_type;
      }
    }
    return map;
  }();
  return *imports;
}

std::string KindOf(const AttrValue& value) {
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
        return Invalid("attribute '", name, "' should be ", KindOf(spec.value), ", got ", KindOf(value));
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

absl::Status CheckArity(const OpRow& row, std::span<const Type* const> inputs) {
  const int n = static_cast<int>(inputs.size());
  if (n < row.inputs.min || n > row.inputs.max) {
    return Invalid("expected ", row.inputs.min,
                   row.inputs.max == row.inputs.min ? "" : row.inputs.max >= Arity::kMany ? " or more" : StrCat(" to ", row.inputs.max),
                   " inputs, got ", n);
  }
  for (int i = 0; i < row.inputs.min; ++i) {
    if (inputs[i] == nullptr) return Invalid("input ", i, " is missing");
  }
  return absl::OkStatus();
}

}  // namespace

const OpRow* FindOp(std::string_view name) {
  Table& table = TheTable();
  std::lock_guard lock(table.mutex);
  auto it = table.by_name.find(name);
  return it == table.by_name.end() ? nullptr : it->second;
}

std::vector<const OpRow*> AllOps() {
  Table& table = TheTable();
  std::lock_guard lock(table.mutex);
  return table.in_order;
}

void RegisterOps(std::span<const OpRow> rows) {
  Table& table = TheTable();
  std::lock_guard lock(table.mutex);
  table.Add(rows, true);
}

absl::StatusOr<std::vector<Type>> InferTypes(std::string_view op, std::span<const Type* const> inputs, Attrs& attrs) {
  const OpRow* row = FindOp(op);
  if (row == nullptr) return Invalid("unknown operator");
  RETURN_IF_ERROR(CheckArity(*row, inputs));
  RETURN_IF_ERROR(CheckAttrs(*row, attrs));
  ASSIGN_OR_RETURN(std::vector<Type> types, row->infer({op, inputs, attrs}));
  for (const Type& type : types) RETURN_IF_ERROR(CheckShape(type.shape));
  return types;
}

const OnnxOp* FindOnnxOp(std::string_view domain, std::string_view op_type) {
  if (domain == "ai.onnx") domain = "";
  auto it = Imports().find({domain, op_type});
  return it == Imports().end() ? nullptr : it->second;
}

std::vector<const OnnxOp*> AllOnnxOps() {
  std::vector<const OnnxOp*> all;
  for (const auto& [key, op] : Imports()) all.push_back(op);
  return all;
}

}  // namespace onnxtrain
