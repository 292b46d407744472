// onnxtrain predict: writes the model's predictions for every sample as CSV, with file names if samples are files.
#include <algorithm>
#include <cmath>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/input_plan.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/inference.h"
#include "tools/onnxtrain/report/predictions.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

// Returns true if each sample is a file, which Dataset::StableName names.
bool AreFiles(const Dataset& data) {
  const auto is_file = [](const Column& column) { return column.picture || column.sample_rate > 0; };
  return data.size() > 0 && std::ranges::any_of(data.columns(), is_file) && !data.StableName(0).empty();
}

// Counts the rows with values that are not finite, and records the origin of those in the first batch.
class NonFiniteRows {
 public:
  NonFiniteRows(Session& session, const LossChoice& loss) : session_(session), loss_(loss) {}

  void Count(const HostTensor& values, const GlobalBatch& batch) {
    const int64_t rows = values.shape()[0], width = values.size() / std::max<int64_t>(rows, 1);
    int64_t bad = 0;
    for (int64_t i = 0; i < rows; ++i) {
      int64_t j = 0;
      while (j < width && std::isfinite(values.At(i * width + j))) ++j;
      bad += j < width ? 1 : 0;
    }
    if (bad > 0 && count_ == 0) where_ = FindOrigin(batch, rows);
    count_ += bad;
    total_ += rows;
  }

  void WarnOfThem(const std::string& output) const {
    if (count_ == 0) return;
    Warn(StrCat(FormatWithCommas(count_), " of ", FormatWithCommas(total_), " samples have values of output '",
                Printable(output), "' that are not finite", where_.empty() ? "" : ": " + where_));
  }

 private:
  // Feeds zeros as labels, since the search needs a loss.
  std::string FindOrigin(const GlobalBatch& batch, int64_t rows) const {
    std::vector<std::string> names = *batch.names();
    for (const LossFeed& feed : loss_.feeds) names.push_back(feed.name);
    GlobalBatch labelled(names);
    for (size_t i = 0; i < batch.names()->size(); ++i) labelled.Set(i, batch.tensor(i).Clone());
    for (size_t i = 0; i < loss_.feeds.size(); ++i) {
      Type type = loss_.feeds[i].sample;
      type.shape.insert(type.shape.begin(), rows);
      labelled.Set(batch.names()->size() + i, HostTensor(type));
    }
    return session_.FindNonFinite(labelled).value_or("");
  }

  Session& session_;
  const LossChoice& loss_;
  int64_t count_ = 0, total_ = 0;
  std::string where_;
};

// Returns true if sounds of several lengths feed an input.
bool KeepsLengthsOfSounds(const BoundData& data) {
  return std::ranges::any_of(data.feeds, [&](const FeedSpec& feed) {
    return feed.variable && data.dataset->columns()[feed.columns[0]].sample_rate > 0;
  });
}

// `rows`: numbers of the samples; empty: consecutive from 0.
absl::StatusOr<std::string> PredictAll(Session& session, const BoundData& bound, const PredictionTable& table,
                                       const std::vector<int64_t>& rows, NonFiniteRows* bad) {
  const LoaderOptions load{.batch_size = session.micro_batch(),
                           .keep_order = true,
                           .exact_lengths = KeepsLengthsOfSounds(bound),
                           .num_workers = 1};
  ASSIGN_OR_RETURN(const auto loader, Loader::Create(bound.dataset, bound.feeds, load));
  GlobalBatch global_batch(FeedNames(bound.feeds));
  const bool files = AreFiles(*bound.dataset);
  std::string text = table.Header(files ? "sample,file" : "sample");
  while (true) {
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    if (batch == nullptr) return text;
    SetTensors(*batch, &global_batch);
    ASSIGN_OR_RETURN(const Evaluation e, session.Predict(global_batch));
    const auto values = e.outputs.find(table.output());
    const auto count = static_cast<int64_t>(batch->samples.size());
    if (values == e.outputs.end() || values->second.type().rank() < 1 || values->second.shape()[0] != count) {
      return Invalid("output '", table.output(), "' has no row per sample");
    }
    bad->Count(values->second, global_batch);
    std::vector<std::string> keys;
    for (const int64_t sample : batch->samples) {
      keys.push_back(StrCat(rows.empty() ? sample : rows[sample]));
      if (files) StrAppend(&keys.back(), ",", CsvField(bound.dataset->StableName(sample)));
    }
    text += table.Rows(values->second, keys);
  }
}

}  // namespace

absl::StatusOr<int> RunPredict(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const std::string out, OutputFile(config, "preds.csv, or - for stdout"));
  ASSIGN_OR_RETURN(const bool wrote_text, PredictText(config, out));
  if (wrote_text) return kDone;
  RETURN_IF_ERROR(RefuseUnused(config, {.writes_text = false}));
  ASSIGN_OR_RETURN(const ModelAndData setup, OpenInputs(config, true, false));
  BoundData unlabelled = setup.data.bound;
  unlabelled.label.info = {};
  // Outputs of pictures of several sizes have several shapes. Sounds get no steps of padding.
  const bool one_by_one = config.batch_size == 0 && (SizeMultiple(unlabelled) > 0 || KeepsLengthsOfSounds(unlabelled));
  const int64_t batch = one_by_one ? 1 : GlobalBatchSize(config, *setup.model, unlabelled.batch_axes);
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(config, *setup.model, unlabelled, setup.loss, batch));
  options.optimizer.rule = "sgd";  // keeps no moments: nothing is trained
  const auto models = std::make_shared<PreparedModels>(setup.model);
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(*models, unlabelled, &options, false));
  ASSIGN_OR_RETURN(const LeftOut left_out, LeaveOutBadSamples(config, look, false, {}, &unlabelled));
  if (!left_out.line.empty()) Warn(left_out.line);
  AddValueChecks(look.model, &unlabelled.feeds);
  const PredictionTable table(look, setup.data.classes, setup.loss.least_probability.value_or(0.5),
                              setup.data.alphabet);
  LogInfo(config, table.description());
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, LoadBackend(config));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Create(models, backend.get(), std::move(options)));
  NonFiniteRows bad(*session, look.loss);
  ASSIGN_OR_RETURN(const std::string text, PredictAll(*session, unlabelled, table, left_out.rows, &bad));
  bad.WarnOfThem(table.output());
  if (out == "-") {
    RETURN_IF_ERROR(Print(text));
    return kDone;
  }
  RETURN_IF_ERROR(WriteTextFile(out, text));
  RETURN_IF_ERROR(
      Print(PageRow("written", StrCat(out, ": ", FormatWithCommas(unlabelled.dataset->size()), " samples"))));
  return kDone;
}

}  // namespace onnxtrain::cli
