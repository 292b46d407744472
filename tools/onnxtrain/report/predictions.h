// Model outputs as rows of a CSV file.
#pragma once

#include <string>
#include <vector>

#include "optim/prepare.h"

namespace onnxtrain::cli {

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
  enum class Form : uint8_t { kClasses, kBinary, kNumbers } form_ = Form::kNumbers;
  enum class Tail : uint8_t { kNone, kSoftmax, kLogSoftmax, kSigmoid } tail_ = Tail::kNone;

  std::vector<double> Probabilities(std::vector<double> row) const;
  std::string Name(int64_t c) const;

  std::string output_;
  int64_t width_ = 1;  // numbers per sample
  std::vector<std::string> classes_;
};

// As RFC 4180 has it: quoted where it holds a comma, a quote or a line break.
std::string CsvField(const std::string& text);

}  // namespace onnxtrain::cli
