#include "optim/window.h"

#include <algorithm>
#include <span>

#include "frontend/base/status.h"
#include "frontend/ops/interpret.h"
#include "optim/onnx_loss.h"
#include "optim/optimize.h"

namespace onnxtrain {
namespace {

double TermWeight(const LossTerm& term, std::span<const double> class_weights, int64_t ignore_index, const Window& window, int64_t samples) {
  if (term.function->mean == LossMean::kSamples || term.form == LabelForm::kNone) return static_cast<double>(samples);
  const HostTensor& labels = term.feed == kLabelFeed ? window.labels : window.feeds.at(term.feed);
  const auto size = static_cast<double>(labels.size());
  if (term.form == LabelForm::kElements) return size;
  if (term.form == LabelForm::kDistribution) return size / static_cast<double>(std::max<int64_t>(1, labels.shape().back()));
  const auto values = labels.data<int64_t>();
  if (!class_weights.empty() && term.function->takes.find("class_weights") != std::string_view::npos) {
    double sum = 0;
    for (int64_t label : values) {
      if (label != ignore_index) sum += class_weights[std::clamp<int64_t>(label, 0, std::ssize(class_weights) - 1)];
    }
    return sum;
  }
  return size - static_cast<double>(std::count(values.begin(), values.end(), ignore_index));
}

}  // namespace

void Put(const std::string& feed, HostTensor tensor, Window* window) {
  (feed == kLabelFeed ? window->labels : window->feeds[feed]) = std::move(tensor);
}

absl::Status WindowWeights::Count(const LossChoice& choice, const LossSpec& spec, const Window& window, int64_t samples) {
  weights_.resize(choice.terms.size());
  for (size_t i = 0; i < weights_.size(); ++i) {
    ASSIGN_OR_RETURN(weights_[i], WeightOf(choice.terms[i], spec, window, samples));
  }
  const LossTerm& lead = choice.leading();
  const bool weighted = !spec.class_weights.empty() && !(lead.onnx != nullptr && lead.onnx->weighted);
  targets_ = weighted ? TermWeight(lead, {}, spec.ignore_index, window, samples) : weights_[choice.lead];
  return absl::OkStatus();
}

absl::StatusOr<double> WindowWeights::WeightOf(const LossTerm& term, const LossSpec& spec, const Window& window, int64_t samples) {
  if (term.onnx != nullptr && term.onnx->weighted) return OnnxWeight(*term.onnx, window, samples);
  return TermWeight(term, spec.class_weights, spec.ignore_index, window, samples);
}

absl::StatusOr<double> WindowWeights::OnnxWeight(const OnnxLoss& loss, const Window& window, int64_t samples) {
  const std::pair key(&loss, samples);
  auto graph = onnx_.find(key);
  if (graph == onnx_.end()) {
    ASSIGN_OR_RETURN(Graph made, OnnxLossWeight(loss, samples));
    ASSIGN_OR_RETURN(made, OptimizeProgram(std::move(made), DType::kFloat32));
    graph = onnx_.emplace(key, std::move(made)).first;
  }
  std::map<std::string, HostTensor> feeds;
  for (const GraphInput& input : graph->second.inputs()) {
    feeds[input.name] = input.name == kLabelFeed ? window.labels : window.feeds.at(input.name);
  }
  ASSIGN_OR_RETURN(const std::vector<HostTensor> values, Interpret(graph->second, feeds));
  const double weight = values[0].At(0);
  return weight >= 0 && weight < 1e300 ? absl::StatusOr<double>(weight) : Invalid(loss.model->path(), ": weight is ", weight, " for a batch");
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
