// Writes operators of the graph as nodes of ai.onnx, opset 18. For the sources of frontend/onnx only.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/export/onnx_export.h"

namespace onnx {
class GraphProto;
}  // namespace onnx

namespace onnxtrain {

inline constexpr int kExportOpset = 18;

// Appends nodes and initializers to a GraphProto. Values without a set name are called "v" plus the id, temporaries "t"
// plus a number.
class OnnxEmitter : public OnnxWriter {
 public:
  // Both must outlive the emitter.
  OnnxEmitter(const Graph& graph, onnx::GraphProto* proto) : OnnxWriter(graph), proto_(proto) {}

  std::string Name(ValueId value) const override;
  void SetName(ValueId value, std::string name);
  // Adds a prefix to all names generated later if they could clash with `names`.
  void Avoid(const std::set<std::string>& names);
  std::string Prefixed(std::string_view name) const override;
  bool TakeName(const std::string& name) override { return taken_.insert(name).second; }

  std::string Constant(const HostTensor& value) override;

 private:
  void Append(std::string_view op_type, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
              const Attrs& attrs) override;
  std::string NewName() override;

  onnx::GraphProto* proto_;
  std::vector<std::string> names_;  // by value; "" if not set
  std::set<std::string> taken_;     // passed to TakeName
  std::string prefix_;
  int temporaries_ = 0;
};

// Appends the nodes of one operator, which must have an emit function (FindEmit). Fails, without the node's tag, on
// attributes that ONNX lacks.
absl::Status Emit(OnnxEmitter& emitter, const Node& node);

}  // namespace onnxtrain
