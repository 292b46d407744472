#include "optim/plan/data_hints.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/value_checks.h"

namespace onnxtrain {
namespace {

constexpr int64_t kSamples = 64;
constexpr double kLarge = 100;  // standardized data is far below; percentages and ages do not exceed it
constexpr size_t kListed = 4;

// Returns the largest magnitude of each element over the samples of a batch.
std::vector<double> LargestByElement(const HostTensor& batch) {
  const int64_t samples = batch.shape()[0], width = batch.size() / std::max<int64_t>(samples, 1);
  std::vector<double> largest(width, 0);
  for (int64_t i = 0; i < batch.size(); ++i) {
    if (std::isfinite(batch.At(i))) largest[i % width] = std::max(largest[i % width], std::fabs(batch.At(i)));
  }
  return largest;
}

// Lists the columns of a table whose values are too large.
std::string ListLarge(const TrainData& data, const FeedSpec& feed, const std::vector<double>& largest) {
  std::string text;
  size_t found = 0;
  for (size_t c = 0; c < largest.size(); ++c) {
    if (largest[c] <= kLarge || ++found > kListed) continue;
    StrAppend(&text, found == 1 ? "" : ", ", "'", data.dataset->columns()[feed.columns[c]].name, "' (up to ",
              FormatNumber(largest[c]), ")");
  }
  return found > kListed ? StrCat(text, " and ", found - kListed, " more") : text;
}

std::string LargeInputHint(const TrainingRun& run, const FeedSpec& feed, const HostTensor& batch) {
  const std::vector<double> largest = LargestByElement(batch);
  const double most = largest.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
  if (most <= kLarge) return "";
  const std::string input = StrCat("input '", feed.feed, "', which the model does not scale, ");
  if (feed.columns.size() > 1 && feed.columns.size() == largest.size())
    return StrCat(input, "has large columns: ", ListLarge(run.train, feed, largest),
                  " (`standardize` brings columns to mean 0 and deviation 1)");
  if (run.data.train.bound.has_images)
    return StrCat(input, "has values up to ", FormatNumber(most), " (`normalize` unit or imagenet scales pixels)");
  return StrCat(input, "has values up to ", FormatNumber(most), "; ",
                most <= 255 && feed.sample.rank() >= 2
                    ? "store pixels as u8, which `normalize` scales, or divide by 255"
                    : "`standardize` brings them to mean 0 and deviation 1");
}

// Warns about pixels that are nearly black. Masks and drawings are often stored as 0 and 1, which scaling turns into
// 1/255.
std::string DarkPixelsHint(const FeedSpec& feed, const HostTensor& batch) {
  if (feed.scale >= 1 || !feed.mean.empty()) return "";
  double most = 0;
  for (int64_t i = 0; i < batch.size(); ++i) most = std::max(most, batch.At(i));
  if (most == 0 || most > 1.5 * feed.scale) return "";
  return StrCat("the pixels of input '", feed.feed, "' are 0 or 1 in the first ", batch.shape()[0],
                " samples, and are divided by 255 (`normalize` raw feeds them as they are)");
}

// Warns about batch statistics of a single sample: they equal its values, so the normalization yields 0 or noise.
std::string SingleSampleHint(const TrainingRun& run, const PreparedModel& prepared) {
  if (prepared.model.state_updates.empty()) return "";
  const int64_t global = run.batch.global, rest = run.train.dataset->size() % global;
  const std::string why = ", and BatchNormalization computes its statistics over a batch";
  if (global == 1) return StrCat("batches have one sample (`batch_size`)", why);
  if (rest == 1 && !run.config.drop_last)
    return StrCat("the last batch of an epoch has one sample", why, "; `drop_last` leaves it out");
  if (run.batch.micro == 1)
    return StrCat("micro-batches have one sample (`micro_batch_size`)", why, "; `batch_norm` frozen keeps the file's");
  return "";
}

bool IsOneHot(const HostTensor& labels) {
  const int64_t samples = labels.shape()[0], width = labels.size() / samples;
  for (int64_t i = 0; i < samples; ++i) {
    int64_t ones = 0;
    for (int64_t k = i * width; k < (i + 1) * width; ++k) ones += labels.At(k) == 1;
    if (ones != 1) return false;
  }
  return width > 1;
}

// Warns if labels with only two values are trained with mse, which is rarely intended.
std::string ClassLabelHint(const TrainingRun& run, const LossChoice& loss, const GlobalBatch& batch) {
  const LossTerm& term = loss.leading();
  if (run.data.loss.name != "auto" || loss.terms.size() != 1 || term.function->name != "mse") return "";
  const HostTensor* labels = batch.Find(term.feed);
  std::set<double> values;
  for (int64_t i = 0; labels != nullptr && i < labels->size() && values.size() < 3; ++i) values.insert(labels->At(i));
  if (values.size() != 2) return "";
  const std::string seen = StrCat("mse was chosen, and all labels of the first ", labels->shape()[0], " samples are ",
                                  FormatNumber(*values.begin()), " or ", FormatNumber(*values.rbegin()));
  if (values != std::set<double>{0, 1}) return StrCat(seen, ": `loss` bce trains a classifier on labels 0 and 1");
  return StrCat(seen, IsOneHot(*labels) ? ", one-hot: `loss` ce" : ": `loss` bce", " trains a classifier");
}

}  // namespace

namespace {

// Fails if a classifier gets a single class, usually because one subfolder contains all pictures.
absl::Status CheckSeveralClasses(const BoundData& data, const LossChoice& loss) {
  if (!data.classes_are_sorted || data.classes.size() != 1 || loss.num_classes() < 2) return absl::OkStatus();
  return Invalid("`data`: all labels are '", data.classes[0],
                 "': there is nothing to tell apart (pictures and sounds need a folder for each class, or a table with "
                 "their paths and labels)");
}

// Fails if a regression gets numbered names, usually dates or texts that all differ: their numbers are no quantity.
absl::Status CheckNamesAreNotMeasured(const BoundData& data, const LossChoice& loss) {
  const bool measures = loss.name == "mse" || loss.name == "l1" || loss.name == "huber";
  if (!data.classes_are_sorted || data.classes.size() < 3 || !measures) return absl::OkStatus();
  return Invalid("`data`: the label has ", data.classes.size(), " names ('", data.classes[0], "', '", data.classes[1],
                 "', …), and loss ", loss.name,
                 " fits numbers: `label` names another column, or the model needs an output for each class");
}

// Describes integer labels that all have one class. Names of a single class are refused elsewhere.
std::string DescribeOneClass(const BoundData& data, const LossChoice& loss) {
  if (data.label.columns.size() != 1 || loss.num_classes() < 2) return "";
  const LabelInfo& info = data.label.info;
  if (IsFloat(info.sample.dtype) || info.min_value != info.max_value || data.dataset->size() < 2) return "";
  return StrCat("all labels are ", info.min_value, ": there is nothing to tell apart");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindDataHints(const TrainingRun& run, const PreparedModel& prepared) {
  std::vector<std::string> hints = run.data.train.bound.warnings;
  if (run.data.synthetic) return hints;
  const auto add = [&](std::string hint) {
    if (!hint.empty()) hints.push_back(std::move(hint));
  };
  RETURN_IF_ERROR(CheckSeveralClasses(run.data.train.bound, prepared.loss));
  RETURN_IF_ERROR(CheckNamesAreNotMeasured(run.data.train.bound, prepared.loss));
  add(DescribeOneClass(run.data.train.bound, prepared.loss));
  add(DescribeGuessedClasses(run.data.train.bound, prepared.loss));
  add(SingleSampleHint(run, prepared));
  ASSIGN_OR_RETURN(const GlobalBatch batch, ReadGlobalBatch(run.train, kSamples));
  add(ClassLabelHint(run, prepared.loss, batch));
  const Graph& graph = prepared.model.graph;
  const std::vector<bool> unscaled = FindUnscaled(graph);
  for (const FeedSpec& feed : run.data.train.bound.feeds) {
    if (const HostTensor* values = batch.Find(feed.feed)) add(DarkPixelsHint(feed, *values));
    const GraphInput* input = graph.FindInput(feed.feed);
    if (!IsFloat(feed.sample.dtype) || input == nullptr || !unscaled[input->value]) continue;
    if (const HostTensor* values = batch.Find(feed.feed)) add(LargeInputHint(run, feed, *values));
  }
  return hints;
}

std::string DescribeGuessedClasses(const BoundData& data, const LossChoice& loss) {
  const auto names = static_cast<int64_t>(data.classes.size());
  if (!data.classes_are_sorted || names >= loss.num_classes()) return "";
  return StrCat("the labels have ", names, " names and the model ", loss.num_classes(),
                " classes, which it does not name: the names are numbered in sorted order, which may be wrong (keep "
                "preprocess.json beside a trained model, or write labels as numbers)");
}

}  // namespace onnxtrain
