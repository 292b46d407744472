#include "tools/onnxtrain/report/value_trace.h"

#include "backends/bound_program.h"
#include "frontend/base/status.h"
#include "optim/step/program/optimize.h"
#include "optim/step/training_graph.h"
#include "tools/onnxtrain/report/named_results.h"

namespace onnxtrain::cli {
namespace {

// Returns the value of a graph input.
absl::StatusOr<HostTensor> ValueOf(const GraphInput& input, const Type& type, const PreparedModel& model,
                                   const SessionOptions& options, const GlobalBatch& global_batch,
                                   const std::vector<double>& weights) {
  for (const ImportedWeight& w : model.model.weights) {
    if (w.name == input.name) return w.value;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (input.name == TermName(kInverseDenominatorFeed, i))
      return HostTensor::Scalar(type.dtype, InverseDenominator(model.loss.terms[i], weights[i]));
  }
  if (const HostTensor* tensor = global_batch.Find(input.name)) return *tensor;
  if (input.name == model.model.random_key) {
    return HostTensor::FromInts(type, std::vector<int64_t>{static_cast<int64_t>(options.seed & 0xffffffff), 0, 0, 0});
  }
  return Invalid("input '", input.name, "' ", ToString(type), " has no value here");
}

constexpr char kValue[] = "$value:";

// Makes every value with a name of its own an output, so that no backend fuses it away.
void ShowValues(Graph* graph) {
  std::map<std::string, int> uses;
  for (const Value& v : graph->values()) ++uses[v.name];
  for (ValueId id = 0; id < static_cast<ValueId>(graph->values().size()); ++id) {
    const Value& v = graph->value(id);
    const Node* node = graph->producer(id);
    if (v.name->empty() || uses[v.name] > 1 || node == nullptr || node->op == "Constant" || !IsFloat(v.type->dtype))
      continue;
    graph->AddOutput(kValue + *v.name, id);
  }
}

// Values have the names of the model, gradients those of `grad`.
std::string ShownName(const std::string& name) {
  const std::string grad = GradName("");
  if (name.starts_with(grad)) return kGradPrefix + name.substr(grad.size());
  return name.starts_with(kValue) ? name.substr(sizeof(kValue) - 1) : name;
}

absl::StatusOr<std::map<std::string, HostTensor>> Collect(const BoundProgram& program) {
  const Graph& graph = program.graph();
  std::map<std::string, HostTensor> values;
  for (const GraphOutput& o : graph.outputs()) {
    if (o.into != kNoValue || !IsFloat(graph.type(o.value).dtype)) continue;
    ASSIGN_OR_RETURN(values[ShownName(o.name)], program.Get(o.name));
  }
  return values;
}

}  // namespace

absl::StatusOr<std::map<std::string, HostTensor>> TraceValues(const PreparedModel& model, const SessionOptions& options,
                                                              const GlobalBatch& global_batch, Backend& backend) {
  const int64_t samples = global_batch.samples();
  ASSIGN_OR_RETURN(Graph graph, BuildMicro(model.model, model.loss, options.loss, samples, {.outputs = true}));
  ASSIGN_OR_RETURN(graph, OptimizeProgram(std::move(graph), options.compute));
  ShowValues(&graph);
  ASSIGN_OR_RETURN(const Graph legal, backend.Legalize(graph));
  ASSIGN_OR_RETURN(BoundProgram program, BoundProgram::Make(backend, legal, {.keep_values = true}));
  LossDenominators counted(model.loss, options.loss);
  RETURN_IF_ERROR(counted.Count(global_batch, samples));
  for (const GraphInput& input : program.graph().inputs()) {
    const Type& type = program.graph().type(input.value);
    ASSIGN_OR_RETURN(const HostTensor value, ValueOf(input, type, model, options, global_batch, counted.weights()));
    RETURN_IF_ERROR(program.Set(input.name, value));
  }
  RETURN_IF_ERROR(program.Run());
  return Collect(program);
}

}  // namespace onnxtrain::cli
