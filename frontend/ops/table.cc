// The table of operators: the families in order, then the rows that backends registered.
#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/ops/added_ops.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/layout.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

struct Table {
  std::mutex mutex;
  std::unordered_map<std::string_view, const OpRow*> by_name;
  std::vector<const OpRow*> in_order;

  void Add(std::span<const OpRow> rows, bool may_exist) {
    for (const OpRow& row : rows) {
      const bool added = by_name.emplace(row.name, &row).second;
      CHECK(added || may_exist) << "two operators named " << row.name;
      if (added) in_order.push_back(&row);
    }
  }

  Table() {
    for (std::span<const OpRow> family : {ONNXTRAIN_OP_FAMILIES}) Add(family, false);
  }
};

Table& GetTable() {
  static Table* table = new Table;
  return *table;
}

using ImportKey = std::pair<std::string_view, std::string_view>;

OnnxTraits MakeOnnxTraits(const OpRow& row) {
  return {.probabilities = row.probabilities,
          .keeps_channels = row.init.gain != nullptr && !row.probabilities,
          .scalar_weight = row.inputs.max == 1 && row.attrs.empty() && row.grad_status == GradStatus::kFormula};
}

// Makes the import of a row under its own name, with the traits of the row.
OnnxOp MakeOnnxOp(const OpRow& row) {
  return {.op_type = row.name,
          .min_inputs = row.inputs.min,
          .max_inputs = row.inputs.max,
          .import = row.onnx,
          .traits = MakeOnnxTraits(row)};
}

struct ImportTable {
  std::vector<OnnxOp> of_rows;
  std::map<ImportKey, const OnnxOp*> by_name;

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

const std::map<ImportKey, const OnnxOp*>& Imports() {
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

// Type rules see row-major inputs.
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

const OpRow* FindOp(std::string_view name) {
  Table& table = GetTable();
  std::lock_guard lock(table.mutex);
  auto it = table.by_name.find(name);
  return it == table.by_name.end() ? nullptr : it->second;
}

std::vector<const OpRow*> AllOps() {
  Table& table = GetTable();
  std::lock_guard lock(table.mutex);
  return table.in_order;
}

void RegisterOps(std::span<const OpRow> rows) {
  Table& table = GetTable();
  std::lock_guard lock(table.mutex);
  table.Add(rows, true);
}

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
  return all;
}

}  // namespace onnxtrain
