// Writes canonical operators as nodes of ai.onnx, opset 18: the `emit` functions of rows. The exporter
// (frontend/onnx/write) stores the nodes.
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

// Prefix of the names of dropout masks, which forward and backward pass share.
inline constexpr std::string_view kMaskName = "dropout_mask_";

// Names the values of a graph and appends nodes and initializers to the file.
class OnnxWriter {
 public:
  // The graph must outlive the writer.
  explicit OnnxWriter(const Graph& graph) : graph_(graph) {}
  virtual ~OnnxWriter() = default;

  const Graph& graph() const { return graph_; }
  const Shape& shape(ValueId value) const { return graph_.type(value).shape; }
  // Returns the name of a value in the file; "" for an absent value.
  virtual std::string Name(ValueId value) const = 0;
  std::vector<std::string> Names(const ValueIds& values) const;
  std::string Output(const Node& node) const { return Name(node.outputs[0]); }
  // Returns `name` with a prefix that no name of the model has.
  virtual std::string Prefixed(std::string_view name) const = 0;
  // Returns true if the name was not taken before, and takes it.
  virtual bool TakeName(const std::string& name) = 0;

  // Append a node. Op creates and returns the name of its only output; OpTo receives the names.
  std::string Op(std::string_view op_type, const std::vector<std::string>& inputs, const Attrs& attrs = {});
  void OpTo(const std::vector<std::string>& outputs, std::string_view op_type, const std::vector<std::string>& inputs,
            const Attrs& attrs = {}) {
    Append(op_type, inputs, outputs, attrs);
  }
  // Add an initializer and return its name.
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

// Returns the function of the row or, by default, EmitSame for an operator that OpRow::onnx imports and that has no
// decomposition. Null for other operators, which must be decomposed first.
EmitFn FindEmit(std::string_view op);

// Writes the ONNX operator of the same name with the same attributes.
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

// Defined in windows.cc.
absl::Status EmitAveragePool(OnnxWriter& s, const Node& node);
absl::Status EmitAveragePoolGrad(OnnxWriter& s, const Node& node);
absl::Status EmitConv(OnnxWriter& s, const Node& node);
absl::Status EmitConvTranspose(OnnxWriter& s, const Node& node);
absl::Status EmitConvWeightGrad(OnnxWriter& s, const Node& node);
absl::Status EmitMaxPool(OnnxWriter& s, const Node& node);
absl::Status EmitMaxPoolGrad(OnnxWriter& s, const Node& node);
absl::Status EmitResample(OnnxWriter& s, const Node& node);  // also writes ResampleGrad

// Defined in shape.cc.
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

// Returns the attributes with these names.
Attrs Pick(const Attrs& attrs, std::initializer_list<const char*> names);
int64_t Product(std::span<const int64_t> extents);

}  // namespace onnxtrain
