// Mixtures of experts of ONNX Runtime: the layout of the inputs of com.microsoft.MoE and QMoE, for their import and for
// low-rank updates of the experts' matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/ops/dequantize.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {

// The inputs of a node that hold one layer of all experts. `weight` is a stack [experts, outputs, inputs], of QMoE with
// several numbers in each byte.
struct ExpertLayer {
  static constexpr size_t kNone = QuantizedWeight::kNone;
  size_t weight, bias;  // the bias is [experts, outputs]
  size_t scale = kNone, zero = kNone;
  std::string_view bits = {};  // the attribute that replaces expert_weight_bits
  size_t update = kNone;       // three inputs that no file has: A, B and the scale of a low-rank update
};
// Returns the layers fc1, fc2 and, for gates that are not in fc1, fc3. Empty for other operators.
std::span<const ExpertLayer> FindExpertLayers(std::string_view domain, std::string_view op_type);

// A stack of matrices.
struct ExpertStack {
  int64_t experts = 0, outputs = 0, inputs = 0;

  int64_t rows() const { return experts * outputs; }  // of all matrices
};
// Returns the bits of each number of a quantized stack: 2, 4 or 8.
absl::StatusOr<int64_t> ReadExpertBits(const ExpertLayer& layer, const Attrs& attrs);
// Returns the stack that a weight of this shape holds; nothing if it is none.
std::optional<ExpertStack> ReadExpertStack(const ExpertLayer& layer, const Attrs& attrs, const Shape& weight);
// Returns a quantized stack as one matrix [experts·outputs, inputs], without its size in bytes. `scale` is [experts,
// outputs] or, with the attribute block_size, [experts, outputs, blocks].
absl::StatusOr<QuantizedMatrix> ReadExpertMatrix(const ExpertLayer& layer, const Attrs& attrs, const ExpertStack& stack,
                                                 const Shape& scale);

std::span<const OnnxOp> MixtureImports();

}  // namespace onnxtrain
