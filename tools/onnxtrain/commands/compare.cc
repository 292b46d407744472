// onnxtrain compare: runs the same samples on both backends and compares them with each other, with the values of
// another framework and with finite differences.
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/data/npz.h"
#include "optim/telemetry/format.h"
#include "optim/training_graph.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/gradcheck.h"
#include "tools/onnxtrain/commands/inference.h"
#include "tools/onnxtrain/report/differences.h"
#include "tools/onnxtrain/report/named_results.h"
#include "tools/onnxtrain/report/start_page.h"
#include "tools/onnxtrain/report/value_trace.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;
using Tensors = std::map<std::string, HostTensor>;

// The largest relative difference that rounding explains in float32.
constexpr double kTolerance = 1e-3;

struct Setup {
  ModelAndData data;
  SessionOptions options;
  std::shared_ptr<PreparedModels> models;
  PreparedModel look;
  TrainData train;
  GlobalBatch global_batch;
};

absl::StatusOr<Setup> SetUp(const TrainConfig& config) {
  Setup s;
  ASSIGN_OR_RETURN(s.data, OpenInputs(config, false, true));
  const int64_t all = s.data.data.bound.dataset->size();
  const int64_t samples = std::min<int64_t>(all, config.batch_size > 0       ? config.batch_size
                                                 : !config.reference.empty() ? all
                                                                             : 8);
  ASSIGN_OR_RETURN(s.options, MakeSessionOptions(config, *s.data.model, s.data.data.bound, s.data.loss, samples));
  s.options.optimizer.rule = "sgd";  // keeps no moments: there is no update
  s.models = std::make_shared<PreparedModels>(s.data.model);
  ASSIGN_OR_RETURN(s.look, PrepareFor(*s.models, s.data.data.bound, &s.options, true));
  RETURN_IF_ERROR(CheckLossFields(config, s.look.loss));
  ASSIGN_OR_RETURN(s.train, MakeTrainData(s.data.data.bound, s.look.loss, s.data.loss.ignore_index));
  ASSIGN_OR_RETURN(s.global_batch, ReadGlobalBatch(s.train, samples));
  LogInfo(config, StrCat(s.look.loss.explanation, ", ", samples, " samples"));
  return s;
}

// Loss, outputs and gradients under the names of `grad` and of --reference.
absl::StatusOr<Tensors> Results(const Setup& s, Backend& backend) {
  ASSIGN_OR_RETURN(const auto session, Session::Create(s.models, &backend, s.options));
  ASSIGN_OR_RETURN(const GradientResult result, session->Gradients(s.global_batch));
  const NamedArrays named = NamedResults(result);
  return Tensors(named.begin(), named.end());
}

// A gradient that is zero in exact arithmetic (a bias before BatchNorm) has no meaningful relative error: small
// gradients are measured relative to the norm of all gradients.
void MeasureAgainstWhole(const Tensors& reference, std::vector<Difference>* differences) {
  double total = 0;
  for (const auto& [name, value] : reference) {
    if (!name.starts_with(kGradPrefix)) continue;
    for (int64_t i = 0; i < value.size(); ++i) total += value.At(i) * value.At(i);
  }
  for (Difference& d : *differences) {
    if (!d.name.starts_with(kGradPrefix) || !std::isfinite(d.relative) || total == 0) continue;
    const double scale = 1e-3 * std::sqrt(total);
    d.relative = std::min(d.relative, d.largest * std::sqrt(static_cast<double>(d.type.elements())) / scale);
  }
}

struct Report {
  std::string title;
  std::vector<Difference> differences;
  bool agrees = true;
};

Report MakeReport(std::string title, const Tensors& a, const Tensors& b) {
  Report report{std::move(title), CompareTensorMaps(a, b)};
  MeasureAgainstWhole(b, &report.differences);
  for (const Difference& d : report.differences) report.agrees &= d.relative <= kTolerance;
  return report;
}

std::string Page(const Report& r) {
  std::string text = StrCat(r.title, ": ", r.agrees ? "agree" : "DISAGREE", " (", r.differences.size(),
                            " values, relative difference up to ", kTolerance, ")\n");
  constexpr size_t kMost = 12;
  for (size_t i = 0; i < r.differences.size() && (i < kMost || r.differences[i].relative > kTolerance); ++i) {
    const Difference& d = r.differences[i];
    text +=
        absl::StrFormat("  %9.2e relative  %9.2e largest  %s %s\n", d.relative, d.largest, d.name, ToString(d.type));
  }
  if (r.differences.size() > kMost) StrAppend(&text, "  … the others are closer\n");
  return text;
}

Json ToJson(const Report& r) {
  Json json = {{"title", r.title}, {"agrees", r.agrees}, {"values", Json::array()}};
  for (const Difference& d : r.differences) {
    json["values"].push_back(
        {{"name", d.name}, {"type", ToString(d.type)}, {"relative", d.relative}, {"largest", d.largest}});
  }
  return json;
}

Json ToJson(const GradcheckResult& check) {
  Json json = {{"agrees", check.passed()}, {"parameters", Json::array()}};
  for (const GradcheckRow& r : check.rows) {
    json["parameters"].push_back({{"name", r.parameter},
                                  {"checked", r.checked},
                                  {"relative", r.worst},
                                  {"index", r.at},
                                  {"analytic", r.analytic},
                                  {"numeric", r.numeric}});
  }
  return json;
}

absl::StatusOr<Tensors> ReadReference(const TrainConfig& config, const Tensors& ours) {
  auto arrays = ReadNpz(config.reference);
  if (!arrays.ok()) return Annotate(arrays.status(), "`reference`: ");
  Tensors reference;
  std::vector<std::string> unknown;
  for (auto& [name, value] : *arrays) {
    if (ours.contains(name)) {
      reference[name] = std::move(value);
    } else {
      unknown.push_back(name);
    }
  }
  if (reference.empty()) {
    return Invalid("`reference` ", config.reference, ": holds none of our values (loss, ",
                   absl::StrJoin(ours, ", ",
                                 absl::PairFormatter([](std::string* out, const std::string& name) { *out += name; },
                                                     "", [](std::string*, const HostTensor&) {})),
                   ")");
  }
  if (!unknown.empty()) LogInfo(config, StrCat("not compared: ", absl::StrJoin(unknown, ", ")));
  return reference;
}

absl::StatusOr<std::vector<Report>> CompareAllWays(const TrainConfig& config, const Setup& s) {
  std::map<std::string, Tensors> results, traces;
  for (const std::string& name : BackendNames()) {
    ASSIGN_OR_RETURN(const auto backend, LoadNamedBackend(config, name));
    LogInfo(config, DescribeBackend(*backend));
    ASSIGN_OR_RETURN(results[name], Results(s, *backend));
    ASSIGN_OR_RETURN(traces[name], TraceValues(s.look, s.options, s.global_batch, *backend));
  }
  std::vector<Report> reports;
  if (results.contains("cpu") && results.contains("torch")) {
    reports.push_back(MakeReport("cpu and torch, every named value", traces["cpu"], traces["torch"]));
    reports.push_back(MakeReport("cpu and torch, loss, outputs and gradients", results["cpu"], results["torch"]));
  }
  if (config.reference.empty()) return reports;
  for (const auto& [name, ours] : results) {
    ASSIGN_OR_RETURN(const Tensors reference, ReadReference(config, ours));
    reports.push_back(MakeReport(StrCat(name, " and the reference"), ours, reference));
  }
  return reports;
}

}  // namespace

absl::StatusOr<int> RunCompare(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const Setup setup, SetUp(config));
  ASSIGN_OR_RETURN(const std::vector<Report> reports, CompareAllWays(config, setup));
  Json json = {{"comparisons", Json::array()}};
  std::string page;
  bool agrees = true;
  for (const Report& r : reports) {
    json["comparisons"].push_back(ToJson(r));
    page += Page(r);
    agrees &= r.agrees;
  }
  if (config.gradcheck > 0) {
    ASSIGN_OR_RETURN(const auto backend, LoadNamedBackend(config, "torch"));
    ASSIGN_OR_RETURN(const GradcheckResult check,
                     Gradcheck(setup.models, *backend, setup.options, setup.train, config.gradcheck));
    json["gradcheck"] = ToJson(check);
    page += Page(check);
    agrees &= check.passed();
  }
  json["agrees"] = agrees;
  RETURN_IF_ERROR(Print(config.json ? json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : page));
  return agrees ? kDone : ReportFailure(Invalid("the values disagree"));
}

}  // namespace onnxtrain::cli
