#include "optim/plan/open_data.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/source.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/input_plan.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/open_stages.h"

namespace onnxtrain {
namespace {

// Warns if the model declares other pixels than it gets.
void CompareDeclaredPixels(const ReadingPlan& plan, BoundData* bound) {
  const auto is_pictures = [&](const FeedSpec& feed) {
    return feed.columns.size() == 1 && bound->dataset->columns()[feed.columns[0]].image;
  };
  const auto feed = std::ranges::find_if(bound->feeds, is_pictures);
  if (feed == bound->feeds.end()) return;
  GivenPixels given{.normalize = plan.normalize, .specified = IsSpecified(plan.config, "normalize")};
  if (bound->dataset->columns()[feed->columns[0]].picture) given.bgr = plan.options.images.bgr;
  std::string declared = DescribeDeclaredPixels(plan.model, ImportWithData(plan.import, *bound), *feed, given);
  if (!declared.empty()) bound->warnings.push_back(std::move(declared));
}

// Explains why arrays of pixels are not treated as pictures.
const char* ExplainNoPictures(const BoundData& bound) {
  const bool table = std::ranges::any_of(bound.feeds, [](const FeedSpec& feed) { return feed.columns.size() >= 64; });
  const bool bits = std::ranges::any_of(bound.dataset->columns(), [](const Column& column) {
    return column.sample.dtype == DType::kBool && column.sample.rank() >= 2;
  });
  return table  ? " (pixels in columns of their own are none: an .npy or .npz array of all is)"
         : bits ? " (arrays of bool are none: of uint8 or float32 they are)"
                : "";
}

// Describes pictures and sounds that feed an input. Keeps samples in memory and augments arrays, if that is asked for.
absl::Status DescribeMedia(const ReadingPlan& plan, OpenedData* data) {
  const DataRequest& request = plan.request;
  BoundData& bound = data->bound;
  if (bound.has_images) data->normalize = plan.normalize;
  if (bound.has_images && !plan.before.has_value()) CompareDeclaredPixels(plan, &bound);
  if (FeedsPictures(bound)) {
    if (!plan.pictures_note.empty()) bound.notes.push_back(plan.pictures_note);
    data->pictures = DescribeImages(plan.options.images, SizeMultiple(bound), request.folders);
    RETURN_IF_ERROR(CheckSmallestPictures(plan.config, plan.model, plan.loss, bound));
  }
  data->audio = DescribeAudio(bound, plan.options.audio);
  if (request.cache != nullptr) RETURN_IF_ERROR(KeepInMemory(plan.config, request.path, request.cache, &bound));
  if (!data->pictures.has_value()) {
    ASSIGN_OR_RETURN(data->arrays, AugmentBoundArrays(plan.config, request.path, &bound));
  }
  return RefuseUnused(plan.config, {.subject = request.path,
                                    .hint = ExplainNoPictures(bound),
                                    .has_images = bound.has_images,
                                    .has_pictures = data->pictures.has_value(),
                                    .has_sounds = data->audio.has_value(),
                                    .augments = data->pictures.has_value() || data->arrays.has_value()});
}

}  // namespace

bool IsTableFile(const std::string& path) {
  const auto found = FindSource(path);
  return found.ok() && found->source->is_table;
}

absl::StatusOr<OpenedData> OpenData(const TrainConfig& config, const OnnxModel& model,
                                    const std::optional<Preprocess>& before, const DataRequest& request,
                                    const LossSpec& loss) {
  ASSIGN_OR_RETURN(const ReadingPlan plan, PlanReading(config, model, before, request, loss));
  ASSIGN_OR_RETURN(ModelSamples read, ReadModelSamples(plan));
  ASSIGN_OR_RETURN(OpenedData data, BindSamples(plan, std::move(read)));
  RETURN_IF_ERROR(DescribeMedia(plan, &data));
  return data;
}

void OpenedData::ChooseOwnLoss(LossSpec* loss) const {
  if (!own_loss.empty() && loss->name == "auto") loss->name = "output:" + own_loss;
  if (alphabet == nullptr) return;
  loss->alphabet = alphabet;
  if (loss->name == "auto" && bound.label.info.sample.rank() == 1) loss->name = "ctc";
}

}  // namespace onnxtrain
