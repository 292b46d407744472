#include "tools/onnxtrain/report/predictions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"

namespace onnxtrain::cli {
namespace {

std::string Number(double x) { return absl::StrFormat("%.7g", x); }

}  // namespace

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

PredictionTable::PredictionTable(const PreparedModel& model, std::vector<std::string> classes)
    : classes_(std::move(classes)) {
  const Graph& graph = model.model.graph;
  const LossChoice& loss = model.loss;
  output_ = loss.output();
  const ValueId value = graph.FindOutput(output_)->value;
  const Type& type = graph.type(value);
  for (size_t i = 1; i < type.shape.size(); ++i) width_ *= type.shape[i];
  const std::string& activation = loss.leading().activation;
  if (activation == "Softmax") tail_ = Tail::kSoftmax;
  if (activation == "LogSoftmax") tail_ = Tail::kLogSoftmax;
  if (activation == "Sigmoid") tail_ = Tail::kSigmoid;
  const LabelForm form = loss.leading().form;
  const bool scores = form == LabelForm::kClasses || form == LabelForm::kDistribution;
  if (scores && type.rank() == 2 && width_ > 1) form_ = Form::kClasses;
  if (form == LabelForm::kElements &&
      loss.leading().function->final_activations.find("Sigmoid") != std::string_view::npos)
    form_ = Form::kBinary;
}

std::string PredictionTable::description() const {
  if (form_ == Form::kClasses)
    return StrCat("output '", output_, "' as scores of ", width_, " classes (--loss mse for plain numbers)");
  if (form_ == Form::kBinary)
    return StrCat("output '", output_, "' as ", width_ == 1 ? "a probability" : StrCat(width_, " probabilities"));
  return StrCat("output '", output_, "' as ", width_ == 1 ? "a number" : StrCat(width_, " numbers"));
}

std::string PredictionTable::Name(int64_t c) const {
  return c < static_cast<int64_t>(classes_.size()) ? classes_[c] : StrCat(c);
}

std::string PredictionTable::Header() const {
  std::string line = form_ == Form::kClasses ? "sample,prediction,probability" : "sample";
  for (int64_t c = 0; c < width_; ++c) {
    const std::string suffix = width_ == 1 ? "" : StrCat("_", c);
    if (form_ == Form::kClasses) StrAppend(&line, ",", CsvField(StrCat("p_", Name(c))));
    if (form_ == Form::kBinary) StrAppend(&line, ",prediction", suffix, ",probability", suffix);
    if (form_ == Form::kNumbers) StrAppend(&line, ",", CsvField(output_ + suffix));
  }
  return line + "\n";
}

std::vector<double> PredictionTable::Probabilities(std::vector<double> row) const {
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

std::string PredictionTable::Rows(const HostTensor& values, const std::vector<int64_t>& samples) const {
  std::string text;
  for (int64_t i = 0; i < static_cast<int64_t>(samples.size()); ++i) {
    std::vector<double> row(width_);
    for (int64_t c = 0; c < width_; ++c) row[c] = values.At(i * width_ + c);
    row = Probabilities(std::move(row));
    StrAppend(&text, samples[i]);
    if (form_ == Form::kClasses) {
      const int64_t best = std::max_element(row.begin(), row.end()) - row.begin();
      StrAppend(&text, ",", CsvField(Name(best)), ",", Number(row[best]));
    }
    for (double x : row) {
      if (form_ == Form::kBinary) StrAppend(&text, ",", x >= 0.5 ? "1" : "0");
      StrAppend(&text, ",", Number(x));
    }
    text += "\n";
  }
  return text;
}

}  // namespace onnxtrain::cli
