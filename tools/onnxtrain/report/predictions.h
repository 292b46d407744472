// Model outputs as rows of a CSV file.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "optim/record/quality.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain::cli {

// How an output is written: class scores become the best class and a probability for each, Sigmoid scores a class and a
// probability, other outputs their numbers.
class PredictionTable {
 public:
  // `model` has been imported for inference; `classes` may be empty. `least_probability`: from which the second of two
  // classes is chosen.
  PredictionTable(const PreparedModel& model, std::vector<std::string> classes, double least_probability);

  const std::string& output() const { return output_; }  // the model output that is written
  std::string description() const;                       // for people
  // With newline. `key`: the names of the first columns, "sample,file".
  std::string Header(std::string_view key) const;
  // One line per sample of `values` [n, …], which begins with its field of `keys`: "7,dog/3.png".
  std::string Rows(const HostTensor& values, const std::vector<std::string>& keys) const;

 private:
  using Form = ScoreReader::Form;
  std::string Name(int64_t c) const;
  // The class that one probability is for or against.
  std::string BinaryName(bool second) const;

  std::string output_;
  ScoreReader scores_;
  std::vector<std::string> classes_;
  double least_probability_;
  std::set<std::string> taken_;  // the names of classes_, which no unnamed class may have
};

// As RFC 4180 has it: quoted where it holds a comma, a quote or a line break.
std::string CsvField(const std::string& text);

}  // namespace onnxtrain::cli
