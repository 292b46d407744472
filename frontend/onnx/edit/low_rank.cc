#include "frontend/onnx/edit/low_rank.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/edit/library_names.h"
#include "frontend/onnx/edit/output_layer.h"
#include "frontend/onnx/edit/packed_parts.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/fused_projection.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "frontend/onnx/recover/weight_tracer.h"
#include "frontend/ops/import/mixture.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

// An exporter's naming of modules: suffixes that it appends, and parts with which it replaces the original ones.
struct ReplacedPart {
  std::string_view part, original;
};
struct ModuleNames {
  std::string_view producer;
  std::vector<std::string_view> suffixes;
  std::vector<ReplacedPart> parts;
  std::vector<std::string_view> routers;  // ends of the names of products that choose experts
};

const std::vector<ModuleNames>& GetModuleNames() {
  static const std::vector<ModuleNames> names = {{.producer = "onnxruntime-genai",
                                                  .suffixes = {".MatMul", ".weight", ".qweight"},
                                                  .parts = {{".attn.", ".self_attn."}, {".moe.", ".mlp."}},
                                                  .routers = {".mlp.router", ".mlp.gate"}}};
  return names;
}

class TargetFinder {
 public:
  explicit TargetFinder(const OnnxModel& model) : model_(model.parsed()), tracer_(model_) {
    for (const ParsedNode& node : model_.graph.nodes) {
      for (const auto* names : {&node.inputs, &node.captured}) {
        for (const std::string& name : *names) readers_[name].push_back(&node);
      }
    }
    for (const std::string& name : model.outputs()) outputs_.insert(name);
    if (model.outputs().empty()) return;
    const auto path = FindClassifier(tracer_, model.outputs()[0]);
    const ParsedNode* layer = path.ok() ? path->classifier : FindQuantizedLayer(model.outputs()[0]);
    if (layer != nullptr && !layer->outputs.empty()) output_layer_ = layer->outputs[0];
  }

  std::vector<LowRankTarget> Run(bool packed) {
    AddProducts();
    std::erase_if(targets_, [&](const LowRankTarget& target) { return !ExplainShared(target).empty(); });
    if (!packed) SplitPacked();
    UnwrapModules();
    NumberEqualModules();
    return std::move(targets_);
  }

  std::vector<LeftOutProduct> ListShared() {
    AddProducts();
    UnwrapModules();
    std::vector<LeftOutProduct> shared;
    for (const LowRankTarget& target : targets_) {
      const std::string why = ExplainShared(target);
      if (!why.empty()) shared.push_back({.module = target.module, .why = why, .output_layer = target.output_layer});
    }
    return shared;
  }

 private:
  // A stored matrix that a product multiplies by, several of experts, or the weight of a convolution.
  struct Operand {
    std::string weight;
    Shape stored;
    DType dtype = DType::kFloat32;  // element type of the product
    bool transposed = false;
    const ParsedNode* product = nullptr;  // multiplies integers before the node; null: the node multiplies
    size_t input = 1;                     // the input of the product that reads it
    int64_t experts = 0;
  };

  void AddProducts() {
    for (const ParsedNode& node : model_.graph.nodes) {
      for (const Operand& operand : ListOperands(node)) AddProduct(node, operand);
    }
  }

  // Adds the node to the target of a weight that it multiplies by.
  void AddProduct(const ParsedNode& node, const Operand& operand) {
    products_.emplace(operand.product == nullptr ? &node : operand.product, operand.input);
    const auto [at, first] = by_weight_.emplace(operand.weight, targets_.size());
    const bool stack = operand.experts > 0;
    const Shape stored(operand.stored.begin() + (stack ? 1 : 0), operand.stored.end());
    const std::string module = Module(node, operand.weight, stack);
    if (first)
      targets_.push_back({.module = module,
                          .weight = operand.weight,
                          .dtype = operand.dtype,
                          .inputs = stored[operand.transposed ? 1 : 0],
                          .outputs = stored[operand.transposed ? 0 : 1],
                          .kernel = Shape(stored.begin() + 2, stored.end()),
                          .experts = operand.experts,
                          .outputs_first = operand.transposed,
                          .of_parameter = stack || IsParameterOfModule(node, module)});
    LowRankTarget& target = targets_[at->second];
    target.nodes.push_back(node.outputs[0]);
    target.output_layer |= node.outputs[0] == output_layer_;
    if (target.outputs_first != operand.transposed) mixed_.insert(target.weight);
  }

  // Returns true for x·W and x·Wᵀ, and convolutions of all channels, with an unscaled bias or none.
  static bool IsProduct(const ParsedNode& node) {
    if (IsOp(node, {"Conv"})) return node.attrs.Int("group", 1) == 1;
    const bool scaled =
        node.attrs.Float("alpha", 1) != 1 || (node.inputs.size() > 2 && node.attrs.Float("beta", 1) != 1);
    return IsOp(node, {"MatMul"}) || (IsOp(node, {"Gemm"}) && node.attrs.Int("transA") == 0 && !scaled);
  }

  // Returns the stored matrices that the node multiplies by.
  std::vector<Operand> ListOperands(const ParsedNode& node) const {
    if (!FindExpertLayers(node.domain, node.op_type).empty()) return FindMixture(node);
    const std::optional<Operand> operand = FindOperand(node);
    return operand ? std::vector<Operand>{*operand} : std::vector<Operand>();
  }

  // Finds the stacks of a node that computes all experts. Leaves out those of older files, whose shapes have the last
  // two axes in the other order.
  std::vector<Operand> FindMixture(const ParsedNode& node) const {
    std::vector<Operand> operands;
    if (node.outputs.empty()) return operands;
    const std::span<const ExpertLayer> layers = FindExpertLayers(node.domain, node.op_type);
    int64_t width = 0;  // elements of a token: inputs of fc1 and fc3, outputs of fc2
    for (size_t i = 0; i < layers.size(); ++i) {
      const ExpertLayer& layer = layers[i];
      const bool quantized = layer.scale != ExpertLayer::kNone;
      const auto find = [&](size_t input) {
        return input < node.inputs.size() ? FindInitializer(node.inputs[input]) : nullptr;
      };
      const HostTensor *weight = find(layer.weight), *floats = find(quantized ? layer.scale : layer.weight);
      if (weight == nullptr || floats == nullptr || !IsFloat(floats->dtype())) continue;
      const auto stack = ReadExpertStack(layer, node.attrs, weight->shape());
      if (!stack || (!quantized && !IsTrained(node.inputs[layer.weight]))) continue;
      const int64_t own = i == 1 ? stack->outputs : stack->inputs;
      if (width != 0 && own != width) return {};
      width = own;
      operands.push_back({.weight = node.inputs[layer.weight],
                          .stored = {stack->experts, stack->outputs, stack->inputs},
                          .dtype = floats->dtype(),
                          .transposed = true,
                          .input = layer.weight,
                          .experts = stack->experts});
    }
    return operands;
  }

  std::optional<Operand> FindOperand(const ParsedNode& node) const {
    if (IsBlockProduct(node)) return FindBlocks(node);
    if (HoldsProjection(node)) return FindProjection(node);
    if (const auto integers = FindIntegers(node)) return integers;
    if (const auto experts = FindExperts(node)) return experts;
    if (!IsProduct(node)) return std::nullopt;
    const bool conv = IsOp(node, {"Conv"}), transposed = conv || node.attrs.Int("transB") != 0;
    const auto traced = tracer_.Trace(node.inputs[1]);
    if (!traced.ok()) return FindDequantized(node.inputs[1], transposed);
    if (!IsTrained(traced->tensor) || conv != (traced->shape.size() > 2)) return std::nullopt;
    Operand operand{.weight = traced->tensor,
                    .stored = traced->stored,
                    .dtype = model_.graph.initializers.at(traced->tensor).dtype(),
                    .transposed = transposed};
    for (const ParsedNode* moved : traced->through) {
      if (!IsMove(*moved) || (conv && Transposes(*moved))) return std::nullopt;
      operand.transposed ^= Transposes(*moved);
    }
    return operand;
  }

  // Finds the matrix that an Attention computes queries, keys and values by.
  std::optional<Operand> FindProjection(const ParsedNode& node) const {
    const HostTensor* weight = IsTrained(node.inputs[1]) ? FindInitializer(node.inputs[1]) : nullptr;
    if (weight == nullptr || weight->shape().size() != 2) return std::nullopt;
    return Operand{node.inputs[1], weight->shape(), weight->dtype(), false};
  }

  static bool IsBlockProduct(const ParsedNode& node) {
    return node.domain == "com.microsoft" && node.op_type == "MatMulNBits" && node.inputs.size() >= 3 &&
           !node.outputs.empty();
  }

  std::optional<Operand> FindBlocks(const ParsedNode& node) const {
    const HostTensor *numbers = FindInitializer(node.inputs[1]), *scale = FindInitializer(node.inputs[2]);
    const int64_t outputs = node.attrs.Int("N"), inputs = node.attrs.Int("K");
    if (numbers == nullptr || scale == nullptr || !IsFloat(scale->dtype()) || inputs < 1 || outputs < 1)
      return std::nullopt;
    return Operand{node.inputs[1], {outputs, inputs}, scale->dtype(), true};
  }

  // Finds the integers that a MatMulInteger before the node multiplies, or the node itself.
  std::optional<Operand> FindIntegers(const ParsedNode& node) const {
    if (node.outputs.empty()) return std::nullopt;
    const auto found =
        FindIntegerProduct(node.outputs[0], [&](const std::string& value) { return PartsOf(tracer_.Producer(value)); });
    const HostTensor* numbers = found ? FindInitializer(found->weight) : nullptr;
    if (numbers == nullptr || numbers->shape().size() != 2) return std::nullopt;
    const ParsedNode* product = tracer_.Producer(found->product);
    if (product->attrs.Int("transA") != 0 || product->attrs.Float("alpha", 1) != 1) return std::nullopt;
    return Operand{
        .weight = found->weight,
        .stored = numbers->shape(),
        .transposed = product->attrs.Int("transB") != 0,
        .product = product,
        .input = static_cast<size_t>(std::ranges::find(product->inputs, found->weight) - product->inputs.begin())};
  }

  std::optional<Operand> FindExperts(const ParsedNode& node) const {
    const auto found = FindExpertProduct(node, find_producer_, find_tensor_);
    if (!found || !IsTrained(found->weight)) return std::nullopt;
    const HostTensor& weight = *FindInitializer(found->weight);
    return Operand{.weight = found->weight,
                   .stored = weight.shape(),
                   .dtype = weight.dtype(),
                   .transposed = found->outputs_first(),
                   .input = found->operand,
                   .experts = weight.shape()[0]};
  }

  // Finds integers that a DequantizeLinear converts, before transposes.
  std::optional<Operand> FindDequantized(const std::string& name, bool transposed) const {
    const ParsedNode* node = tracer_.Producer(name);
    if (node == nullptr) return std::nullopt;
    if (IsMove(*node)) return FindDequantized(node->inputs[0], transposed ^ Transposes(*node));
    if (!IsDequantize(*node)) return std::nullopt;
    const HostTensor *numbers = FindInitializer(node->inputs[0]), *scale = FindInitializer(node->inputs[1]);
    if (numbers == nullptr || numbers->shape().size() != 2 || scale == nullptr || !IsFloat(scale->dtype()))
      return std::nullopt;
    return Operand{node->inputs[0], numbers->shape(), scale->dtype(), transposed};
  }

  const HostTensor* FindInitializer(const std::string& name) const {
    const auto found = model_.graph.initializers.find(name);
    return found == model_.graph.initializers.end() ? nullptr : &found->second;
  }

  // Finds the product before biases, quantization and changes of shape or type; null if there is none.
  const ParsedNode* FindQuantizedLayer(std::string value) const {
    while (const ParsedNode* node = tracer_.Producer(value)) {
      if (IsBlockProduct(*node) || IsOp(*node, {"MatMul", "Gemm"}) || FindIntegers(*node)) return node;
      const bool bias = IsOp(*node, {"Add"}) && node->inputs.size() == 2;
      const bool rounded = node->op_type == "QuantizeLinear" || IsDequantize(*node);
      if (!bias && !rounded && !IsViewOrCast(*node)) return nullptr;
      value = node->inputs[bias && FindInitializer(node->inputs[0]) != nullptr ? 1 : 0];
    }
    return nullptr;
  }

  static bool IsMove(const ParsedNode& node) { return IsOp(node, {"Transpose"}) || IsIdentity(node); }
  // Returns true for a Transpose that changes the order of the axes. Copies of a weight are made by one that does not.
  static bool Transposes(const ParsedNode& node) {
    return IsOp(node, {"Transpose"}) && !std::ranges::is_sorted(Permutation(node, 2));
  }
  static bool IsDequantize(const ParsedNode& node) {
    return node.op_type == "DequantizeLinear" && node.inputs.size() >= 2 && !node.outputs.empty();
  }

  // Returns why the weight of the target cannot be updated with its products alone; "" if it can.
  std::string ExplainShared(const LowRankTarget& target) const {
    const std::string weight = StrCat("'", Printable(target.weight), "'");
    if (mixed_.contains(target.weight)) return StrCat("multiplies by ", weight, " and by its transpose");
    const std::string reader = FindOtherReader(target.weight);
    return reader.empty() ? "" : StrCat("shares ", weight, " with ", reader);
  }

  // Returns what reads the value, through transposes, other than products that AddProduct found; "" if nothing does.
  std::string FindOtherReader(const std::string& name) const {
    if (outputs_.contains(name)) return StrCat("the output '", Printable(name), "'");
    const auto readers = readers_.find(name);
    if (readers == readers_.end()) return "";
    for (const ParsedNode* node : readers->second) {
      if (IsOp(*node, {"Shape", "Size"})) continue;
      const bool selects = IsDequantize(*node) || SelectsMatrices(*node, find_producer_, find_tensor_);
      const bool passes = IsMove(*node) || (selects && node->inputs[0] == name);
      const std::string other = passes                    ? FindOtherReader(node->outputs[0])
                                : Multiplies(*node, name) ? ""
                                                          : StrCat(node->op_type, " '", Printable(node->source), "'");
      if (!other.empty()) return other;
    }
    return "";
  }

  // Returns true if AddProduct found that the node multiplies by the value, and reads it in no other way.
  bool Multiplies(const ParsedNode& node, const std::string& value) const {
    const auto [first, last] = products_.equal_range(&node);
    return std::ranges::count(node.inputs, value) == 1 &&
           std::any_of(first, last, [&](const auto& product) { return node.inputs[product.second] == value; });
  }

  bool IsTrained(const std::string& weight) const {
    const auto tensor = model_.graph.initializers.find(weight);
    if (tensor == model_.graph.initializers.end() || !IsFloat(tensor->second.dtype())) return false;
    const auto origin = model_.graph.origins.find(weight);
    return origin == model_.graph.origins.end() || origin->second.kind == Kind::kUnknown ||
           origin->second.kind == Kind::kParameter;
  }

  // Returns the name in the exported program of a module that some exporters rename.
  std::string ExportedName(std::string_view module) const {
    for (const ModuleNames& names : GetModuleNames()) {
      if (!model_.producer.starts_with(names.producer)) continue;
      for (const std::string_view suffix : names.suffixes) {
        if (module.ends_with(suffix)) module.remove_suffix(suffix.size());
      }
      std::string name(module);
      for (const ReplacedPart& replaced : names.parts) {
        const size_t at = name.find(replaced.part);
        if (at != std::string::npos) name.replace(at, replaced.part.size(), replaced.original);
      }
      return name;
    }
    return std::string(module);
  }

  // Returns true if the module is known, computes the product itself, and is no layer that PEFT wraps. Routers of
  // transformers are none.
  bool IsParameterOfModule(const ParsedNode& node, const std::string& module) const {
    for (const ModuleNames& names : GetModuleNames()) {
      const auto ends = [&](std::string_view router) { return module.ends_with(router); };
      if (model_.producer.starts_with(names.producer) && std::ranges::any_of(names.routers, ends)) return true;
    }
    constexpr std::string_view kLayers[] = {"Linear", "Conv"};
    if (node.fx == nullptr || node.fx->module_class.empty() || node.fx->module != module) return false;
    const std::string_view name = LastPart(node.fx->module_class);
    return std::ranges::none_of(kLayers, [&](std::string_view layer) { return name.find(layer) != name.npos; });
  }

  std::string Module(const ParsedNode& node, const std::string& weight, bool stack) const {
    const auto origin = model_.graph.origins.find(weight);
    std::string name = origin == model_.graph.origins.end() ? "" : origin->second.module_name;
    if (name.empty() && !IsGeneratedName(weight)) name = weight;
    if (stack && !name.empty()) return ExportedName(name);
    const bool of_module = LastPart(name) == "weight" || LastPart(name).starts_with("weight_");  // weight_Q4
    if (of_module && !ParentOf(name).empty()) return ExportedName(ParentOf(name));
    // Optimizers number the Attention nodes that they make of a module, and keep the name of its result.
    const std::string scopes = DottedModule(HoldsProjection(node) ? node.outputs[0] : node.name);
    return !scopes.empty() ? scopes : !name.empty() ? name : node.source;
  }

  void SplitPacked() {
    const PackedParts packed(tracer_, readers_);
    std::vector<LowRankTarget> all;
    for (const LowRankTarget& target : targets_) std::ranges::move(packed.Split(target), std::back_inserter(all));
    targets_ = std::move(all);
  }

  void UnwrapModules() {
    std::vector<std::string> names;
    for (const LowRankTarget& target : targets_) names.push_back(target.module);
    const std::string wrapper = FindWrapper(model_.graph, names);
    for (LowRankTarget& target : targets_) {
      target.module = WithoutPrefix(target.module, wrapper);
      target.packed = WithoutPrefix(target.packed, wrapper);
    }
  }

  void NumberEqualModules() {
    std::unordered_map<std::string, int> seen;
    for (LowRankTarget& target : targets_) {
      const int count = seen[target.module]++;
      if (count > 0) target.module = StrCat(target.module, ".", count);
    }
  }

  const OnnxModel::Parsed& model_;
  WeightTracer tracer_;
  const FindProducer find_producer_ = [this](const std::string& value) { return tracer_.Producer(value); };
  const FindTensor find_tensor_ = [this](const std::string& value) { return tracer_.FindTensor(value); };
  std::string output_layer_;  // by its first output
  PackedParts::Readers readers_;
  std::unordered_set<std::string> outputs_;                      // outputs of the model
  std::unordered_multimap<const ParsedNode*, size_t> products_;  // with the inputs that read the weights
  std::vector<LowRankTarget> targets_;
  std::unordered_map<std::string, size_t> by_weight_;  // index into targets_
  std::unordered_set<std::string> mixed_;              // weights that products read in both orientations
};

}  // namespace

std::vector<LeftOutProduct> ListLeftOutProducts(const OnnxModel& model) {
  std::vector<LeftOutProduct> products = TargetFinder(model).ListShared();
  std::ranges::move(ListBodyProducts(model), std::back_inserter(products));
  return products;
}

std::vector<LowRankTarget> ListLowRankTargets(const OnnxModel& model, bool packed) {
  return TargetFinder(model).Run(packed);
}

absl::StatusOr<LazyTensor> ReadTargetFloats(const OnnxModel& model, const LowRankTarget& target) {
  const HostTensor& stored = model.parsed().graph.initializers.at(target.weight);
  if (IsFloat(stored.dtype())) return LazyTensor(stored);
  auto blocks = ReadStoredBlocks(target.weight, model.parsed().graph);
  if (!blocks.ok()) return Annotate(blocks.status(), StrCat("weight '", Printable(target.weight), "' "));
  return ReadFloats(std::make_shared<const StoredBlocks>(*std::move(blocks)));
}

std::vector<ModuleWeight> ListModuleWeights(const OnnxModel& model, const std::vector<LowRankTarget>& targets) {
  const ParsedGraph& graph = model.parsed().graph;
  std::unordered_map<std::string, const LowRankTarget*> by_weight;
  for (const LowRankTarget& target : targets) by_weight[target.weight] = &target;
  std::vector<ModuleWeight> weights;
  std::vector<std::string> others;  // names of weights that are no targets
  const auto add = [&](const std::string& name, const std::string& initializer) {
    const auto tensor = graph.initializers.find(initializer);
    if (tensor == graph.initializers.end() || !IsFloat(tensor->second.dtype())) return;
    const auto target = by_weight.find(name);
    const auto origin = graph.origins.find(name);
    const bool named = origin != graph.origins.end() && !origin->second.module_name.empty();
    if (target == by_weight.end()) others.push_back(named ? origin->second.module_name : name);
    const bool stack = target != by_weight.end() && target->second->experts > 0;
    weights.push_back({.name = target != by_weight.end() ? target->second->parameter()
                               : named                   ? origin->second.module_name
                                                         : name,
                       .weight = name,
                       .value = tensor->second,
                       .transposed = target != by_weight.end() && !target->second->outputs_first && !stack});
  };
  for (const std::string& name : graph.initializer_order) add(name, name);
  for (const ParsedNode& node : graph.nodes) {
    if (IsIdentity(node)) add(node.outputs[0], node.inputs[0]);
  }
  // Names of values that the exporter has computed, "/model/layers.0/Constant_output_0", are no paths of modules.
  std::erase_if(others, [](const std::string& name) {
    return name.starts_with('/') || name.find("::") != std::string::npos || name.find('.') == std::string::npos;
  });
  const std::string wrapper = FindWrapper(graph, others);
  for (ModuleWeight& weight : weights) {
    if (!by_weight.contains(weight.weight)) weight.name = WithoutPrefix(weight.name, wrapper);
  }
  return weights;
}

}  // namespace onnxtrain
