#include "optim/plan/surgery.h"

#include <algorithm>
#include <set>

#include "frontend/base/status.h"
#include "frontend/data/bind/labels.h"
#include "frontend/onnx/edit/surgery.h"
#include "frontend/onnx/read/parsed.h"
#include "optim/config/weight_globs.h"
#include "optim/plan/adapters.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/quantized_base.h"
#include "optim/plan/training_data.h"
#include "optim/step/prepared_models.h"
#include "optim/step/weight_initializer.h"

namespace onnxtrain {
namespace {

// Counts the classes of the labels: their names, values or columns; 1 for a single number.
absl::StatusOr<int64_t> CountClasses(const BoundData* data) {
  if (data == nullptr) return Invalid("`num_classes` auto: there is no `data` to count the classes of");
  const LabelInfo& labels = data->label.info;
  if (!labels.present) return Invalid("`num_classes` auto: the data has no label column; name one with `label`");
  if (!data->classes.empty()) return static_cast<int64_t>(data->classes.size());
  if (IsFloat(labels.sample.dtype) || labels.sample.elements() > 1) return labels.sample.elements();
  if (labels.min_value < 0)
    return Invalid("`num_classes` auto: the labels begin at ", labels.min_value, ", classes begin at 0");
  return labels.max_value + 1;
}

absl::StatusOr<int64_t> NumClasses(const TrainConfig& config, const BoundData* data) {
  return config.num_classes == TrainConfig::kAuto ? CountClasses(data) : config.num_classes;
}

Pooling MakePooling(const std::string& head) {
  return head == "cls" ? Pooling::kCls : head == "max" ? Pooling::kMax : Pooling::kMean;
}

// Suggests `head` if the model is an encoder without a head.
std::string HeadHint(const OnnxModel& model, const ImportOptions& import) {
  const auto head = PlanHead(model, {.classes = 2}, import);
  return head.ok() && head->edits.nodes.size() > 1
             ? " (an encoder without a head gets one with `head` cls, mean or max)"
             : "";
}

absl::StatusOr<SurgeryPlan> Plan(const TrainConfig& config, const OnnxModel& model, const BoundData* data,
                                 const ImportOptions& import, const std::string& value) {
  if (config.num_classes == 0) return SurgeryPlan{};
  ASSIGN_OR_RETURN(const int64_t classes, NumClasses(config, data));
  if (!config.head.empty())
    return PlanHead(model, {.pooling = MakePooling(config.head), .classes = classes, .value = value}, import);
  std::vector<int64_t> labels;
  if (data != nullptr && std::ssize(data->classes) == classes) labels = IntegerClasses(data->classes);
  auto plan = PlanClasses(model, value, classes, labels);
  if (!plan.ok()) return Invalid("`num_classes`: ", ToStd(plan.status().message()), HeadHint(model, import));
  return plan;
}

// Returns the floating-point weights that match, in graph order.
absl::StatusOr<std::vector<std::string>> MatchReinit(const std::vector<std::string>& patterns,
                                                     const ImportedModel& model) {
  WeightGlobs globs("reinit", patterns);
  std::vector<std::string> names;
  for (const ImportedWeight& w : model.weights) {
    if (globs.Match(w) != nullptr && IsFloat(w.value.dtype())) names.push_back(w.name);
  }
  RETURN_IF_ERROR(globs.CheckAllMatched());
  return names;
}

// Checks that the shapes differ in one axis, whose extent is the new number of classes.
absl::Status CheckClasses(const SurgeryPlan& plan, const Shape& before, const Shape& after, int64_t classes) {
  int changed = 0;
  for (size_t i = 0; i < before.size() && i < after.size(); ++i) changed += before[i] != after[i];
  const bool fits = before.size() == after.size() && (changed == 1 || (changed == 0 && plan.old_classes == classes)) &&
                    std::find(after.begin(), after.end(), classes) != after.end();
  if (fits) return absl::OkStatus();
  return Invalid("`num_classes`: output '", plan.output, "' would become ", ToString(after), " instead of ",
                 ToString(before));
}

absl::StatusOr<ImportedModel> Forward(const OnnxModel& model, const ImportOptions& import) {
  return ImportForward(model, {.import = import}, 2, false);
}

absl::Status CheckPlan(const OnnxModel& model, const SurgeryPlan& plan, const ImportOptions& import, int64_t classes) {
  const auto changed = model.LoadEdited(plan.edits);
  if (!changed.ok()) return Invalid("`num_classes`: ", ToStd(changed.status().message()));
  ImportOptions only = import;
  only.outputs = {plan.output};
  ASSIGN_OR_RETURN(const ImportedModel before, Forward(model, only));
  const auto after = Forward(**changed, only);
  if (!after.ok())
    return Invalid("`num_classes`: the changed model does not fit together: ", ToStd(after.status().message()));
  const auto shape = [&](const ImportedModel& m) { return m.graph.type(m.graph.FindOutput(plan.output)->value).shape; };
  return CheckClasses(plan, shape(before), shape(*after), classes);
}

// Draws the fresh weights and those that `reinit` names.
absl::StatusOr<std::vector<InitializedWeight>> DrawWeights(const TrainConfig& config, const OnnxModel& model,
                                                           const ImportOptions& import,
                                                           const std::vector<std::string>& fresh) {
  if (config.reinit.empty() && fresh.empty()) return std::vector<InitializedWeight>();
  ASSIGN_OR_RETURN(const ImportedModel imported, Forward(model, import));
  ASSIGN_OR_RETURN(std::vector<std::string> names, MatchReinit(config.reinit, imported));
  std::set<std::string> all(names.begin(), names.end());
  for (const std::string& name : fresh) {
    if (all.insert(name).second) names.push_back(name);
  }
  return InitializeWeights(imported, names, static_cast<uint64_t>(config.seed));
}

// Fails unless the file quantizes the weight of an adapter.
absl::Status CheckRequantized(const AdapterPlan& plan, const OnnxModel& model) {
  const auto is_float = [&](const LowRankUpdate& update) {
    return IsFloat(model.parsed().graph.initializers.at(update.weight).dtype());
  };
  if (!std::ranges::all_of(plan.updates, is_float)) return absl::OkStatus();
  return Invalid("`merge` requantize: has no effect: the file stores the weights beside the adapters as floats");
}

}  // namespace

bool HasSurgery(const TrainConfig& config) {
  return ChangesClasses(config) || !config.reinit.empty() || HasAdapters(config);
}
bool ChangesClasses(const TrainConfig& config) { return config.num_classes != 0 || !config.head.empty(); }

absl::StatusOr<Surgery> ApplySurgery(const TrainConfig& config, const std::shared_ptr<const OnnxModel>& model,
                                     const BoundData* data, const std::string& value) {
  ASSIGN_OR_RETURN(const ImportOptions import,
                   data == nullptr ? MakeImportOptions(config, *model) : MakeImportOptions(config, *model, *data));
  ASSIGN_OR_RETURN(SurgeryPlan plan, Plan(config, *model, data, import, value));
  for (const auto& [name, tensor] : model->edits().tensors) plan.edits.tensors.emplace(name, tensor);
  plan.edits.lines.insert(plan.edits.lines.begin(), model->edits().lines.begin(), model->edits().lines.end());
  Surgery surgery{.fresh = plan.fresh, .lines = plan.edits.lines};
  if (!config.head.empty()) surgery.logits = plan.output;
  if (config.num_classes != 0 && config.head.empty()) {
    ASSIGN_OR_RETURN(const int64_t classes, NumClasses(config, data));
    RETURN_IF_ERROR(CheckPlan(*model, plan, import, classes));
  }
  ASSIGN_OR_RETURN(const auto changed, model->LoadEdited(plan.edits));
  ASSIGN_OR_RETURN(const std::vector<InitializedWeight> drawn, DrawWeights(config, *changed, import, plan.fresh));
  for (const InitializedWeight& w : drawn) {
    plan.edits.tensors[w.name] = w.value;
    surgery.lines.push_back(StrCat("re-initialized: ", w.name, " ", ToString(w.value.type()), ": ", w.how));
  }
  if (!config.reinit.empty())
    plan.edits.lines.push_back(StrCat(drawn.size(), " weights were re-initialized before training"));
  if (HasAdapters(config)) {
    ASSIGN_OR_RETURN(AdapterPlan adapters, PlanAdapters(config, *changed));
    surgery.lines.push_back(DescribeAdapters(adapters));
    if (QuantizesBase(config)) {
      ASSIGN_OR_RETURN(plan.edits.blocks, QuantizeBase(config, *changed, adapters));
      if (config.adapter.empty()) StartFromBlocks(plan.edits.blocks, &adapters);
      surgery.lines.push_back(DescribeBase(config, SummarizeBase(plan.edits.blocks, *changed)));
    }
    plan.edits.requantize = config.merge == "requantize";
    if (plan.edits.requantize) RETURN_IF_ERROR(CheckRequantized(adapters, *changed));
    plan.edits.low_rank = std::move(adapters.updates);
    plan.edits.whole = plan.fresh;
    for (auto& [name, value] : adapters.whole) {
      if (std::ranges::find(plan.fresh, name) == plan.fresh.end()) {
        plan.edits.whole.push_back(name);
        plan.edits.replaced.insert(name);
      }
      plan.edits.tensors[name] = std::move(value);
    }
  }
  ASSIGN_OR_RETURN(surgery.model, model->LoadEdited(std::move(plan.edits)));
  return surgery;
}

}  // namespace onnxtrain
