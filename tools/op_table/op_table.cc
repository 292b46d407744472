#include "tools/op_table/op_table.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_join.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/ops/no_gradient.h"
#include "frontend/ops/row.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/differentiate.h"
#include "tools/op_table/examples.h"

namespace onnxtrain {
namespace {

std::string FullName(const OnnxOp& op) { return StrCat(op.domain, op.domain.empty() ? "" : ".", op.op_type); }

// The operators of the graph in order, each once, without constants.
std::vector<std::string> CanonicalOps(const Graph& graph) {
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes()) {
    if (node.op != "Constant" && std::find(ops.begin(), ops.end(), node.op) == ops.end()) ops.push_back(node.op);
  }
  return ops;
}

std::vector<ValueId> FloatInputs(const Graph& graph) {
  std::vector<ValueId> inputs;
  for (const GraphInput& input : graph.inputs()) {
    if (IsFloat(graph.type(input.value).dtype)) inputs.push_back(input.value);
  }
  return inputs;
}

std::vector<Seed> FloatOutputs(const Graph& graph) {
  std::vector<Seed> outputs;
  for (const GraphOutput& output : graph.outputs()) {
    const bool is_input = graph.IsInput(output.value) && !graph.nodes().empty();
    if (IsFloat(graph.type(output.value).dtype) && !is_input) outputs.push_back({output.value});
  }
  return outputs;
}

// By formulas of the rows alone, or by way of decompositions?
std::string HowDifferentiated(const Graph& graph) {
  const std::vector<std::string> ops = CanonicalOps(graph);
  const bool formula = ops.empty() || (ops.size() == 1 && FindOp(ops[0])->grad_status == GradStatus::kFormula);
  return formula ? "formula" : "decomposition";
}

// "formula: x0, x1".
std::string GradientStatus(const Graph& graph) {
  Graph joint = graph;
  const std::vector<ValueId> inputs = FloatInputs(graph);
  const std::vector<Seed> outputs = FloatOutputs(graph);
  if (outputs.empty()) return "zero: the result is no float";
  if (inputs.empty()) return "zero: no input is a float";
  const auto gradients = Differentiate(&joint, outputs, inputs);
  if (!gradients.ok()) return StrCat("not differentiable: ", gradients.status().message());
  std::vector<std::string> names;
  for (const GraphInput& input : graph.inputs()) {
    if (gradients->contains(input.value)) names.push_back(input.name);
  }
  if (names.empty()) return "zero: constant, or by steps";
  return StrCat(HowDifferentiated(graph), ": ", absl::StrJoin(names, ", "));
}

std::string HowRun(const Graph& graph, Backend& backend) {
  const bool kernels = std::all_of(graph.nodes().begin(), graph.nodes().end(),
                                   [&](const Node& node) { return backend.Supports(graph, node); });
  if (kernels) return "kernel";
  const auto legal = backend.Legalize(graph);
  return legal.ok() ? "decomposition" : StrCat("no: ", legal.status().message());
}

absl::StatusOr<Graph> GraphOf(const OnnxOp& op) {
  ASSIGN_OR_RETURN(const OpExample example, ExampleOf(op));
  auto imported = ImportExample(example);
  if (!imported.ok()) return Annotate(imported.status(), StrCat("the example of ", FullName(op), ": "));
  return Dce(*imported);
}

absl::StatusOr<std::string> Line(const OnnxOp& op, const std::vector<Backend*>& backends) {
  ASSIGN_OR_RETURN(const Graph graph, GraphOf(op));
  const std::vector<std::string> ops = CanonicalOps(graph);
  std::string line = StrCat("| ", FullName(op), " | ", ops.empty() ? "nothing" : absl::StrJoin(ops, " "), " | ", GradientStatus(graph));
  for (Backend* backend : backends) StrAppend(&line, " | ", HowRun(graph, *backend));
  return line + " |\n";
}

constexpr std::string_view kHead = R"(# What becomes of the ONNX operators

Made by `op_table` (`build/release/bin/op_table > frontend/ops/GRADIENTS.md`) from one example of each (`tools/op_table/examples.cc`), imported for
training; a test holds it current. *Becomes*: the canonical operators of the example. *Gradient of*: its inputs that have one. "formula": the canonical
operator's own; "decomposition": through several operators, or through what the operator decomposes into; "zero": nothing flows, and that is right.
*kernel*: the backend runs the canonical operators as they are; *decomposition*: what others they become.

If, Loop, Scan, ai.onnx.preview.training.Gradient, functions, sequences and optionals end in the importer (`frontend/onnx`): what is left of them are the
operators inside.

)";

constexpr std::string_view kRest = R"(
Every operator of ONNX above passes gradients on or rightly gives none. Of the canonical operators (README.md), these offer no gradient of their own:

| canonical operator | why it has no gradient |
|---|---|
)";

}  // namespace

absl::StatusOr<bool> HasGradient(const OnnxOp& op) {
  ASSIGN_OR_RETURN(Graph graph, GraphOf(op));
  const std::vector<Seed> outputs = FloatOutputs(graph);
  if (outputs.empty()) return false;
  ASSIGN_OR_RETURN(const auto gradients, Differentiate(&graph, outputs, FloatInputs(graph)));
  return !gradients.empty();
}

absl::StatusOr<std::string> OpTablePage() {
  std::vector<std::unique_ptr<Backend>> owned;
  std::vector<Backend*> backends;
  for (std::string_view name : {"cpu", "torch"}) {
    ASSIGN_OR_RETURN(owned.emplace_back(), CreateBackend(name, {}));
    backends.push_back(owned.back().get());
  }
  std::string text(kHead);
  text += "| ONNX operator | becomes | gradient of | cpu | torch |\n|---|---|---|---|---|\n";
  for (const OnnxOp* op : AllOnnxOps()) {
    ASSIGN_OR_RETURN(const std::string line, Line(*op, backends));
    text += line;
  }
  text += kRest;
  for (const NoGradient& entry : OperatorsWithoutGradient()) StrAppend(&text, "| ", entry.op, " | ", entry.reason, " |\n");
  return text;
}

}  // namespace onnxtrain
