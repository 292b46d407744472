#include "frontend/onnx/import/filled_weights.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/onnx/import/weight_table.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 30;  // of one weight; VGG19's largest layer has 411 MB
constexpr int64_t kMaxTotalBytes = 2 * kMaxBytes;
constexpr int kMaxViews = 4;  // between a weight and the operator that takes it

// Whether the node takes `name` in weight inputs only.
bool TakesAsWeight(const ParsedNode& node, const std::string& name) {
  const uint32_t weights = GetOnnxTraits(node).weight_inputs;
  if (weights == 0) return false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == name && (i >= 32 || (weights >> i & 1) == 0)) return false;
  }
  return true;
}

// A view of a weight is still that weight.
bool IsViewOf(const ParsedNode& node, const std::string& name) {
  return GetOnnxTraits(node).view && node.inputs[0] == name && !node.outputs.empty();
}

}  // namespace

bool FilledWeights::OnlyFeedsWeightInputs(const std::string& name, int depth) const {
  const auto& users = live_.Users(name);
  if (users.empty() || depth > kMaxViews) return false;
  return std::ranges::all_of(users, [&](const ParsedNode* user) {
    return TakesAsWeight(*user, name) || (IsViewOf(*user, name) && OnlyFeedsWeightInputs(user->outputs[0], depth + 1));
  });
}

bool FilledWeights::IsFilledWeight(const ParsedNode& node) const {
  if (!node.domain.empty() || node.op_type != "ConstantOfShape") return false;
  if (node.inputs.size() != 1 || node.outputs.size() != 1 || node.outputs[0].empty()) return false;
  const ParsedNode* shape = live_.Producer(node.inputs[0]);
  const bool given = graph_.initializers.count(node.inputs[0]) > 0 || (shape != nullptr && IsConstantNode(*shape));
  return given && OnlyFeedsWeightInputs(node.outputs[0], 0);
}

absl::StatusOr<std::optional<HostTensor>> FilledWeights::Fill(const Attrs& attrs, const HostTensor* extents) {
  const HostTensor* value = attrs.Tensor("value");
  const DType stored = value != nullptr ? value->dtype() : DType::kFloat32;
  if (extents == nullptr || extents->dtype() != DType::kInt64 || !IsFloat(stored)) return std::nullopt;
  if (value != nullptr && value->size() != 1) return std::nullopt;
  const Type type{types_.Map(stored), extents->ToInts()};
  RETURN_IF_ERROR(CheckShape(type.shape));
  if (type.elements() <= 1) return std::nullopt;
  const auto bytes = static_cast<int64_t>(type.bytes());
  if (bytes > kMaxBytes || (bytes_ += bytes) > kMaxTotalBytes)
    return Invalid("fills ", ToString(type), ": store weights of this size in the file");
  ++count_;
  return HostTensor::Filled(type, value != nullptr ? value->At(0) : 0);
}

}  // namespace onnxtrain
