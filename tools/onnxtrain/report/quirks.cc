#include "tools/onnxtrain/report/quirks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/recover/rows.h"

namespace onnxtrain::cli {
namespace {

std::string FoldedNorms(const OnnxModel& file) {
  const int folded = CountFoldedNorms(file);
  if (folded == 0) return "";
  return StrCat("BatchNorm was folded into ", folded,
                " nodes: they train as plain affine layers; an export with BatchNorm trains "
                "better (PyTorch: optimize=False)");
}

std::string FoldedWeights(const OnnxModel& file) {
  const std::vector<std::string> names = FindFoldedWeights(file);
  if (names.empty()) return "";
  return StrCat("the exporter computed '", Printable(names[0]), "'",
                names.size() > 1 ? StrCat(" and ", names.size() - 1, " more weights") : "",
                " from parameters, as weight_norm does: they train as plain weights (PyTorch: "
                "do_constant_folding=False keeps the expression)");
}

std::string FoldedNumbers(const OnnxModel& file) {
  const std::vector<std::string> names = FindFoldedNumbers(file);
  if (names.empty()) return "";
  return StrCat("the exporter computed the number '", Printable(names[0]), "'",
                names.size() > 1 ? StrCat(" and ", names.size() - 1, " more") : "",
                ", which is not trained; where it comes from a parameter, export with do_constant_folding=False");
}

std::string Reader(const Node& node) { return StrCat(node.op, " '", *node.source, "'"); }

// Counts each node of the file once: an importer may split it into several.
std::vector<int32_t> BySource(const Graph& graph, std::span<const int32_t> nodes) {
  std::vector<int32_t> first;
  std::set<std::string> seen;
  for (int32_t n : nodes) {
    if (seen.insert(graph.nodes()[n].source).second) first.push_back(n);
  }
  return first;
}

std::string SharedText(const Graph& graph, const std::string& name, const std::vector<int32_t>& readers) {
  std::string text;
  constexpr size_t kMost = 3;
  for (size_t i = 0; i < readers.size() && i < kMost; ++i)
    StrAppend(&text, i == 0 ? "" : ", ", Reader(graph.nodes()[readers[i]]));
  return StrCat("tied: '", name, "' is read by ", readers.size(), " nodes: ", text,
                readers.size() > kMost ? ", …" : "");
}

bool SameTransposed(const HostTensor& a, const HostTensor& b) {
  if (a.type().rank() != 2 || b.type().rank() != 2 || a.dtype() != b.dtype()) return false;
  const int64_t rows = a.shape()[0], columns = a.shape()[1];
  if (b.shape() != Shape{columns, rows}) return false;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      if (a.At(i * columns + j) != b.At(j * rows + i)) return false;
    }
  }
  return true;
}

bool IsConstant(const HostTensor& t) {
  for (int64_t i = 1; i < t.size(); ++i) {
    if (t.At(i) != t.At(0)) return false;
  }
  return true;
}

enum class Sameness : uint8_t { kNo, kSame, kTransposed };

Sameness Compare(const HostTensor& a, const HostTensor& b) {
  if (a.type() == b.type() && a.SameBytes(b)) return Sameness::kSame;
  return SameTransposed(a, b) ? Sameness::kTransposed : Sameness::kNo;
}

std::string StoredTwice(const std::vector<std::string>& names, bool transposed) {
  constexpr size_t kMost = 3;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    const bool last = i + 1 == names.size();
    StrAppend(&list, i == 0 ? "'" : last ? " and '" : ", '", names[i], "'");
  }
  if (names.size() > kMost) StrAppend(&list, ", …");
  const std::string times = names.size() == 2 ? "twice" : StrCat(names.size(), " times");
  return StrCat("stored ", times, ": ", list, " are equal", transposed ? ", transposed" : "", "; they train apart");
}

// Tells of weights of one size which are equal, each set once.
void AppendStoredTwice(const std::vector<const ImportedWeight*>& weights, std::vector<std::string>* tied) {
  std::vector<bool> told(weights.size(), false);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (told[i] || IsConstant(weights[i]->value)) continue;
    std::vector<std::string> names = {weights[i]->name};
    bool transposed = false;
    for (size_t j = i + 1; j < weights.size(); ++j) {
      const Sameness sameness = told[j] ? Sameness::kNo : Compare(weights[i]->value, weights[j]->value);
      if (sameness == Sameness::kNo) continue;
      told[j] = true;
      transposed |= sameness == Sameness::kTransposed;
      names.push_back(weights[j]->name);
    }
    if (names.size() > 1) tied->push_back(StoredTwice(names, transposed));
  }
}

}  // namespace

std::vector<std::string> FindQuirks(const OnnxModel& file) {
  std::vector<std::string> quirks;
  const auto ops = file.op_histogram();
  if (std::string folded = FoldedNorms(file); !folded.empty()) quirks.push_back(std::move(folded));
  if (std::string folded = FoldedWeights(file); !folded.empty()) quirks.push_back(std::move(folded));
  if (std::string folded = FoldedNumbers(file); !folded.empty()) quirks.push_back(std::move(folded));
  if (!ops.contains("Dropout"))
    quirks.emplace_back(
        "no Dropout nodes: exports for inference leave them out, and --dropout has nothing to activate");
  int half = 0;
  for (const std::string& name : file.InitializerNames()) {
    const HostTensor* t = file.Initializer(name);
    half += t != nullptr && (t->dtype() == DType::kFloat16 || t->dtype() == DType::kBFloat16);
  }
  if (half > 0)
    quirks.push_back(
        StrCat(half, " initializers of half precision: trained as float32 masters and cast back on export"));
  return quirks;
}

std::vector<std::string> TiedWeights(const ImportedModel& model) {
  std::vector<std::string> tied;
  const auto readers = ComputeUsers(model.graph);
  std::map<int64_t, std::vector<const ImportedWeight*>> by_size;
  for (const ImportedWeight& w : model.weights) {
    const GraphInput* input = model.graph.FindInput(w.name);
    if (input == nullptr || input->kind != InputKind::kParameter) continue;
    const std::vector<int32_t> apart = BySource(model.graph, readers[input->value]);
    if (apart.size() > 1) tied.push_back(SharedText(model.graph, w.name, apart));
    constexpr int64_t kEnough = 64;  // smaller tensors may be equal by chance
    if (w.value.size() >= kEnough && w.value.type().rank() >= 2) by_size[w.value.size()].push_back(&w);
  }
  for (const auto& [size, weights] : by_size) AppendStoredTwice(weights, &tied);
  return tied;
}

}  // namespace onnxtrain::cli
