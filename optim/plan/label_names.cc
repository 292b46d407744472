#include "optim/plan/label_names.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/bind/classes.h"
#include "optim/config/loss_text.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/step_plan.h"

namespace onnxtrain {
namespace {

// The column of common labels that may be names: one number per sample, which feeds nothing else and has no names yet.
// -1: there is none.
int FindNumberedColumn(const BoundData& data) {
  const BoundLabel& label = data.label;
  if (!label.info.present || label.columns.size() != 1 || label.info.sample.elements() != 1) return -1;
  if (!data.classes.empty() || data.dataset->streams()) return -1;
  const int c = label.columns[0];
  const auto reads = [&](const FeedSpec& feed) { return std::ranges::count(feed.columns, c) > 0; };
  return std::ranges::any_of(data.feeds, reads) ? -1 : c;
}

std::vector<int64_t> FindLabels(const TrainConfig& config, const LossSpec& loss, const BoundData& data) {
  const int column = FindNumberedColumn(data);
  if (column < 0) return {};
  return FindDistinctLabels(*data.dataset, column, loss.ignore_index, config.on_bad_sample == "skip");
}

// Are the labels, which are distinct and ascending, indices of so many classes?
bool AreIndicesOf(const std::vector<int64_t>& labels, int64_t classes) {
  return labels.front() >= 0 && labels.back() < classes;
}

// Does the loss by its name take classes? `auto` decides by the type of the labels.
bool NamesClassLoss(const LossSpec& loss) {
  const auto terms = ParseLoss(loss.name);
  return terms.ok() && std::ranges::any_of(*terms, [](const LossTermSpec& term) {
           return term.function != nullptr && term.function->classes && term.label_key().empty();
         });
}

// Classes that all losses on the common labels tell apart; 0 where one takes the labels for something else.
int64_t CountLabelClasses(const LossChoice& loss) {
  int64_t classes = 0;
  for (const LossTerm& term : loss.terms) {
    const auto feed = std::ranges::find(loss.feeds, term.feed, &LossFeed::name);
    if (feed == loss.feeds.end() || !feed->label.empty()) continue;
    const bool probability =
        term.form == LabelForm::kElements && term.function->counts_correct && NumElements(feed->sample.shape) == 1;
    const int64_t own = probability ? 2 : feed->num_classes;
    if (own == 0 || (classes != 0 && own != classes)) return 0;
    classes = own;
  }
  return classes;
}

absl::StatusOr<int64_t> CountModelClasses(const TrainConfig& config, PreparedModels& models, const LossSpec& loss,
                                          const BoundData& data) {
  ASSIGN_OR_RETURN(const BatchPlan batch, PlanBatch(config, GlobalBatchSize(config, *models.model(), data.batch_axes)));
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(config, *models.model(), data, loss, batch.micro));
  ASSIGN_OR_RETURN(const PreparedModel prepared, PrepareFor(models, data, &options, true));
  return CountLabelClasses(prepared.loss);
}

absl::Status NumberAndTell(const TrainConfig& config, const LossSpec& loss, const std::vector<int64_t>& labels,
                           BoundData* data) {
  const bool floats = IsFloat(data->label.info.sample.dtype);
  RETURN_IF_ERROR(NumberLabels(labels, loss.ignore_index, config.on_bad_sample == "skip", data));
  if (floats && loss.name == "auto")
    data->notes.push_back(StrCat("all labels are whole numbers, of which ", labels.size(),
                                 " differ: they are classes (`loss` mse takes them for numbers)"));
  if (AreIndicesOf(labels, std::ssize(labels))) return absl::OkStatus();
  data->notes.push_back(StrCat("labels ", labels.front(), " to ", labels.back(), " are names of the classes 0 to ",
                               labels.size() - 1, ", in ascending order (`class_map` FILE gives another one)"));
  return absl::OkStatus();
}

// Are whole numbers that are stored as floats classes? Counts and ages take more values.
bool AreFewOf(const std::vector<int64_t>& labels, const BoundData& data) {
  constexpr int64_t kMostClasses = 256, kSamplesOfClass = 2;
  const int64_t classes = std::ssize(labels);
  return classes <= kMostClasses && classes * kSamplesOfClass <= data.dataset->size();
}

}  // namespace

absl::Status NumberCountedLabels(const TrainConfig& config, const LossSpec& loss, BoundData* data) {
  const bool whole = !IsFloat(data->label.info.sample.dtype), named = NamesClassLoss(loss);
  if (config.num_classes != TrainConfig::kAuto || (!whole && !named && loss.name != "auto")) return absl::OkStatus();
  const std::vector<int64_t> labels = FindLabels(config, loss, *data);
  if (labels.size() < 2 || (whole && AreIndicesOf(labels, std::ssize(labels)))) return absl::OkStatus();
  if (!whole && !named && !AreFewOf(labels, *data)) return absl::OkStatus();
  return NumberAndTell(config, loss, labels, data);
}

absl::Status NumberModelLabels(const TrainConfig& config, PreparedModels& models, const LossSpec& loss,
                               BoundData* data) {
  const std::vector<int64_t> labels = FindLabels(config, loss, *data);
  if (labels.size() < 2 || AreIndicesOf(labels, std::ssize(labels))) return absl::OkStatus();
  // What is wrong with the model or its labels is reported where the run is prepared.
  const auto classes = CountModelClasses(config, models, loss, *data);
  if (!classes.ok() || *classes != std::ssize(labels) || AreIndicesOf(labels, *classes)) return absl::OkStatus();
  return NumberAndTell(config, loss, labels, data);
}

}  // namespace onnxtrain
