// onnxtrain inspect: prints an Inspection of a model (report/inspection.h).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "optim/plan/adapters.h"
#include "optim/plan/model_setup.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/report/inspection.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNameWidth = 44;
constexpr size_t kMaxWeights = 60;  // more are in --json

std::string DimText(const OnnxModel::Input& input, size_t i) {
  const std::string name = i < input.dim_names.size() ? input.dim_names[i] : "";
  return input.dims[i] >= 0 ? StrCat(input.dims[i]) : name.empty() ? "?" : name;
}

// Returns "f32 [batch,3,32,32], looked at with [1,3,32,32]".
std::string InputText(const Inspection& i, const OnnxModel::Input& input) {
  if (!input.has_shape) return StrCat(TypeText(input), ", shape unknown");
  std::string text = StrCat(TypeText(input), " [");
  bool free = false;
  for (size_t d = 0; d < input.dims.size(); ++d) {
    StrAppend(&text, d == 0 ? "" : ",", DimText(input, d));
    free |= d > 0 && input.dims[d] < 0;
  }
  const auto taken = i.shapes.find(input.name);
  if (!free || taken == i.shapes.end()) return text + "]";
  return StrCat(text, "], looked at with ", ToString(Shape(taken->second.begin() + 1, taken->second.end())),
                " per sample (--dim NAME=N)");
}

std::string Flops(double n) {
  constexpr const char* kUnits[] = {"", " thousand", " million", " billion", " trillion"};
  int i = 0;
  for (; n >= 1000 && i < 4; ++i) n /= 1000;
  return absl::StrFormat("%.3g%s", n, kUnits[i]);
}

// Shortens a long name at its beginning, since its end is more specific.
std::string Fitted(const std::string& name) {
  if (name.size() <= kNameWidth) return name;
  size_t begin = name.size() - (kNameWidth - 1);
  while (begin < name.size() && (name[begin] & 0xC0) == 0x80) ++begin;
  return "…" + name.substr(begin);
}

std::string Padded(const std::string& text, size_t width) {
  const auto columns =
      static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  return text + std::string(columns < width ? width - columns : 0, ' ');
}

std::string OperatorHeader(const Inspection& i) {
  std::string text = "  nodes  ";
  for (const std::string& backend : i.looked_at) text += Padded(backend, 12);
  return text + "gradient";
}

std::string OperatorRow(const Inspection& i, const OperatorSupport& op, size_t wide) {
  std::string text = absl::StrFormat("%s  %5d  ", Padded(Fitted(op.op), wide), op.count);
  for (const std::string& backend : i.looked_at) {
    const auto it = op.backends.find(backend);
    text += Padded(!op.known ? "unknown" : it == op.backends.end() ? "-" : it->second, 12);
  }
  return PageRow("", text + (!op.known ? "unknown" : op.gradient.empty() ? "-" : op.gradient));
}

std::string BackendRows(const Inspection& i) {
  std::string text;
  for (const auto& [backend, problem] : i.backends)
    text += PageRow("", StrCat("backend ", backend, ": ", problem.empty() ? "runs the training step" : problem));
  if (!i.backends.empty() && !i.backends.contains("torch"))
    text += PageRow("", "backend torch: not loaded (--backend torch looks at it, too)");
  return text;
}

std::string OperatorRows(const Inspection& i) {
  int64_t nodes = 0;
  size_t wide = 8;
  for (const OperatorSupport& op : i.operators) {
    nodes += op.count;
    wide = std::max(wide, op.op.size());
  }
  wide = std::min(wide, kNameWidth);
  std::string text =
      PageRow("operators", StrCat(Padded(StrCat(i.operators.size(), " kinds"), wide), OperatorHeader(i)));
  for (const OperatorSupport& op : i.operators) text += OperatorRow(i, op, wide);
  text += PageRow("", StrCat(i.weights.empty() && i.outputs.empty()
                                 ? ""
                                 : "-: nothing of it is left to run: folded, moved only or part of a fusion; ",
                             i.operators.size(), " kinds, ", nodes, " nodes in all"));
  return text + BackendRows(i);
}

constexpr size_t kMaxNearMisses = 8;  // all are in --json

std::string CountsRow(const std::string& title, const std::map<std::string, int>& counts, std::string_view what) {
  std::vector<std::string> parts;
  for (const auto& [op, count] : counts) parts.push_back(StrCat(op, " ", count));
  return parts.empty() ? "" : PageRow(title, StrCat(absl::StrJoin(parts, ", "), " ", what));
}

std::string FusedRows(const Inspection& i) {
  std::string text = CountsRow("recognized", i.recognized, "in written form") +
                     CountsRow("forms", i.elementwise, "in written form, left to fused elementwise kernels");
  for (size_t k = 0; k < std::min(i.near_misses.size(), kMaxNearMisses); ++k)
    text += PageRow("nearly", i.near_misses[k]);
  if (i.near_misses.size() <= kMaxNearMisses) return text;
  return text + PageRow("", StrCat("… and ", i.near_misses.size() - kMaxNearMisses, " more (--json lists all)"));
}

std::string FormText(const WeightForm& form) {
  if (form.why.empty()) return "";
  return StrCat("  [", form.row, ": ", form.why, form.flag.empty() ? "" : StrCat("; ", form.flag), "]");
}

std::string WeightRow(const WeightDecision& w, const WeightForm& form, size_t wide) {
  const bool plain = w.reason == WeightReason::kDefault;
  return StrCat("  ", Padded(w.trained ? "trained" : "fixed", 8), Padded(Fitted(DisplayName(w)), wide), "  ",
                Padded(ToString(w.type), 18), "  ", Fitted(w.consumer),
                plain ? "" : StrCat(w.consumer.empty() ? "" : "  ", "(", w.why, ")"), FormText(form), "\n");
}

std::string WeightRows(const Inspection& i) {
  size_t wide = 0, left_out = 0, shown = 0;
  int64_t trained = 0, total = 0;
  for (const WeightDecision& w : i.weights) {
    wide = std::max(wide, std::min(w.name.size(), kNameWidth));
    total += w.type.elements();
    if (w.trained) trained += w.type.elements();
  }
  std::string text = PageRow(
      "weights", StrCat(i.weights.size(), ": ", FormatWithCommas(total), " values, ", FormatBytes(i.parameter_bytes),
                        "; ", FormatWithCommas(trained), " values trained (--train, --freeze)"));
  for (size_t k = 0; k < i.weights.size(); ++k) {
    const WeightDecision& w = i.weights[k];
    const bool ordinary = w.trained || w.reason == WeightReason::kStatistics;
    if (ordinary && shown >= kMaxWeights) {
      ++left_out;
      continue;
    }
    ++shown;
    text += WeightRow(w, i.forms[k], wide);
  }
  return left_out == 0
             ? text
             : StrCat(text, "  … and ", left_out, " more that are trained or running statistics (--json lists all)\n");
}

std::string WorkRow(const Inspection& i) {
  if (i.forward_flops <= 0) return "";
  return PageRow(
      "work", StrCat("per sample: ", Flops(i.forward_flops), " operations",
                     i.training_flops > 0 ? StrCat(", ", Flops(i.training_flops), " with the backward pass") : "", "; ",
                     FormatBytes(i.activation_bytes), " of intermediate values"));
}

std::string LossRow(const TrainConfig& config, const Inspection& i) {
  if (!i.loss.empty())
    return PageRow("loss", StrCat(!config.loss.empty() ? "" : "auto, as long as no label says otherwise: ", i.loss));
  return i.loss_problem.empty() ? "" : PageRow("loss", StrCat("auto needs labels or a choice: ", i.loss_problem));
}

std::string Page(const TrainConfig& config, const Inspection& i) {
  const OnnxModel& m = *i.model;
  std::string text = PageRow("model", StrCat(DescribeModel(m), ", IR ", m.ir_version()));
  for (const auto& [domain, version] : m.opsets()) {
    if (!domain.empty()) text += PageRow("", StrCat("opset ", domain, " ", version));
  }
  for (const auto& input : m.inputs()) text += PageRow("input", StrCat("'", input.name, "' ", InputText(i, input)));
  for (const std::string& name : m.outputs()) {
    const auto type = i.outputs.find(name);
    text +=
        PageRow("output", StrCat("'", name, "'", type == i.outputs.end() ? "" : StrCat(" ", ToString(type->second))));
  }
  text += OperatorRows(i) + FusedRows(i);
  if (!i.weights.empty())
    text += WeightRows(i) +
            PageRow("origin", StrCat(i.origin.trained ? "looks trained: " : "looks untrained: ", i.origin.why));
  for (const std::string& quirk : i.quirks) text += PageRow("note", quirk);
  text += WorkRow(i) + LossRow(config, i);
  if (i.problems.empty()) return text + PageRow("training", "nothing stands in the way");
  text += PageRow("training", StrCat("impossible as it is: ", i.problems.size(),
                                     i.problems.size() == 1 ? " problem" : " problems"));
  for (const std::string& p : i.problems) text += PageRow("problem", p);
  return text;
}

Json InputJson(const Inspection& i, const OnnxModel::Input& input) {
  Json json = {{"name", input.name}, {"type", TypeText(input)}};
  json["dims"] = nullptr;
  json["looked_at_with"] = nullptr;
  if (const auto taken = i.shapes.find(input.name); taken != i.shapes.end()) {
    json["looked_at_with"] = Shape(taken->second.begin() + 1, taken->second.end());
  }
  if (!input.has_shape) return json;
  json["dims"] = Json::array();
  for (size_t d = 0; d < input.dims.size(); ++d) {
    const std::string name = d < input.dim_names.size() ? input.dim_names[d] : "";
    json["dims"].push_back(input.dims[d] >= 0 ? Json(input.dims[d]) : name.empty() ? Json() : Json(name));
  }
  return json;
}

Json OrNull(double x) { return x > 0 ? Json(x) : Json(); }
Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json OperatorJson(const Inspection& i) {
  Json list = Json::array();
  for (const OperatorSupport& op : i.operators) {
    Json entry = {{"op", op.op},
                  {"nodes", op.count},
                  {"known", op.known},
                  {"backends", Json::object()},
                  {"gradient", OrNull(op.gradient)}};
    for (const auto& [backend, how] : op.backends) entry["backends"][backend] = how;
    list.push_back(std::move(entry));
  }
  return list;
}

Json WeightsJson(const Inspection& i) {
  Json list = Json::array();
  for (size_t k = 0; k < i.weights.size(); ++k) {
    const WeightDecision& w = i.weights[k];
    const WeightForm& form = i.forms[k];
    list.push_back({{"name", w.name},
                    {"module_name", OrNull(w.alias)},
                    {"type", ToString(w.type.dtype)},
                    {"shape", w.type.shape},
                    {"consumer", w.consumer},
                    {"trained", w.trained},
                    {"why", w.why},
                    {"form", {{"row", form.row}, {"why", OrNull(form.why)}, {"flag", OrNull(form.flag)}}}});
  }
  return list;
}

std::string ToJson(const Inspection& i) {
  const OnnxModel& m = *i.model;
  Json json = {{"model", m.path()}, {"sha256", m.sha256()}, {"producer", m.producer()}, {"ir_version", m.ir_version()}};
  for (const auto& [domain, version] : m.opsets()) json["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
  json["inputs"] = Json::array();
  for (const auto& input : m.inputs()) json["inputs"].push_back(InputJson(i, input));
  json["outputs"] = m.outputs();
  json["output_types"] = Json::object();
  for (const auto& [name, type] : i.outputs)
    json["output_types"][name] = {{"type", ToString(type.dtype)}, {"shape", type.shape}};
  json["operators"] = m.op_histogram();
  json["operator_support"] = OperatorJson(i);
  json["recognized"] = i.recognized;
  json["elementwise_forms"] = i.elementwise;
  json["nearly_recognized"] = i.near_misses;
  json["backends"] = Json::object();
  for (const auto& [backend, problem] : i.backends)
    json["backends"][backend] = {{"trains", problem.empty()}, {"problem", OrNull(problem)}};
  json["notes"] = i.quirks;
  json["flops_per_sample"] = OrNull(i.forward_flops);
  json["training_flops_per_sample"] = OrNull(i.training_flops);
  json["bytes_per_sample"] = OrNull(i.activation_bytes);
  json["parameter_bytes"] = OrNull(i.parameter_bytes);
  json["weights"] = WeightsJson(i);
  json["looks_trained"] = i.origin.trained;
  json["origin"] = OrNull(i.origin.why);
  json["loss"] = OrNull(i.loss);
  json["loss_problem"] = OrNull(i.loss_problem);
  json["trainable"] = i.problems.empty();
  json["problems"] = i.problems;
  return WriteJson(json, 2) + "\n";
}

// A product that adapters can be trained beside.
struct AdapterRow {
  LowRankTarget target;
  int64_t rank = 0;  // 0: gets none

  int64_t values() const { return rank * (target.inputs + target.outputs) * std::max<int64_t>(target.experts, 1); }
};

struct AdapterRows {
  std::vector<AdapterRow> rows;
  std::vector<LeftOutProduct> left_out;
};

// Lists the products, with the ranks that `lora_rank` and `lora_target`, or an adapter, give them.
absl::StatusOr<AdapterRows> ListAdapterRows(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const auto model, LoadModel(config));
  ASSIGN_OR_RETURN(const AdapterPlan plan, PlanAdapters(config, *model));
  std::map<std::string, int64_t> ranks;
  for (const LowRankUpdate& update : plan.updates) ranks[update.module] = update.rank();
  std::vector<AdapterRow> rows;
  for (LowRankTarget& target : ListAdapterTargets(*model)) {
    const auto rank = ranks.find(target.module);
    rows.push_back({std::move(target), rank == ranks.end() ? 0 : rank->second});
  }
  return AdapterRows{std::move(rows), ListLeftOutProducts(*model)};
}

std::string LastComponent(const std::string& module) { return module.substr(module.rfind('.') + 1); }

std::string AdapterPage(const AdapterRows& products) {
  const std::vector<AdapterRow>& rows = products.rows;
  size_t wide = 8;
  int64_t values = 0;
  for (const AdapterRow& row : rows) {
    wide = std::max(wide, std::min(row.target.module.size(), kNameWidth));
    values += row.values();
  }
  std::string text = PageRow("adapters", StrCat(rows.size(), " products, ", FormatWithCommas(values),
                                                " values to train", values == 0 ? " (--lora-rank R)" : ""));
  const auto line = [&](const std::string& name, const std::string& module, const std::string& rank,
                        const std::string& extents, const std::string& count) {
    StrAppend(&text, "  ", Padded(Fitted(name), 16), "  ", Padded(Fitted(module), wide), "  ", Padded(rank, 6),
              Padded(extents, 18), count, "\n");
  };
  line("target", "module", "rank", "inputs × outputs", "values");
  for (const AdapterRow& row : rows) {
    line(LastComponent(row.target.module), row.target.module, row.rank == 0 ? "-" : StrCat(row.rank),
         StrCat(row.target.experts > 0 ? StrCat(row.target.experts, " of ") : "", row.target.inputs, " × ",
                row.target.outputs),
         StrCat(FormatWithCommas(row.values()), row.target.output_layer ? "  (output layer: name it)" : ""));
  }
  for (const LeftOutProduct& product : products.left_out)
    StrAppend(&text, "  no target: '", Printable(product.module), "' ", product.why, "\n");
  return text;
}

std::string AdapterJson(const AdapterRows& products) {
  Json list = Json::array(), left_out = Json::array();
  for (const AdapterRow& row : products.rows) {
    list.push_back({{"target", LastComponent(row.target.module)},
                    {"module", row.target.module},
                    {"weight", row.target.weight},
                    {"rank", row.rank},
                    {"inputs", row.target.inputs},
                    {"outputs", row.target.outputs},
                    {"experts", row.target.experts},
                    {"output_layer", row.target.output_layer},
                    {"values", row.values()}});
  }
  for (const LeftOutProduct& product : products.left_out)
    left_out.push_back({{"module", product.module}, {"why", product.why}});
  const Json json = {{"adapters", list}, {"left_out", left_out}};
  return WriteJson(json, 2) + "\n";
}

}  // namespace

absl::StatusOr<int> RunInspect(const TrainConfig& config) {
  if (config.adapters) {
    ASSIGN_OR_RETURN(const AdapterRows rows, ListAdapterRows(config));
    RETURN_IF_ERROR(Print(config.json ? AdapterJson(rows) : AdapterPage(rows)));
    return kDone;
  }
  ASSIGN_OR_RETURN(const Inspection inspection, Inspect(config));
  RETURN_IF_ERROR(Print(FieldsToFlags(config.json ? ToJson(inspection) : Page(config, inspection))));
  return kDone;
}

}  // namespace onnxtrain::cli
