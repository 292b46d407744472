#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_set>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/reader_roles.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;
using Readers = std::vector<WeightReader>;

// Lists the read weights of unknown kind.
std::vector<std::string> ListUnknown(const WeightIndex& index) {
  std::vector<std::string> names = ListReadWeights(index);
  std::erase_if(names, [&](const std::string& name) { return index.Kind(name) != Kind::kUnknown; });
  return names;
}

// PyTorch stores parameters as initializers. Its Constant nodes hold values that tracing found in the program.
bool IsTracedConstant(const ParsedNode& node) {
  const bool torch = node.fx != nullptr || node.name.starts_with("/");
  return torch && IsConstant(node) && node.outputs.size() == 1 && !node.outputs[0].empty();
}

// PyTorch's tracer names parameters as the program does, and stores numbers of formulas in Constant nodes.
bool IsTracedParameter(const std::string& name, const ParsedNode& reader) {
  return reader.name.starts_with("/") && !IsGeneratedName(name);
}

// Returns true for "name_3" without a path, which an exporter generated.
bool IsNumbered(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  return digits < name.size() && digits > 1 && name[digits - 1] == '_' && name.find_first_of("./:") == name.npos;
}

// Returns true for the 1/√d of attention, which programs that number their values may call a scale ("dpa_scale_0").
// Names of modules have a path.
bool IsNumberedScale(std::string_view name, const HostTensor& tensor) {
  const double d = 1 / (tensor.At(0) * tensor.At(0));
  return IsNumbered(name) && d > 1.5 && std::abs(d - std::round(d)) < 1e-5 * d;
}

// Returns true if attention scores pass the node on the way to their softmax.
bool KeepsScores(const ParsedNode& node) { return GetOnnxTraits(node).scores || IsViewOrCast(node); }

bool LeadsToSoftmax(const WeightIndex& index, const ParsedNode& factor) {
  std::vector<const ParsedNode*> open = {&factor};
  for (size_t at = 0; at < open.size() && open.size() < kMaxVisited; ++at) {
    for (const std::string& value : open[at]->outputs) {
      for (const WeightReader& reader : index.ElementReaders(value)) {
        if (IsOp(*reader.node, {"Softmax"})) return true;
        if (KeepsScores(*reader.node) && open.size() < kMaxVisited) open.push_back(reader.node);
      }
    }
  }
  return false;
}

bool IsWeightOf(const Readers& readers) {
  return std::ranges::any_of(readers, [](const WeightReader& r) { return TakesWeight(*r.node, r.input); });
}

// Returns true if no reader uses the number as a constant of its formula, such as ε, a bound or a quantization scale.
bool IsFactorOrTerm(const Readers& readers) {
  return std::ranges::all_of(readers, [](const auto& reader) { return GetOnnxTraits(*reader.node).scalar_weight; });
}

// Returns true if only arithmetic, and no layer, reads the tensor: frequencies, slopes and grids.
bool IsNumberOfFormulas(const WeightIndex& index, const Readers& readers) {
  return IsFactorOrTerm(readers) &&
         std::ranges::none_of(readers, [&](const WeightReader& r) { return TakesOwnWeight(index, r); });
}

// Returns whether a number is a constant, a parameter, or unknown.
Kind FindScalarKind(const WeightIndex& index, const std::string& name, const HostTensor& tensor,
                    const Readers& readers) {
  const bool factor = std::ranges::all_of(readers, [](const auto& r) { return IsOp(*r.node, {"Mul", "Div"}); });
  const bool fixed = factor && (readers.size() > 1 || LeadsToSoftmax(index, *readers[0].node));
  if (fixed && IsNumberedScale(name, tensor)) return Kind::kConstant;
  const bool slope = std::ranges::all_of(readers, [](const auto& r) { return IsOp(*r.node, {"PRelu"}); });
  if (slope) return Kind::kParameter;
  const bool parameter = IsParameterName(name) || (!fixed && IsTracedParameter(name, *readers[0].node));
  if (parameter) return IsFactorOrTerm(readers) ? Kind::kParameter : Kind::kUnknown;
  return fixed && !tensor.shape().empty() ? Kind::kConstant : Kind::kUnknown;
}

// Matches ones of a convolution of one channel without bias, which sums over windows ("reduce_window_sum_kernel_0").
bool IsSumWindow(std::string_view name, const HostTensor& tensor, const Readers& readers) {
  const bool of_channel = tensor.size() > 1 && tensor.shape().size() > 2 && tensor.shape()[1] == 1;
  if (!IsNumbered(name) || !of_channel || !IsSplat(tensor) || tensor.At(0) != 1) return false;
  return std::ranges::all_of(
      readers, [](const auto& r) { return IsOp(*r.node, {"Conv"}) && r.input == 1 && r.node->inputs.size() == 2; });
}

// Matches BART's final_logits_bias: a buffer of zeros [1, classes] that the program adds to its predictions and moves
// to their device, so that the exporter loses its name. A layer's bias is a vector in the layer's module.
bool IsZeroTerm(const WeightIndex& index, std::string_view name, const HostTensor& tensor, const Readers& readers) {
  const Shape& shape = tensor.shape();
  const bool row = shape.size() > 1 && shape.back() > 1 && tensor.size() == shape.back();
  if (!IsGeneratedName(name) || !row || !IsSplat(tensor) || tensor.At(0) != 0) return false;
  return std::ranges::all_of(readers, [&](const WeightReader& r) {
    if (!IsOp(*r.node, {"Add"}) || r.node->inputs.size() != 2) return false;
    const ParsedNode* product = index.Producer(r.node->inputs[1 - r.input]);
    return product != nullptr && GetOnnxTraits(*product).classifier &&
           ScopePath(product->name) != ScopePath(r.node->name);
  });
}

// Finds tensors of several elements that training must not change.
class ConstantFinder {
 public:
  explicit ConstantFinder(const WeightIndex& index) : index_(index) {
    for (const ParsedNode& node : index.graph().nodes) {
      if (!IsOp(node, {"MatMul", "Add"})) beyond_linear_.insert(ScopePath(node.name));
    }
  }

  // Explains why the tensor is a constant; null if nothing indicates it.
  const char* Explain(const std::string& name, const HostTensor& tensor, const Readers& readers) const {
    constexpr int64_t kMask = 4;  // elements; programs start pairs of factors at 1 and 0
    const bool named = IsGeneratedName(name) ? IsWeightOfLinear(readers) || IsForgetBias(tensor)
                                             : IsParameterName(name) || IsWeightOf(readers) || tensor.size() < kMask;
    if (!named && IsOfZerosAndOnes(tensor)) return "zeros and ones without a parameter's name";
    if (IsSumWindow(name, tensor, readers)) return "ones that a convolution sums windows with";
    if (IsZeroTerm(index_, name, tensor, readers)) return "a row of zeros behind the product of another module";
    const bool of_layer = IsGeneratedName(name) ? IsWeightOfLinear(readers) : IsParameterName(name);
    if (!of_layer && IsGraphMatrix(tensor)) return "the matrix of a graph";
    if (IsProgression(tensor) && IsNumberOfFormulas(index_, readers))
      return "equally spaced numbers or powers in a formula";
    return nullptr;
  }

 private:
  // Returns true if a reader is the product of a linear layer. The exporter renames its matrix, as it transposes it,
  // but not the module, which contains only the product and its bias. Programs start such matrices at identity.
  bool IsWeightOfLinear(const Readers& readers) const {
    return std::ranges::any_of(readers, [&](const WeightReader& r) {
      const std::string module = ScopePath(r.node->name);
      return IsOp(*r.node, {"MatMul"}) && r.input == 1 && !module.empty() && !beyond_linear_.contains(module);
    });
  }

  const WeightIndex& index_;
  std::unordered_set<std::string> beyond_linear_;  // scopes of other nodes than products and sums
};

// Returns the kind of an Identity's output. Masks of zeros and ones and numbers of formulas keep their kind; for a
// tensor of one element the readers of the output decide.
Kind FindCopyKind(const WeightIndex& index, const ParsedNode& identity) {
  if (!IsIdentity(identity) || identity.inputs.empty() || identity.outputs.empty()) return Kind::kUnknown;
  const std::string &weight = identity.inputs[0], &copy = identity.outputs[0];
  const HostTensor* stored = index.FindTensor(weight);
  const Readers& readers = index.ElementReaders(copy);
  if (stored == nullptr || readers.empty() || !IsFloat(stored->dtype()) || stored->size() == 0) return Kind::kUnknown;
  if (stored->size() == 1)
    return index.Kind(copy) == Kind::kUnknown ? FindScalarKind(index, copy, *stored, readers) : Kind::kUnknown;
  const bool mask = index.Kind(weight) == Kind::kConstant && IsOfZerosAndOnes(*stored);
  const bool grid = IsProgression(*stored) && IsNumberOfFormulas(index, readers);
  return grid || (mask && !IsWeightOf(readers)) ? Kind::kConstant : Kind::kUnknown;
}

// Finds random Fourier features (Tancik et al., 2020): sine and cosine of one product, perhaps scaled, with a matrix
// that was drawn once. A trained linear layer has one activation.
const std::string* FindRandomFrequencies(const WeightIndex& index, const ParsedNode& node) {
  const auto is_stored = [&](const std::string& input) { return index.graph().initializers.contains(input); };
  const auto matrix = std::ranges::find_if(node.inputs, is_stored);
  if (!IsOp(node, {"MatMul"}) || matrix == node.inputs.end() || IsParameterName(*matrix) || IsGeneratedName(*matrix))
    return nullptr;
  const ParsedNode* scale = FindOnlyReader(index, node, "Mul");
  const std::vector<std::string>& angles = (scale == nullptr ? node : *scale).outputs;
  if (angles.empty() || index.ElementReaders(angles[0]).size() != 2) return nullptr;
  const auto is_read_by = [&](std::string_view op) {
    return std::ranges::any_of(index.ElementReaders(angles[0]), [&](const auto& r) { return IsOp(*r.node, {op}); });
  };
  return is_read_by("Sin") && is_read_by("Cos") ? &*matrix : nullptr;
}

}  // namespace

absl::StatusOr<WeightRecords> MatchTracedConstants(WeightIndex* index) {
  WeightRecords records;
  for (const ParsedNode& node : index->graph().nodes) {
    if (IsTracedConstant(node))
      records.push_back(index->MakeKind(node.outputs[0], Kind::kConstant, "a Constant node of PyTorch's tracer"));
  }
  return records;
}

absl::StatusOr<WeightRecords> MatchFrequencies(WeightIndex* index) {
  WeightRecords records;
  for (const ParsedNode& node : index->graph().nodes) {
    if (const std::string* matrix = FindRandomFrequencies(*index, node))
      records.push_back(index->MakeKind(*matrix, Kind::kBuffer, "one product with it has a sine and a cosine"));
  }
  return records;
}

absl::StatusOr<WeightRecords> MatchKnownNames(WeightIndex* index) {
  WeightRecords records;
  for (const std::string& name : ListUnknown(*index)) {
    if (IsTracedConstantName(name)) {
      records.push_back(index->MakeKind(name, Kind::kConstant, "an exporter calls constants so"));
    } else if (IsBufferName(name)) {
      records.push_back(index->MakeKind(name, Kind::kBuffer, "libraries call buffers so"));
    }
  }
  return records;
}

absl::StatusOr<WeightRecords> MatchNumbers(WeightIndex* index) {
  const ConstantFinder constants(*index);
  WeightRecords records;
  for (const std::string& name : ListUnknown(*index)) {
    const HostTensor& tensor = index->graph().initializers.at(name);
    const Readers& readers = index->ElementReaders(name);
    if (tensor.size() == 1) {
      if (const Kind kind = FindScalarKind(*index, name, tensor, readers); kind != Kind::kUnknown)
        records.push_back(index->MakeKind(
            name, kind, kind == Kind::kParameter ? "one element, named as a parameter" : "a number of a formula"));
    } else if (const char* why = constants.Explain(name, tensor, readers)) {
      records.push_back(index->MakeKind(name, Kind::kConstant, why));
    }
  }
  return records;
}

absl::StatusOr<WeightRecords> MatchFixedCopies(WeightIndex* index) {
  WeightRecords records;
  for (const ParsedNode& node : index->graph().nodes) {
    if (const Kind kind = FindCopyKind(*index, node); kind != Kind::kUnknown)
      records.push_back(
          index->MakeKind(node.outputs[0], kind, StrCat("as '", node.inputs[0], "', behind an Identity")));
  }
  return records;
}

}  // namespace onnxtrain
