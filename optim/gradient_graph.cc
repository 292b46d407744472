#include "optim/gradient_graph.h"

#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "optim/training_graph.h"

namespace onnxtrain {

absl::StatusOr<Graph> BuildGradientGraph(const PreparedModel& model, const LossSpec& loss, int64_t batch) {
  ASSIGN_OR_RETURN(const Graph micro,
                   BuildMicro(model.model, model.loss, loss, batch, {.first = true, .outputs = true}));
  Graph graph = micro;
  graph.ClearOutputs();
  Builder b(&graph);
  Val mean;
  for (size_t i = 0; i < model.loss.terms.size(); ++i) {
    const Val sum = b.Wrap(micro.FindOutput(TermName(device_scalar::kBatchLoss, i))->value);
    const Val term = sum * b.Wrap(micro.FindInput(TermName(kInverseDenominatorFeed, i))->value);
    mean = mean ? mean + term : term;
  }
  RETURN_IF_ERROR(b.status());
  graph.AddOutput("loss", mean.id());
  for (const WeightDecision& weight : model.weights) {
    if (weight.trained) graph.AddOutput(weight.name + "_grad", micro.FindOutput(GradName(weight.name))->value);
  }
  for (const std::string& name : model.model.outputs) {
    if (graph.FindOutput(name) == nullptr) graph.AddOutput(name, micro.FindOutput(name)->value);
  }
  return graph;
}

}  // namespace onnxtrain
