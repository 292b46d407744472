#include <algorithm>
#include <cmath>
#include <functional>

#include "frontend/base/status.h"
#include "frontend/data/bind/bad_samples.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/text/pair_rows.h"
#include "frontend/data/transform/transform.h"
#include "optim/config/loss_text.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/step_plan.h"
#include "optim/step/separate_samples.h"

namespace onnxtrain {
namespace {

absl::Status CheckMixable(const LossFeed& feed) {
  const bool values = IsFloat(feed.sample.dtype) && feed.sample.rank() <= 1;
  if (values) return absl::OkStatus();
  return Invalid("labels ", ToString(feed.sample), " cannot be mixed, only one class or values for each picture");
}

// Decides by the content of its column how the feed is mixed.
absl::StatusOr<Mixing> ChooseMixing(const FeedSpec& spec, const Dataset& data, const OpenedData& opened,
                                    const LossChoice& loss) {
  const auto label = std::ranges::find(loss.feeds, spec.feed, &LossFeed::name);
  const Column& column = data.columns()[spec.columns[0]];
  const bool array = opened.arrays.has_value() && std::ranges::count(opened.arrays->columns, spec.columns[0]) > 0;
  if (array && label == loss.feeds.end()) return Mixing::kPixels;
  if (column.picture && !column.image) return Invalid("masks cannot be mixed");
  if (column.picture) return Mixing::kPixels;
  if (label == loss.feeds.end()) return Mixing::kNone;
  RETURN_IF_ERROR(CheckMixable(*label));
  return Mixing::kShares;
}

}  // namespace

bool MixesSamples(const TrainConfig& config) {
  const auto augmentation = ParseAugmentation(config.augment);
  return augmentation.ok() && augmentation->mixes();
}

absl::StatusOr<MixOptions> PlanMixing(const TrainConfig& config, const OpenedData& data, const LossChoice& loss,
                                      TrainData* train) {
  if (!MixesSamples(config)) return MixOptions{};
  ASSIGN_OR_RETURN(const Augmentation augmentation, ParseAugmentation(config.augment));
  for (FeedSpec& spec : train->specs) {
    auto mixing = ChooseMixing(spec, *train->dataset, data, loss);
    if (!mixing.ok()) return Annotate(mixing.status(), "`augment` mixup and cutmix: ");
    spec.mixing = *mixing;
  }
  MixOptions options{.mixup = augmentation.mixup, .cutmix = augmentation.cutmix};
  if (data.arrays.has_value()) {
    const PixelLayout& layout = data.arrays->layout;
    options.height = layout.height, options.width = layout.width, options.channels_last = layout.channels_last;
  } else {
    options.height = static_cast<int>(data.pictures->height), options.width = static_cast<int>(data.pictures->width);
    options.channels_last = data.pictures->layout == "nhwc";
  }
  return options;
}

namespace {

// Returns 0 to 1 for labels of a loss on probabilities.
std::optional<ValueRange> RangeOfLabels(const LossChoice& loss, const std::string& feed) {
  const bool binary = std::ranges::any_of(loss.terms, [&](const LossTerm& term) {
    return term.feed == feed && term.form == LabelForm::kElements && term.function->name == "bce";
  });
  return binary ? std::optional(ValueRange{0, 1, "0 to 1, the labels of bce"}) : std::nullopt;
}

// Feeds the rejected rows of pairs from the columns that repeat those of the chosen rows.
void AddRejectedFeeds(const BoundData& data, std::vector<FeedSpec>* specs) {
  const BoundLabel* rejected = FindBoundLabel(data, kRejectedLabel);
  if (rejected == nullptr) return;
  const int offset = rejected->columns[0] - data.label.columns[0];
  const size_t count = specs->size();
  for (size_t i = 0; i < count; ++i) {
    FeedSpec spec = (*specs)[i];
    spec.feed = kRejectedFeed + spec.feed;
    for (int& column : spec.columns) column += column < offset ? offset : 0;
    specs->push_back(std::move(spec));
  }
}

TrainData MakeInputs(const BoundData& data, const PreparedModel& prepared) {
  TrainData train{.dataset = data.dataset, .specs = data.feeds, .text_unit = data.text_unit};
  if (const GraphInput* positions = prepared.model.graph.FindInput(kPositionsFeed)) {
    const Shape& shape = prepared.model.graph.type(positions->value).shape;
    train.specs.push_back({.feed = kPositionsFeed,
                           .columns = {static_cast<int>(BlockRole::kPositions)},
                           .sample = {DType::kInt64, {shape[1]}}});
  }
  AddValueChecks(prepared.model, &train.specs);
  AddRejectedFeeds(data, &train.specs);
  return train;
}

// Returns the height axis of labels that are pictures of different sizes; -1: they are not. Fails if padding would
// count in the loss.
absl::StatusOr<int> FindLabelHeight(const Dataset& data, int column, const LossChoice& loss, const LossFeed& feed) {
  const Column& label = data.columns()[column];
  if (label.height_axis < 0) return -1;
  const int axis = FindHeightAxis(label, feed.sample.shape);
  if (axis < 0 || !feed.label.empty())
    return Invalid("loss ", loss.name, " takes no labels of several sizes (`image_size` makes them one size)");
  const auto padded = [&](int64_t i) {
    const PictureExtents e = data.Extents(i);
    return e.height < e.padded_height || e.width < e.padded_width;
  };
  int64_t i = 0;
  while (feed.num_classes == 0 && i < data.size() && !padded(i)) ++i;
  if (feed.num_classes > 0 || i == data.size()) return axis;
  return Invalid(data.Describe(i), ": padding it to ", data.Extents(i).padded_height, " × ",
                 data.Extents(i).padded_width, ", as the model needs, would count in loss ", loss.name,
                 ", which ignores no labels (`image_size`, `resize` make all pictures one size)");
}

absl::Status AddLabels(const BoundData& data, const LossChoice& loss, int64_t ignore_index, TrainData* train) {
  for (const LossFeed& feed : loss.feeds) {
    const BoundLabel* label = FindBoundLabel(data, feed.label);
    if (label == nullptr && feed.label.empty()) {
      const bool files = std::ranges::any_of(
          data.dataset->columns(), [](const Column& column) { return column.picture || column.sample_rate > 0; });
      return Invalid("loss ", loss.name, " needs labels, but the data has no label column; ",
                     files ? "files need a folder for each class, or a table with their paths and labels"
                           : "name one with `label`");
    }
    if (label == nullptr)
      return Invalid("loss ", loss.name, " needs a column '", feed.label, "', which the data does not have");
    ASSIGN_OR_RETURN(const int height_axis, FindLabelHeight(*data.dataset, label->columns[0], loss, feed));
    const Column& column = data.dataset->columns()[label->columns[0]];
    Type sample = feed.sample;
    if (column.variable) sample.shape[0] = column.sample.shape[0];  // the longest sample of this data
    train->specs.push_back({.feed = feed.name,
                            .columns = label->columns,
                            .sample = sample,
                            .variable = column.variable,
                            .height_axis = height_axis,
                            .padding = static_cast<double>(ignore_index),
                            .range = RangeOfLabels(loss, feed.name),
                            .one_hot = feed.one_hot});
  }
  return absl::OkStatus();
}

// Returns a check that the output has enough steps for the labels; if samples differ in size, uses the steps of the
// greatest size.
std::function<absl::Status(const Dataset&, int64_t)> CheckSequenceWhileReading(const PreparedModel& prepared,
                                                                               const LossTerm& term,
                                                                               const FeedSpec& spec,
                                                                               int64_t ignore_index) {
  const int64_t steps = prepared.model.graph.type(term.value).shape[1 - term.batch_axis()];
  const SequenceCheck check{.columns = spec.columns,
                            .ignore_index = ignore_index,
                            .blank = std::llround(OptionOr(term.options, "blank", 0)),
                            .steps = [steps](int64_t) { return steps; }};
  return [check](const Dataset& data, int64_t i) -> absl::Status {
    const absl::Status status = CheckSequence(data, i, check);
    if (status.ok()) return status;
    return Invalid(status.message(), "; `on_bad_sample` skip leaves such samples out");  // kOutOfRange: the stream ends
  };
}

// Adds label checks while reading: later samples of a stream cannot be read before training.
void CheckLabelsWhileReading(const PreparedModel& prepared, int64_t ignore_index, TrainData* train) {
  const LossChoice& loss = prepared.loss;
  for (FeedSpec& spec : train->specs) {
    const auto feed = std::ranges::find(loss.feeds, spec.feed, &LossFeed::name);
    if (feed == loss.feeds.end() || feed->num_classes == 0 || spec.one_hot) continue;
    spec.range = FindLabelRange(loss, *feed, ignore_index);
    const auto term = std::ranges::find_if(
        loss.terms, [&](const LossTerm& t) { return t.feed == spec.feed && t.form == LabelForm::kSequence; });
    if (term != loss.terms.end()) spec.check = CheckSequenceWhileReading(prepared, *term, spec, ignore_index);
  }
}

// Returns checks for the labels that must be classes. AddLabels has found all of them.
std::vector<LabelCheck> FindLabelChecks(const BoundData& data, const LossChoice& loss, int64_t ignore_index) {
  std::vector<LabelCheck> checks;
  for (const LossFeed& feed : loss.feeds) {
    const BoundLabel* label = FindBoundLabel(data, feed.label);
    if (feed.num_classes > 0) checks.push_back({label->columns, feed.num_classes, ignore_index});
  }
  return checks;
}

}  // namespace

std::optional<ValueRange> FindLabelRange(const LossChoice& loss, const LossFeed& feed, int64_t ignore_index) {
  if (feed.num_classes == 0) return RangeOfLabels(loss, feed.name);
  return ValueRange{0, static_cast<double>(feed.num_classes - 1), StrCat("the ", feed.num_classes, " classes"),
                    static_cast<double>(ignore_index)};
}

absl::StatusOr<TrainData> MakeTrainData(const BoundData& data, const PreparedModel& prepared, int64_t ignore_index) {
  TrainData train = MakeInputs(data, prepared);
  RETURN_IF_ERROR(AddLabels(data, prepared.loss, ignore_index, &train));
  if (data.dataset->streams()) CheckLabelsWhileReading(prepared, ignore_index, &train);
  for (const LabelCheck& check : FindLabelChecks(data, prepared.loss, ignore_index)) {
    for (int c : check.columns) RETURN_IF_ERROR(CheckLabels(*data.dataset, c, check.classes, ignore_index));
  }
  return train;
}

namespace {

absl::StatusOr<LeftOut> NameUnalignedSamples(const Dataset& data, const std::vector<SequenceCheck>& sequences,
                                             int threads) {
  if (sequences.empty()) return LeftOut{};
  const BadSamples bad = CountBadSamples(data, sequences, threads);
  if (!bad.invalid.ok()) return Invalid(bad.invalid.message(), "; `on_bad_sample` skip leaves such samples out");
  if (bad.count == 0) return LeftOut{};
  if (bad.count == data.size())
    return Invalid("ctc cannot align the labels of any of the ", bad.count,
                   " samples: ", JoinReasons(bad.reasons, bad.count));
  return LeftOut{
      .line = StrCat(bad.count, " of ", data.size(), " samples have labels that ctc cannot align and add nothing to ",
                     "the loss (`on_bad_sample` skip leaves them out): ", JoinReasons(bad.reasons, bad.count))};
}

}  // namespace

absl::StatusOr<LeftOut> LeaveOutBadSamples(const TrainConfig& config, const PreparedModel& prepared, bool labels,
                                           const std::vector<SequenceCheck>& sequences, BoundData* data) {
  const int threads = std::max(1, NumWorkers(config));
  if (config.on_bad_sample != "skip") return NameUnalignedSamples(*data->dataset, sequences, threads);
  TrainData train = MakeInputs(*data, prepared);
  if (labels) RETURN_IF_ERROR(AddLabels(*data, prepared.loss, config.ignore_index, &train));
  const auto checks = labels ? FindLabelChecks(*data, prepared.loss, config.ignore_index) : std::vector<LabelCheck>();
  const int64_t size = data->dataset->size();
  ASSIGN_OR_RETURN(GoodSamples good, DropBadSamples(data->dataset, train.specs, checks, sequences, threads));
  data->dataset = good.dataset;
  if (good.bad == 0) return LeftOut{};
  return LeftOut{.line = StrCat("left out ", good.bad, " of ", size,
                                " samples (`on_bad_sample` skip): ", JoinReasons(good.reasons, good.bad)),
                 .rows = std::move(good.rows)};
}

namespace {

// Returns the column of the default labels if they may be names: one number per sample, in a column that feeds nothing
// else and has no names yet; -1: none.
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

// Returns true if the labels, distinct and ascending, are indices of `classes` classes.
bool AreIndicesOf(const std::vector<int64_t>& labels, int64_t classes) {
  return labels.front() >= 0 && labels.back() < classes;
}

// Returns true if the name of the loss implies class labels. `auto` decides by the type of the labels.
bool NamesClassLoss(const LossSpec& loss) {
  const auto terms = ParseLoss(loss.name);
  return terms.ok() && std::ranges::any_of(*terms, [](const LossTermSpec& term) {
           return term.function != nullptr && term.function->classes && term.label_key().empty();
         });
}

// Returns the number of classes that all losses on the default labels share; 0 if one takes the labels for something
// else.
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

// Returns true if there are so few distinct values that integers stored as floats are classes, not counts or ages.
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
  // Errors in the model or its labels are reported when the run is prepared.
  const auto classes = CountModelClasses(config, models, loss, *data);
  if (!classes.ok() || *classes != std::ssize(labels) || AreIndicesOf(labels, *classes)) return absl::OkStatus();
  return NumberAndTell(config, loss, labels, data);
}

namespace {

absl::Status CheckRegression(const LossChoice& loss) {
  const LossTerm& term = loss.leading();
  if (loss.terms.size() > 1) return Invalid("the loss is a sum of several");
  if (term.form != LabelForm::kElements || !term.function->final_activations.empty())
    return Invalid("loss ", loss.name, " on '", term.output, "' is no regression");
  return absl::OkStatus();
}

FeedSpec& FindSpec(TrainData* data, const std::string& feed) {
  return *std::ranges::find(data->specs, feed, &FeedSpec::feed);
}

}  // namespace

absl::StatusOr<ScaledTargets> ScaleTargets(const OnnxModel& model, const PreparedModel& prepared, TrainData* train,
                                           TrainData* eval) {
  RETURN_IF_ERROR(CheckRegression(prepared.loss));
  const LossTerm& term = prepared.loss.leading();
  ScaledTargets scaled;
  ASSIGN_OR_RETURN(scaled.layer, FindOutputLayer(model, term.output));
  FeedSpec& spec = FindSpec(train, term.feed);
  ASSIGN_OR_RETURN(Standardization fitted, FitStandardization(*train->dataset, spec.columns));
  if (fitted.shift.size() > 1 && spec.sample.elements() != scaled.layer.targets)
    return Invalid("a sample has ", spec.sample.elements(), " targets, the last layer of '", term.output, "' ",
                   scaled.layer.targets);
  spec.shift = fitted.shift;
  spec.divisor = fitted.divisor;
  if (eval->dataset != nullptr) {
    FeedSpec& other = FindSpec(eval, term.feed);
    other.shift = spec.shift;
    other.divisor = spec.divisor;
  }
  scaled.unit = {.scale = std::move(fitted.divisor), .offset = std::move(fitted.shift)};
  return scaled;
}

}  // namespace onnxtrain
