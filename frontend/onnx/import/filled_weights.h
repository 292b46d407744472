// Weights that ConstantOfShape nodes fill.
#pragma once

#include <optional>

#include "frontend/onnx/import/float_types.h"
#include "frontend/onnx/import/live_graph.h"
#include "frontend/onnx/import/scope.h"

namespace onnxtrain {

// Finds them in the model's own graph.
//
// Models that were stripped of their weights for size (the ONNX project's own) fill them by ConstantOfShape nodes whose
// shape the file holds. A shape that is computed is no weight's; neither are masks, states and paddings, which other
// operands take.
class FilledWeights {
 public:
  FilledWeights(const ParsedGraph& graph, const LiveGraph& live, const FloatTypes& types)
      : graph_(graph), live_(live), types_(types) {}

  bool IsFilledWeight(const ParsedNode& node) const;
  // The weight of such a node, whose shape input is `extents` (null: unknown). Nothing where it is no float tensor of
  // several elements; an error above a size that a few bytes of a file should not make the importer allocate.
  absl::StatusOr<std::optional<HostTensor>> Fill(const Attrs& attrs, const HostTensor* extents);
  // How many weights were filled.
  int count() const { return count_; }

 private:
  bool OnlyFeedsWeightInputs(const std::string& name, int depth) const;

  const ParsedGraph& graph_;
  const LiveGraph& live_;
  const FloatTypes& types_;
  int count_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace onnxtrain
