#include "frontend/onnx/write/stored_forms.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/weight_ties.h"

namespace onnxtrain {
namespace {

// Adds the tables, and the parts of joined initializers, that are one weight with another one of `weights`.
void AddTiedTables(const SharedWeights& shared, std::map<std::string, LazyTensor>* weights) {
  const auto is_part = [&](const std::string& name) {
    return std::ranges::any_of(shared.joined, [&](const JoinedWeight& joined) {
      return std::ranges::count(joined.parts, name, &JoinedWeight::Part::weight) > 0;
    });
  };
  for (const WeightTie& tie : shared.ties) {
    const auto weight = weights->find(tie.weight);
    const bool looked_up = std::ranges::count(shared.lookups, tie.copy, &RowCopies::weight) > 0;
    if (weight != weights->end() && (looked_up || is_part(tie.copy)))
      weights->emplace(tie.copy, MakeCopy(tie, weight->second));
  }
}

}  // namespace

LazyTensor MakeCopy(const WeightTie& tie, const LazyTensor& weight) {
  switch (tie.form) {
    case WeightTie::Form::kTransposed:
      return Transpose(weight.Whole());
    case WeightTie::Form::kComplement:
      return MakeComplement(weight);
    case WeightTie::Form::kEqual:
      break;
  }
  return weight;
}

absl::Status ToStoredForms(const SharedWeights& shared,
                           const std::function<absl::StatusOr<HostTensor>(const JoinedWeight&)>& read,
                           std::map<std::string, LazyTensor>* weights) {
  for (const ComputedFunction& computed : shared.functions) {
    const auto argument = weights->extract(computed.weight);
    if (!argument.empty()) weights->emplace(computed.value, MakeValue(computed, argument.mapped()));
  }
  AddTiedTables(shared, weights);
  RETURN_IF_ERROR(JoinParts(shared, read, weights));
  for (const RowCopies& copies : shared.lookups) {
    const auto table = weights->extract(copies.weight);
    if (!table.empty()) weights->emplace(copies.copy, ExpandRows(copies, table.mapped()));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
