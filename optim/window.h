// One window of samples, and what its loss is divided by.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "optim/loss.h"

namespace onnxtrain {

// All tensors have the same leading extent n.
struct Window {
  std::map<std::string, HostTensor> feeds;  // by model input name, [n, …], and by LossFeed::name of further labels
  HostTensor labels;                        // [n, …], of kLabelFeed; empty type where the loss needs none
};

// Puts a batch's tensor where it belongs.
void Put(const std::string& feed, HostTensor tensor, Window* window);

// How many targets of a window count, for each term: the W of its 1/W. Samples or elements for dense losses, labels other
// than ignore_index for class indices, what the model says for a loss given as ONNX.
class WindowWeights {
 public:
  // Counts a window. Allocates only where a loss is an ONNX model with a weight of its own.
  absl::Status Count(const LossChoice& choice, const LossSpec& spec, const Window& window, int64_t samples);

  // Of the window that was counted last:
  const std::vector<double>& weights() const { return weights_; }  // by term
  double targets() const { return targets_; }  // of the leading term: its weight, where all classes weigh 1

 private:
  absl::StatusOr<double> WeightOf(const LossTerm& term, const LossSpec& spec, const Window& window, int64_t samples);
  absl::StatusOr<double> OnnxWeight(const OnnxLoss& loss, const Window& window, int64_t samples);

  std::vector<double> weights_;
  double targets_ = 0;
  std::map<std::pair<const OnnxLoss*, int64_t>, Graph> onnx_;  // by loss and samples
};

// What the gradient of a term's sum is seeded with: factor/W, 0 where nothing counts.
double InverseWeight(const LossTerm& term, double weight);

// Σ factor·sum/weight, of terms whose weight is above 0.
double MeanLoss(const LossChoice& choice, const std::vector<double>& sums, const std::vector<double>& weights);

}  // namespace onnxtrain
