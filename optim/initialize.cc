#include "optim/initialize.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include "absl/strings/str_format.h"
#include "frontend/base/philox.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr double kTableDeviation = 0.02;
constexpr double kPReluSlope = 0.25;

struct Recipe {
  enum class Kind : uint8_t { kConstant, kUniform, kNormal } kind = Kind::kConstant;
  double number = 0;  // the constant, the bound or the deviation
  std::string why;
};

Recipe Constant(double value, std::string why) { return {Recipe::Kind::kConstant, value, std::move(why)}; }
Recipe Table() { return {Recipe::Kind::kNormal, kTableDeviation, "an embedding or table"}; }

bool IsOneOf(std::string_view op, std::initializer_list<std::string_view> ops) { return std::find(ops.begin(), ops.end(), op) != ops.end(); }

bool Moves(std::string_view op) { return IsOneOf(op, {"Reshape", "Transpose", "Cast", "Expand", "Slice", "Split"}); }

// What stands between a product and its activation without changing what the weights should be.
bool IsTransparent(std::string_view op) {
  return Moves(op) || IsOneOf(op, {"Add", "Dropout", "MaxPool", "AveragePool", "BatchNorm", "BatchNormInference", "Concat"});
}

// At most one axis is longer than 1: one number per channel, however it is laid out for broadcasting.
bool IsVector(const Shape& shape) {
  return std::count_if(shape.begin(), shape.end(), [](int64_t d) { return d != 1; }) <= 1;
}

class Artist {
 public:
  explicit Artist(const Graph& graph) : graph_(graph), readers_(Readers(graph)), fed_(graph.values().size(), false) {
    for (const GraphInput& input : graph.inputs()) fed_[input.value] = input.kind == InputKind::kFeed;
    for (const Node& node : graph.nodes()) {
      const bool fed = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return v != kNoValue && fed_[v]; });
      for (ValueId v : node.outputs) fed_[v] = fed;
    }
  }

  Recipe RecipeFor(ValueId weight) const {
    if (const auto found = FromReaders(weight, 0)) return *found;
    const Shape& shape = graph_.type(weight).shape;
    if (shape.size() < 2) return Constant(0, "a vector");
    return Xavier(static_cast<double>(shape.back()), static_cast<double>(shape[shape.size() - 2]), "");
  }

 private:
  std::optional<Recipe> FromReaders(ValueId value, int depth) const {
    constexpr int kDeep = 6;
    if (depth > kDeep) return std::nullopt;
    for (int32_t r : readers_[value]) {
      const Node& node = graph_.nodes()[r];
      // Weights that are put together of weights: the gates of a recurrent layer in another order.
      const bool joined = node.op == "Concat" && !fed_[node.outputs[0]];
      if (!Moves(node.op) && !joined) {
        if (auto found = FromReader(node, value)) return found;
        continue;
      }
      for (ValueId out : node.outputs) {
        if (auto found = FromReaders(out, depth + 1)) return found;
      }
    }
    return std::nullopt;
  }

  std::optional<Recipe> FromReader(const Node& node, ValueId value) const {
    const size_t at = std::find(node.inputs.begin(), node.inputs.end(), value) - node.inputs.begin();
    const Shape& shape = graph_.type(value).shape;
    const bool vector = IsVector(shape);
    if (node.op == "MatMul") return Product(node, at, shape);
    if (IsOneOf(node.op, {"Lstm", "Gru", "Rnn"}) && at == 1) return Xavier(static_cast<double>(shape.back()), static_cast<double>(shape[0]), "");
    if (node.op == "Conv" && at == 1) return Convolution(node, shape, false);
    if (node.op == "ConvTranspose" && at == 1) return Convolution(node, shape, true);
    if (node.op.find("Norm") != std::string::npos && at >= 1) return NormPart(at);
    if (node.op == "Gather" && at == 0) return Table();
    if (node.op == "PRelu" && at == 1) return Constant(kPReluSlope, "a PRelu's slope");
    if (IsOneOf(node.op, {"Mul", "Div"}) && vector) return Constant(1, "a scale");
    if (IsOneOf(node.op, {"Add", "Sub", "Conv", "ConvTranspose"}) && vector) return Constant(0, "a bias");
    if (IsOneOf(node.op, {"Add", "Sub", "Concat", "Where", "Attention"})) return Table();
    return std::nullopt;
  }

  static Recipe NormPart(size_t input) {
    constexpr double kValues[] = {0, 1, 0, 0, 1};  // x, scale, bias, mean, variance
    return Constant(input < 5 ? kValues[input] : 0, input <= 2 ? "of a norm" : "statistics of a norm");
  }

  Recipe Product(const Node& node, size_t at, const Shape& shape) const {
    const bool trans = node.attrs.Int(at == 0 ? "trans_a" : "trans_b") != 0;
    const auto rows = static_cast<double>(shape[shape.size() - 2]), columns = static_cast<double>(shape.back());
    // y = x·w contracts the rows of w, y = w·x its columns.
    const bool contracts_rows = (at == 1) != trans;
    return ByActivation(node, contracts_rows ? rows : columns, contracts_rows ? columns : rows);
  }

  Recipe Convolution(const Node& node, const Shape& shape, bool transposed) const {
    const auto group = static_cast<double>(node.attrs.Int("group", 1));
    double window = 1;
    for (size_t i = 2; i < shape.size(); ++i) window *= static_cast<double>(shape[i]);
    const double out = static_cast<double>(shape[0]) * window / group, in = static_cast<double>(shape[1]) * window;
    return transposed ? ByActivation(node, out, in) : ByActivation(node, in, out);
  }

  Recipe ByActivation(const Node& node, double fan_in, double fan_out) const {
    std::set<ValueId> seen;
    const std::optional<Activation> next = NextActivation(node.outputs[0], 0, &seen);
    const std::string before = next.has_value() ? StrCat(" (before ", next->name, ")") : "";
    if (!next.has_value() || next->gain == 0) return Xavier(fan_in, fan_out, before);
    return {Recipe::Kind::kUniform, next->gain * std::sqrt(3 / fan_in), absl::StrFormat("Kaiming, fan in %.0f%s", fan_in, before)};
  }

  static Recipe Xavier(double fan_in, double fan_out, const std::string& before) {
    return {Recipe::Kind::kUniform, std::sqrt(6 / (fan_in + fan_out)), absl::StrFormat("Xavier, fans %.0f and %.0f%s", fan_in, fan_out, before)};
  }

  struct Activation {
    std::string name;
    double gain = 0;  // above 0: ReLU-like
  };

  std::optional<Activation> ActivationOf(const Node& node, ValueId value) const {
    static const double kReluGain = std::sqrt(2.0);
    if (IsOneOf(node.op, {"Relu", "PRelu", "Elu", "Celu", "Gelu", "HardSwish", "Mish", "Softplus", "ThresholdedRelu"})) return Activation{node.op, kReluGain};
    if (node.op == "LeakyRelu") return Activation{node.op, std::sqrt(2 / (1 + std::pow(node.attrs.Float("alpha", 0.01), 2)))};
    if (node.op == "Clip" && node.attrs.Float("min") == 0) return Activation{"Relu6", kReluGain};
    if (node.op == "Selu") return Activation{node.op, 1};  // Klambauer et al., 2017: variance 1/fan_in
    if (node.op == "Sigmoid" && IsSilu(node, value)) return Activation{"Silu", kReluGain};
    if (IsOneOf(node.op, {"Sigmoid", "Tanh", "HardSigmoid", "Softsign", "Softmax", "LogSoftmax"})) return Activation{node.op, 0};
    return std::nullopt;
  }

  // x·sigmoid(x)
  bool IsSilu(const Node& sigmoid, ValueId x) const {
    const auto& readers = readers_[sigmoid.outputs[0]];
    return std::any_of(readers.begin(), readers.end(), [&](int32_t r) {
      const Node& node = graph_.nodes()[r];
      return node.op == "Mul" && std::find(node.inputs.begin(), node.inputs.end(), x) != node.inputs.end();
    });
  }

  std::optional<Activation> NextActivation(ValueId value, int depth, std::set<ValueId>* seen) const {
    constexpr int kFar = 8;
    if (depth > kFar || !seen->insert(value).second) return std::nullopt;
    for (int32_t r : readers_[value]) {
      if (auto found = ActivationOf(graph_.nodes()[r], value)) return found;
    }
    for (int32_t r : readers_[value]) {
      const Node& node = graph_.nodes()[r];
      if (!IsTransparent(node.op)) continue;
      if (auto found = NextActivation(node.outputs[0], depth + 1, seen)) return found;
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const std::vector<std::vector<int32_t>> readers_;
  std::vector<bool> fed_;  // by value: does it depend on a feed?
};

// FNV-1a.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 14695981039346656037ull;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return hash;
}

HostTensor Draw(const Recipe& recipe, const std::string& name, const Type& type, uint64_t seed) {
  HostTensor tensor(type);
  if (recipe.kind == Recipe::Kind::kConstant) return HostTensor::Filled(type, recipe.number);
  const uint64_t hash = HashOf(name);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed ^ hash), static_cast<uint32_t>((seed ^ hash) >> 32)};
  constexpr uint32_t kDomain = 0x696e6974;  // apart from every other use of the generator
  for (int64_t i = 0; i < tensor.size(); i += 4) {
    const auto block = static_cast<uint64_t>(i / 4);
    const PhiloxBlock words = Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), kDomain, 0}, key);
    const auto first = NormalsOf(words[0], words[1]), second = NormalsOf(words[2], words[3]);
    const double normals[] = {first[0], first[1], second[0], second[1]};
    for (int64_t j = 0; j < 4 && i + j < tensor.size(); ++j) {
      const double uniform = 2 * (static_cast<double>(UniformOf(words[j])) + 0x1p-25) - 1;
      tensor.Set(i + j, recipe.number * (recipe.kind == Recipe::Kind::kUniform ? uniform : normals[j]));
    }
  }
  return tensor;
}

std::string Described(const Recipe& recipe) {
  constexpr const char* kKinds[] = {"", "uniform ±", "normal, deviation "};
  return absl::StrFormat("%s%.4g: %s", kKinds[static_cast<size_t>(recipe.kind)], recipe.number, recipe.why);
}

}  // namespace

absl::StatusOr<std::vector<DrawnWeight>> DrawWeights(const ImportedModel& model, const std::vector<std::string>& names, uint64_t seed) {
  const Artist artist(model.graph);
  std::vector<DrawnWeight> drawn;
  for (const std::string& name : names) {
    const GraphInput* input = model.graph.FindInput(name);
    if (input == nullptr) return Invalid("weight '", name, "' reaches no output: it cannot be drawn anew");
    const Type& type = model.graph.type(input->value);
    if (!IsFloat(type.dtype)) return Invalid("weight '", name, "' is ", ToString(type), ": only floating-point weights can be drawn anew");
    const Recipe recipe = artist.RecipeFor(input->value);
    drawn.push_back({name, Draw(recipe, name, type, seed), Described(recipe)});
  }
  return drawn;
}

}  // namespace onnxtrain
