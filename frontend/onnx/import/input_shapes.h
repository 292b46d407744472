// Chooses concrete shapes and element types for the model's inputs.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/onnx/import/scope.h"
#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Returns true if the graph stores weights in float64, and not only scalars of formulas. Scalars count as weights if
// the graph has no other float type (y = w x + b).
bool HasDoubleWeights(const ParsedGraph& graph);

// Maps float32 to the chosen float type. Maps float16 and bfloat16 too, so that weights get masters of that type, and
// float64 in a graph with float64 weights, unless `as_stored`. Otherwise float64 stays, as float32 models compute
// positions and sizes in it.
class FloatTypes {
 public:
  FloatTypes(DType float_type, bool as_stored, bool double_weights = false)
      : float_type_(float_type), low_(!as_stored), double_(!as_stored && double_weights) {}

  DType Map(DType dtype) const;
  HostTensor Map(const HostTensor& tensor) const { return tensor.CastTo(Map(tensor.dtype())); }
  // Maps tensors in attributes, and attributes that name an element type, including their defaults.
  void MapAttrs(const ParsedNode& node, Attrs* attrs) const;

 private:
  void MapTypeAttr(const OnnxTraits& traits, Attrs* attrs) const;

  DType float_type_;
  bool low_, double_;  // whether float16 and bfloat16, and float64, are mapped
};

// Resolves the free extents of inputs from given shapes, named dims and the batch.
//
// A model that was exported for a fixed batch has it as the leading extent of its inputs, none of which is free. If
// another batch is requested, that extent becomes the new batch, and BatchUnfixer changes the constants that contain
// it.
//
// Shapes have the layout of feeds, with the batch axis (ImportOptions::batch_axes) first.
class InputShapes {
 public:
  InputShapes(const ParsedGraph& graph, const LiveGraph& live, const ImportOptions& options);

  int64_t batch() const { return batch_; }
  // Returns the fixed leading extent that batch() replaces; 0 if there is none.
  int64_t fixed_batch() const { return fixed_batch_; }
  // Returns the shape of the feed of a tensor input.
  absl::StatusOr<Shape> Resolve(const ParsedValue& input) const;
  // Returns the batch axis of a value in the layout of the file; kNoBatchAxis if it has none.
  int BatchAxis(const ParsedValue& value) const;

 private:
  void ChooseBatch(const ParsedGraph& graph, const LiveGraph& live);
  void CollectDimNames(const ParsedGraph& graph);
  // Returns the input with the batch axis moved to the front.
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
