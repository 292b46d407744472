// Quantizes trained weights that the file stores as integers.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/quantize.h"

namespace onnx {
class GraphProto;
class NodeProto;
}  // namespace onnx

namespace onnxtrain {

class Requantizer {
 public:
  // `graph` must outlive the requantizer and keep its nodes.
  explicit Requantizer(const onnx::GraphProto& graph);

  // Returns the tensor of a constant by name.
  using FindConstant = std::function<absl::StatusOr<HostTensor>(const std::string&)>;

  // Quantizes `value` with scale and zero point of the first node that reads the initializer or constant `name` as a
  // quantized weight, into the type of `stored`. Elements that training did not change keep their stored numbers.
  absl::StatusOr<HostTensor> Quantize(const std::string& name, const HostTensor& value, const HostTensor& stored,
                                      const FindConstant& find) const;

 private:
  struct Use {
    const onnx::NodeProto* node = nullptr;
    const QuantizedWeight* row = nullptr;
    std::string scale, factor, zero;  // "": absent
  };

  void AddUses(const onnx::NodeProto& node, const std::string& scale_behind);
  // The value that a chain of Identity nodes copies.
  const std::string& Source(const std::string& name) const;

  std::unordered_map<std::string, std::string> copies_;  // output of Identity → its input
  std::unordered_map<std::string, Use> uses_;            // by weight
};

}  // namespace onnxtrain
