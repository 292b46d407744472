#include "frontend/onnx/recover/module_path.h"

#include <algorithm>
#include <cctype>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

bool IsDigit(unsigned char c) { return std::isdigit(c) != 0; }

std::string LowerLetters(std::string_view text) {
  std::string letters;
  for (unsigned char c : text) {
    if (std::isalpha(c) != 0) letters += static_cast<char>(std::tolower(c));
  }
  return letters;
}

// "bias" of "model/dense/BiasAdd/ReadVariableOp:0" is one scope further out.
std::string_view ParameterPart(std::string_view name) {
  name = name.substr(0, name.rfind(':'));
  constexpr std::string_view kRead = "/ReadVariableOp";
  if (name.ends_with(kRead)) name.remove_suffix(kRead.size());
  return name.substr(name.find_last_of("./") + 1);
}

}  // namespace

std::vector<std::string> SplitModule(std::string_view path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string ScopePath(std::string_view node) {
  std::vector<std::string> parts = SplitModule(node);
  if (parts.size() < 2) return "";
  parts.pop_back();
  std::string path;
  for (const std::string& part : parts) StrAppend(&path, path.empty() ? "" : "/", part);
  return path;
}

std::string DottedModule(std::string_view node) {
  std::string path, last;
  for (const std::string& scope : SplitModule(ScopePath(node))) {
    const bool repeats = !last.empty() && scope.starts_with(last + ".");
    if (repeats) path.resize(path.size() - last.size());
    StrAppend(&path, path.empty() || repeats ? "" : ".", scope);
    last = scope;
  }
  return path;
}

std::string_view LastPart(std::string_view path) { return path.substr(path.rfind('.') + 1); }

std::string_view ParentOf(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == path.npos ? std::string_view() : path.substr(0, dot);
}

bool IsGeneratedName(std::string_view name) {
  if (name.find("::") != std::string_view::npos) return true;
  if (name.find('.') != std::string_view::npos || std::ranges::none_of(name, IsDigit)) return false;
  constexpr std::string_view kStems[] = {"", "val", "v", "t", "tmp", "const", "constant", "initializer"};
  return std::ranges::find(kStems, LowerLetters(name)) != std::end(kStems);
}

bool IsComputedName(std::string_view name) {
  return name.starts_with("onnx::") || name.starts_with("const_fold_opt__");
}

bool IsTracedConstantName(std::string_view name) {
  if (name.starts_with("helper.constant.")) return true;  // by paddle2onnx
  constexpr std::string_view kOutput = "_output_0", kConstant = "Constant";
  if (!name.starts_with("/") || !name.ends_with(kOutput)) return false;
  name.remove_suffix(kOutput.size());
  name.remove_prefix(name.rfind('/') + 1);
  if (!name.starts_with(kConstant)) return false;
  name.remove_prefix(kConstant.size());
  return name.empty() || (name[0] == '_' && std::ranges::all_of(name.substr(1), IsDigit));
}

bool IsParameterName(std::string_view name) {
  if (IsGeneratedName(name)) return false;
  constexpr std::string_view kWords[] = {"weight", "bias",  "kernel",      "scale", "gamma",    "beta",
                                         "alpha",  "slope", "temperature", "coef",  "intercept"};
  const std::string_view part = ParameterPart(name);
  for (size_t begin = 0; begin <= part.size();) {
    const size_t end = std::min(part.find('_', begin), part.size());
    if (std::ranges::find(kWords, LowerLetters(part.substr(begin, end - begin))) != std::end(kWords)) return true;
    begin = end + 1;
  }
  return false;
}

// Of transformers: BART and its relatives, DeepSeek's routers, rotary embeddings, Segment Anything.
bool IsBufferName(std::string_view name) {
  constexpr std::string_view kNames[] = {"final_logits_bias", "e_score_correction_bias", "inv_freq",
                                         "original_inv_freq", "positional_encoding_gaussian_matrix"};
  return std::ranges::find(kNames, LastPart(name)) != std::end(kNames);
}

}  // namespace onnxtrain
