#include "tools/onnxtrain/commands/inference.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "optim/config/loss_text.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/training_run.h"
#include "optim/record/run_folder.h"

namespace onnxtrain::cli {
namespace {

constexpr int64_t kSamples = 8;

absl::StatusOr<ModelAndData> MakeUpInputs(const TrainConfig& config) {
  RETURN_IF_ERROR(RefuseUnused(config, {.has_data = false}));
  ASSIGN_OR_RETURN(auto model, LoadRunnableModel(config));
  const int64_t exported = ExportedBatch(*model);
  const int64_t samples = config.batch_size > 0 ? config.batch_size : exported > 1 ? exported : kSamples;
  ASSIGN_OR_RETURN(TrainingData made_up,
                   LoadTrainingData(config, std::move(model), {.batch = samples, .one_batch = true}));
  LogInfo(config, StrCat("no `data`: ", samples, " synthetic samples"));
  for (const std::string& note : made_up.train.bound.notes) LogInfo(config, note);
  for (const std::string& line : made_up.surgery) LogInfo(config, line);
  return ModelAndData{
      .model = std::move(made_up.model), .data = std::move(made_up.train), .loss = std::move(made_up.loss)};
}

// Leaves out bad samples with --on-bad-sample skip, and samples whose labels do not fit a sequence loss. Prepares the
// model to learn what it requires of samples.
absl::Status SkipBadSamples(const TrainConfig& config, ModelAndData* setup) {
  ASSIGN_OR_RETURN(const std::vector<LossTermSpec> terms, ParseLoss(setup->loss.name));
  const auto aligns = [](const LossTermSpec& term) { return term.function != nullptr && term.function->sequences; };
  if (config.on_bad_sample != "skip" && std::ranges::none_of(terms, aligns)) return absl::OkStatus();
  BoundData& bound = setup->data.bound;
  const int64_t samples = std::min(bound.dataset->size(), GlobalBatchSize(config, *setup->model, bound.batch_axes));
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(config, *setup->model, bound, setup->loss, samples));
  PreparedModels models(setup->model);
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(models, bound, &options, true));
  ASSIGN_OR_RETURN(const auto sequences, MakeSequenceChecks(models, options, look, bound));
  ASSIGN_OR_RETURN(const LeftOut left_out, LeaveOutBadSamples(config, look, true, sequences, &bound));
  if (!left_out.line.empty()) Warn(left_out.line);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelAndData> OpenOrMakeUpInputs(const TrainConfig& config) {
  if (config.data.empty()) return MakeUpInputs(config);
  ASSIGN_OR_RETURN(ModelAndData opened, OpenInputs(config, false, true));
  ASSIGN_OR_RETURN(const std::vector<LossTermSpec> terms, ParseLoss(opened.loss.name));
  if (terms[0].function != nullptr && terms[0].function->reference)
    return Invalid("`loss` ", opened.loss.name, ": compares with a reference, which train and eval evaluate");
  RETURN_IF_ERROR(SkipBadSamples(config, &opened));
  return opened;
}

absl::StatusOr<ModelAndData> OpenInputs(const TrainConfig& config, bool eval_split, bool want_label) {
  ASSIGN_OR_RETURN(ModelAndData opened, OpenModelAndData(config, eval_split, want_label));
  const std::string preprocess = PreprocessPath(config.model);
  LogInfo(config, opened.before.has_value() ? StrCat("reading ", preprocess, ", which was written with this model")
                                            : StrCat("no preprocess.json lies beside ", config.model,
                                                     ": columns, normalization and classes are inferred"));
  for (const std::string& warning : opened.data.bound.warnings) Warn(warning);
  for (const std::string& note : opened.data.bound.notes) LogInfo(config, note);
  if (!opened.data.normalize.empty())
    LogInfo(config, StrCat("pixels normalized: ", opened.data.normalize, " (`normalize`)"));
  return opened;
}

absl::StatusOr<std::string> OutputFile(const TrainConfig& config, const char* example) {
  if (config.out.empty()) return Invalid("`out`: missing (which file is written, ", example, "?)");
  RETURN_IF_ERROR(Annotate(CheckNotInput(config.out, ListInputs(config, config.out)), "`out` "));
  return config.out;
}

}  // namespace onnxtrain::cli
