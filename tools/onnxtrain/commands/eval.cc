// onnxtrain eval: evaluates loss, accuracy and metrics of a model on data.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/pair_rows.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/packing.h"
#include "optim/plan/reference_scores.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/inference.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

absl::StatusOr<std::vector<Requirement>> Requirements(const TrainConfig& config, const LossChoice& loss,
                                                      const std::vector<std::string>& metrics) {
  std::vector<Requirement> requirements;
  for (const std::string& text : config.require) {
    auto r = ParseRequirement(text);
    if (!r.ok()) return Annotate(r.status(), "`require`: ");
    const bool asked = std::find(metrics.begin(), metrics.end(), r->metric) != metrics.end();
    if (!asked && r->metric != "loss" && r->metric != "accuracy" && r->metric != "samples") {
      return Invalid(
          "`require` ", r->metric,
          ": eval knows loss, accuracy, samples, what `metrics` asks for and the losses of a sum (l1@OUTPUT)");
    }
    if (!asked && r->metric == "accuracy" && !loss.classes)
      return Invalid("`require` accuracy: loss ", loss.name, " has none");
    requirements.push_back(*std::move(r));
  }
  return requirements;
}

std::string Report(const TrainConfig& config, const EvalMetrics& m, const LossChoice& loss) {
  if (!config.json) {
    std::string text = PageRow("loss", StrCat(FormatNumber(m.loss), " (", loss.name, ")"));
    if (m.accuracy >= 0) text += PageRow("accuracy", absl::StrFormat("%.2f%%", 100 * m.accuracy));
    for (const auto& [name, value] : m.metrics) text += PageRow(name, FormatNumber(value));
    return text + PageRow("samples", FormatWithCommas(m.samples));
  }
  nlohmann::ordered_json json = {
      {"model", config.model}, {"data", config.data}, {"loss_name", loss.name}, {"loss", m.loss}};
  if (m.accuracy >= 0) json["accuracy"] = m.accuracy;
  for (const auto& [name, value] : m.metrics) json[name] = value;
  json["samples"] = m.samples;
  return WriteJson(json, 2) + "\n";
}

// Warns of the origin of a loss that is not finite, if the first samples show it.
absl::Status WarnOfNonFiniteLoss(const EvalMetrics& metrics, int64_t batch, const TrainData& data, Session& session) {
  if (std::isfinite(metrics.loss)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const GlobalBatch samples, ReadGlobalBatch(data, std::min(batch, metrics.samples)));
  const absl::StatusOr<std::string> where = session.FindNonFinite(samples);
  Warn(StrCat("the loss is not finite", where.ok() && !where->empty() ? ": " + *where : ""));
  return absl::OkStatus();
}

// Gives pairs of answers their log-probabilities under the reference, if the loss compares with one.
absl::Status AddReference(const TrainConfig& config, const ModelAndData& setup, const LossChoice& loss,
                          const SessionOptions& options, Backend* backend, TrainData* data) {
  if (!loss.leading().function->reference) return absl::OkStatus();
  ASSIGN_OR_RETURN(const TrainConfig reference, FindReferenceModel(config, setup.before));
  LogInfo(config, StrCat("the reference is ", reference.model, " (`reference_model`)"));
  auto session = OpenReferenceModel(reference, setup.data.bound, options, backend);
  if (!session.ok()) return Annotate(session.status(), StrCat("the reference ", reference.model, ": "));
  ASSIGN_OR_RETURN(std::vector<float> scores, ScoreReference(**session, *data));
  data->dataset = WithReference(data->dataset, std::move(scores));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RunEval(const TrainConfig& config) {
  ASSIGN_OR_RETURN(ModelAndData setup, OpenInputs(config, true, true));
  const int64_t batch = GlobalBatchSize(config, *setup.model, setup.data.bound.batch_axes);
  ASSIGN_OR_RETURN(SessionOptions options,
                   MakeSessionOptions(config, *setup.model, setup.data.bound, setup.loss, batch));
  options.optimizer.rule = "sgd";  // keeps no moments: nothing is trained
  const auto models = std::make_shared<PreparedModels>(setup.model);
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(*models, setup.data.bound, &options, false));
  RETURN_IF_ERROR(RefuseUnused(config, MakeLossFacts(look.loss)));
  if (options.metrics.empty()) options.metrics = DefaultMetrics(look.loss, setup.data.bound.text_unit);
  RETURN_IF_ERROR(ChooseMetrics(options.metrics, look.loss).status());
  ASSIGN_OR_RETURN(const std::vector<Requirement> requirements,
                   Requirements(config, look.loss, EvalNames(look.loss, options.metrics)));
  ASSIGN_OR_RETURN(const auto sequences, MakeSequenceChecks(*models, options, look, setup.data.bound));
  ASSIGN_OR_RETURN(const LeftOut left_out, LeaveOutBadSamples(config, look, true, sequences, &setup.data.bound));
  if (!left_out.line.empty()) Warn(left_out.line);
  ASSIGN_OR_RETURN(TrainData data, MakeTrainData(setup.data.bound, look, setup.loss.ignore_index));
  if (const std::string guessed = DescribeGuessedClasses(setup.data.bound, look.loss); !guessed.empty())
    return Invalid(config.data, ": ", guessed);
  LogInfo(config, look.loss.explanation);
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, LoadBackend(config));
  RETURN_IF_ERROR(KeepWholeBatches(options.fixed_batch, &data.dataset));
  RETURN_IF_ERROR(AddReference(config, setup, look.loss, options, backend.get(), &data));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Create(models, backend.get(), std::move(options)));
  if (setup.data.text.packed.value_or(false))
    RETURN_IF_ERROR(CheckSeparation(*session, data, setup.data.bound.token_input, DType::kFloat32));
  ASSIGN_OR_RETURN(const EvalMetrics metrics, EvaluateAll(*session, data, NumWorkers(config)));
  ASSIGN_OR_RETURN(const std::string better, FindBetterPixels(*session, setup.data, data));
  if (!better.empty()) Warn(better);
  RETURN_IF_ERROR(WarnOfNonFiniteLoss(metrics, batch, data, *session));
  RETURN_IF_ERROR(Print(Report(config, metrics, look.loss)));
  const auto unmet = FindUnmetRequirements(requirements, [&](const std::string& name) {
    return name == "samples" ? std::optional<double>(metrics.samples) : FindEvalMetric(metrics, name);
  });
  return ReportUnmet(unmet);
}

}  // namespace onnxtrain::cli
