#include "optim/auto/drawn_masks.h"

#include <algorithm>
#include <vector>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

constexpr int64_t kDrawn = 64;  // samples with white; empty ones tell nothing
constexpr int kWhite = 255;

bool TakesProbabilities(const LossChoice& loss, const std::string& feed) {
  return std::ranges::any_of(loss.terms, [&](const LossTerm& term) {
    return term.feed == feed && term.form == LabelForm::kElements && term.function != nullptr &&
           term.function->final_activations.find("Sigmoid") != std::string_view::npos;
  });
}

}  // namespace

bool IsBlackAndWhite(const Dataset& data, int column) {
  const Column& c = data.columns()[column];
  if (c.sample.dtype != DType::kUInt8 || c.sample.rank() < 2 || data.streams()) return false;
  int64_t drawn = 0;
  std::vector<std::byte> pixels;
  for (int64_t i = 0; i < data.size() && drawn < kDrawn; ++i) {
    pixels.resize(SampleType(data, i, column).bytes());
    if (!data.Read(i, column, pixels).ok()) continue;
    const auto is = [](int value) { return [value](std::byte p) { return std::to_integer<int>(p) == value; }; };
    const auto white = std::ranges::count_if(pixels, is(kWhite));
    if (white + std::ranges::count_if(pixels, is(0)) != std::ssize(pixels)) return false;
    drawn += white > 0 ? 1 : 0;
  }
  return drawn > 0;
}

void ScaleDrawnMask(const Dataset& data, const LossChoice& loss, FeedSpec* label) {
  if (label->columns.size() != 1 || !IsFloat(label->sample.dtype) || !TakesProbabilities(loss, label->feed)) return;
  if (!IsBlackAndWhite(data, label->columns[0])) return;
  label->shift = {0};
  label->divisor = {kWhite};
}

std::string DescribeDrawnMasks(const TrainData& data, const LossChoice& loss) {
  for (const FeedSpec& spec : data.specs) {
    const bool label = std::ranges::count(loss.feeds, spec.feed, &LossFeed::name) > 0;
    if (label && spec.divisor == std::vector<double>{kWhite})
      return StrCat("labels '", data.dataset->columns()[spec.columns[0]].name, "' of 0 and 255 are taken for 0 and 1");
  }
  return "";
}

}  // namespace onnxtrain
