// onnxtrain inspect: what is in a model, what would be trained and why, what stands in the way.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "optim/prepare.h"
#include "optim/telemetry/format.h"
#include "optim/training_graph.h"
#include "tools/onnxtrain/command.h"
#include "tools/onnxtrain/common.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/pretrained.h"
#include "tools/onnxtrain/start_page.h"
#include "tools/onnxtrain/synthetic_run.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Inspection {
  std::shared_ptr<const OnnxModel> model;
  std::vector<std::string> problems;  // each stands in the way of training
  std::vector<std::string> notes;
  std::vector<WeightDecision> weights;
  WeightOrigin origin;
  std::string loss;                              // "" where none could be chosen
  double forward_flops = 0, training_flops = 0;  // per sample; 0: unknown
};

double FlopsOf(const Graph& graph) {
  double total = 0;
  for (const Node& node : graph.nodes()) {
    const OpRow* row = FindOp(node.op);
    std::vector<const Type*> inputs;
    std::vector<Type> outputs;
    for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? nullptr : &graph.type(v));
    for (ValueId v : node.outputs) outputs.push_back(graph.type(v));
    if (row == nullptr || row->view || node.op == "Constant") continue;
    total +=
        row->flops != nullptr ? row->flops(inputs, outputs, node.attrs) : static_cast<double>(outputs[0].elements());
  }
  return total;
}

void AddProblem(const absl::Status& status, Inspection* out) {
  if (!status.ok()) out->problems.emplace_back(ToStd(status.message()));
}

void LookAtWeights(ImportedModel& model, Inspection* out) {
  std::vector<NamedWeight> named;
  for (const ImportedWeight& w : model.weights) {
    const GraphInput* input = model.graph.FindInput(w.name);
    named.push_back({w.name, w.value, input != nullptr && input->kind == InputKind::kState});
  }
  out->origin = JudgeWeights(named);
  auto decided = DecideTrainable(&model, TrainableFlags());
  AddProblem(decided.status(), out);
  if (!decided.ok()) return;
  out->weights = *std::move(decided);
  const bool none =
      std::none_of(out->weights.begin(), out->weights.end(), [](const WeightDecision& w) { return w.trained; });
  if (none) out->problems.emplace_back("nothing to train: no weight is trainable");
}

// Everything that stands in the way, not only the first: a model may lack a loss and a gradient.
absl::Status LookInside(const PrepareOptions& options, Inspection* out) {
  auto imported = ImportForward(*out->model, options, 1, true);
  AddProblem(WithFreeHint(imported.status(), *out->model, options.import.dim_values), out);
  if (!imported.ok()) return absl::OkStatus();
  ImportedModel& model = *imported;
  out->notes = model.notes;
  out->forward_flops = FlopsOf(model.graph);
  LookAtWeights(model, out);
  const auto loss = ChooseLoss(model, options.loss, options.labels);
  AddProblem(loss.status(), out);
  if (!loss.ok() || out->weights.empty()) return absl::OkStatus();
  out->loss = loss->explanation;
  const auto training = BuildMicro(model, *loss, options.loss, 1, {});
  AddProblem(training.status(), out);
  if (training.ok()) out->training_flops = FlopsOf(*training);
  return absl::OkStatus();
}

absl::StatusOr<Inspection> Inspect() {
  Inspection out;
  ASSIGN_OR_RETURN(out.model, LoadModel());
  PrepareOptions options;
  ASSIGN_OR_RETURN(options.import, ImportFlags(*out.model));
  ASSIGN_OR_RETURN(options.loss, LossFlags(*out.model, std::nullopt));
  const auto shapes = MadeUpShapes(*out.model, options.import.dim_values);
  if (shapes.ok()) options.import.input_shapes = *shapes;
  RETURN_IF_ERROR(LookInside(options, &out));
  return out;
}

std::string DimsText(const OnnxModel::Input& input) {
  if (!input.has_shape) return "shape unknown";
  std::string text = "[";
  for (size_t i = 0; i < input.dims.size(); ++i) {
    const std::string name = i < input.dim_names.size() ? input.dim_names[i] : "";
    StrAppend(&text, i == 0 ? "" : ",", input.dims[i] >= 0 ? StrCat(input.dims[i]) : name.empty() ? "?" : name);
  }
  return text + "]";
}

std::string Flops(double n) {
  constexpr const char* kUnits[] = {"", " thousand", " million", " billion", " trillion"};
  int i = 0;
  for (; n >= 1000 && i < 4; ++i) n /= 1000;
  return absl::StrFormat("%.3g%s", n, kUnits[i]);
}

std::string Histogram(const OnnxModel& model) {
  std::vector<std::pair<std::string, int>> ops;
  for (const auto& [name, count] : model.op_histogram()) ops.emplace_back(name, count);
  std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, count] : ops) StrAppend(&text, text.empty() ? "" : ", ", name, " ", count);
  return text;
}

std::string WeightRows(const Inspection& i) {
  size_t wide = 0;
  int64_t trained = 0, total = 0;
  for (const WeightDecision& w : i.weights) {
    wide = std::max(wide, w.name.size());
    total += w.type.elements();
    if (w.trained) trained += w.type.elements();
  }
  std::string text = PageRow("weights", StrCat(i.weights.size(), ", ", WithCommas(total), " values, ",
                                               WithCommas(trained), " of them trained"));
  wide = std::min<size_t>(wide, 40);
  for (const WeightDecision& w : i.weights) {
    text += absl::StrFormat("  %-7s %-*s %-18s %s%s\n", w.trained ? "trained" : "fixed", wide, w.name, ToString(w.type),
                            w.consumer, w.why.empty() ? "" : StrCat(w.consumer.empty() ? "" : ": ", w.why));
  }
  return text;
}

std::string Page(const Inspection& i) {
  const OnnxModel& m = *i.model;
  std::string text = PageRow("model", StrCat(DescribeModel(m), ", IR ", m.ir_version()));
  for (const auto& [domain, version] : m.opsets()) {
    if (!domain.empty()) text += PageRow("", StrCat("opset ", domain, " ", version));
  }
  for (const auto& input : m.inputs())
    text += PageRow("input", StrCat("'", input.name, "' ", NameOf(input.dtype), " ", DimsText(input)));
  for (const std::string& name : m.outputs()) text += PageRow("output", StrCat("'", name, "'"));
  text += PageRow("operators", Histogram(m));
  for (const std::string& note : i.notes) text += PageRow("note", note);
  if (i.forward_flops > 0) {
    text += PageRow(
        "work", StrCat(Flops(i.forward_flops), " operations per sample",
                       i.training_flops > 0 ? StrCat(", ", Flops(i.training_flops), " with the backward pass") : ""));
  }
  if (!i.weights.empty())
    text += WeightRows(i) +
            PageRow("origin", StrCat(i.origin.trained ? "looks trained: " : "looks untrained: ", i.origin.why));
  if (!i.loss.empty()) text += PageRow("loss", StrCat("without labels: ", i.loss));
  if (i.problems.empty()) return text + PageRow("training", "nothing stands in the way");
  for (const std::string& p : i.problems) text += PageRow("problem", p);
  return text;
}

Json InputJson(const OnnxModel::Input& input) {
  Json json = {{"name", input.name}, {"type", NameOf(input.dtype)}};
  json["dims"] = nullptr;
  if (!input.has_shape) return json;
  json["dims"] = Json::array();
  for (size_t i = 0; i < input.dims.size(); ++i) {
    const std::string name = i < input.dim_names.size() ? input.dim_names[i] : "";
    json["dims"].push_back(input.dims[i] >= 0 ? Json(input.dims[i]) : name.empty() ? Json() : Json(name));
  }
  return json;
}

std::string ToJson(const Inspection& i) {
  const OnnxModel& m = *i.model;
  Json json = {{"model", m.path()}, {"sha256", m.sha256()}, {"producer", m.producer()}, {"ir_version", m.ir_version()}};
  for (const auto& [domain, version] : m.opsets()) json["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
  json["inputs"] = Json::array();
  for (const auto& input : m.inputs()) json["inputs"].push_back(InputJson(input));
  json["outputs"] = m.outputs();
  json["operators"] = m.op_histogram();
  json["notes"] = i.notes;
  json["flops_per_sample"] = i.forward_flops > 0 ? Json(i.forward_flops) : Json();
  json["training_flops_per_sample"] = i.training_flops > 0 ? Json(i.training_flops) : Json();
  json["weights"] = Json::array();
  for (const WeightDecision& w : i.weights) {
    json["weights"].push_back({{"name", w.name},
                               {"type", NameOf(w.type.dtype)},
                               {"shape", w.type.shape},
                               {"consumer", w.consumer},
                               {"trained", w.trained},
                               {"why", w.why}});
  }
  json["looks_trained"] = i.origin.trained;
  json["loss"] = i.loss.empty() ? Json() : Json(i.loss);
  json["trainable"] = i.problems.empty();
  json["problems"] = i.problems;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::StatusOr<int> RunInspect() {
  ASSIGN_OR_RETURN(const Inspection inspection, Inspect());
  Print(FLAGS_json ? ToJson(inspection) : Page(inspection));
  return kDone;
}

}  // namespace onnxtrain::cli
