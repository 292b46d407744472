#include <algorithm>
#include <map>
#include <string>

#include <nlohmann/json.hpp>
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "backends/bound_program.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/numpy.h"
#include "optim/config/unused_fields.h"
#include "optim/step/prepared_models.h"
#include "optim/step/program/optimize.h"
#include "optim/step/session.h"
#include "optim/step/training_graph.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/inference.h"
#include "tools/onnxtrain/report/differences.h"
#include "tools/onnxtrain/report/start_page.h"

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

// Makes every named value an output, so that no backend fuses it away.
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

// Returns the name of a value in the model, or of a gradient in the output of `grad`.
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

// Runs forward and backward of one global batch (all of it at once) on `backend` with keep_values. Returns the values
// that have names (model values by their ONNX names), the outputs, and the gradients as "grad:NAME".
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

// onnxtrain compare: runs the same samples on cpu and on other backends and compares them with each other, with the
// values of another framework and with finite differences.

using Json = nlohmann::ordered_json;
using Tensors = std::map<std::string, HostTensor>;

constexpr uint64_t kNudges = 2;
constexpr std::string_view kBase = "cpu";  // the backend that others are compared with

struct Setup {
  ModelAndData data;
  SessionOptions options;
  std::shared_ptr<PreparedModels> models;
  PreparedModel look;
  TrainData train;
  GlobalBatch global_batch;
  GlobalBatch traced;  // one micro-batch of it
};

absl::StatusOr<Setup> SetUp(const TrainConfig& config) {
  Setup s;
  ASSIGN_OR_RETURN(s.data, OpenOrMakeUpInputs(config));
  const BoundData& bound = s.data.data.bound;
  const int64_t all = bound.dataset->size();
  const bool takes_all = !config.reference.empty() || !bound.sample_index_input.empty();
  const int64_t samples = std::min<int64_t>(all, config.batch_size > 0 ? config.batch_size : takes_all ? all : 8);
  ASSIGN_OR_RETURN(s.options, MakeSessionOptions(config, *s.data.model, s.data.data.bound, s.data.loss, samples));
  s.options.optimizer.rule = "sgd";  // keeps no moments: there is no update
  s.models = std::make_shared<PreparedModels>(s.data.model);
  ASSIGN_OR_RETURN(s.look, PrepareFor(*s.models, s.data.data.bound, &s.options, true));
  RETURN_IF_ERROR(RefuseUnused(config, MakeLossFacts(s.look.loss)));
  ASSIGN_OR_RETURN(s.train, MakeTrainData(s.data.data.bound, s.look, s.data.loss.ignore_index));
  ASSIGN_OR_RETURN(s.global_batch, ReadGlobalBatch(s.train, samples));
  ASSIGN_OR_RETURN(s.traced, ReadGlobalBatch(s.train, s.options.fixed_batch > 0 ? s.options.fixed_batch : samples));
  LogInfo(config, StrCat(s.look.loss.explanation, ", ", samples, " samples"));
  return s;
}

absl::Status NudgeWeights(Session& session, uint64_t nudge) {
  ASSIGN_OR_RETURN(auto weights, session.Weights());
  for (auto& [name, value] : weights) value = Nudge(value, nudge, false);
  return session.SetWeights(weights);
}

GlobalBatch NudgeBatch(const GlobalBatch& batch, uint64_t nudge) {
  GlobalBatch moved(*batch.names());
  for (size_t i = 0; i < batch.names()->size(); ++i) moved.Set(i, Nudge(batch.tensor(i), nudge + i, true));
  return moved;
}

// Computes loss, outputs and gradients under the names of `grad` and --reference, from nudged inputs and weights unless
// `nudge` is 0.
absl::StatusOr<Tensors> Results(const Setup& s, Backend& backend, uint64_t nudge) {
  ASSIGN_OR_RETURN(const auto session, Session::Create(s.models, &backend, s.options));
  if (nudge > 0) RETURN_IF_ERROR(NudgeWeights(*session, nudge));
  ASSIGN_OR_RETURN(
      const GradientResult result,
      session->Gradients(nudge > 0 ? NudgeBatch(s.global_batch, nudge) : s.global_batch, GradientsOf::kWeights));
  const NamedArrays named = NamedResults(result);
  return Tensors(named.begin(), named.end());
}

// Computes every named value, likewise.
absl::StatusOr<Tensors> Trace(const Setup& s, Backend& backend, uint64_t nudge) {
  if (nudge == 0) return TraceValues(s.look, s.options, s.traced, backend);
  PreparedModel moved = s.look;
  for (ImportedWeight& w : moved.model.weights) w.value = Nudge(w.value, nudge, false);
  return TraceValues(moved, s.options, NudgeBatch(s.traced, nudge), backend);
}

using Compute = absl::StatusOr<Tensors> (*)(const Setup&, Backend&, uint64_t nudge);
using Moves = std::vector<std::vector<Difference>>;

// Measures how far nudges change the results of the backend.
absl::StatusOr<Moves> MeasureMoves(const Setup& s, Backend& backend, Compute compute, const Tensors& usual) {
  Moves moves;
  for (uint64_t nudge = 1; nudge <= kNudges; ++nudge) {
    ASSIGN_OR_RETURN(const Tensors moved, compute(s, backend, 1000 * nudge));
    moves.push_back(CompareTensorMaps(moved, usual));
  }
  return moves;
}

struct Report {
  std::string title;
  std::vector<Difference> differences;
  bool agrees = true;
};

Report MakeReport(std::string title, const Tensors& a, const Tensors& b, const Moves& moves) {
  Report report{std::move(title), CompareTensorMaps(a, b)};
  JudgeDifferences(moves, &report.differences);
  report.agrees = std::ranges::all_of(report.differences, &Difference::agrees);
  return report;
}

constexpr char kColumns[] =
    "difference: norm of the difference over the norm of the value (a gradient below a thousandth of all gradients: "
    "over "
    "that)\nnudged: the same between the value and the one from inputs and weights that moved by up to %d ulps\n"
    "allowed: %g, or %g × nudged if that is more; '-' where nudged is above %g, which nobody can judge in float32\n"
    "largest: the largest difference of two elements\n";

std::string Allowed(const Difference& d) { return d.judged() ? absl::StrFormat("%.2e", d.allowed) : "-"; }

std::string Page(const Report& r) {
  const auto unjudged = std::ranges::count_if(r.differences, [](const Difference& d) { return !d.judged(); });
  std::string text = StrCat(r.title, ": ", r.agrees ? "agree" : "DISAGREE", " (", r.differences.size(), " values");
  if (unjudged > 0) StrAppend(&text, ", ", unjudged, " of them too ill-conditioned to judge");
  text += absl::StrFormat(")\n  %10s %9s %9s %9s  value\n", "difference", "nudged", "allowed", "largest");
  constexpr size_t kMost = 12;
  for (size_t i = 0; i < r.differences.size() && (i < kMost || !r.differences[i].agrees()); ++i) {
    const Difference& d = r.differences[i];
    text += absl::StrFormat("  %10.2e %9.2e %9s %9.2e  %s %s\n", d.relative, d.nudged, Allowed(d), d.largest, d.name,
                            ToString(d.type));
  }
  if (r.differences.size() > kMost) StrAppend(&text, "  … the others are closer\n");
  return text;
}

Json ToJson(const Report& r) {
  Json json = {{"title", r.title}, {"agrees", r.agrees}, {"values", Json::array()}};
  for (const Difference& d : r.differences) {
    json["values"].push_back({{"name", d.name},
                              {"type", ToString(d.type)},
                              {"relative", d.relative},
                              {"nudged", d.nudged},
                              {"allowed", d.judged() ? Json(d.allowed) : Json()},
                              {"largest", d.largest}});
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

// Returns the backends to compare, the one that serves as the base first.
absl::StatusOr<std::vector<std::string>> ComparedBackends(const TrainConfig& config) {
  if (config.backend == "auto") return BackendNames();
  if (config.backend == kBase && config.reference.empty())
    return Invalid("`backend` cpu: is what others are compared with; name torch or the path of a library");
  if (config.backend == kBase) return std::vector<std::string>{std::string(kBase)};
  return std::vector<std::string>{std::string(kBase), config.backend};
}

absl::StatusOr<std::unique_ptr<Backend>> LoadCompared(TrainConfig config, const std::string& name) {
  if (name == kBase) config.device = "cpu";  // --device is for the other backends
  return LoadNamedBackend(std::move(config), name);
}

// The results of each backend, and their changes by nudges on the first.
struct Computed {
  std::vector<std::pair<std::string, Tensors>> by_backend;
  Moves moves;
};

absl::StatusOr<Computed> ComputeOnAll(const TrainConfig& config, const Setup& s, const std::vector<std::string>& names,
                                      Compute compute) {
  Computed computed;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const auto backend, LoadCompared(config, name));
    ASSIGN_OR_RETURN(Tensors values, compute(s, *backend, 0));
    computed.by_backend.emplace_back(name, std::move(values));
    if (computed.by_backend.size() > 1) continue;
    ASSIGN_OR_RETURN(computed.moves, MeasureMoves(s, *backend, compute, computed.by_backend[0].second));
  }
  return computed;
}

void AddPairs(const std::string& what, const Computed& computed, std::vector<Report>* reports) {
  const auto& base = computed.by_backend.front();
  for (size_t i = 1; i < computed.by_backend.size(); ++i) {
    const auto& other = computed.by_backend[i];
    reports->push_back(
        MakeReport(StrCat(base.first, " and ", other.first, ", ", what), base.second, other.second, computed.moves));
  }
}

absl::StatusOr<std::vector<Report>> CompareAllWays(const TrainConfig& config, const Setup& s) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ComparedBackends(config));
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const auto backend, LoadCompared(config, name));
    LogInfo(config, DescribeBackend(*backend));
  }
  ASSIGN_OR_RETURN(const Computed traces, ComputeOnAll(config, s, names, Trace));
  ASSIGN_OR_RETURN(const Computed results, ComputeOnAll(config, s, names, Results));
  std::vector<Report> reports;
  AddPairs("every named value", traces, &reports);
  AddPairs("loss, outputs and gradients", results, &reports);
  if (config.reference.empty()) return reports;
  for (const auto& [name, ours] : results.by_backend) {
    ASSIGN_OR_RETURN(const Tensors reference, ReadReference(config, ours));
    reports.push_back(MakeReport(StrCat(name, " and the reference"), ours, reference, results.moves));
  }
  return reports;
}

}  // namespace

absl::StatusOr<int> RunCompare(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const Setup setup, SetUp(config));
  ASSIGN_OR_RETURN(const std::vector<Report> reports, CompareAllWays(config, setup));
  Json json = {{"comparisons", Json::array()}};
  std::string page = absl::StrFormat(kColumns, kNudgeUlps, kRounding, kSpread, kJudgeable);
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
  RETURN_IF_ERROR(Print(config.json ? WriteJson(json, 2) + "\n" : page));
  return agrees ? kDone : ReportFailure(Invalid("the values disagree"));
}

}  // namespace onnxtrain::cli
