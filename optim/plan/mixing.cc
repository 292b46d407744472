#include "optim/plan/mixing.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

absl::Status CheckMixable(const LossFeed& feed) {
  const bool values = IsFloat(feed.sample.dtype) && feed.sample.rank() <= 1;
  if (values) return absl::OkStatus();
  return Invalid("labels ", ToString(feed.sample), " cannot be mixed, only one class or values for each picture");
}

// The feed takes part by what its column holds.
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

}  // namespace onnxtrain
