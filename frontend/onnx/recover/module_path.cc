#include "frontend/onnx/recover/module_path.h"

#include <algorithm>
#include <cctype>
#include <unordered_set>

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

// Finds the parameter in names that end in further scopes: "bias" in "model/dense/BiasAdd/ReadVariableOp:0".
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

// Lists buffers of transformers: BART and relatives, DeepSeek's routers, rotary embeddings, Segment Anything.
bool IsBufferName(std::string_view name) {
  constexpr std::string_view kNames[] = {"final_logits_bias", "e_score_correction_bias", "inv_freq",
                                         "original_inv_freq", "positional_encoding_gaussian_matrix"};
  return std::ranges::find(kNames, LastPart(name)) != std::end(kNames);
}

namespace {

using Operators = std::unordered_set<std::string_view>;

// Returns true if the operator only changes the shape or type of elements.
bool IsReshape(std::string_view op) {
  static const Operators kReshapes = {
      "_to_copy",        "_unsafe_view", "alias",     "clone",     "contiguous", "convert_element_type",
      "detach",          "flatten",      "float",     "movedim",   "numpy_t",    "permute",
      "lift_fresh_copy", "reshape",      "squeeze",   "swapaxes",  "t",          "to",
      "transpose",       "type_as",      "unflatten", "unsqueeze", "view",       "view_as"};
  return kReshapes.contains(op);
}

// Returns true if the operator selects elements by their positions.
bool IsSelection(std::string_view op) {
  static const Operators kSelections = {"chunk", "getitem", "narrow",           "select",
                                        "slice", "split",   "split_with_sizes", "unbind"};
  return kSelections.contains(op);
}

// Returns true if the operator moves, selects or repeats elements.
bool IsView(std::string_view op) {
  static const Operators kViews = {"as_strided", "broadcast_to", "diagonal", "expand", "expand_as",
                                   "flip",       "repeat",       "roll",     "rot90",  "tile"};
  return IsReshape(op) || IsSelection(op) || kViews.contains(op);
}

// Returns true if the operator is a function of single numbers.
bool IsUnary(std::string_view op) {
  static const Operators kUnary = {"abs",   "exp",     "expm1",    "log",    "log1p", "neg", "reciprocal",
                                   "rsqrt", "sigmoid", "softplus", "square", "sqrt",  "tanh"};
  return kUnary.contains(op);
}

// Returns true if the operator reads elements by indices, which may be computed in any way.
bool IsLookup(std::string_view op) {
  static const Operators kLookups = {"embedding", "gather", "index", "index_select", "take_along_dim"};
  return kLookups.contains(op);
}

bool IsSum(std::string_view op) { return op == "add" || op == "sub"; }

// Returns true if the operator computes floating-point numbers from others; sizes and positions are never computed so.
bool ComputesFloats(std::string_view op) {
  static const Operators kFloat = {"exp",
                                   "expm1",
                                   "linalg_vector_norm",
                                   "linear",
                                   "matmul",
                                   "mm",
                                   "norm",
                                   "reciprocal",
                                   "rsqrt",
                                   "select_scatter",
                                   "sigmoid",
                                   "softmax",
                                   "slice_scatter",
                                   "softplus",
                                   "tanh",
                                   "_softmax",
                                   "_weight_norm_interface"};
  return kFloat.contains(op);
}

// Returns true if the operator rounds or selects: w + (round(w) − w) is a quantized weight.
bool IsStep(std::string_view op) {
  static const Operators kSteps = {"argmax", "argmin", "round", "sign"};
  return kSteps.contains(op);
}

// Takes the leading digits of a text, without leading zeros.
std::string_view TakeNumber(std::string_view* text) {
  const size_t end = std::min(text->find_first_not_of("0123456789"), text->size());
  std::string_view digits = text->substr(0, end);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  text->remove_prefix(end);
  return digits;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool ByNumber::operator()(std::string_view a, std::string_view b) const {
  std::string_view x = a, y = b;
  while (!x.empty() && !y.empty()) {
    if (IsDigit(x[0]) && IsDigit(y[0])) {
      const std::string_view m = TakeNumber(&x), n = TakeNumber(&y);
      if (m != n) return m.size() != n.size() ? m.size() < n.size() : m < n;
    } else {
      if (x[0] != y[0]) return x[0] < y[0];
      x.remove_prefix(1), y.remove_prefix(1);
    }
  }
  return x.empty() != y.empty() ? x.empty() : a < b;
}

std::string_view StripNumber(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789");
  const bool numbered = digits != name.npos && digits + 1 < name.size() && digits > 0 && name[digits] == '_';
  return numbered ? name.substr(0, digits) : name;
}

bool IsExporterName(const std::string& name) {
  const std::string_view op = StripNumber(name);
  return op == "val" || op == "value" || op == "tmp";
}

bool IsPart(const std::string& name) { return IsSelection(StripNumber(name)); }

bool IsLookedUp(const std::string& name, const std::vector<std::string>& sources) {
  return IsLookup(StripNumber(name)) ||
         std::ranges::any_of(sources, [](const std::string& s) { return IsLookup(StripNumber(s)); });
}

std::vector<std::string_view> ListSteps(const std::string& name, const std::vector<std::string>& sources) {
  std::vector<std::string_view> steps;
  const auto add = [&](const std::string& s) {
    if (!IsExporterName(s) && !IsReshape(StripNumber(s))) steps.push_back(StripNumber(s));
  };
  add(name);
  std::ranges::for_each(sources, add);
  std::ranges::sort(steps);
  return steps;
}

bool IsSoftplus(const std::vector<std::string_view>& steps) {
  static const Operators kSteps = {"beta",     "beta_0_cast", "beta_cast",     "self_scaled",
                                   "softplus", "threshold",   "threshold_cast"};
  return std::ranges::count(steps, "softplus") > 0 &&
         std::ranges::all_of(steps, [](std::string_view step) { return kSteps.contains(step); });
}

bool MayRepeat(const std::string& name, const std::vector<std::string>& sources) {
  return IsExporterName(name) || !std::ranges::all_of(ListSteps(name, sources), IsUnary);
}

bool IsArithmetic(const std::string& name, const std::vector<std::string>& sources) {
  const std::string_view op = StripNumber(name);
  if (IsExporterName(name) || IsLookup(op)) return false;
  if (IsSum(op)) return std::ranges::any_of(sources, [](const std::string& s) { return IsStep(StripNumber(s)); });
  if (!IsView(op)) return name.find('.') == name.npos;  // fx nodes have no names with dots
  return std::ranges::any_of(sources, [](const std::string& s) { return ComputesFloats(StripNumber(s)); });
}

}  // namespace onnxtrain
