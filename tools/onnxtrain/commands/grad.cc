// onnxtrain grad: writes loss, outputs and every gradient of one batch, for comparison with other frameworks, or the
// graph that computes them, for other runtimes.
#include "frontend/base/atomic_file.h"
#include "frontend/base/status.h"
#include "frontend/onnx/graph_writer.h"
#include "optim/gradient_graph.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/inference.h"
#include "tools/onnxtrain/report/named_results.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

// Values of the weights, and 1/W of this batch.
absl::StatusOr<std::map<std::string, HostTensor>> DefaultValues(const PreparedModel& prepared, const LossSpec& loss,
                                                                const Graph& graph, const GlobalBatch& batch) {
  std::map<std::string, HostTensor> values;
  for (const ImportedWeight& weight : prepared.model.weights) values.emplace(weight.name, weight.value);
  LossDenominators denominators(prepared.loss, loss);
  RETURN_IF_ERROR(denominators.Count(batch, batch.samples()));
  for (size_t i = 0; i < prepared.loss.terms.size(); ++i) {
    const std::string name = TermName(kInverseDenominatorFeed, i);
    const double inverse = InverseDenominator(prepared.loss.terms[i], denominators.weights()[i]);
    values.emplace(name, HostTensor::Scalar(graph.type(graph.FindInput(name)->value).dtype, inverse));
  }
  return values;
}

absl::StatusOr<int> WriteGradientGraph(const std::string& out, PreparedModels& models, const SessionOptions& options,
                                       const GlobalBatch& batch) {
  const LossSpec& loss = options.loss;
  const PrepareOptions prepare = {options.import, loss, options.labels, options.trainable};
  ASSIGN_OR_RETURN(const PreparedModel prepared, models.Prepare(prepare, batch.samples(), true, true));
  ASSIGN_OR_RETURN(const Graph graph, BuildGradientGraph(prepared, loss, batch.samples()));
  ASSIGN_OR_RETURN(const auto values, DefaultValues(prepared, loss, graph, batch));
  const auto bytes = SerializeGraph(graph, values);
  if (!bytes.ok()) return Annotate(bytes.status(), StrCat(models.model()->path(), ": gradient graph: "));
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(out));
  RETURN_IF_ERROR(file.WriteAt(0, std::as_bytes(std::span(*bytes))));
  RETURN_IF_ERROR(file.Commit());
  const std::string written = StrCat(out, ": a graph of the loss and its gradients, for batches of ",
                                     FormatWithCommas(batch.samples()), " samples");
  RETURN_IF_ERROR(Print(PageRow("loss", prepared.loss.name) + PageRow("written", written)));
  return kDone;
}

}  // namespace

absl::StatusOr<int> RunGrad(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const std::string out, OutputFile(config, "g.npz"));
  ASSIGN_OR_RETURN(const ModelAndData setup, OpenOrMakeUpInputs(config));
  const int64_t all = setup.data.bound.dataset->size();
  const int64_t samples = config.batch_size > 0 ? std::min(config.batch_size, all) : all;
  const int64_t micro = config.micro_batch_size > 0 ? config.micro_batch_size : samples;
  ASSIGN_OR_RETURN(SessionOptions options,
                   MakeSessionOptions(config, *setup.model, setup.data.bound, setup.loss, micro));
  options.optimizer.rule = "sgd";  // keeps no moments: there is no update
  const auto models = std::make_shared<PreparedModels>(setup.model);
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(*models, setup.data.bound, &options, true));
  RETURN_IF_ERROR(CheckLossFields(config, look.loss));
  ASSIGN_OR_RETURN(const TrainData data, MakeTrainData(setup.data.bound, look, setup.loss.ignore_index));
  LogInfo(config, look.loss.explanation);
  if (out.ends_with(".onnx")) {
    if (config.micro_batch_size > 0) return Invalid("`micro_batch_size`: has no effect on a gradient graph");
    ASSIGN_OR_RETURN(const GlobalBatch batch, ReadGlobalBatch(data, samples));
    return WriteGradientGraph(out, *models, options, batch);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, LoadBackend(config));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Create(models, backend.get(), std::move(options)));
  ASSIGN_OR_RETURN(const GlobalBatch global_batch, ReadGlobalBatch(data, samples));
  ASSIGN_OR_RETURN(const GradientResult result, session->Gradients(global_batch, GradientsOf::kWeights));
  RETURN_IF_ERROR(WriteNpz(out, NamedResults(result)));
  const char* outputs = result.outputs.size() == 1 ? " output, " : " outputs, ";
  const std::string written = StrCat(out, ": loss, ", result.outputs.size(), outputs, result.gradients.size(),
                                     " gradients of ", FormatWithCommas(samples), " samples");
  RETURN_IF_ERROR(Print(PageRow("loss", StrCat(FormatNumber(result.loss), " (", look.loss.name, ")")) +
                        PageRow("written", written)));
  return kDone;
}

}  // namespace onnxtrain::cli
