// Export of canonical operators as nodes of ai.onnx, opset 18: the `emit` of rows. The exporter (frontend/onnx/write)
// stores the nodes.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// How the names of masks that forward and backward pass share begin.
inline constexpr std::string_view kMaskName = "dropout_mask_";

// The values of a graph by their names in the file, and the services of the exporter.
class OnnxWriter {
 public:
  // The graph must outlive the writer.
  explicit OnnxWriter(const Graph& graph) : graph_(graph) {}
  virtual ~OnnxWriter() = default;

  const Graph& graph() const { return graph_; }
  const Shape& shape(ValueId value) const { return graph_.type(value).shape; }
  // The name of a value; "" for an absent one.
  virtual std::string Name(ValueId value) const = 0;
  std::vector<std::string> Names(const ValueIds& values) const;
  std::string Output(const Node& node) const { return Name(node.outputs[0]); }
  // `name`, kept apart from the names of the file.
  virtual std::string Prefixed(std::string_view name) const = 0;
  // Returns whether nothing has taken the name before.
  virtual bool TakeName(const std::string& name) = 0;

  // Appends a node. Op names its only output, and returns the name; OpTo gets the names.
  std::string Op(std::string_view op_type, const std::vector<std::string>& inputs, const Attrs& attrs = {});
  void OpTo(const std::vector<std::string>& outputs, std::string_view op_type, const std::vector<std::string>& inputs,
            const Attrs& attrs = {}) {
    Append(op_type, inputs, outputs, attrs);
  }
  // Return the name of a new initializer.
  virtual std::string Constant(const HostTensor& value) = 0;
  std::string Ints(const std::vector<int64_t>& values) { return Constant(HostTensor::FromInts(values)); }
  std::string Zeros(DType dtype, const Shape& shape);
  std::string Reshape(const std::string& x, const Shape& shape);
  std::string Transpose(const std::string& x, const std::vector<int64_t>& perm);

 protected:
  virtual void Append(std::string_view op_type, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& outputs, const Attrs& attrs) = 0;
  virtual std::string NewName() = 0;

 private:
  const Graph& graph_;
};

// The function of the row; where it names none, EmitSame for operators that are imported as they are and have no
// decomposition. Null for the others: they must be decomposed first.
EmitFn FindEmit(std::string_view op);

// The operator of the same name, with the same attributes.
absl::Status EmitSame(OnnxWriter& s, const Node& node);

absl::Status EmitCast(OnnxWriter& s, const Node& node);
absl::Status EmitClip(OnnxWriter& s, const Node& node);
absl::Status EmitCumSum(OnnxWriter& s, const Node& node);
absl::Status EmitDropout(OnnxWriter& s, const Node& node);
absl::Status EmitExpm1(OnnxWriter& s, const Node& node);
absl::Status EmitLog1p(OnnxWriter& s, const Node& node);
absl::Status EmitMatMul(OnnxWriter& s, const Node& node);
absl::Status EmitPRelu(OnnxWriter& s, const Node& node);
absl::Status EmitReduce(OnnxWriter& s, const Node& node);
absl::Status EmitRsqrt(OnnxWriter& s, const Node& node);

// windows.cc
absl::Status EmitAveragePool(OnnxWriter& s, const Node& node);
absl::Status EmitAveragePoolGrad(OnnxWriter& s, const Node& node);
absl::Status EmitConv(OnnxWriter& s, const Node& node);
absl::Status EmitConvTranspose(OnnxWriter& s, const Node& node);
absl::Status EmitConvWeightGrad(OnnxWriter& s, const Node& node);
absl::Status EmitMaxPool(OnnxWriter& s, const Node& node);
absl::Status EmitMaxPoolGrad(OnnxWriter& s, const Node& node);
absl::Status EmitResample(OnnxWriter& s, const Node& node);  // and ResampleGrad

// shape.cc
absl::Status EmitConstant(OnnxWriter& s, const Node& node);
absl::Status EmitExpand(OnnxWriter& s, const Node& node);
absl::Status EmitGather(OnnxWriter& s, const Node& node);
absl::Status EmitGatherElementsGrad(OnnxWriter& s, const Node& node);
absl::Status EmitGatherGrad(OnnxWriter& s, const Node& node);
absl::Status EmitPad(OnnxWriter& s, const Node& node);
absl::Status EmitReshape(OnnxWriter& s, const Node& node);
absl::Status EmitSlice(OnnxWriter& s, const Node& node);
absl::Status EmitSliceGrad(OnnxWriter& s, const Node& node);
absl::Status EmitSplit(OnnxWriter& s, const Node& node);
absl::Status EmitTopK(OnnxWriter& s, const Node& node);

// For export functions.

// The attributes of these names.
Attrs Pick(const Attrs& attrs, std::initializer_list<const char*> names);
int64_t Product(std::span<const int64_t> extents);

}  // namespace onnxtrain
