// Names and splits weights by what their readers do, for files without the metadata of torch.export.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/tensor_compare.h"
#include "frontend/onnx/recover/weight_names.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

constexpr size_t kMaxVisited = 16;  // nodes between a factor and the softmax behind it

class RoleNamer {
 public:
  explicit RoleNamer(ParsedGraph* graph) : graph_(*graph), splitter_(graph) {
    for (ParsedNode& node : graph->nodes) {
      for (const std::string& output : node.outputs) producers_[output] = &node;
      if (!IsOp(node, {"MatMul", "Add"})) beyond_linear_.insert(ScopePath(node.name));
      for (size_t i = 0; i < node.inputs.size() && !ReadsShapeOnly(node); ++i)
        readers_[node.inputs[i]].push_back({&node, i});
    }
    for (const ParsedValue& output : graph->outputs) outputs_.insert(output.name);
    for (const ParsedValue& input : graph->inputs) {
      if (!graph->initializers.contains(input.name)) raw_.insert(input.name);
    }
  }

  void Run() {
    for (ParsedNode& node : graph_.nodes) {
      if (IsTracedConstant(node)) graph_.origins[node.outputs[0]].kind = Kind::kConstant;
      if (IsOp(node, {"Identity"})) JoinCopy(node);
      FindStandardizer(node);
      FindTransformer(node);
      FindMean(node);
      FindRandomFrequencies(node);
    }
    for (const std::string& name : std::vector(graph_.initializer_order)) {
      const auto stored = graph_.initializers.find(name);
      const auto readers = readers_.find(name);
      if (stored == graph_.initializers.end() || readers == readers_.end()) continue;
      const HostTensor tensor = stored->second;
      if (!IsFloat(tensor.dtype()) || tensor.size() == 0) continue;
      WeightOrigin& origin = graph_.origins[name];
      if (origin.kind == Kind::kUnknown && IsTracedConstantName(name)) origin.kind = Kind::kConstant;
      if (origin.kind == Kind::kUnknown && IsBufferName(name)) origin.kind = Kind::kBuffer;
      if (origin.kind != Kind::kUnknown) continue;
      if (tensor.size() == 1) origin.kind = ScalarKind(name, tensor, readers->second);
      constexpr int64_t kMask = 4;  // elements; programs start pairs of factors at 1 and 0
      const bool named = IsGeneratedName(name)
                             ? IsWeightOfLinear(readers->second) || IsForgetBias(tensor)
                             : IsParameterName(name) || IsWeightOf(readers->second) || tensor.size() < kMask;
      if (!named && IsOfZerosAndOnes(tensor)) origin.kind = Kind::kConstant;
      if (IsSumWindow(name, tensor, readers->second)) origin.kind = Kind::kConstant;
      if (IsZeroTerm(name, tensor, readers->second)) origin.kind = Kind::kConstant;
      const bool of_layer = IsGeneratedName(name) ? IsWeightOfLinear(readers->second) : IsParameterName(name);
      if (!of_layer && IsGraphMatrix(tensor)) origin.kind = Kind::kConstant;
      if (IsProgression(tensor) && IsNumberOfFormulas(readers->second)) origin.kind = Kind::kConstant;
      if (tensor.size() > 1 && readers->second.size() > 1 && IsFresh(tensor)) SplitByModule(name, readers->second);
      if (IsGeneratedName(name) && origin.module_name.empty())
        graph_.origins[name].module_name = NameByReader(FirstComputing(readers->second));
    }
    for (const ParsedNode& node : graph_.nodes) FixCopy(node);
  }

 private:
  // PyTorch stores parameters as initializers. Its Constant nodes hold what tracing has found in the program.
  static bool IsTracedConstant(const ParsedNode& node) {
    const bool torch = node.fx != nullptr || node.name.starts_with("/");
    return torch && IsOp(node, {"Constant"}) && node.outputs.size() == 1 && !node.outputs[0].empty();
  }

  static const WeightReader& FirstComputing(const std::vector<WeightReader>& readers) {
    const auto computes = std::ranges::find_if(readers, [](const auto& r) { return !IsOp(*r.node, {"Identity"}); });
    return computes == readers.end() ? readers[0] : *computes;
  }

  // PyTorch's older exporter reads initializers of equal bytes through Identity nodes where it has merged them. Copies
  // that calls of one module read, "/query" and "/query_1", are one weight, unless nothing but chance has made them
  // equal. The newer one merges without nodes: its Identity nodes are the program's own copies (aten.alias).
  void JoinCopy(const ParsedNode& identity) {
    if (identity.inputs.size() != 1 || identity.outputs.size() != 1) return;
    const std::string copy = identity.outputs[0], weight = identity.inputs[0];
    const auto stored = graph_.initializers.find(weight);
    if (stored == graph_.initializers.end() || outputs_.contains(copy)) return;
    const bool of_program = identity.fx != nullptr;
    if (!of_program && (IsSplat(stored->second) || IsOfZerosAndOnes(stored->second))) return;
    std::set<std::string> owners;
    for (const WeightReader& reader : readers_[weight]) {
      if (!IsOp(*reader.node, {"Identity"})) owners.insert(ScopePath(reader.node->name));
    }
    owners.erase("");
    const std::vector<WeightReader> readers = readers_[copy];
    const auto owned = [&](const auto& r) { return owners.contains(ModuleOfCall(r.node->name, owners)); };
    if (readers.empty() || !(of_program || std::ranges::all_of(readers, owned))) return;
    for (const WeightReader& reader : readers) reader.node->inputs[reader.input] = weight;
    readers_[weight].insert(readers_[weight].end(), readers.begin(), readers.end());
    readers_.erase(copy);
  }

  // A mask of zeros and ones is one behind an Identity, too, and so are numbers of formulas. A tensor of one element is
  // what its own readers tell.
  void FixCopy(const ParsedNode& identity) {
    if (!IsOp(identity, {"Identity"}) || identity.inputs.empty() || identity.outputs.empty()) return;
    const auto stored = graph_.initializers.find(identity.inputs[0]);
    const auto readers = readers_.find(identity.outputs[0]);
    if (stored == graph_.initializers.end() || readers == readers_.end() || !IsFloat(stored->second.dtype()) ||
        stored->second.size() == 0)
      return;
    if (stored->second.size() == 1) {
      WeightOrigin& origin = graph_.origins[identity.outputs[0]];
      if (origin.kind == Kind::kUnknown) origin.kind = ScalarKind(identity.outputs[0], stored->second, readers->second);
      return;
    }
    const bool mask = graph_.origins[identity.inputs[0]].kind == Kind::kConstant && IsOfZerosAndOnes(stored->second);
    const bool grid = IsProgression(stored->second) && IsNumberOfFormulas(readers->second);
    if (grid || (mask && !IsWeightOf(readers->second))) graph_.origins[identity.outputs[0]].kind = Kind::kConstant;
  }

  // Means and deviations that programs hold as buffers: (x − mean) / std for an input x, one number for each channel.
  void FindStandardizer(const ParsedNode& node) {
    if (node.inputs.empty() || !raw_.contains(node.inputs[0]) || node.outputs.empty()) return;
    if (IsViewOrCast(node)) raw_.insert(node.outputs[0]);
    if (!IsOp(node, {"Sub", "Div"}) || node.inputs.size() != 2) return;
    const auto stored = graph_.initializers.find(node.inputs[1]);
    if (stored == graph_.initializers.end() || !IsVector(stored->second)) return;
    raw_.insert(node.outputs[0]);
    if (WeightOrigin& origin = graph_.origins[node.inputs[1]]; origin.kind == Kind::kUnknown)
      origin.kind = Kind::kStandardizer;
  }

  // The scaling and the power transforms of scikit-learn: formulas without products of matrices, of nothing but inputs
  // and of the numbers that skl2onnx calls after the operators that read them, "Mu_Mulcst1".
  void FindTransformer(const ParsedNode& node) {
    const auto is_number = [&](const std::string& input) {
      return graph_.initializers.contains(input) &&
             input.substr(0, input.find_last_not_of("0123456789") + 1).ends_with("_" + node.op_type + "cst");
    };
    const auto is_raw = [&](const std::string& input) { return raw_.contains(input) || transformed_.contains(input); };
    for (const std::string& input : node.inputs) {
      if (is_number(input)) fixed_.insert(input);
    }
    const auto is_known = [&](const std::string& input) { return is_raw(input) || fixed_.contains(input); };
    if (GetOnnxTraits(node).classifier || node.outputs.empty() || !std::ranges::all_of(node.inputs, is_known) ||
        std::ranges::none_of(node.inputs, is_raw))
      return;
    transformed_.insert(node.outputs[0]);
    for (const std::string& input : node.inputs) {
      if (fixed_.contains(input)) graph_.origins[input].kind = Kind::kStandardizer;
    }
  }

  // Batch normalization for inference as Keras writes it: (x − mean) · scale + shift. A trained mean would be a second
  // shift.
  void FindMean(const ParsedNode& node) {
    if (!IsOp(node, {"Sub"}) || node.inputs.size() != 2 || !IsComputedVector(node.inputs[1])) return;
    const ParsedNode* scale = FindOnlyReader(node, "Mul");
    const ParsedNode* shift = scale == nullptr ? nullptr : FindOnlyReader(*scale, "Add");
    if (shift != nullptr && std::ranges::any_of(scale->inputs, [&](const auto& i) { return IsComputedVector(i); }) &&
        std::ranges::any_of(shift->inputs, [&](const auto& i) { return IsComputedVector(i); }))
      graph_.origins[node.inputs[1]].kind = Kind::kBuffer;
  }

  // Random Fourier features (Tancik et al., 2020): the sine and the cosine of one product, perhaps scaled, of a matrix
  // that was drawn once. A linear layer that is trained has one activation.
  void FindRandomFrequencies(const ParsedNode& node) {
    const auto matrix =
        std::ranges::find_if(node.inputs, [&](const auto& i) { return graph_.initializers.contains(i); });
    if (!IsOp(node, {"MatMul"}) || matrix == node.inputs.end() || IsParameterName(*matrix) || IsGeneratedName(*matrix))
      return;
    const ParsedNode* scale = FindOnlyReader(node, "Mul");
    const std::vector<std::string>& angles = (scale == nullptr ? node : *scale).outputs;
    const auto readers = angles.empty() ? readers_.end() : readers_.find(angles[0]);
    if (readers == readers_.end() || readers->second.size() != 2) return;
    const auto is_read_by = [&](std::string_view op) {
      return std::ranges::any_of(readers->second, [&](const auto& r) { return IsOp(*r.node, {op}); });
    };
    if (is_read_by("Sin") && is_read_by("Cos")) graph_.origins[*matrix].kind = Kind::kBuffer;
  }

  const ParsedNode* FindOnlyReader(const ParsedNode& node, std::string_view op) const {
    if (node.outputs.empty()) return nullptr;
    const auto readers = readers_.find(node.outputs[0]);
    const bool only = readers != readers_.end() && readers->second.size() == 1 && !outputs_.contains(node.outputs[0]);
    return only && IsOp(*readers->second[0].node, {op}) ? readers->second[0].node : nullptr;
  }

  // Whether it is a vector that the exporter computed, perhaps one behind an Identity.
  bool IsComputedVector(const std::string& name) const {
    const auto identity = producers_.find(name);
    const bool copied = identity != producers_.end() && IsOp(*identity->second, {"Identity"});
    const auto stored = graph_.initializers.find(copied ? identity->second->inputs[0] : name);
    return IsComputedName(name) && stored != graph_.initializers.end() && IsVector(stored->second);
  }

  static bool IsWeightOf(const std::vector<WeightReader>& readers) {
    return std::ranges::any_of(readers, [](const WeightReader& r) { return TakesWeight(*r.node, r.input); });
  }

  // The exporter renames the matrix of a linear layer, as it transposes it, but not the module, which is nothing but
  // the product and its bias. Programs start such matrices at identity.
  bool IsWeightOfLinear(const std::vector<WeightReader>& readers) const {
    return std::ranges::any_of(readers, [&](const WeightReader& r) {
      const std::string module = ScopePath(r.node->name);
      return IsOp(*r.node, {"MatMul"}) && r.input == 1 && !module.empty() && !beyond_linear_.contains(module);
    });
  }

  // Unit matrices and masks, which are not called like parameters. A weight of nothing but zeros, of both signs
  // where a scale of zero was folded into it, is none.
  static bool IsOfZerosAndOnes(const HostTensor& tensor) {
    std::array<bool, 2> has = {false, false};
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double x = tensor.At(i);
      if (x != 0 && x != 1) return false;
      has[x == 1 ? 1 : 0] = true;
    }
    return has[0] && has[1];
  }

  // A number that training must not change, a parameter, or unknown.
  Kind ScalarKind(const std::string& name, const HostTensor& tensor, const std::vector<WeightReader>& readers) const {
    const bool factor = std::ranges::all_of(readers, IsFactor);
    const bool fixed = factor && (readers.size() > 1 || LeadsToSoftmax(*readers[0].node));
    if (fixed && IsNumberedScale(name, tensor)) return Kind::kConstant;
    const bool slope = std::ranges::all_of(readers, [](const auto& r) { return IsOp(*r.node, {"PRelu"}); });
    if (slope) return Kind::kParameter;
    const bool parameter = IsParameterName(name) || (!fixed && IsTracedParameter(name, *readers[0].node));
    if (parameter) return IsFactorOrTerm(readers) ? Kind::kParameter : Kind::kUnknown;
    return fixed && !tensor.shape().empty() ? Kind::kConstant : Kind::kUnknown;
  }

  // The 1/√d of attention, which programs that number what they make may call a scale ("dpa_scale_0"). Names of modules
  // have a path.
  static bool IsNumberedScale(std::string_view name, const HostTensor& tensor) {
    const double d = 1 / (tensor.At(0) * tensor.At(0));
    return IsNumbered(name) && d > 1.5 && std::abs(d - std::round(d)) < 1e-5 * d;
  }

  // Ones of a convolution of one channel without bias, which sums over windows ("reduce_window_sum_kernel_0").
  static bool IsSumWindow(std::string_view name, const HostTensor& tensor, const std::vector<WeightReader>& readers) {
    const bool of_channel = tensor.size() > 1 && tensor.shape().size() > 2 && tensor.shape()[1] == 1;
    if (!IsNumbered(name) || !of_channel || !IsSplat(tensor) || tensor.At(0) != 1) return false;
    return std::ranges::all_of(
        readers, [](const auto& r) { return IsOp(*r.node, {"Conv"}) && r.input == 1 && r.node->inputs.size() == 2; });
  }

  // A buffer of zeros [1, classes] that the program adds to its predictions, and moves to their device, for which the
  // exporter forgets its name: BART's final_logits_bias. The bias of a layer is a vector, beside the layer's product.
  bool IsZeroTerm(std::string_view name, const HostTensor& tensor, const std::vector<WeightReader>& readers) const {
    const Shape& shape = tensor.shape();
    const bool row = shape.size() > 1 && shape.back() > 1 && tensor.size() == shape.back();
    if (!IsGeneratedName(name) || !row || !IsSplat(tensor) || tensor.At(0) != 0) return false;
    return std::ranges::all_of(readers, [&](const WeightReader& r) {
      if (!IsOp(*r.node, {"Add"}) || r.node->inputs.size() != 2) return false;
      const auto product = producers_.find(r.node->inputs[1 - r.input]);
      return product != producers_.end() && GetOnnxTraits(*product->second).classifier &&
             ScopePath(product->second->name) != ScopePath(r.node->name);
    });
  }

  // "name_3" without a path: what an exporter has made and numbered.
  static bool IsNumbered(std::string_view name) {
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    return digits < name.size() && digits > 1 && name[digits - 1] == '_' && name.find_first_of("./:") == name.npos;
  }

  // PyTorch's tracer calls parameters as the program does, and stores the numbers of formulas in Constant nodes.
  static bool IsTracedParameter(const std::string& name, const ParsedNode& reader) {
    return reader.name.starts_with("/") && !IsGeneratedName(name);
  }

  static bool IsFactor(const WeightReader& reader) { return IsOp(*reader.node, {"Mul", "Div"}); }

  // Whether no reader takes the number as an attribute of its formula, as ε, a bound or the scale of a quantization.
  static bool IsFactorOrTerm(const std::vector<WeightReader>& readers) {
    return std::ranges::all_of(readers, [](const auto& reader) { return GetOnnxTraits(*reader.node).scalar_weight; });
  }

  // Frequencies, slopes and grids are read by arithmetic, not where a layer has its weight.
  bool IsNumberOfFormulas(const std::vector<WeightReader>& readers) const {
    return IsFactorOrTerm(readers) &&
           std::ranges::none_of(readers, [&](const WeightReader& r) { return TakesOwnWeight(r); });
  }

  bool LeadsToSoftmax(const ParsedNode& factor) const {
    std::vector<const ParsedNode*> open = {&factor};
    for (size_t at = 0; at < open.size() && open.size() < kMaxVisited; ++at) {
      for (const std::string& value : open[at]->outputs) {
        const auto readers = readers_.find(value);
        if (readers == readers_.end()) continue;
        for (const WeightReader& reader : readers->second) {
          if (IsOp(*reader.node, {"Softmax"})) return true;
          if (KeepsScores(*reader.node) && open.size() < kMaxVisited) open.push_back(reader.node);
        }
      }
    }
    return false;
  }

  // Whether attention scores pass the node on the way to their softmax.
  static bool KeepsScores(const ParsedNode& node) { return GetOnnxTraits(node).scores || IsViewOrCast(node); }

  // The matrix that a bias is added behind: the other weight of the node, or of the product before an Add.
  const HostTensor* FindMatrix(const WeightReader& reader) const {
    const ParsedNode* node = reader.node;
    if (IsOp(*node, {"Add"})) {
      if (node->inputs.size() != 2) return nullptr;
      const auto producer = producers_.find(node->inputs[1 - reader.input]);
      if (producer == producers_.end() || !GetOnnxTraits(*producer->second).classifier) return nullptr;
      node = producer->second;
    } else if (GetOnnxTraits(*node).weight_inputs == 0) {
      return nullptr;
    }
    for (const std::string& input : node->inputs) {
      const auto weight = graph_.initializers.find(input);
      if (weight != graph_.initializers.end() && weight->second.size() > 1 && !IsSplat(weight->second))
        return &weight->second;
    }
    return nullptr;
  }

  // The nearest such matrix before or behind a node without one, as a normalization.
  const HostTensor* FindMatrixNear(const ParsedNode& node, bool behind) const {
    std::vector<const ParsedNode*> open = {&node};
    for (size_t at = 0; at < open.size(); ++at) {
      for (const WeightReader& reader : behind ? FindReaders(*open[at]) : FindProducers(*open[at])) {
        if (open.size() == kMaxVisited) return nullptr;
        if (const HostTensor* matrix = FindMatrix(reader)) return matrix;
        open.push_back(reader.node);
      }
    }
    return nullptr;
  }

  // No more than are visited.
  std::vector<WeightReader> FindReaders(const ParsedNode& node) const {
    std::vector<WeightReader> all;
    for (const std::string& value : node.outputs) {
      const auto readers = readers_.find(value);
      if (readers == readers_.end()) continue;
      const size_t count = std::min(readers->second.size(), kMaxVisited);
      all.insert(all.end(), readers->second.begin(), readers->second.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return all;
  }

  // Each with the input that its bias would be.
  std::vector<WeightReader> FindProducers(const ParsedNode& node) const {
    std::vector<WeightReader> all;
    for (const std::string& value : node.inputs) {
      const auto producer = producers_.find(value);
      if (producer == producers_.end()) continue;
      const auto is_weight = [&](const auto& input) { return graph_.initializers.contains(input); };
      const auto& inputs = producer->second->inputs;
      const auto bias = std::ranges::find_if(inputs, is_weight);
      all.push_back({producer->second, bias == inputs.end() ? 0 : static_cast<size_t>(bias - inputs.begin())});
    }
    return all;
  }

  // The matrices behind nodes, by those before them.
  using MatrixPairs = std::unordered_map<const HostTensor*, const HostTensor*>;

  MatrixPairs PairMatrices(const std::vector<WeightReader>& readers) const {
    MatrixPairs pairs;
    for (const WeightReader& reader : readers) {
      const HostTensor* before = FindMatrixNear(*reader.node, false);
      const HostTensor* behind = before == nullptr ? nullptr : FindMatrixNear(*reader.node, true);
      if (behind != nullptr) pairs.emplace(before, behind);
    }
    return pairs;
  }

  // Tells apart modules that have no matrix themselves: by the one behind. A normalization that is the last one belongs
  // to the module of another that is behind the same matrix, as where layers share their weights. "" if there is none.
  std::string ModuleByMatrix(const WeightReader& reader, const MatrixPairs& pairs) const {
    if (const HostTensor* own = FindMatrix(reader)) return Fingerprint(*own);
    if (const HostTensor* behind = FindMatrixNear(*reader.node, true)) return Fingerprint(*behind);
    const HostTensor* before = FindMatrixNear(*reader.node, false);
    if (before == nullptr) return "";
    const auto pair = pairs.find(before);
    return pair != pairs.end() ? Fingerprint(*pair->second) : StrCat("behind ", Fingerprint(*before));
  }

  static std::string Fingerprint(const HostTensor& tensor) {
    const auto bytes = tensor.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return StrCat(ToString(tensor.type()), "#", std::hash<std::string_view>()(text));
  }

  // Whether the reader can only take a weight here: of a normalization, a product or a convolution, or the bias behind.
  bool TakesOwnWeight(const WeightReader& reader) const {
    return TakesWeight(*reader.node, reader.input) || (IsOp(*reader.node, {"Add"}) && FindMatrix(reader) != nullptr) ||
           IsScaleOfNorm(reader);
  }

  // Normalizations that exporters write as primitives are known by the name of their module, or by the root that they
  // divide by.
  bool IsScaleOfNorm(const WeightReader& reader) const {
    if (!IsOp(*reader.node, {"Mul"}) || reader.node->inputs.size() != 2) return false;
    std::string module = ScopePath(reader.node->name);
    module.erase(0, module.rfind('/') + 1);
    std::ranges::transform(module, module.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return module.find("norm") != std::string::npos || IsDividedByRoot(reader.node->inputs[1 - reader.input]);
  }

  // x / √v, or x · 1/√v.
  bool IsDividedByRoot(const std::string& value) const {
    const ParsedNode* node = FindProducer(value);
    if (node == nullptr || node->inputs.size() != 2) return false;
    const auto is = [&](const std::string& factor, std::string_view op) {
      const ParsedNode* producer = FindProducer(factor);
      return producer != nullptr && IsOp(*producer, {op}) ? producer : nullptr;
    };
    if (IsOp(*node, {"Div"})) return is(node->inputs[1], "Sqrt") != nullptr;
    return IsOp(*node, {"Mul"}) && std::ranges::any_of(node->inputs, [&](const std::string& factor) {
             const ParsedNode* inverse = is(factor, "Reciprocal");
             return inverse != nullptr && !inverse->inputs.empty() && is(inverse->inputs[0], "Sqrt") != nullptr;
           });
  }

  // The node that computes the value, before views and casts.
  const ParsedNode* FindProducer(std::string value) const {
    for (size_t steps = 0; steps < kMaxVisited; ++steps) {
      const auto producer = producers_.find(value);
      if (producer == producers_.end()) return nullptr;
      if (!IsViewOrCast(*producer->second) || producer->second->inputs.empty()) return producer->second;
      value = producer->second->inputs[0];
    }
    return nullptr;
  }

  // PyTorch appends the number of the call to a module that runs twice: "/norm/Add" and "/norm_1/Add". Keras tells
  // modules apart by such numbers, but its names do not begin with a slash.
  static std::string ModuleOfCall(const std::string& node, const std::set<std::string>& modules) {
    const std::string module = ScopePath(node);
    if (!node.starts_with("/")) return module;
    std::string stripped;
    for (const std::string& part : SplitModule(module)) {
      const size_t bar = part.rfind('_');
      const bool numbered = bar != std::string::npos && bar + 1 < part.size() &&
                            std::all_of(part.begin() + static_cast<std::ptrdiff_t>(bar) + 1, part.end(),
                                        [](unsigned char c) { return std::isdigit(c) != 0; });
      StrAppend(&stripped, stripped.empty() ? "" : "/", numbered ? part.substr(0, bar) : part);
    }
    return modules.contains(stripped) ? stripped : module;
  }

  // Splits scales and biases that are equal because nothing has trained them.
  void SplitByModule(const std::string& name, const std::vector<WeightReader>& readers) {
    if (outputs_.contains(name) || !std::ranges::all_of(readers, [&](const auto& r) { return TakesOwnWeight(r); }))
      return;
    std::set<std::string> modules;
    for (const WeightReader& reader : readers) modules.insert(ScopePath(reader.node->name));
    const bool fused =
        std::ranges::any_of(readers, [](const auto& reader) { return reader.node->domain == "com.microsoft"; });
    std::map<std::string, std::vector<WeightReader>> owners;
    std::vector<std::string> order;
    const MatrixPairs pairs = modules.contains("") && !fused ? PairMatrices(readers) : MatrixPairs();
    for (const WeightReader& reader : readers) {
      const std::string owner = OwnerOf(reader, pairs, modules, fused);
      if (owner.empty()) continue;
      if (!owners.contains(owner)) order.push_back(owner);
      owners[owner].push_back(reader);
    }
    const auto keeps_name = [&](const std::string& owner) { return NameByReader(owners.at(owner)[0]) == name; };
    const auto keeper = std::ranges::find_if(order, keeps_name);
    if (keeper != order.end()) std::rotate(order.begin(), keeper, keeper + 1);
    for (size_t i = 1; i < order.size(); ++i) {
      const std::vector<WeightReader>& own = owners.at(order[i]);
      const std::string module_name = NameByReader(own[0]);
      const std::string copy = splitter_.Split(name, module_name.empty() ? name : module_name, own);
      graph_.origins[copy].module_name = module_name;
    }
  }

  // Tells apart the modules that readers belong to; "" if nothing is known. Tools that rewrite models lose the names of
  // modules and merge equal initializers: there matrices tell. Each node that ONNX Runtime has fused counts as a
  // module.
  std::string OwnerOf(const WeightReader& reader, const MatrixPairs& pairs, const std::set<std::string>& modules,
                      bool fused) const {
    const std::string module = ModuleOfCall(reader.node->name, modules);
    if (!module.empty()) return StrCat(module, "#", reader.input);
    if (fused && FindMatrix(reader) == nullptr) return StrCat(reader.node->source, "#", reader.input);
    const std::string matrix = ModuleByMatrix(reader, pairs);
    return matrix.empty() ? "" : StrCat(matrix, "#", reader.input);
  }

  // "encoder.norm1.weight", or "" if the node's name has no module.
  std::string NameByReader(const WeightReader& reader) const {
    const std::string module = DottedModule(reader.node->name);
    if (module.empty() || !TakesOwnWeight(reader)) return "";
    constexpr std::array<std::string_view, 5> kParts = {"weight", "weight", "bias", "running_mean", "running_var"};
    const bool bias = IsOp(*reader.node, {"Add"});
    return StrCat(module, ".", bias ? "bias" : kParts[std::min(reader.input, kParts.size() - 1)]);
  }

  ParsedGraph& graph_;
  WeightSplitter splitter_;
  std::unordered_map<std::string, ParsedNode*> producers_;
  std::unordered_map<std::string, std::vector<WeightReader>> readers_;
  std::unordered_set<std::string> outputs_;
  std::unordered_set<std::string> beyond_linear_;  // scopes of other nodes than products and sums
  std::unordered_set<std::string> fixed_;          // numbers of skl2onnx
  std::unordered_set<std::string> transformed_;    // formulas of nothing but those and inputs of the model
  std::unordered_set<std::string> raw_;            // inputs of the model, viewed, cast or standardized
};

}  // namespace

void NameWeightsByReaders(ParsedGraph* graph) {
  FindRunningStatistics(graph);
  RoleNamer(graph).Run();
}

}  // namespace onnxtrain
