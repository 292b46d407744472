// Model outputs as rows of a CSV file.
#pragma once

#include <string>
#include <vector>

#include "optim/prepare.h"

namespace onnxtrain::cli {

// How the numbers of the leading output become probabilities.
class ScoreReader {
 public:
  enum class Form : uint8_t { kClasses, kBinary, kNumbers };

  // `output`: [n, …], of the loss's leading output.
  ScoreReader(const LossChoice& loss, const Shape& output);

  Form form() const { return form_; }
  int64_t width() const { return width_; }  // numbers per sample
  // Of sample i of `values`: probabilities of classes, or of each output to be 1, or the numbers as they are.
  std::vector<double> Read(const HostTensor& values, int64_t i) const;

 private:
  enum class Tail : uint8_t { kNone, kSoftmax, kLogSoftmax, kSigmoid } tail_ = Tail::kNone;

  Form form_ = Form::kNumbers;
  int64_t width_ = 1;
};

// How an output is written: class scores become the best class and a probability for each, Sigmoid scores a
// probability, other outputs their numbers.
class PredictionTable {
 public:
  // `model` has been imported for inference; `classes` may be empty.
  PredictionTable(const PreparedModel& model, std::vector<std::string> classes);

  const std::string& output() const { return output_; }  // the model output that is written
  std::string description() const;                       // for people
  std::string Header() const;                            // with newline
  // One line per sample of `values` [n, …], with the numbers `samples`.
  std::string Rows(const HostTensor& values, const std::vector<int64_t>& samples) const;

 private:
  using Form = ScoreReader::Form;
  std::string Name(int64_t c) const;

  std::string output_;
  ScoreReader scores_;
  std::vector<std::string> classes_;
};

// As RFC 4180 has it: quoted where it holds a comma, a quote or a line break.
std::string CsvField(const std::string& text);

}  // namespace onnxtrain::cli
