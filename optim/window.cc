#include "optim/window.h"

#include <algorithm>

namespace onnxtrain {
namespace {

double TermWeight(const LossTerm& term, const LossSpec& spec, const Window& window, int64_t samples) {
  if (term.function->mean == LossMean::kSamples || term.form == LabelForm::kNone) return static_cast<double>(samples);
  const HostTensor& labels = term.feed == kLabelFeed ? window.labels : window.feeds.at(term.feed);
  const auto size = static_cast<double>(labels.size());
  if (term.form == LabelForm::kElements) return size;
  if (term.form == LabelForm::kDistribution) return size / static_cast<double>(std::max<int64_t>(1, labels.shape().back()));
  const auto values = labels.data<int64_t>();
  return size - static_cast<double>(std::count(values.begin(), values.end(), spec.ignore_index));
}

}  // namespace

void Put(const std::string& feed, HostTensor tensor, Window* window) {
  (feed == kLabelFeed ? window->labels : window->feeds[feed]) = std::move(tensor);
}

std::vector<double> WindowWeights(const LossChoice& choice, const LossSpec& spec, const Window& window, int64_t samples) {
  std::vector<double> weights;
  for (const LossTerm& term : choice.terms) weights.push_back(TermWeight(term, spec, window, samples));
  return weights;
}

double InverseWeight(const LossTerm& term, double weight) { return weight > 0 ? term.factor / weight : 0; }

double MeanLoss(const LossChoice& choice, const std::vector<double>& sums, const std::vector<double>& weights) {
  double mean = 0;
  for (size_t i = 0; i < choice.terms.size(); ++i) {
    if (weights[i] > 0) mean += choice.terms[i].factor * sums[i] / weights[i];
  }
  return mean;
}

}  // namespace onnxtrain
