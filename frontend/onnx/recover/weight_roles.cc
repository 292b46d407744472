// Names and splits weights according to their readers, for files without the metadata of torch.export.
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
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

constexpr size_t kMaxVisited = 16;  // nodes between a factor and the softmax after it

// Finds the weights of the rows that examine readers.
class RoleFinder {
 public:
  explicit RoleFinder(const WeightIndex& index) : index_(index), graph_(index.graph()) {
    for (const ParsedValue& input : graph_.inputs) {
      if (!graph_.initializers.contains(input.name)) raw_.insert(input.name);
    }
  }

  WeightRecords FindTracedConstants() const {
    WeightRecords records;
    for (const ParsedNode& node : graph_.nodes) {
      if (IsTracedConstant(node))
        records.push_back(index_.MakeKind(node.outputs[0], Kind::kConstant, "a Constant node of PyTorch's tracer"));
    }
    return records;
  }

  WeightRecords FindCopies() {
    WeightRecords records;
    for (const ParsedNode& node : graph_.nodes) {
      if (IsIdentity(node) && JoinCopy(node))
        records.push_back({.weight = node.outputs[0],
                           .why = StrCat("calls of one module read it and '", node.inputs[0], "'"),
                           .form = MergedCopy{.weight = node.inputs[0], .copy = node.outputs[0]}});
    }
    return records;
  }

  WeightRecords FindStandardizers() {
    for (const ParsedNode& node : graph_.nodes) {
      FindStandardizer(node);
      FindTransformer(node);
    }
    return std::move(records_);
  }

  WeightRecords FindMeans() const {
    WeightRecords records;
    for (const ParsedNode& node : graph_.nodes) {
      if (IsMeanOfNorm(node))
        records.push_back(index_.MakeKind(node.inputs[1], Kind::kBuffer, "the mean in (x − mean) · scale + shift"));
    }
    return records;
  }

  WeightRecords FindFrequencies() const {
    WeightRecords records;
    for (const ParsedNode& node : graph_.nodes) {
      if (const std::string* matrix = FindRandomFrequencies(node))
        records.push_back(index_.MakeKind(*matrix, Kind::kBuffer, "one product with it has a sine and a cosine"));
    }
    return records;
  }

  WeightRecords FindNamed() const {
    WeightRecords records;
    for (const std::string& name : ListOpen()) {
      if (IsTracedConstantName(name)) {
        records.push_back(index_.MakeKind(name, Kind::kConstant, "an exporter calls constants so"));
      } else if (IsBufferName(name)) {
        records.push_back(index_.MakeKind(name, Kind::kBuffer, "libraries call buffers so"));
      }
    }
    return records;
  }

  WeightRecords FindNumbers() {
    for (const ParsedNode& node : graph_.nodes) {
      if (!IsOp(node, {"MatMul", "Add"})) beyond_linear_.insert(ScopePath(node.name));
    }
    WeightRecords records;
    for (const std::string& name : ListOpen()) {
      const HostTensor& tensor = graph_.initializers.at(name);
      const auto& readers = index_.ElementReaders(name);
      if (tensor.size() == 1) {
        if (const Kind kind = ScalarKind(name, tensor, readers); kind != Kind::kUnknown)
          records.push_back(index_.MakeKind(
              name, kind, kind == Kind::kParameter ? "one element, named as a parameter" : "a number of a formula"));
      } else if (const char* why = ExplainConstant(name, tensor, readers)) {
        records.push_back(index_.MakeKind(name, Kind::kConstant, why));
      }
    }
    return records;
  }

  // Names weights after the modules of the nodes that read them.
  WeightRecords FindNames() const {
    WeightRecords records;
    for (const std::string& name : ListWithoutOrigin()) {
      const WeightOrigin& origin = index_.Origin(name);
      if (!IsGeneratedName(name) || !origin.module_name.empty()) continue;
      const std::string module_name = NameByReader(FirstComputing(index_.ElementReaders(name)));
      if (!module_name.empty())
        records.push_back({.weight = name,
                           .why = StrCat("the module of its reader makes it '", module_name, "'"),
                           .form = WeightOrigin{.kind = origin.kind, .module_name = module_name}});
    }
    return records;
  }

  WeightRecords FindSplits() const {
    WeightRecords records;
    SplitPlanner planner(index_);
    for (const std::string& name : ListWithoutOrigin()) {
      const HostTensor& tensor = graph_.initializers.at(name);
      const auto& readers = index_.ElementReaders(name);
      if (tensor.size() > 1 && readers.size() > 1 && IsFresh(tensor)) SplitByModule(name, readers, &planner);
    }
    for (const SplitWeight& split : planner.TakeSplits())
      records.push_back({.weight = split.name,
                         .why = StrCat("its readers are in another module than those of '", split.merged, "'"),
                         .form = split});
    return records;
  }

  WeightRecords FindFixedCopies() const {
    WeightRecords records;
    for (const ParsedNode& node : graph_.nodes) {
      if (const Kind kind = CopyKind(node); kind != Kind::kUnknown)
        records.push_back(
            index_.MakeKind(node.outputs[0], kind, StrCat("as '", node.inputs[0], "', behind an Identity")));
    }
    return records;
  }

 private:
  // PyTorch stores parameters as initializers. Its Constant nodes hold values that tracing found in the program.
  static bool IsTracedConstant(const ParsedNode& node) {
    const bool torch = node.fx != nullptr || node.name.starts_with("/");
    return torch && IsConstant(node) && node.outputs.size() == 1 && !node.outputs[0].empty();
  }

  static const WeightReader& FirstComputing(const std::vector<WeightReader>& readers) {
    const auto computes = std::ranges::find_if(readers, [](const auto& r) { return !IsIdentity(*r.node); });
    return computes == readers.end() ? readers[0] : *computes;
  }

  // Joins a copy with its weight. PyTorch's older exporter reads merged initializers of equal bytes through Identity
  // nodes. Copies that calls of one module read, "/query" and "/query_1", are one weight unless equal by chance. The
  // newer exporter merges without nodes: its Identity nodes are the program's copies (aten.alias).
  bool JoinCopy(const ParsedNode& identity) {
    if (identity.inputs.size() != 1 || identity.outputs.size() != 1) return false;
    const std::string copy = identity.outputs[0], weight = identity.inputs[0];
    const HostTensor* stored = index_.FindTensor(weight);
    if (stored == nullptr || index_.IsOutput(copy)) return false;
    const bool of_program = identity.fx != nullptr;
    if (!of_program && (IsSplat(*stored) || IsOfZerosAndOnes(*stored))) return false;
    std::set<std::string>& owners = owners_[weight];
    AddOwners(weight, &owners);
    const auto owned = [&](const auto& r) { return owners.contains(ModuleOfCall(r.node->name, owners)); };
    const auto& readers = index_.ElementReaders(copy);
    if (readers.empty() || !(of_program || std::ranges::all_of(readers, owned))) return false;
    AddOwners(copy, &owners);
    return true;
  }

  // Adds the scopes of nodes that read the value.
  void AddOwners(const std::string& value, std::set<std::string>* owners) const {
    for (const WeightReader& reader : index_.ElementReaders(value)) {
      if (!IsIdentity(*reader.node)) owners->insert(ScopePath(reader.node->name));
    }
    owners->erase("");
  }

  // Returns the kind of an Identity's output. Masks of zeros and ones and numbers of formulas keep their kind; for a
  // tensor of one element the readers of the output decide.
  Kind CopyKind(const ParsedNode& identity) const {
    if (!IsIdentity(identity) || identity.inputs.empty() || identity.outputs.empty()) return Kind::kUnknown;
    const std::string &weight = identity.inputs[0], &copy = identity.outputs[0];
    const HostTensor* stored = index_.FindTensor(weight);
    const auto& readers = index_.ElementReaders(copy);
    if (stored == nullptr || readers.empty() || !IsFloat(stored->dtype()) || stored->size() == 0) return Kind::kUnknown;
    if (stored->size() == 1)
      return index_.Kind(copy) == Kind::kUnknown ? ScalarKind(copy, *stored, readers) : Kind::kUnknown;
    const bool mask = index_.Kind(weight) == Kind::kConstant && IsOfZerosAndOnes(*stored);
    const bool grid = IsProgression(*stored) && IsNumberOfFormulas(readers);
    return grid || (mask && !IsWeightOf(readers)) ? Kind::kConstant : Kind::kUnknown;
  }

  // Lists the initializers of unknown kind that have elements to train, in the order of the file.
  std::vector<std::string> ListOpen() const {
    std::vector<std::string> names = ListRead();
    std::erase_if(names, [&](const std::string& name) { return index_.Kind(name) != Kind::kUnknown; });
    return names;
  }

  // Lists the same and those whose kind follows from their values alone.
  std::vector<std::string> ListWithoutOrigin() const {
    std::set<std::string> by_value;
    for (const WeightRecord& record : graph_.records) {
      if (record.row->matches == MatchNumbers) by_value.insert(record.weight);
    }
    std::vector<std::string> names = ListRead();
    std::erase_if(names, [&](const std::string& name) {
      return index_.Kind(name) != Kind::kUnknown && !by_value.contains(name);
    });
    return names;
  }

  std::vector<std::string> ListRead() const {
    std::vector<std::string> names = index_.ListInitializers();
    std::erase_if(names, [&](const std::string& name) {
      const HostTensor& tensor = graph_.initializers.at(name);
      return index_.ElementReaders(name).empty() || !IsFloat(tensor.dtype()) || tensor.size() == 0;
    });
    return names;
  }

  // Explains why training must not change a tensor of several elements; null if nothing indicates it.
  const char* ExplainConstant(const std::string& name, const HostTensor& tensor,
                              const std::vector<WeightReader>& readers) const {
    constexpr int64_t kMask = 4;  // elements; programs start pairs of factors at 1 and 0
    const bool named = IsGeneratedName(name) ? IsWeightOfLinear(readers) || IsForgetBias(tensor)
                                             : IsParameterName(name) || IsWeightOf(readers) || tensor.size() < kMask;
    if (!named && IsOfZerosAndOnes(tensor)) return "zeros and ones without a parameter's name";
    if (IsSumWindow(name, tensor, readers)) return "ones that a convolution sums windows with";
    if (IsZeroTerm(name, tensor, readers)) return "a row of zeros behind the product of another module";
    const bool of_layer = IsGeneratedName(name) ? IsWeightOfLinear(readers) : IsParameterName(name);
    if (!of_layer && IsGraphMatrix(tensor)) return "the matrix of a graph";
    if (IsProgression(tensor) && IsNumberOfFormulas(readers)) return "equally spaced numbers or powers in a formula";
    return nullptr;
  }

  // Finds means and deviations that programs hold as buffers: (x − mean) / std for an input x, one number per channel.
  void FindStandardizer(const ParsedNode& node) {
    if (node.inputs.empty() || !raw_.contains(node.inputs[0]) || node.outputs.empty()) return;
    if (IsViewOrCast(node)) raw_.insert(node.outputs[0]);
    if (!IsOp(node, {"Sub", "Div"}) || node.inputs.size() != 2) return;
    const HostTensor* stored = index_.FindTensor(node.inputs[1]);
    if (stored == nullptr || !IsVector(*stored)) return;
    raw_.insert(node.outputs[0]);
    if (index_.Kind(node.inputs[1]) == Kind::kUnknown)
      records_.push_back(index_.MakeKind(node.inputs[1], Kind::kStandardizer, "it shifts or scales an input"));
  }

  // Finds scaling and power transforms of scikit-learn: formulas without matrix products that read only inputs and the
  // numbers that skl2onnx names after the operators that read them, "Mu_Mulcst1".
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
      if (fixed_.contains(input))
        records_.push_back(index_.MakeKind(input, Kind::kStandardizer, "a number of a transform of inputs"));
    }
  }

  // Returns true for batch normalization for inference in Keras's form, (x − mean) · scale + shift. A trained mean
  // would be a second shift.
  bool IsMeanOfNorm(const ParsedNode& node) const {
    if (!IsOp(node, {"Sub"}) || node.inputs.size() != 2 || !IsComputedVector(node.inputs[1])) return false;
    const ParsedNode* scale = FindOnlyReader(node, "Mul");
    const ParsedNode* shift = scale == nullptr ? nullptr : FindOnlyReader(*scale, "Add");
    const auto is_vector = [&](const std::string& input) { return IsComputedVector(input); };
    return shift != nullptr && std::ranges::any_of(scale->inputs, is_vector) &&
           std::ranges::any_of(shift->inputs, is_vector);
  }

  // Finds random Fourier features (Tancik et al., 2020): sine and cosine of one product, perhaps scaled, with a matrix
  // that was drawn once. A trained linear layer has one activation.
  const std::string* FindRandomFrequencies(const ParsedNode& node) const {
    const auto matrix =
        std::ranges::find_if(node.inputs, [&](const auto& i) { return graph_.initializers.contains(i); });
    if (!IsOp(node, {"MatMul"}) || matrix == node.inputs.end() || IsParameterName(*matrix) || IsGeneratedName(*matrix))
      return nullptr;
    const ParsedNode* scale = FindOnlyReader(node, "Mul");
    const std::vector<std::string>& angles = (scale == nullptr ? node : *scale).outputs;
    if (angles.empty() || index_.ElementReaders(angles[0]).size() != 2) return nullptr;
    const auto is_read_by = [&](std::string_view op) {
      return std::ranges::any_of(index_.ElementReaders(angles[0]), [&](const auto& r) { return IsOp(*r.node, {op}); });
    };
    return is_read_by("Sin") && is_read_by("Cos") ? &*matrix : nullptr;
  }

  const ParsedNode* FindOnlyReader(const ParsedNode& node, std::string_view op) const {
    if (node.outputs.empty()) return nullptr;
    const auto& readers = index_.ElementReaders(node.outputs[0]);
    const bool only = readers.size() == 1 && !index_.IsOutput(node.outputs[0]);
    return only && IsOp(*readers[0].node, {op}) ? readers[0].node : nullptr;
  }

  // Returns true if it is a vector that the exporter computed, perhaps read through an Identity.
  bool IsComputedVector(const std::string& name) const {
    const ParsedNode* identity = index_.Producer(name);
    const bool copied = identity != nullptr && IsIdentity(*identity);
    const HostTensor* stored = index_.FindTensor(copied ? identity->inputs[0] : name);
    return IsComputedName(name) && stored != nullptr && IsVector(*stored);
  }

  static bool IsWeightOf(const std::vector<WeightReader>& readers) {
    return std::ranges::any_of(readers, [](const WeightReader& r) { return TakesWeight(*r.node, r.input); });
  }

  // Returns true if a reader is the product of a linear layer. The exporter renames its matrix, as it transposes it,
  // but not the module, which contains only the product and its bias. Programs start such matrices at identity.
  bool IsWeightOfLinear(const std::vector<WeightReader>& readers) const {
    return std::ranges::any_of(readers, [&](const WeightReader& r) {
      const std::string module = ScopePath(r.node->name);
      return IsOp(*r.node, {"MatMul"}) && r.input == 1 && !module.empty() && !beyond_linear_.contains(module);
    });
  }

  // Returns true for unit matrices and masks, which have both zeros and ones. Weights of zeros alone do not count.
  static bool IsOfZerosAndOnes(const HostTensor& tensor) {
    std::array<bool, 2> has = {false, false};
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double x = tensor.At(i);
      if (x != 0 && x != 1) return false;
      has[x == 1 ? 1 : 0] = true;
    }
    return has[0] && has[1];
  }

  // Returns whether a number is a constant, a parameter, or unknown.
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

  // Returns true for the 1/√d of attention, which programs that number their values may call a scale ("dpa_scale_0").
  // Names of modules have a path.
  static bool IsNumberedScale(std::string_view name, const HostTensor& tensor) {
    const double d = 1 / (tensor.At(0) * tensor.At(0));
    return IsNumbered(name) && d > 1.5 && std::abs(d - std::round(d)) < 1e-5 * d;
  }

  // Matches ones of a convolution of one channel without bias, which sums over windows ("reduce_window_sum_kernel_0").
  static bool IsSumWindow(std::string_view name, const HostTensor& tensor, const std::vector<WeightReader>& readers) {
    const bool of_channel = tensor.size() > 1 && tensor.shape().size() > 2 && tensor.shape()[1] == 1;
    if (!IsNumbered(name) || !of_channel || !IsSplat(tensor) || tensor.At(0) != 1) return false;
    return std::ranges::all_of(
        readers, [](const auto& r) { return IsOp(*r.node, {"Conv"}) && r.input == 1 && r.node->inputs.size() == 2; });
  }

  // Matches BART's final_logits_bias: a buffer of zeros [1, classes] that the program adds to its predictions and moves
  // to their device, so that the exporter loses its name. A layer's bias is a vector in the layer's module.
  bool IsZeroTerm(std::string_view name, const HostTensor& tensor, const std::vector<WeightReader>& readers) const {
    const Shape& shape = tensor.shape();
    const bool row = shape.size() > 1 && shape.back() > 1 && tensor.size() == shape.back();
    if (!IsGeneratedName(name) || !row || !IsSplat(tensor) || tensor.At(0) != 0) return false;
    return std::ranges::all_of(readers, [&](const WeightReader& r) {
      if (!IsOp(*r.node, {"Add"}) || r.node->inputs.size() != 2) return false;
      const ParsedNode* product = index_.Producer(r.node->inputs[1 - r.input]);
      return product != nullptr && GetOnnxTraits(*product).classifier &&
             ScopePath(product->name) != ScopePath(r.node->name);
    });
  }

  // Returns true for "name_3" without a path, which an exporter generated.
  static bool IsNumbered(std::string_view name) {
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    return digits < name.size() && digits > 1 && name[digits - 1] == '_' && name.find_first_of("./:") == name.npos;
  }

  // PyTorch's tracer names parameters as the program does, and stores numbers of formulas in Constant nodes.
  static bool IsTracedParameter(const std::string& name, const ParsedNode& reader) {
    return reader.name.starts_with("/") && !IsGeneratedName(name);
  }

  static bool IsFactor(const WeightReader& reader) { return IsOp(*reader.node, {"Mul", "Div"}); }

  // Returns true if no reader uses the number as a constant of its formula, such as ε, a bound or a quantization scale.
  static bool IsFactorOrTerm(const std::vector<WeightReader>& readers) {
    return std::ranges::all_of(readers, [](const auto& reader) { return GetOnnxTraits(*reader.node).scalar_weight; });
  }

  // Returns true if only arithmetic, and no layer, reads the tensor: frequencies, slopes and grids.
  bool IsNumberOfFormulas(const std::vector<WeightReader>& readers) const {
    return IsFactorOrTerm(readers) &&
           std::ranges::none_of(readers, [&](const WeightReader& r) { return TakesOwnWeight(r); });
  }

  bool LeadsToSoftmax(const ParsedNode& factor) const {
    std::vector<const ParsedNode*> open = {&factor};
    for (size_t at = 0; at < open.size() && open.size() < kMaxVisited; ++at) {
      for (const std::string& value : open[at]->outputs) {
        for (const WeightReader& reader : index_.ElementReaders(value)) {
          if (IsOp(*reader.node, {"Softmax"})) return true;
          if (KeepsScores(*reader.node) && open.size() < kMaxVisited) open.push_back(reader.node);
        }
      }
    }
    return false;
  }

  // Returns true if attention scores pass the node on the way to their softmax.
  static bool KeepsScores(const ParsedNode& node) { return GetOnnxTraits(node).scores || IsViewOrCast(node); }

  // Returns the matrix of a bias: the other weight of the node, or the weight of the product before an Add.
  const HostTensor* FindMatrix(const WeightReader& reader) const {
    const ParsedNode* node = reader.node;
    if (IsOp(*node, {"Add"})) {
      if (node->inputs.size() != 2) return nullptr;
      node = index_.Producer(node->inputs[1 - reader.input]);
      if (node == nullptr || !GetOnnxTraits(*node).classifier) return nullptr;
    } else if (GetOnnxTraits(*node).weight_inputs == 0) {
      return nullptr;
    }
    for (const std::string& input : node->inputs) {
      const HostTensor* weight = index_.FindTensor(input);
      if (weight != nullptr && weight->size() > 1 && !IsSplat(*weight)) return weight;
    }
    return nullptr;
  }

  // Returns the nearest such matrix before or after a node without one, such as a normalization.
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

  // Lists at most kMaxVisited readers per output.
  std::vector<WeightReader> FindReaders(const ParsedNode& node) const {
    std::vector<WeightReader> all;
    for (const std::string& value : node.outputs) {
      const auto& readers = index_.ElementReaders(value);
      const size_t count = std::min(readers.size(), kMaxVisited);
      all.insert(all.end(), readers.begin(), readers.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return all;
  }

  // Lists the producers, each with the position of its first initializer.
  std::vector<WeightReader> FindProducers(const ParsedNode& node) const {
    std::vector<WeightReader> all;
    for (const std::string& value : node.inputs) {
      ParsedNode* producer = index_.Producer(value);
      if (producer == nullptr) continue;
      const auto is_weight = [&](const auto& input) { return graph_.initializers.contains(input); };
      const auto& inputs = producer->inputs;
      const auto bias = std::ranges::find_if(inputs, is_weight);
      all.push_back({producer, bias == inputs.end() ? 0 : static_cast<size_t>(bias - inputs.begin())});
    }
    return all;
  }

  // Maps matrices before nodes to the matrices after them.
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

  // Identifies a module without a matrix by the matrix after it. A final normalization belongs to the module of another
  // one after the same matrix, as where layers share weights. Returns "" without a matrix.
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

  // Returns true if the input can only be a weight: of a normalization, matrix product or convolution, or the bias
  // added to one.
  bool TakesOwnWeight(const WeightReader& reader) const {
    return TakesWeight(*reader.node, reader.input) || (IsOp(*reader.node, {"Add"}) && FindMatrix(reader) != nullptr) ||
           IsScaleOfNorm(reader);
  }

  // Recognizes the scale of a normalization written as primitives by the name of its module, or by the root that it
  // divides by.
  bool IsScaleOfNorm(const WeightReader& reader) const {
    if (!IsOp(*reader.node, {"Mul"}) || reader.node->inputs.size() != 2) return false;
    std::string module = ScopePath(reader.node->name);
    module.erase(0, module.rfind('/') + 1);
    std::ranges::transform(module, module.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return module.find("norm") != std::string::npos || IsDividedByRoot(reader.node->inputs[1 - reader.input]);
  }

  // Matches x / √v and x · 1/√v.
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

  // Returns the node that computes the value, before views and casts.
  const ParsedNode* FindProducer(std::string value) const {
    for (size_t steps = 0; steps < kMaxVisited; ++steps) {
      const ParsedNode* producer = index_.Producer(value);
      if (producer == nullptr || !IsViewOrCast(*producer) || producer->inputs.empty()) return producer;
      value = producer->inputs[0];
    }
    return nullptr;
  }

  // Returns the module of a node. PyTorch appends the number of the call to a module that runs twice: "/norm/Add" and
  // "/norm_1/Add". Keras numbers different modules so, but its names do not begin with a slash.
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

  // Splits scales and biases that are equal because they are untrained.
  void SplitByModule(const std::string& name, const std::vector<WeightReader>& readers, SplitPlanner* planner) const {
    if (index_.IsOutput(name) || !std::ranges::all_of(readers, [&](const auto& r) { return TakesOwnWeight(r); }))
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
      SplitWeight split{
          .name = module_name.empty() ? name : module_name, .merged = name, .origin = {.module_name = module_name}};
      for (const WeightReader& reader : own) split.readers.push_back(MakeFileReader(*reader.node, reader.input));
      planner->Plan(std::move(split));
    }
  }

  // Identifies the module of a reader; "" if nothing is known. Tools that rewrite models lose the names of modules and
  // merge equal initializers: then matrices identify modules. Each node that ONNX Runtime fused counts as a module.
  std::string OwnerOf(const WeightReader& reader, const MatrixPairs& pairs, const std::set<std::string>& modules,
                      bool fused) const {
    const std::string module = ModuleOfCall(reader.node->name, modules);
    if (!module.empty()) return StrCat(module, "#", reader.input);
    if (fused && FindMatrix(reader) == nullptr) return StrCat(reader.node->source, "#", reader.input);
    const std::string matrix = ModuleByMatrix(reader, pairs);
    return matrix.empty() ? "" : StrCat(matrix, "#", reader.input);
  }

  // Returns "encoder.norm1.weight", or "" if the node's name has no module.
  std::string NameByReader(const WeightReader& reader) const {
    const std::string module = DottedModule(reader.node->name);
    if (module.empty() || !TakesOwnWeight(reader)) return "";
    constexpr std::array<std::string_view, 5> kParts = {"weight", "weight", "bias", "running_mean", "running_var"};
    const bool bias = IsOp(*reader.node, {"Add"});
    return StrCat(module, ".", bias ? "bias" : kParts[std::min(reader.input, kParts.size() - 1)]);
  }

  const WeightIndex& index_;
  const ParsedGraph& graph_;
  WeightRecords records_;
  std::map<std::string, std::set<std::string>> owners_;  // scopes that read a weight
  std::unordered_set<std::string> beyond_linear_;        // scopes of other nodes than products and sums
  std::unordered_set<std::string> fixed_;                // numbers of skl2onnx
  std::unordered_set<std::string> transformed_;          // values computed from those and inputs of the model alone
  std::unordered_set<std::string> raw_;                  // inputs of the model, viewed, cast or standardized
};

}  // namespace

absl::StatusOr<WeightRecords> MatchTracedConstants(WeightIndex* index) {
  return RoleFinder(*index).FindTracedConstants();
}
absl::StatusOr<WeightRecords> MatchSharedCopies(WeightIndex* index) { return RoleFinder(*index).FindCopies(); }
absl::StatusOr<WeightRecords> MatchStandardizers(WeightIndex* index) { return RoleFinder(*index).FindStandardizers(); }
absl::StatusOr<WeightRecords> MatchMeans(WeightIndex* index) { return RoleFinder(*index).FindMeans(); }
absl::StatusOr<WeightRecords> MatchFrequencies(WeightIndex* index) { return RoleFinder(*index).FindFrequencies(); }
absl::StatusOr<WeightRecords> MatchKnownNames(WeightIndex* index) { return RoleFinder(*index).FindNamed(); }
absl::StatusOr<WeightRecords> MatchNumbers(WeightIndex* index) { return RoleFinder(*index).FindNumbers(); }
absl::StatusOr<WeightRecords> MatchModules(WeightIndex* index) { return RoleFinder(*index).FindNames(); }
absl::StatusOr<WeightRecords> MatchFreshWeights(WeightIndex* index) { return RoleFinder(*index).FindSplits(); }
absl::StatusOr<WeightRecords> MatchFixedCopies(WeightIndex* index) { return RoleFinder(*index).FindFixedCopies(); }

// Nodes that read only the shape of the copy keep reading it.
void BuildSharedCopy(const WeightRecord& record, WeightIndex* index) {
  const auto& [weight, copy] = std::get<MergedCopy>(record.form);
  for (const WeightReader& reader : index->ElementReaders(copy)) reader.node->inputs[reader.input] = weight;
}

}  // namespace onnxtrain
