// Writes model outputs as rows of a CSV file.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/data/text/alphabet.h"
#include "optim/record/scores.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain::cli {

// Formats one model output: class scores become the best class and a probability per class, Sigmoid scores a class and
// a probability, classes of an alphabet at each step a text and a confidence, other outputs numbers.
class PredictionTable {
 public:
  // `model` must be imported for inference; `classes` may be empty. `least_probability`: threshold for the second of
  // two classes. `alphabet`: of a model trained with ctc, or null.
  PredictionTable(const PreparedModel& model, std::vector<std::string> classes, double least_probability,
                  std::shared_ptr<const Alphabet> alphabet);

  const std::string& output() const { return output_; }  // name of the model output
  std::string description() const;                       // for people
  // Returns the header line. `key`: names of the first columns, "sample,file".
  std::string Header(std::string_view key) const;
  // Returns a line per sample of `values` [n, …], each starting with its element of `keys`: "7,dog/3.png".
  std::string Rows(const HostTensor& values, const std::vector<std::string>& keys) const;

 private:
  using Form = ScoreReader::Form;
  std::string Name(int64_t c) const;
  // Returns the name of the first or the second of two classes.
  std::string BinaryName(bool second) const;
  // Returns the text of the best path of sample i, and the mean probability of the steps that it was read from.
  std::string TextFields(const HostTensor& values, int64_t i) const;

  std::string output_;
  ScoreReader scores_;
  std::vector<std::string> classes_;
  double least_probability_;
  std::shared_ptr<const Alphabet> alphabet_;  // null: no texts
  int64_t unnamed_ = 0;                       // classes at each step that may be characters, which nothing names
  bool probabilities_ = false;                // the scores of the alphabet's classes are probabilities
  std::set<std::string> taken_;               // the names of classes_, which no unnamed class may have
};

// Quotes a field that contains a comma, a quote or a line break (RFC 4180).
std::string CsvField(const std::string& text);

}  // namespace onnxtrain::cli
