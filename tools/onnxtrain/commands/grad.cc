// onnxtrain grad: writes loss, outputs and every gradient of one batch, for comparison with other frameworks, or the
// graph that computes them, for other runtimes.
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/export_graphs.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/inference.h"
#include "tools/onnxtrain/report/differences.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

absl::StatusOr<int> WriteGradientGraph(TrainConfig config) {
  RETURN_IF_ERROR(RefuseUnused(config, {.has_micro_batches = config.micro_batch_size <= 0}));
  config.gradient_graph = config.out;
  ASSIGN_OR_RETURN(auto model, LoadRunnableModel(config));
  ASSIGN_OR_RETURN(const ExportedGraphs exported, ExportGraphs(config, std::move(model), {}));
  for (const std::string& note : exported.notes) LogInfo(config, note);
  RETURN_IF_ERROR(Print(DescribeGraphs(exported)));
  return kDone;
}

bool IsFinite(const HostTensor& tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (!std::isfinite(tensor.At(i))) return false;
  }
  return true;
}

// Returns the first result that is not finite, "the loss" or "the gradient of 'w'"; "" if all are finite.
std::string FindNonFiniteResult(const GradientResult& result) {
  if (!std::isfinite(result.loss)) return "the loss";
  for (const auto* gradients : {&result.gradients, &result.input_gradients}) {
    for (const auto& [name, gradient] : *gradients) {
      if (!IsFinite(gradient)) return StrCat("the gradient of '", Printable(name), "'");
    }
  }
  return "";
}

// Prints the origin of results that are not finite, and returns the exit code.
absl::StatusOr<int> ReportNonFinite(const GradientResult& result, Session& session, const GlobalBatch& batch) {
  const std::string what = FindNonFiniteResult(result);
  if (what.empty()) return kDone;
  ASSIGN_OR_RETURN(const std::string where, session.FindNonFinite(batch));
  return ReportFailure(absl::InternalError(StrCat(what, " is not finite", where.empty() ? "" : ": ", where)));
}

}  // namespace

absl::StatusOr<int> RunGrad(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const std::string out, OutputFile(config, "g.npz"));
  if (out.ends_with(".onnx")) return WriteGradientGraph(config);
  ASSIGN_OR_RETURN(const ModelAndData setup, OpenOrMakeUpInputs(config));
  const int64_t all = setup.data.bound.dataset->size();
  const int64_t samples = config.batch_size > 0 ? std::min(config.batch_size, all) : all;
  const int64_t micro = config.micro_batch_size > 0 ? config.micro_batch_size : samples;
  ASSIGN_OR_RETURN(SessionOptions options,
                   MakeSessionOptions(config, *setup.model, setup.data.bound, setup.loss, micro));
  options.optimizer.rule = "sgd";  // keeps no moments: there is no update
  const auto models = std::make_shared<PreparedModels>(setup.model);
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(*models, setup.data.bound, &options, true));
  RETURN_IF_ERROR(RefuseUnused(config, MakeLossFacts(look.loss)));
  ASSIGN_OR_RETURN(const TrainData data, MakeTrainData(setup.data.bound, look, setup.loss.ignore_index));
  LogInfo(config, look.loss.explanation);
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, LoadBackend(config));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Create(models, backend.get(), std::move(options)));
  ASSIGN_OR_RETURN(const GlobalBatch global_batch, ReadGlobalBatch(data, samples));
  const GradientsOf of = config.input_gradients ? GradientsOf::kWeightsAndInputs : GradientsOf::kWeights;
  ASSIGN_OR_RETURN(const GradientResult result, session->Gradients(global_batch, of));
  RETURN_IF_ERROR(WriteNpz(out, NamedResults(result)));
  const char* outputs = result.outputs.size() == 1 ? " output, " : " outputs, ";
  const std::string written =
      StrCat(out, ": loss, ", result.outputs.size(), outputs, result.gradients.size() + result.input_gradients.size(),
             " gradients of ", FormatWithCommas(samples), " samples");
  RETURN_IF_ERROR(Print(PageRow("loss", StrCat(FormatNumber(result.loss), " (", look.loss.name, ")")) +
                        PageRow("written", written)));
  return ReportNonFinite(result, *session, global_batch);
}

}  // namespace onnxtrain::cli
