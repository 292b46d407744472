#include "tools/onnxtrain/report/predictions.h"

#include <algorithm>

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

PredictionTable::PredictionTable(const PreparedModel& model, std::vector<std::string> classes, double least_probability,
                                 std::shared_ptr<const Alphabet> alphabet)
    : output_(model.loss.output()),
      scores_(model.loss, model.model.graph.type(model.model.graph.FindOutput(output_)->value).shape),
      classes_(std::move(classes)),
      least_probability_(least_probability),
      probabilities_(model.loss.leading().activation == "Softmax"),
      taken_(classes_.begin(), classes_.end()) {
  const Shape& shape = model.model.graph.type(model.model.graph.FindOutput(output_)->value).shape;
  const bool fits = alphabet != nullptr && shape.size() == 3 && shape[2] == std::ssize(alphabet->texts());
  if (fits) alphabet_ = std::move(alphabet);
  if (!fits && shape.size() == 3 && !model.loss.leading().activation.empty()) unnamed_ = shape[2];
}

std::string PredictionTable::description() const {
  if (alphabet_ != nullptr)
    return StrCat("output '", output_, "' as text, of ", alphabet_->texts().size(), " classes at each step");
  if (scores_.form() == Form::kClasses)
    return StrCat("output '", output_, "' as scores of ", scores_.width(), " classes (--loss mse for plain numbers)");
  if (scores_.form() == Form::kBinary)
    return StrCat("output '", output_, "' as ",
                  scores_.width() == 1 ? "a probability" : StrCat(scores_.width(), " probabilities"));
  const std::string texts =
      unnamed_ > 0 ? StrCat(" (--class-map FILE names the characters of the ", unnamed_, " classes of texts)") : "";
  return StrCat("output '", output_, "' as ", scores_.width() == 1 ? "a number" : StrCat(scores_.width(), " numbers"),
                texts);
}

std::string PredictionTable::Name(int64_t c) const {
  if (c < std::ssize(classes_)) return classes_[c];
  const std::string number = StrCat(c);
  return taken_.contains(number) ? StrCat("class_", number) : number;
}

std::string PredictionTable::BinaryName(bool second) const {
  return scores_.width() == 1 && classes_.size() == 2 ? CsvField(classes_[second]) : second ? "1" : "0";
}

std::string PredictionTable::TextFields(const HostTensor& values, int64_t i) const {
  const BestPath path = ReadBestPath(values, i, alphabet_->blank(), probabilities_);
  return StrCat(",", CsvField(alphabet_->Decode(path.classes)), ",", Number(path.confidence));
}

std::string PredictionTable::Header(std::string_view key) const {
  if (alphabet_ != nullptr) return StrCat(key, ",prediction,probability\n");
  std::string line = StrCat(key, scores_.form() == Form::kClasses ? ",prediction,probability" : "");
  for (int64_t c = 0; c < scores_.width(); ++c) {
    const std::string suffix = scores_.width() == 1 ? "" : StrCat("_", c);
    if (scores_.form() == Form::kClasses) StrAppend(&line, ",", CsvField(StrCat("p_", Name(c))));
    if (scores_.form() == Form::kBinary) StrAppend(&line, ",prediction", suffix, ",probability", suffix);
    if (scores_.form() == Form::kNumbers) StrAppend(&line, ",", CsvField(output_ + suffix));
  }
  return line + "\n";
}

std::string PredictionTable::Rows(const HostTensor& values, const std::vector<std::string>& keys) const {
  std::string text;
  for (int64_t i = 0; alphabet_ != nullptr && i < std::ssize(keys); ++i)
    StrAppend(&text, keys[i], TextFields(values, i), "\n");
  if (alphabet_ != nullptr) return text;
  for (int64_t i = 0; i < std::ssize(keys); ++i) {
    const std::vector<double> row = scores_.Read(values, i);
    StrAppend(&text, keys[i]);
    if (scores_.form() == Form::kClasses) {
      const int64_t best = std::max_element(row.begin(), row.end()) - row.begin();
      StrAppend(&text, ",", CsvField(Name(best)), ",", Number(row[best]));
    }
    for (double x : row) {
      if (scores_.form() == Form::kBinary) StrAppend(&text, ",", BinaryName(x >= least_probability_));
      StrAppend(&text, ",", Number(x));
    }
    text += "\n";
  }
  return text;
}

}  // namespace onnxtrain::cli
