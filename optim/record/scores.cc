#include "optim/record/scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontend/data/text/alphabet.h"

namespace onnxtrain {

Tail FindTail(std::string_view activation) {
  if (activation == "Softmax") return Tail::kSoftmax;
  if (activation == "LogSoftmax") return Tail::kLogSoftmax;
  return activation == "Sigmoid" ? Tail::kSigmoid : Tail::kNone;
}

ScoreReader::ScoreReader(const LossChoice& loss, const Shape& output) : tail_(FindTail(loss.leading().activation)) {
  for (size_t i = 1; i < output.size(); ++i) width_ *= output[i];
  const LabelForm form = loss.leading().form;
  const bool scores = form == LabelForm::kClasses || form == LabelForm::kDistribution;
  if (scores && output.size() == 2 && width_ > 1) form_ = Form::kClasses;
  if (form == LabelForm::kElements &&
      loss.leading().function->final_activations.find("Sigmoid") != std::string_view::npos)
    form_ = Form::kBinary;
}

std::vector<double> ScoreReader::Read(const HostTensor& values, int64_t i) const {
  std::vector<double> row(width_);
  for (int64_t c = 0; c < width_; ++c) row[c] = values.At(i * width_ + c);
  if (form_ == Form::kBinary && tail_ != Tail::kSigmoid) {
    for (double& x : row) x = 1 / (1 + std::exp(-x));
  }
  if (form_ != Form::kClasses || tail_ == Tail::kSoftmax) return row;
  const double most = tail_ == Tail::kLogSoftmax ? 0 : *std::max_element(row.begin(), row.end());
  for (double& x : row) x = std::exp(x - most);
  const double sum = tail_ == Tail::kLogSoftmax ? 1 : std::accumulate(row.begin(), row.end(), 0.0);
  for (double& x : row) x /= sum;
  return row;
}

BestPath ReadBestPath(const HostTensor& scores, int64_t i, int64_t blank, bool probabilities) {
  const int64_t steps = scores.shape()[1], classes = scores.shape()[2];
  std::vector<int64_t> path(steps);
  BestPath found;
  for (int64_t t = 0; t < steps; ++t) {
    const int64_t row = (i * steps + t) * classes;
    for (int64_t c = 1; c < classes; ++c) {
      if (scores.At(row + c) > scores.At(row + path[t])) path[t] = c;
    }
    if (path[t] == blank || (t > 0 && path[t] == path[t - 1])) continue;
    const double best = scores.At(row + path[t]);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(scores.At(row + c) - best);
    found.confidence += probabilities ? best : 1 / sum;
  }
  found.classes = MergeRepeats(path, blank);
  if (!found.classes.empty()) found.confidence /= static_cast<double>(found.classes.size());
  return found;
}

}  // namespace onnxtrain
