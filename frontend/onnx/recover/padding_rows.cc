#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <map>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/weight_tracer.h"
#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

constexpr int64_t kLookedAt = 4;  // rows at each end of a table; reading all rows would load the file

constexpr const char* kWhy[] = {
    "is not trained: the exported program has it as padding_idx",
    "is not trained: it alone is zeros, as PyTorch's padding_idx makes it (`train` trains it)"};

bool IsZeroRow(const HostTensor& table, int64_t row) {
  const int64_t width = table.shape()[1];
  for (int64_t i = 0; i < width; ++i) {
    if (table.At(row * width + i) != 0) return false;
  }
  return true;
}

// Returns -1 if no row, or more than one, is zero.
int64_t FindZeroRow(const HostTensor& table) {
  const int64_t rows = table.shape()[0];
  int64_t found = -1;
  for (int64_t row = 0; row < rows; ++row) {
    if (row == kLookedAt) row = std::max(row, rows - kLookedAt);
    if (!IsZeroRow(table, row)) continue;
    if (found >= 0) return -1;
    found = row;
  }
  return found;
}

// The table of an embedding, or null.
const HostTensor* FindTable(const ParsedGraph& graph, const ParsedNode& node) {
  if (!IsOp(node, {"Gather"}) || node.inputs.size() != 2 || node.attrs.Int("axis") != 0) return nullptr;
  const auto stored = graph.initializers.find(node.inputs[0]);
  if (stored == graph.initializers.end() || !IsFloat(stored->second.dtype())) return nullptr;
  const Shape& shape = stored->second.shape();
  return shape.size() == 2 && shape[0] > 1 && shape[1] > 1 ? &stored->second : nullptr;
}

}  // namespace

absl::StatusOr<WeightRecords> MatchPaddingRows(WeightIndex* index) {
  WeightRecords records;
  if (!index->model().producer.starts_with("pytorch")) return records;
  std::map<std::string, WeightRecord> tables;
  for (const ParsedNode& node : index->graph().nodes) {
    const HostTensor* table = FindTable(index->graph(), node);
    if (table == nullptr) continue;
    const int64_t row = node.fx != nullptr ? node.fx->padding_row : FindZeroRow(*table);
    if (row < 0 || row >= table->shape()[0]) continue;
    WeightRecord& record = tables[node.inputs[0]];
    if (record.weight.empty()) record.form = MarkedNodes{.attribute = kPaddingRow};
    record.weight = node.inputs[0];
    record.why = StrCat("row ", row, " of '", Printable(node.inputs[0]), "' ", kWhy[node.fx == nullptr]);
    std::get<MarkedNodes>(record.form).values.emplace_back(node.outputs[0], row);
  }
  for (auto& [name, record] : tables) records.push_back(std::move(record));
  return records;
}

}  // namespace onnxtrain
