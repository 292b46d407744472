#include "optim/config/loss_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kOnnx = "onnx:";

// Returns true if the term ends in a file name.
bool NamesFile(std::string_view term) {
  const size_t at = term.find(kOnnx);
  return at == 0 || (at != std::string_view::npos && term[at - 1] == '*');
}

// Splits at each '+' that is not part of a file name.
std::vector<std::string> SplitTerms(const std::string& text) {
  std::vector<std::string> terms;
  for (absl::string_view part : absl::StrSplit(text, '+')) {
    const bool goes_on = !terms.empty() && NamesFile(terms.back()) && !terms.back().ends_with(".onnx");
    if (goes_on) {
      StrAppend(&terms.back(), "+", ToStd(part));
    } else {
      terms.emplace_back(ToStd(part));
    }
  }
  return terms;
}

// Removes label=A/B from the options and stores the columns in *label.
absl::Status TakeLabel(std::string* options, std::vector<std::string>* label) {
  std::vector<std::string> rest;
  for (absl::string_view pair : absl::StrSplit(*options, ',', absl::SkipEmpty())) {
    if (!absl::ConsumePrefix(&pair, "label=")) {
      rest.emplace_back(ToStd(pair));
      continue;
    }
    *label = absl::StrSplit(pair, '/', absl::SkipEmpty());
    if (label->empty()) return Invalid("label: expected COLUMN or COLUMN/COLUMN…");
  }
  *options = absl::StrJoin(rest, ",");
  return absl::OkStatus();
}

// Parses and removes a leading [FACTOR*].
absl::Status TakeFactor(std::string* text, double* factor) {
  const size_t star = text->find('*');
  if (star == std::string::npos || star > text->find_first_of(":@")) return absl::OkStatus();
  if (!absl::SimpleAtod(text->substr(0, star), factor) || !(*factor > 0) || *factor > 1e30) {
    return Invalid("expected a factor above 0 before *, got '", text->substr(0, star), "'");
  }
  text->erase(0, star + 1);
  return absl::OkStatus();
}

// Loss names of other frameworks, in lower case without "_".
constexpr std::pair<std::string_view, std::string_view> kForeignLosses[] = {
    {"bcewithlogits", "bce"},
    {"bcewithlogitsloss", "bce"},
    {"bceloss", "bce"},
    {"binarycrossentropy", "bce"},
    {"crossentropyloss", "cross_entropy"},
    {"categoricalcrossentropy", "cross_entropy"},
    {"sparsecategoricalcrossentropy", "cross_entropy"},
    {"nllloss", "nll"},
    {"mseloss", "mse"},
    {"meansquarederror", "mse"},
    {"mae", "l1"},
    {"l1loss", "l1"},
    {"meanabsoluteerror", "l1"},
    {"smoothl1", "huber"},
    {"smoothl1loss", "huber"},
    {"huberloss", "huber"},
    {"ctcloss", "ctc"},
};

std::string ExplainForeignLoss(const std::string& name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_' && c != '-') plain += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  for (const auto& [foreign, own] : kForeignLosses) {
    if (plain != foreign) continue;
    const bool logits = own == "bce" || own == "cross_entropy";
    return StrCat("; ", name, " is ", own, " here",
                  logits ? ", which is computed on logits, also where the model ends in Sigmoid or Softmax" : "");
  }
  return "";
}

absl::StatusOr<LossTermSpec> ParseTerm(std::string text) {
  LossTermSpec term;
  RETURN_IF_ERROR(TakeFactor(&text, &term.factor));
  if (text.starts_with("output:")) {
    term.function = FindLoss("output");
    term.output = text.substr(7);
    return term.output.empty() ? absl::StatusOr<LossTermSpec>(Invalid("expected output:NAME")) : term;
  }
  if (text.starts_with(kOnnx)) {
    term.function = FindLoss("onnx");
    term.file = text.substr(kOnnx.size());
    return term.file.empty() ? absl::StatusOr<LossTermSpec>(Invalid("expected onnx:FILE")) : term;
  }
  if (const size_t at = text.find('@'); at != std::string::npos) {
    term.output = text.substr(at + 1);
    text.resize(at);
    if (term.output.empty()) return Invalid("expected an output's name behind @");
  }
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  std::string options = colon == std::string::npos ? "" : text.substr(colon + 1);
  RETURN_IF_ERROR(TakeLabel(&options, &term.label));
  term.function = FindLoss(name);
  if (name != "auto" && (term.function == nullptr || name == "output" || name == "onnx"))
    return Invalid("unknown; known are auto, ", LossNames(), ExplainForeignLoss(name));
  if (term.function == nullptr && !options.empty()) return Invalid("auto has no options");
  if (term.function == nullptr) return term;
  ASSIGN_OR_RETURN(term.options, ParseNumberOptions(name, term.function->options, options));
  return term;
}

}  // namespace

std::string LossTermSpec::label_key() const { return absl::StrJoin(label, "/"); }

absl::StatusOr<std::vector<LossTermSpec>> ParseLoss(const std::string& text) {
  std::vector<LossTermSpec> terms;
  for (const std::string& part : SplitTerms(text)) {
    auto term = ParseTerm(part);
    if (!term.ok()) return Annotate(term.status(), StrCat("`loss` ", part, ": "));
    terms.push_back(*std::move(term));
  }
  return terms;
}

}  // namespace onnxtrain
