// Concrete shapes for the model's inputs.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/onnx/import/live_graph.h"

namespace onnxtrain {

// Resolves the free extents of inputs from given shapes, named dims and the batch.
//
// Exports for a fixed batch have it as the leading extent of their inputs, none of which is free. Where another batch
// is asked for, that extent becomes the new batch, and BatchUnfixer changes the constants that carry it.
//
// Shapes are those of feeds: with the batch axis (ImportOptions::batch_axes) first.
class InputShapes {
 public:
  InputShapes(const ParsedGraph& graph, const LiveGraph& live, const ImportOptions& options);

  int64_t batch() const { return batch_; }
  // The fixed leading extent that batch() replaces; 0: there is none.
  int64_t fixed_batch() const { return fixed_batch_; }
  // The shape of the feed of an input that is a tensor.
  absl::StatusOr<Shape> Resolve(const ParsedValue& input) const;
  // The axis of the batch in a value as the file declares it; kNoBatchAxis where it has none.
  int BatchAxis(const ParsedValue& value) const;

 private:
  void ChooseBatch(const ParsedGraph& graph, const LiveGraph& live);
  void CollectDimNames(const ParsedGraph& graph);
  // The input with the batch axis moved to the front.
  ParsedValue MoveBatchFirst(ParsedValue input) const;
  bool HasBatch(const ParsedValue& input) const { return BatchAxis(input) != kNoBatchAxis; }
  absl::StatusOr<Shape> CheckGiven(const ParsedValue& input, Shape shape) const;
  absl::StatusOr<int64_t> ResolveFreeDim(const ParsedValue& input, size_t axis) const;

  const ImportOptions& options_;
  std::map<std::string, int64_t> dims_;  // by dim name
  int64_t batch_ = 1;
  int64_t fixed_batch_ = 0;
};

}  // namespace onnxtrain
