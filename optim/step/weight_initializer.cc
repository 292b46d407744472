#include "optim/step/weight_initializer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>
#include <string_view>

#include "absl/strings/str_format.h"
#include "frontend/base/philox.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr double kTableDeviation = 0.02;
constexpr double kPReluSlope = 0.25;

struct InitSpec {
  enum class Kind : uint8_t { kConstant, kUniform, kNormal } kind = Kind::kConstant;
  double number = 0;  // the constant, the bound or the deviation
  std::string why;
};

InitSpec Constant(double value, std::string why) { return {InitSpec::Kind::kConstant, value, std::move(why)}; }
InitSpec TableInit() { return {InitSpec::Kind::kNormal, kTableDeviation, "an embedding or table"}; }

// At most one axis is longer than 1: one number per channel, however it is laid out for broadcasting.
bool IsVector(const Shape& shape) {
  return std::count_if(shape.begin(), shape.end(), [](int64_t d) { return d != 1; }) <= 1;
}

class WeightInitializer {
 public:
  explicit WeightInitializer(const Graph& graph)
      : graph_(graph), users_(ComputeUsers(graph)), depends_on_feed_(graph.values().size(), false) {
    for (const GraphInput& input : graph.inputs()) depends_on_feed_[input.value] = input.kind == InputKind::kFeed;
    for (const Node& node : graph.nodes()) {
      const bool fed = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId v) { return v != kNoValue && depends_on_feed_[v]; });
      for (ValueId v : node.outputs) depends_on_feed_[v] = fed;
    }
  }

  InitSpec ChooseInitSpec(ValueId weight) const {
    if (const auto found = FromReaders(weight, 0)) return *found;
    const Shape& shape = graph_.type(weight).shape;
    if (shape.size() < 2) return Constant(0, "a vector");
    return Xavier(static_cast<double>(shape.back()), static_cast<double>(shape[shape.size() - 2]), "");
  }

 private:
  std::optional<InitSpec> FromReaders(ValueId value, int depth) const {
    constexpr int kMaxDepth = 6;
    if (depth > kMaxDepth) return std::nullopt;
    for (int32_t r : users_[value]) {
      const Node& node = graph_.nodes()[r];
      // A Concat of weights alone reorders the gates of a recurrent layer.
      const bool moved = FindOp(node.op)->moves_data && (node.inputs.size() == 1 || !depends_on_feed_[node.outputs[0]]);
      if (!moved) {
        if (auto found = FromReader(node, value)) return found;
        continue;
      }
      for (ValueId out : node.outputs) {
        if (auto found = FromReaders(out, depth + 1)) return found;
      }
    }
    return std::nullopt;
  }

  static WeightRole GetRole(const OpRow& row, size_t input) {
    const auto& roles = row.init.roles;
    if (input < roles.size()) return roles[input];
    return roles.empty() || row.inputs.max < Arity::kMany ? WeightRole::kData : roles.back();
  }

  std::optional<InitSpec> FromReader(const Node& node, ValueId value) const {
    const size_t at = std::find(node.inputs.begin(), node.inputs.end(), value) - node.inputs.begin();
    const Shape& shape = graph_.type(value).shape;
    switch (GetRole(*FindOp(node.op), at)) {
      case WeightRole::kData:
        return std::nullopt;
      case WeightRole::kMatrix:
        return Product(node, at, shape);
      case WeightRole::kConvKernel:
        return Convolution(node, shape, false);
      case WeightRole::kConvTransposeKernel:
        return Convolution(node, shape, true);
      case WeightRole::kRecurrentMatrix:
        return Xavier(static_cast<double>(shape.back()), static_cast<double>(shape[0]), "");
      case WeightRole::kScale:
        return IsVector(shape) ? std::optional(Constant(1, "a scale")) : std::nullopt;
      case WeightRole::kBias:
        return IsVector(shape) ? Constant(0, "a bias") : TableInit();
      case WeightRole::kNormScale:
        return Constant(1, "of a norm");
      case WeightRole::kNormBias:
        return Constant(0, "of a norm");
      case WeightRole::kNormMean:
        return Constant(0, "statistics of a norm");
      case WeightRole::kNormVariance:
        return Constant(1, "statistics of a norm");
      case WeightRole::kSlope:
        return Constant(kPReluSlope, "a PRelu's slope");
      case WeightRole::kTable:
        return TableInit();
    }
    return std::nullopt;
  }

  InitSpec Product(const Node& node, size_t at, const Shape& shape) const {
    const bool trans = node.attrs.Int(at == 0 ? "trans_a" : "trans_b") != 0;
    const auto rows = static_cast<double>(shape[shape.size() - 2]), columns = static_cast<double>(shape.back());
    // y = x·w contracts the rows of w, y = w·x its columns.
    const bool contracts_rows = (at == 1) != trans;
    return ByActivation(node, contracts_rows ? rows : columns, contracts_rows ? columns : rows);
  }

  InitSpec Convolution(const Node& node, const Shape& shape, bool transposed) const {
    const auto group = static_cast<double>(node.attrs.Int("group", 1));
    double global_batch = 1;
    for (size_t i = 2; i < shape.size(); ++i) global_batch *= static_cast<double>(shape[i]);
    const double out = static_cast<double>(shape[0]) * global_batch / group,
                 in = static_cast<double>(shape[1]) * global_batch;
    return transposed ? ByActivation(node, out, in) : ByActivation(node, in, out);
  }

  InitSpec ByActivation(const Node& node, double fan_in, double fan_out) const {
    std::set<ValueId> seen;
    const std::optional<Activation> next = NextActivation(node.outputs[0], 0, &seen);
    const std::string before = next.has_value() ? StrCat(" (before ", next->name, ")") : "";
    if (!next.has_value() || next->gain == 0) return Xavier(fan_in, fan_out, before);
    return {InitSpec::Kind::kUniform, next->gain * std::sqrt(3 / fan_in),
            absl::StrFormat("Kaiming, fan in %.0f%s", fan_in, before)};
  }

  static InitSpec Xavier(double fan_in, double fan_out, const std::string& before) {
    return {InitSpec::Kind::kUniform, std::sqrt(6 / (fan_in + fan_out)),
            absl::StrFormat("Xavier, fans %.0f and %.0f%s", fan_in, fan_out, before)};
  }

  struct Activation {
    std::string name;
    double gain = 0;  // above 0: ReLU-like
  };

  std::optional<Activation> FindActivation(const Node& node, ValueId value) const {
    const OpRow& row = *FindOp(node.op);
    const double gain = row.init.gain == nullptr ? -1 : row.init.gain(node.attrs);
    if (gain < 0) return std::nullopt;
    if (node.op == "Sigmoid" && IsSilu(node, value)) return Activation{"Silu", std::numbers::sqrt2};
    return Activation{node.op, gain};
  }

  // x·sigmoid(x)
  bool IsSilu(const Node& sigmoid, ValueId x) const {
    const auto& readers = users_[sigmoid.outputs[0]];
    return std::any_of(readers.begin(), readers.end(), [&](int32_t r) {
      const Node& node = graph_.nodes()[r];
      return node.op == "Mul" && std::find(node.inputs.begin(), node.inputs.end(), x) != node.inputs.end();
    });
  }

  std::optional<Activation> NextActivation(ValueId value, int depth, std::set<ValueId>* seen) const {
    constexpr int kMaxDistance = 8;
    if (depth > kMaxDistance || !seen->insert(value).second) return std::nullopt;
    for (int32_t r : users_[value]) {
      if (auto found = FindActivation(graph_.nodes()[r], value)) return found;
    }
    for (int32_t r : users_[value]) {
      const Node& node = graph_.nodes()[r];
      const OpRow& row = *FindOp(node.op);
      if (!row.moves_data && !row.init.transparent) continue;
      if (auto found = NextActivation(node.outputs[0], depth + 1, seen)) return found;
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const Users users_;
  std::vector<bool> depends_on_feed_;  // by value: does it depend on a feed?
};

// FNV-1a.
uint64_t HashName(std::string_view text) {
  uint64_t hash = 14695981039346656037ull;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return hash;
}

HostTensor SampleWeight(const InitSpec& spec, const std::string& name, const Type& type, uint64_t seed) {
  HostTensor tensor(type);
  if (spec.kind == InitSpec::Kind::kConstant) return HostTensor::Filled(type, spec.number);
  const uint64_t hash = HashName(name);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed ^ hash), static_cast<uint32_t>((seed ^ hash) >> 32)};
  constexpr uint32_t kDomain = 0x696e6974;  // separates these draws from all others of the seed
  for (int64_t i = 0; i < tensor.size(); i += 4) {
    const auto block = static_cast<uint64_t>(i / 4);
    const PhiloxBlock words =
        Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), kDomain, 0}, key);
    const auto first = BoxMuller(words[0], words[1]), second = BoxMuller(words[2], words[3]);
    const double normals[] = {first[0], first[1], second[0], second[1]};
    for (int64_t j = 0; j < 4 && i + j < tensor.size(); ++j) {
      const double uniform = 2 * (static_cast<double>(WordToUniform(words[j])) + 0x1p-25) - 1;
      tensor.Set(i + j, spec.number * (spec.kind == InitSpec::Kind::kUniform ? uniform : normals[j]));
    }
  }
  return tensor;
}

std::string DescribeInitSpec(const InitSpec& spec) {
  constexpr const char* kKinds[] = {"", "uniform ±", "normal, deviation "};
  return absl::StrFormat("%s%.4g: %s", kKinds[static_cast<size_t>(spec.kind)], spec.number, spec.why);
}

}  // namespace

HostTensor DrawUniform(const std::string& name, const Type& type, double bound, uint64_t seed) {
  return SampleWeight({InitSpec::Kind::kUniform, bound, ""}, name, type, seed);
}

HostTensor DrawNormal(const std::string& name, const Type& type, double deviation, uint64_t seed) {
  return SampleWeight({InitSpec::Kind::kNormal, deviation, ""}, name, type, seed);
}

absl::StatusOr<std::vector<InitializedWeight>> InitializeWeights(const ImportedModel& model,
                                                                 const std::vector<std::string>& names, uint64_t seed) {
  const WeightInitializer initializer(model.graph);
  std::vector<InitializedWeight> drawn;
  for (const std::string& name : names) {
    const GraphInput* input = model.graph.FindInput(name);
    if (input == nullptr) return Invalid("weight '", name, "' reaches no output: it cannot be re-initialized");
    const Type& type = model.graph.type(input->value);
    if (!IsFloat(type.dtype))
      return Invalid("weight '", name, "' is ", ToString(type), ": only floating-point weights can be re-initialized");
    const InitSpec spec = initializer.ChooseInitSpec(input->value);
    drawn.push_back({name, SampleWeight(spec, name, type, seed), DescribeInitSpec(spec)});
  }
  return drawn;
}

}  // namespace onnxtrain
