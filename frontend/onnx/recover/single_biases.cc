#include "frontend/onnx/recover/rows.h"

#include "frontend/base/status.h"
#include "frontend/onnx/recover/weight_names.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

// The second half of B [directions, 2·gates·units].
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
