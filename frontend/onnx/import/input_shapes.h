// Concrete shapes for the model's inputs.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/onnx/import/live_graph.h"
#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// The element types that a model's float types become.

// Whether the graph stores weights in float64, and not just a number of a formula. Numbers are weights where all that
// is float is float64: y = w x + b.
bool HasDoubleWeights(const ParsedGraph& graph);

// Maps float32 to the chosen float type. float16 and bfloat16 get masters of it too, and everything around them
// computes in it, unless `as_stored`; so does float64 in a graph with float64 weights. In others float64 is what a
// float32 model computes positions and sizes in, and stays.
class FloatTypes {
 public:
  FloatTypes(DType float_type, bool as_stored, bool double_weights = false)
      : float_type_(float_type), low_(!as_stored), double_(!as_stored && double_weights) {}

  DType Map(DType dtype) const;
  HostTensor Map(const HostTensor& tensor) const { return tensor.CastTo(Map(tensor.dtype())); }
  // Maps tensors in the attributes and attributes that name an element type, defaults included.
  void MapAttrs(const ParsedNode& node, Attrs* attrs) const;

 private:
  void MapTypeAttr(const OnnxTraits& traits, Attrs* attrs) const;

  DType float_type_;
  bool low_, double_;  // which other types are mapped
};

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
