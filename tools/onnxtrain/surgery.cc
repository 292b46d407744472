#include "tools/onnxtrain/surgery.h"

#include <algorithm>
#include <set>

#include "frontend/base/status.h"
#include "frontend/onnx/surgery.h"
#include "optim/initialize.h"
#include "optim/prepare.h"
#include "optim/weight_globs.h"
#include "tools/onnxtrain/common.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/synthetic_run.h"
#include "tools/onnxtrain/units.h"

namespace onnxtrain::cli {
namespace {

// As many classes as the labels have names, values or columns; one for a number.
absl::StatusOr<int64_t> CountClasses(const BoundData* data) {
  if (data == nullptr) return Invalid("--num-classes auto: there is no --data to count the classes of");
  const LabelInfo& labels = data->label.info;
  if (!labels.present) return Invalid("--num-classes auto: the data has no label column; name one with --label");
  if (!data->classes.empty()) return static_cast<int64_t>(data->classes.size());
  if (IsFloat(labels.sample.dtype) || labels.sample.elements() > 1) return labels.sample.elements();
  if (labels.min_value < 0) return Invalid("--num-classes auto: the labels begin at ", labels.min_value, ", classes begin at 0");
  return labels.max_value + 1;
}

absl::StatusOr<int64_t> Classes(const BoundData* data) {
  constexpr int64_t kMost = int64_t{1} << 24;
  if (FLAGS_num_classes == "auto") return CountClasses(data);
  const auto n = ParseInt(FLAGS_num_classes);
  if (!n.ok() || *n < 1 || *n > kMost) return Invalid("--num-classes: expected auto or a number of at least 1, got '", FLAGS_num_classes, "'");
  return *n;
}

Pooling PoolingFlag() { return FLAGS_head == "cls" ? Pooling::kCls : FLAGS_head == "max" ? Pooling::kMax : Pooling::kMean; }

// Whoever has an encoder and forgot --head is told.
std::string HeadHint(const OnnxModel& model, const ImportOptions& import) {
  const auto head = PlanHead(model, {.classes = 2}, import);
  return head.ok() && head->edits.nodes.size() > 1 ? " (an encoder without a head gets one with --head cls, mean or max)" : "";
}

absl::StatusOr<SurgeryPlan> Plan(const OnnxModel& model, const BoundData* data, const ImportOptions& import, const std::string& value) {
  if (Given("head") && !Given("num_classes")) return Invalid("--head: how many classes? (--num-classes N or auto)");
  if (!Given("num_classes")) return SurgeryPlan{};
  ASSIGN_OR_RETURN(const int64_t classes, Classes(data));
  if (Given("head")) return PlanHead(model, {.pooling = PoolingFlag(), .classes = classes, .value = value}, import);
  auto plan = PlanClasses(model, value, classes);
  if (!plan.ok()) return Invalid("--num-classes: ", ToStd(plan.status().message()), HeadHint(model, import));
  return plan;
}

// The weights that --reinit asks for, in graph order.
absl::StatusOr<std::vector<std::string>> Matched(const ImportedModel& model) {
  WeightGlobs globs("--reinit", Values("reinit"));
  std::vector<std::string> names;
  for (const ImportedWeight& w : model.weights) {
    if (globs.Match(w.name, w.consumer) != nullptr && IsFloat(w.value.dtype())) names.push_back(w.name);
  }
  RETURN_IF_ERROR(globs.CheckAllHit());
  return names;
}

// The one axis in which two shapes differ has the new number of classes.
absl::Status CheckClasses(const SurgeryPlan& plan, const Shape& before, const Shape& after, int64_t classes) {
  int changed = 0;
  for (size_t i = 0; i < before.size() && i < after.size(); ++i) changed += before[i] != after[i];
  const bool fits = before.size() == after.size() && (changed == 1 || (changed == 0 && plan.old_classes == classes)) &&
                    std::find(after.begin(), after.end(), classes) != after.end();
  if (fits) return absl::OkStatus();
  return Invalid("--num-classes: output '", plan.output, "' would become ", ToString(after), " instead of ", ToString(before));
}

absl::StatusOr<ImportedModel> Forward(const OnnxModel& model, const ImportOptions& import) {
  return ImportForward(model, {.import = import}, 2, false);
}

absl::Status CheckPlan(const OnnxModel& model, const SurgeryPlan& plan, const ImportOptions& import, int64_t classes) {
  const auto changed = OnnxModel::Load(model.path(), plan.edits);
  if (!changed.ok()) return Invalid("--num-classes: ", ToStd(changed.status().message()));
  ImportOptions only = import;
  only.outputs = {plan.output};
  ASSIGN_OR_RETURN(const ImportedModel before, Forward(model, only));
  const auto after = Forward(**changed, only);
  if (!after.ok()) return Invalid("--num-classes: the changed model does not fit together: ", ToStd(after.status().message()));
  const auto shape = [&](const ImportedModel& m) { return m.graph.type(m.graph.FindOutput(plan.output)->value).shape; };
  return CheckClasses(plan, shape(before), shape(*after), classes);
}

absl::StatusOr<ImportOptions> ImportFor(const OnnxModel& model, const BoundData* data) {
  ASSIGN_OR_RETURN(ImportOptions import, ImportFlags(model));
  if (data != nullptr) {
    import.input_shapes = data->input_shapes;
  } else {
    ASSIGN_OR_RETURN(import.input_shapes, MadeUpShapes(model, {.logits = FLAGS_logits}, import.dim_values));
  }
  return import;
}

}  // namespace

bool WantsSurgery() { return Given("num_classes") || Given("head") || Given("reinit"); }
bool ChangesClasses() { return Given("num_classes") || Given("head"); }

absl::StatusOr<Surgery> Operate(std::shared_ptr<const OnnxModel> model, const BoundData* data, const std::string& value) {
  ASSIGN_OR_RETURN(const ImportOptions import, ImportFor(*model, data));
  ASSIGN_OR_RETURN(SurgeryPlan plan, Plan(*model, data, import, value));
  Surgery surgery{.fresh = plan.fresh, .lines = plan.edits.lines};
  if (Given("head")) surgery.logits = plan.output;
  if (Given("num_classes") && !Given("head")) {
    ASSIGN_OR_RETURN(const int64_t classes, Classes(data));
    RETURN_IF_ERROR(CheckPlan(*model, plan, import, classes));
  }
  ASSIGN_OR_RETURN(const auto changed, OnnxModel::Load(model->path(), plan.edits));
  ASSIGN_OR_RETURN(const ImportedModel imported, Forward(*changed, import));
  ASSIGN_OR_RETURN(std::vector<std::string> names, Matched(imported));
  std::set<std::string> all(names.begin(), names.end());
  for (const std::string& name : plan.fresh) {
    if (all.insert(name).second) names.push_back(name);
  }
  ASSIGN_OR_RETURN(const std::vector<DrawnWeight> drawn, DrawWeights(imported, names, static_cast<uint64_t>(FLAGS_seed)));
  for (const DrawnWeight& w : drawn) {
    plan.edits.tensors[w.name] = w.value;
    surgery.lines.push_back(StrCat("drawn anew: ", w.name, " ", ToString(w.value.type()), ": ", w.how));
  }
  if (!Values("reinit").empty()) plan.edits.lines.push_back(StrCat(drawn.size(), " weights were drawn anew before training"));
  ASSIGN_OR_RETURN(surgery.model, OnnxModel::Load(model->path(), std::move(plan.edits)));
  return surgery;
}

}  // namespace onnxtrain::cli
