// onnxtrain eval: loss and accuracy of a model on data.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/command.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/inference.h"
#include "tools/onnxtrain/require.h"
#include "tools/onnxtrain/start_page.h"

namespace onnxtrain::cli {
namespace {

absl::StatusOr<std::vector<Requirement>> Requirements(const LossChoice& loss, const std::vector<std::string>& metrics) {
  std::vector<Requirement> requirements;
  for (const std::string& text : Values("require")) {
    auto r = ParseRequirement(text);
    if (!r.ok()) return Annotate(r.status(), "--require: ");
    const bool asked = std::find(metrics.begin(), metrics.end(), r->metric) != metrics.end();
    if (!asked && r->metric != "loss" && r->metric != "accuracy" && r->metric != "samples") {
      return Invalid("--require ", r->metric, ": eval knows loss, accuracy, samples, what --metrics asks for and the losses of a sum (l1@OUTPUT)");
    }
    if (!asked && r->metric == "accuracy" && !loss.classes) return Invalid("--require accuracy: loss ", loss.name, " has none");
    requirements.push_back(*std::move(r));
  }
  return requirements;
}

std::string Report(const EvalMetrics& m, const LossChoice& loss) {
  if (!FLAGS_json) {
    std::string text = PageRow("loss", StrCat(Short(m.loss), " (", loss.name, ")"));
    if (m.accuracy >= 0) text += PageRow("accuracy", absl::StrFormat("%.2f%%", 100 * m.accuracy));
    for (const auto& [name, value] : m.metrics) text += PageRow(name, Short(value));
    return text + PageRow("samples", WithCommas(m.samples));
  }
  nlohmann::ordered_json json = {
      {"model", FLAGS_model}, {"data", FLAGS_data}, {"loss_name", loss.name}, {"loss", m.loss}};
  if (m.accuracy >= 0) json["accuracy"] = m.accuracy;
  for (const auto& [name, value] : m.metrics) json[name] = value;
  json["samples"] = m.samples;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::StatusOr<int> RunEval() {
  ASSIGN_OR_RETURN(const DataSetup setup, OpenModelAndData(true, true));
  ASSIGN_OR_RETURN(const int workers, WorkerThreads());
  ASSIGN_OR_RETURN(SessionOptions options,
                   MakeSessionOptions(*setup.model, setup.data.bound, setup.loss, BatchFlag(*setup.model)));
  options.optimizer.rule = "sgd";  // keeps no moments: nothing is trained
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(*setup.model, setup.data.bound, options, false));
  RETURN_IF_ERROR(CheckLossFlags(look.loss));
  RETURN_IF_ERROR(ChooseMetrics(options.metrics, look.loss).status());
  ASSIGN_OR_RETURN(const std::vector<Requirement> requirements, Requirements(look.loss, EvalNames(look.loss, options.metrics)));
  ASSIGN_OR_RETURN(const TrainData data, MakeTrainData(setup.data.bound, look.loss, setup.loss.ignore_index));
  Say(look.loss.explanation);
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, LoadBackend(FLAGS_backend));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   Session::Create(setup.model, backend.get(), std::move(options)));
  ASSIGN_OR_RETURN(const EvalMetrics metrics, EvaluateAll(*session, data, workers));
  RETURN_IF_ERROR(Print(Report(metrics, look.loss)));
  const auto unmet = Unmet(requirements, [&](const std::string& name) { return name == "samples" ? std::optional<double>(metrics.samples) : MetricNamed(metrics, name); });
  for (const std::string& line : unmet) std::fprintf(stderr, "onnxtrain: required: %s\n", line.c_str());
  return unmet.empty() ? kDone : kRequirement;
}

}  // namespace onnxtrain::cli
