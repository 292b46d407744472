#include "optim/plan/reported_samples.h"

#include <algorithm>

namespace onnxtrain {
namespace {

// Numbers in the predictions of a sample, of a batch, and of all.
constexpr int64_t kMostInSample = int64_t{1} << 24, kMostInBatch = int64_t{1} << 22, kMostInAll = int64_t{1} << 28;
constexpr int64_t kMostOfPositions = 200;

}  // namespace

ReportedSamples PlanReportedSamples(const LossChoice& loss, const std::vector<FeedSpec>& specs, int64_t most,
                                    int64_t micro_batch, int64_t fixed_batch) {
  const LabelForm form = loss.leading().form;
  if (form == LabelForm::kNone || form == LabelForm::kSequence || loss.leading().onnx != nullptr) return {};
  const auto label = std::ranges::find(specs, loss.leading().feed, &FeedSpec::feed);
  const int64_t targets = label == specs.end() ? 1 : std::max<int64_t>(1, label->sample.elements());
  const bool positions = targets > 1 && loss.num_classes() > 1;
  const int64_t numbers = targets * (positions ? loss.num_classes() : 1);
  if (numbers > kMostInSample) return {};
  // Pictures of several sizes come one by one.
  const bool sized = std::ranges::any_of(specs, [](const FeedSpec& spec) { return spec.height_axis >= 0; });
  const int64_t batch = sized ? 1 : std::clamp<int64_t>(kMostInBatch / numbers, 1, micro_batch);
  return {.most = std::min({most, kMostInAll / numbers, positions ? kMostOfPositions : most}),
          .batch = fixed_batch > 0 ? fixed_batch : batch};
}

}  // namespace onnxtrain
