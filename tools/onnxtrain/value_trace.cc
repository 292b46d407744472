#include "tools/onnxtrain/value_trace.h"

#include "frontend/base/status.h"
#include "optim/optimize.h"
#include "optim/state.h"
#include "optim/training_graph.h"

namespace onnxtrain::cli {
namespace {

// What goes into every input of the graph.
absl::StatusOr<HostTensor> ValueOf(const GraphInput& input, const Type& type, const PreparedModel& model,
                                   const SessionOptions& options, const Window& window, double weight) {
  for (const ImportedWeight& w : model.model.weights) {
    if (w.name == input.name) return w.value;
  }
  if (input.name == kLabelFeed) return window.labels;
  if (input.name == kInvWeightFeed) return HostTensor::Scalar(type.dtype, weight > 0 ? 1 / weight : 0);
  if (const auto it = window.feeds.find(input.name); it != window.feeds.end()) return it->second;
  if (input.name == model.model.random_key) {
    return HostTensor::FromInts(type, std::vector<int64_t>{static_cast<int64_t>(options.seed & 0xffffffff), 0, 0, 0});
  }
  return Invalid("input '", input.name, "' ", ToString(type), " has no value here");
}

class Memory {
 public:
  explicit Memory(Program& program) : program_(program) {}

  absl::Status Bind(Backend& backend) {
    const Graph& graph = program_.graph();
    for (const GraphInput& i : graph.inputs()) arena_.Add("in:" + i.name, graph.type(i.value));
    for (const GraphOutput& o : graph.outputs()) {
      if (o.into == kNoValue) arena_.Add("out:" + o.name, graph.type(o.value));
    }
    RETURN_IF_ERROR(arena_.Allocate(backend, "the inputs and outputs of the comparison"));
    ASSIGN_OR_RETURN(activations_,
                     AllocateChecked(backend, std::max<size_t>(program_.memory().arena, 64), "every value of a step"));
    RETURN_IF_ERROR(program_.BindArena({activations_.get(), 0}));
    for (const GraphInput& i : graph.inputs())
      RETURN_IF_ERROR(program_.BindInput(i.name, arena_.At("in:" + i.name).view));
    for (const GraphOutput& o : graph.outputs()) {
      if (o.into == kNoValue) RETURN_IF_ERROR(program_.BindOutput(o.name, arena_.At("out:" + o.name).view));
    }
    return absl::OkStatus();
  }
  Region input(const std::string& name) const { return arena_.At("in:" + name); }
  Region output(const std::string& name) const { return arena_.At("out:" + name); }

 private:
  Program& program_;
  Arena arena_;
  std::unique_ptr<Buffer> activations_;
};

constexpr char kValue[] = "$value:";

// Makes every value with a name of its own an output, so that no backend fuses it away.
void ShowValues(Graph* graph) {
  std::map<std::string, int> uses;
  for (const Value& v : graph->values()) ++uses[v.name];
  for (ValueId id = 0; id < static_cast<ValueId>(graph->values().size()); ++id) {
    const Value& v = graph->value(id);
    const Node* node = graph->producer(id);
    if (v.name.empty() || uses[v.name] > 1 || node == nullptr || node->op == "Constant" || !IsFloat(v.type.dtype))
      continue;
    graph->AddOutput(kValue + v.name, id);
  }
}

absl::StatusOr<std::map<std::string, HostTensor>> Collect(const Program& program, const Memory& memory) {
  const Graph& graph = program.graph();
  std::map<std::string, HostTensor> values;
  for (const GraphOutput& o : graph.outputs()) {
    if (o.into != kNoValue || !IsFloat(graph.type(o.value).dtype)) continue;
    const std::string name = o.name.starts_with(kValue) ? o.name.substr(sizeof(kValue) - 1) : o.name;
    ASSIGN_OR_RETURN(values[name], ReadRegion(memory.output(o.name)));
  }
  return values;
}

}  // namespace

absl::StatusOr<std::map<std::string, HostTensor>> TraceValues(const PreparedModel& model, const SessionOptions& options,
                                                              const Window& window, Backend& backend) {
  const int64_t samples = window.feeds.begin()->second.shape()[0];
  ASSIGN_OR_RETURN(Graph graph, BuildMicro(model.model, model.loss, options.loss, samples, {.outputs = true}));
  ASSIGN_OR_RETURN(graph, OptimizeProgram(std::move(graph)));
  ShowValues(&graph);
  ASSIGN_OR_RETURN(const Graph legal, backend.Legalize(graph));
  ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, backend.Compile(legal, {.keep_values = true}));
  Memory memory(*program);
  RETURN_IF_ERROR(memory.Bind(backend));
  const double weight = WindowWeight(model.loss, options.loss, window.labels, samples);
  for (const GraphInput& input : program->graph().inputs()) {
    const Type& type = program->graph().type(input.value);
    ASSIGN_OR_RETURN(const HostTensor value, ValueOf(input, type, model, options, window, weight));
    RETURN_IF_ERROR(WriteRegion(memory.input(input.name), value));
  }
  RETURN_IF_ERROR(program->Run());
  RETURN_IF_ERROR(backend.Synchronize());
  return Collect(*program, memory);
}

}  // namespace onnxtrain::cli
