// Writes operators of the graph as nodes of ai.onnx, opset 18. For the sources of frontend/onnx alone.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "frontend/graph/graph.h"

namespace onnx {
class GraphProto;
}  // namespace onnx

namespace onnxtrain {

inline constexpr int kExportOpset = 18;
// How the names of masks that forward and backward pass share begin.
inline constexpr std::string_view kMaskName = "dropout_mask_";

// Appends nodes and initializers to a GraphProto. Value names are "v" and the id unless they were set, those of
// temporaries "t" and a number.
class OnnxEmitter {
 public:
  // Both must outlive the emitter.
  OnnxEmitter(const Graph& graph, onnx::GraphProto* proto) : graph_(graph), proto_(proto) {}

  const Graph& graph() const { return graph_; }
  const Shape& shape(ValueId value) const { return graph_.type(value).shape; }
  // The name of a value; "" for an absent one.
  std::string Name(ValueId value) const;
  std::vector<std::string> Names(const ValueIds& values) const;
  void SetName(ValueId value, std::string name);
  // Keeps names that are generated from now on apart from these: they get a prefix where it is needed.
  void Avoid(const std::set<std::string>& names);
  // `name` with that prefix.
  std::string Prefixed(std::string_view name) const;

  // Appends a node. Op names its only output, and returns the name; OpTo gets the names.
  std::string Op(std::string_view op_type, const std::vector<std::string>& inputs, const Attrs& attrs = {});
  void OpTo(const std::vector<std::string>& outputs, std::string_view op_type, const std::vector<std::string>& inputs,
            const Attrs& attrs = {});
  // Return the name of a new initializer.
  std::string Constant(const HostTensor& value);
  std::string Ints(const std::vector<int64_t>& values) { return Constant(HostTensor::FromInts(values)); }
  std::string Zeros(DType dtype, const Shape& shape);
  std::string Reshape(const std::string& x, const Shape& shape);
  std::string Transpose(const std::string& x, const std::vector<int64_t>& perm);
  // Whether the name is taken for the first time.
  bool TakeName(const std::string& name) { return taken_.insert(name).second; }

 private:
  std::string NewName();

  const Graph& graph_;
  onnx::GraphProto* proto_;
  std::vector<std::string> names_;  // by value; "" where it was not set
  std::set<std::string> taken_;     // by TakeName
  std::string prefix_;
  int temporaries_ = 0;
};

// Whether ONNX has the operator, or a few nodes for it. Where it has not, a decomposition is needed.
bool HasEmitter(const Node& node);

// Appends the nodes of one operator that has an emitter. Fails, without the node's tag, on attributes that ONNX lacks.
absl::Status Emit(OnnxEmitter& emitter, const Node& node);

}  // namespace onnxtrain
