// Reads the probabilities of classes from the outputs of a model.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// The activation that computes a model output.
enum class Tail : uint8_t { kNone, kSoftmax, kLogSoftmax, kSigmoid };

// Returns the activation by the name of its operator.
Tail FindTail(std::string_view activation);

// Converts the leading output of a model to probabilities.
class ScoreReader {
 public:
  enum class Form : uint8_t { kClasses, kBinary, kNumbers };

  // `output`: shape [n, …] of the output that the loss reads first.
  ScoreReader(const LossChoice& loss, const Shape& output);

  Form form() const { return form_; }
  int64_t width() const { return width_; }  // numbers per sample
  // Returns for sample i of `values` the probability of each class (kClasses), the probability that each output is 1
  // (kBinary), or the unchanged numbers (kNumbers).
  std::vector<double> Read(const HostTensor& values, int64_t i) const;

 private:
  Tail tail_ = Tail::kNone;
  Form form_ = Form::kNumbers;
  int64_t width_ = 1;
};

// The best path of a model that is trained with ctc.
struct BestPath {
  std::vector<int64_t> classes;  // without repeats and blanks
  double confidence = 0;         // mean probability of the steps that they were read from
};
// Reads sample i of scores [n, steps, classes], which are `probabilities` or logarithms of them up to a constant.
BestPath ReadBestPath(const HostTensor& scores, int64_t i, int64_t blank, bool probabilities);

}  // namespace onnxtrain
