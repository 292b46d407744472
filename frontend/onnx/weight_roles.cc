// Names and splits weights by what their readers do, for files without the metadata of torch.export.
#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <set>

#include "frontend/base/status.h"
#include "frontend/onnx/module_path.h"
#include "frontend/onnx/tensor_compare.h"
#include "frontend/onnx/weight_names.h"
#include "frontend/onnx/weight_tracer.h"
#include "frontend/ops/op_classes.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

constexpr size_t kMaxVisited = 16;  // nodes between a factor and the softmax behind it

class RoleNamer {
 public:
  explicit RoleNamer(ParsedGraph* graph) : graph_(*graph), splitter_(graph) {
    for (ParsedNode& node : graph->nodes) {
      for (const std::string& output : node.outputs) producers_[output] = &node;
      for (size_t i = 0; i < node.inputs.size() && !ReadsShapeOnly(node); ++i)
        readers_[node.inputs[i]].push_back({&node, i});
    }
    for (const ParsedValue& output : graph->outputs) outputs_.insert(output.name);
  }

  void Run() {
    for (const ParsedNode& node : graph_.nodes) {
      if (IsTracedConstant(node)) graph_.origins[node.outputs[0]].kind = Kind::kConstant;
    }
    for (const std::string& name : std::vector(graph_.initializer_order)) {
      const HostTensor tensor = graph_.initializers.contains(name) ? graph_.initializers.at(name) : HostTensor();
      const auto readers = readers_.find(name);
      if (readers == readers_.end() || !IsFloat(tensor.dtype()) || tensor.size() == 0) continue;
      WeightOrigin& origin = graph_.origins[name];
      if (origin.kind != Kind::kUnknown) continue;
      if (tensor.size() == 1) origin.kind = ScalarKind(name, tensor, readers->second);
      if (tensor.size() > 1 && readers->second.size() > 1 && IsSplat(tensor)) SplitByModule(name, readers->second);
      if (IsGeneratedName(name) && origin.module_name.empty())
        graph_.origins[name].module_name = NameByReader(readers->second[0]);
    }
  }

 private:
  // PyTorch stores parameters as initializers. Its Constant nodes hold what tracing has found in the program.
  static bool IsTracedConstant(const ParsedNode& node) {
    const bool torch = node.fx != nullptr || node.name.starts_with("/");
    return torch && IsOp(node, {"Constant"}) && node.outputs.size() == 1 && !node.outputs[0].empty();
  }

  // A number that training must not change, a parameter, or unknown.
  Kind ScalarKind(const std::string& name, const HostTensor& tensor, const std::vector<WeightReader>& readers) const {
    if (IsParameterName(name)) return IsFactorOrTerm(readers) ? Kind::kParameter : Kind::kUnknown;
    if (tensor.shape().empty() || !std::ranges::all_of(readers, IsFactor)) return Kind::kUnknown;
    const bool shared = readers.size() > 1;
    return shared || LeadsToSoftmax(*readers[0].node) ? Kind::kConstant : Kind::kUnknown;
  }

  static bool IsFactor(const WeightReader& reader) { return IsOp(*reader.node, {"Mul", "Div"}); }

  // Whether no reader takes the number as an attribute of its formula, as ε, a bound or the scale of a quantization.
  static bool IsFactorOrTerm(const std::vector<WeightReader>& readers) {
    return std::ranges::all_of(readers, [](const WeightReader& reader) {
      return reader.node->domain.empty() && ReadsOnnxFactorOrTerm(reader.node->op_type);
    });
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
  static bool KeepsScores(const ParsedNode& node) {
    return (node.domain.empty() && PassesOnnxScores(node.op_type)) || IsViewOrCast(node);
  }

  // The matrix that a bias is added behind: the other weight of the node, or of the product before an Add.
  const HostTensor* FindMatrix(const WeightReader& reader) const {
    const ParsedNode* node = reader.node;
    if (IsOp(*node, {"Add"})) {
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

  // Whether the reader can only take a weight here: of a normalization, a product or a convolution, or the bias behind.
  bool TakesOwnWeight(const WeightReader& reader) const {
    return TakesWeight(*reader.node, reader.input) || (IsOp(*reader.node, {"Add"}) && FindMatrix(reader) != nullptr) ||
           IsScaleOfNorm(reader);
  }

  // Normalizations that exporters write as primitives are known by the name of their module.
  static bool IsScaleOfNorm(const WeightReader& reader) {
    std::string module = ScopePath(reader.node->name);
    module.erase(0, module.rfind('/') + 1);
    std::ranges::transform(module, module.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return IsOp(*reader.node, {"Mul"}) && module.find("norm") != std::string::npos;
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
    std::map<std::string, std::vector<WeightReader>> owners;
    std::vector<std::string> order;
    for (const WeightReader& reader : readers) {
      const std::string owner = OwnerOf(reader, modules);
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

  // Tells apart the modules that readers belong to; "" if nothing is known.
  std::string OwnerOf(const WeightReader& reader, const std::set<std::string>& modules) const {
    const std::string module = ModuleOfCall(reader.node->name, modules);
    if (!module.empty()) return StrCat(module, "#", reader.input);
    const HostTensor* matrix = FindMatrix(reader);
    if (matrix == nullptr) return "";
    const auto bytes = matrix->bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return StrCat(ToString(matrix->type()), "#", std::hash<std::string_view>()(text));
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
};

}  // namespace

void NameWeightsByReaders(ParsedGraph* graph) { RoleNamer(graph).Run(); }

}  // namespace onnxtrain
