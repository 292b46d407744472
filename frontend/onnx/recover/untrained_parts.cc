#include <algorithm>
#include <map>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/onnx_import.h"

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

// Returns the table of an embedding, or null.
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

namespace {

// Returns true if the second half of B [directions, 2·gates·units] is zero.
bool HasZeroRecurrentBias(const HostTensor& bias) {
  if (!IsFloat(bias.dtype()) || bias.shape().size() != 2 || bias.size() == 0) return false;
  const int64_t width = bias.shape()[1];
  for (int64_t i = 0; i < bias.size(); ++i) {
    if (i % width >= width / 2 && bias.At(i) != 0) return false;
  }
  return true;
}

// Returns true if the cell only uses the sum of the biases.
bool AddsBiases(const ParsedNode& node) {
  return GetOnnxTraits(node).time_major && node.inputs.size() > 3 && node.attrs.Int("linear_before_reset") == 0;
}

}  // namespace

absl::StatusOr<WeightRecords> MatchSingleBiases(WeightIndex* index) {
  WeightRecords records;
  if (index->model().producer.starts_with("pytorch")) return records;
  for (const ParsedNode& node : index->graph().nodes) {
    if (!AddsBiases(node)) continue;
    const HostTensor* bias = index->FindTensor(node.inputs[3]);
    if (bias == nullptr || !HasZeroRecurrentBias(*bias)) continue;
    records.push_back(
        {.weight = node.inputs[3],
         .why = StrCat("the second half of '", Printable(node.inputs[3]),
                       "' is zeros: not trained, the framework that wrote it has one bias for ", node.op_type),
         .form = MarkedNodes{.attribute = kSingleBias, .values = {{MakeFileReader(node, 3).node, 1}}}});
  }
  return records;
}

void BuildMarkedNodes(const WeightRecord& record, WeightIndex* index) {
  const auto& marked = std::get<MarkedNodes>(record.form);
  for (const auto& [output, value] : marked.values) {
    if (ParsedNode* node = index->Producer(output)) node->attrs.Set(marked.attribute, value);
  }
  index->AddNote(record.why);
}

}  // namespace onnxtrain
