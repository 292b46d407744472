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
  absl::StatusOr<std::vector<double>> Of(const LossChoice& choice, const LossSpec& spec, const Window& window, int64_t samples);

 private:
  absl::StatusOr<double> OnnxWeight(const OnnxLoss& loss, const Window& window, int64_t samples);

  std::map<std::pair<const OnnxLoss*, int64_t>, Graph> onnx_;  // by loss and samples
};

// What the gradient of a term's sum is seeded with: factor/W, 0 where nothing counts.
double InverseWeight(const LossTerm& term, double weight);

// Σ factor·sum/weight, of terms whose weight is above 0.
double MeanLoss(const LossChoice& choice, const std::vector<double>& sums, const std::vector<double>& weights);

}  // namespace onnxtrain
