// The table of operators: the families in order, then the rows that backends registered.
#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/ops/added_ops.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/layout.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// Every pass looks for the row of every node, so that finding one takes no lock: adding rows makes a new map, and the
// former ones stay for those that read them.
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

}  // namespace onnxtrain
