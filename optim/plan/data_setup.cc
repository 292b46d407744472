#include "optim/plan/data_setup.h"

#include <algorithm>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/text/pair_rows.h"
#include "optim/config/loss_text.h"
#include "optim/plan/folders.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/reference_scores.h"
#include "optim/plan/surgery.h"
#include "optim/plan/threads.h"

namespace onnxtrain {

bool HasEvalFiles(const std::string& path) {
  const auto found = FindSource(path);
  return found.ok() && found->source->has_eval_samples != nullptr && found->source->has_eval_samples(found->path);
}

absl::StatusOr<std::optional<Preprocess>> ReadPreprocess(const TrainConfig& config) {
  if (config.model.empty()) return std::nullopt;  // a model in memory has no folder
  ASSIGN_OR_RETURN(std::optional<Preprocess> before, ReadPreprocess(config.model));
  if (before.has_value() && ChangesClasses(config)) {
    before->classes.clear();
    before->loss.clear();
  }
  return before;
}

namespace {

absl::Status ApplySurgeryTo(const TrainConfig& config, ModelAndData* opened) {
  if (!HasSurgery(config)) return absl::OkStatus();
  BoundData& bound = opened->data.bound;
  ASSIGN_OR_RETURN(Surgery surgery, ApplySurgery(config, opened->model, &bound, opened->loss.logits));
  opened->model = std::move(surgery.model);
  bound.notes.insert(bound.notes.end(), surgery.lines.begin(), surgery.lines.end());
  if (!surgery.logits.empty()) opened->loss.logits = surgery.logits;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelAndData> OpenModelAndData(const TrainConfig& given, bool eval_split, bool want_label) {
  TrainConfig config = WithFolderRoot(given);
  RETURN_IF_ERROR(Validate(config));
  ModelAndData opened;
  ASSIGN_OR_RETURN(opened.model, LoadRunnableModel(config));
  if (config.data.empty()) return Invalid("`data`: missing (which file of samples?)");
  config.data = eval_split ? FindEvalFile(config, want_label) : WithSplitFiles(config).data;
  ASSIGN_OR_RETURN(opened.before, ReadPreprocess(config));
  ASSIGN_OR_RETURN(opened.loss, MakeLossSpec(config, *opened.model, opened.before));
  const DataRequest request{.path = config.data,
                            .field = "data",
                            .eval_split = eval_split && HasEvalFiles(config.data),
                            .want_label = want_label,
                            .same_columns = true,
                            .model_classes = !ChangesClasses(config)};
  ASSIGN_OR_RETURN(opened.data, OpenData(config, *opened.model, opened.before, request, opened.loss));
  opened.data.ChooseOwnLoss(&opened.loss);
  if (want_label) RETURN_IF_ERROR(ChoosePairLoss(config, &opened.data.bound, &opened.loss));
  if (!want_label && ComparesPairs(opened.loss)) opened.loss.name = "auto";
  if (config.data != given.data) opened.data.bound.notes.push_back(StrCat("data: ", config.data));
  RETURN_IF_ERROR(NumberCountedLabels(config, opened.loss, &opened.data.bound));
  RETURN_IF_ERROR(ApplySurgeryTo(config, &opened));
  // Labels of a model with a preprocess.json were indices in training, unless that file has their names.
  if (opened.before.has_value() && !opened.before->label.empty()) return opened;
  PreparedModels models(opened.model);
  RETURN_IF_ERROR(NumberModelLabels(config, models, opened.loss, &opened.data.bound));
  return opened;
}

Preprocess DescribeBinding(const OpenedData& data) {
  Preprocess p{
      .normalize = data.normalize, .pictures = data.pictures, .audio = data.audio, .classes = data.bound.classes};
  const std::vector<Column>& columns = data.bound.dataset->columns();
  for (const FeedSpec& feed : data.bound.feeds) {
    for (int c : feed.columns) {
      if (c < data.own_columns) p.inputs[feed.feed].push_back(columns[c].name);
    }
    if (p.inputs.contains(feed.feed)) p.layout[feed.feed] = feed.sample.shape;
    if (feed.columns.size() == 1 && columns[feed.columns[0]].image) p.pixels.insert(feed.feed);
    if (!feed.shift.empty()) p.standardize[feed.feed] = {feed.shift, feed.divisor};
  }
  for (int c : data.bound.label.columns) p.label.push_back(columns[c].name);
  p.mask_encodings = data.bound.mask_encodings;
  p.columns = data.transforms;
  if (data.alphabet != nullptr) p.alphabet = {data.alphabet->texts(), data.alphabet->blank()};
  if (data.text.tokenizer != nullptr) {
    p.text = {.columns = data.text.columns,
              .tokenizer = "tokenizer",
              .sha256 = TokenizerDigest(*data.text.tokenizer),
              .max_length = data.text.max_length,
              .loss_on = data.text.loss_on,
              .chat_template = data.text.chat_template};
  }
  return p;
}

absl::StatusOr<GlobalBatch> ReadGlobalBatch(const TrainData& data, int64_t count) {
  const int64_t n = std::min(count, data.dataset->size());
  ASSIGN_OR_RETURN(auto loader, Loader::Create(data.dataset, data.specs, {.batch_size = n, .num_workers = 0}));
  ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
  if (batch == nullptr) return Invalid("the data holds no samples");
  GlobalBatch global_batch(FeedNames(data.specs));
  SetTensors(*batch, &global_batch);
  return global_batch;
}

int NumWorkers(const TrainConfig& config) {
  if (config.num_workers == TrainConfig::kAuto) return std::clamp(CpuCount() / 4, 1, 4);
  return static_cast<int>(config.num_workers);
}

int MaxWorkers(const TrainConfig& config) {
  return config.num_workers == TrainConfig::kAuto ? std::clamp(CpuCount(), 1, kMostAutoWorkers) : 0;
}

}  // namespace onnxtrain
