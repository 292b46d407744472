// Finds the products in bodies of If, Loop and Scan, which have no low-rank updates.
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/edit/library_names.h"
#include "frontend/onnx/edit/low_rank.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/weight_tracer.h"
#include "frontend/ops/import/mixture.h"

namespace onnxtrain {
namespace {

// Lists the products in bodies of control flow, whose weights are initializers of the body or of a graph around it.
class BodyProductFinder {
 public:
  explicit BodyProductFinder(const OnnxModel& model) : wrapper_(ListModules(model)) {
    scopes_.push_back(&model.parsed().graph);
  }

  std::vector<LeftOutProduct> Run() {
    SearchBodies(*scopes_[0]);
    return std::move(found_);
  }

 private:
  static std::string ListModules(const OnnxModel& model) {
    std::vector<std::string> names;
    for (const std::string& name : model.parsed().graph.initializer_order) names.push_back(name);
    return FindWrapper(model.parsed().graph, names);
  }

  void SearchBodies(const ParsedGraph& graph) {
    for (const ParsedNode& node : graph.nodes) {
      for (const auto& [attribute, body] : node.graphs) SearchBody(node, *body);
    }
  }

  void SearchBody(const ParsedNode& control, const ParsedGraph& body) {
    scopes_.push_back(&body);
    for (const ParsedNode& node : body.nodes) {
      constexpr size_t kMatrix = 1;
      const bool product = IsOp(node, {"MatMul", "Gemm"}) || FindPackedWeight(node.domain, node.op_type) != nullptr;
      const std::string weight = product && node.inputs.size() > kMatrix ? FindMatrix(node.inputs[kMatrix]) : "";
      if (weight.empty()) continue;
      const bool named = LastPart(weight) == "weight" && !ParentOf(weight).empty();
      const std::string scopes = DottedModule(node.name);
      const std::string module = named ? std::string(ParentOf(weight)) : scopes.empty() ? weight : scopes;
      found_.push_back({.module = WithoutPrefix(module, wrapper_),
                        .why = StrCat("is in a body of ", control.op_type, " '", Printable(control.source), "'"),
                        .in_body = true});
    }
    SearchBodies(body);
    scopes_.pop_back();
  }

  // Returns the initializer that the value is, perhaps transposed or quantized, or "".
  std::string FindMatrix(const std::string& value) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto tensor = (*scope)->initializers.find(value);
      if (tensor != (*scope)->initializers.end()) return tensor->second.shape().size() >= 2 ? value : "";
      for (const ParsedNode& node : (*scope)->nodes) {
        if (node.outputs.empty() || node.outputs[0] != value) continue;
        const bool moved = IsOp(node, {"Transpose"}) || IsIdentity(node) || node.op_type == "DequantizeLinear";
        return moved ? FindMatrix(node.inputs[0]) : "";
      }
    }
    return "";
  }

  const std::string wrapper_;
  std::vector<const ParsedGraph*> scopes_;  // from the model's graph inwards
  std::vector<LeftOutProduct> found_;
};

}  // namespace

std::vector<LeftOutProduct> ListBodyProducts(const OnnxModel& model) { return BodyProductFinder(model).Run(); }

}  // namespace onnxtrain
